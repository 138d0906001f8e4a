"""Hidden states are what the next module really read, and a prefix is the model cut short."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specinfer.kernels.rows import Stretch, flat_batch, new_cache
from specinfer.models.transformers_model import TransformersModel
from specinfer.protocols import AFTER_FINAL_NORM, HiddenStateModel
from specinfer.testing import TinyModel
from specinfer.testing.llama import tiny_llama

TOKENS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 5])


def forward(model: Any, points: tuple[int, ...] = ()) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    batch = flat_batch(
        [Stretch(TOKENS.numpy(), 0, [2, 0], range(len(TOKENS)))], 4, torch.device("cpu"), hidden_points=points
    )
    return model.forward(batch, new_cache(model.kv_layers, 12, torch.float64, torch.device("cpu"))), batch.hidden


@pytest.fixture(scope="module")
def model() -> TransformersModel:
    found = tiny_llama(8).model
    assert isinstance(found, TransformersModel)
    return found


def test_captured_states_are_transformers_own(model: TransformersModel) -> None:
    _, found = forward(model, (0, 2, 3, AFTER_FINAL_NORM))
    hf_model = model._model
    hf_model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        wanted = hf_model(input_ids=TOKENS[None], output_hidden_states=True, use_cache=False).hidden_states
    hf_model.set_attn_implementation("specinfer_paged")
    for point in (0, 2, 3):
        torch.testing.assert_close(found[point], wanted[point][0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[AFTER_FINAL_NORM], wanted[-1][0], rtol=0, atol=1e-6)
    assert not forward(model)[1], "no hook stays behind"


def test_the_last_state_gives_the_logits(model: TransformersModel) -> None:
    logits, found = forward(model, (4, AFTER_FINAL_NORM))
    torch.testing.assert_close(model.head(found[AFTER_FINAL_NORM]), logits)
    torch.testing.assert_close(model.final_norm(found[4]), found[AFTER_FINAL_NORM])
    torch.testing.assert_close(model.embed(TOKENS), forward(model, (0,))[1][0])


def test_a_prefix_is_the_model_cut_behind_its_layers(model: TransformersModel) -> None:
    part = model.prefix(2)
    assert len(part.kv_layers) == 2 and part.num_layers == 2 and model.num_layers == 4
    logits, _ = forward(part)
    _, found = forward(model, (2,))
    torch.testing.assert_close(logits, model.head(model.final_norm(found[2])))


def test_only_a_model_with_an_inside_is_a_hidden_state_model(model: TransformersModel) -> None:
    assert isinstance(model, HiddenStateModel)
    assert not isinstance(TinyModel(), HiddenStateModel)
