"""A head that was written is read back as the same head, in every layout, and drafts the same through the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from proposers.eagle import EagleProposer
from specinfer import LLM, ConfigError, EngineConfig, SamplingParams
from specinfer.config import CacheConfig
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_checkpoint import EagleReading, load_head, read_checkpoint
from specinfer.models.eagle_export import LAYOUTS, write_head
from specinfer.protocols import LoadedModel
from specinfer.testing.llama import tiny_eagle_head, tiny_llama

PROMPTS = [[1, 2, 3, 1, 2, 3], [5] * 9, [4, 4, 1, 7, 2]]
UNUSUAL = {
    "plain": {},
    "other layers": {"hidden_points": (0, 3, 4)},
    "layers like the usual outputs": {"hidden_points": (1, 1, 0)},
    "every norm": {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True},
    "a norm a state": {"fc_norm": True, "attention_bias": True, "fc_bias": True},
    "the whole vocabulary": {"draft_vocab_size": 8},
}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return tiny_llama(8)


def drafts(head: Any, loaded: LoadedModel) -> list[tuple[list[int], int]]:
    """What the engine drafts and accepts, step by step."""
    config = EngineConfig(cache=CacheConfig(num_blocks=64))
    llm = LLM(config, EagleProposer(head=head, num_draft_tokens=3), loaded_model=loaded)
    llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16))
    return [(event.draft_token_ids, event.num_accepted) for event in llm.take_events()]


def same(kind: EagleKind, layout: str, folder: Path, loaded: LoadedModel, **options: Any) -> EagleHead:
    """Write, read back and compare; the head that was read."""
    head = tiny_eagle_head(kind, **options)
    write_head(head, folder, layout=layout, dtype=torch.float32)
    found, _ = load_head(str(folder), loaded.model, EagleReading())
    assert found.shape == head.shape
    assert found.draft_to_target.tolist() == head.draft_to_target.tolist()
    for name, wanted in head.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], wanted, rtol=1e-6, atol=1e-6)
    expected = drafts(head, loaded)
    assert drafts(str(folder), loaded) == expected and any(token_ids for token_ids, _ in expected)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", EagleKind)
def test_a_head_comes_back_in_both_layouts(kind: EagleKind, layout: str, tmp_path: Path, loaded: LoadedModel) -> None:
    same(kind, layout, tmp_path, loaded)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_head_comes_back_without_a_question(
    name: str, layout: str, tmp_path: Path, loaded: LoadedModel
) -> None:
    same(EagleKind.EAGLE3, layout, tmp_path, loaded, **UNUSUAL[name])


@pytest.mark.parametrize("kind", EagleKind)
def test_embeddings_of_its_own_come_back(kind: EagleKind, tmp_path: Path, loaded: LoadedModel) -> None:
    head = tiny_eagle_head(kind)
    head.embed_tokens = torch.nn.Embedding(8, 16).double().requires_grad_(False)
    write_head(head, tmp_path, dtype=torch.float32)
    found, _ = load_head(str(tmp_path), loaded.model, EagleReading())
    assert found.embed_tokens is not None
    torch.testing.assert_close(found.embed_tokens.weight, head.embed_tokens.weight, rtol=1e-6, atol=1e-6)
    assert drafts(str(tmp_path), loaded) == drafts(head, loaded)


def test_the_names_are_those_of_the_layouts(tmp_path: Path) -> None:
    head = tiny_eagle_head(EagleKind.EAGLE3)
    for layout, prefix in (("eagle", "midlayer."), ("speculators", "layers.0.")):
        write_head(head, tmp_path / layout, layout=layout, target="somebody/model", eos_token_ids=(2,))
        weights = load_file(tmp_path / layout / "model.safetensors")
        names = {name for name in weights if name.startswith(prefix)}
        assert len(names) == len([name for name in head.state_dict() if name.startswith("midlayer.")])
        assert weights["d2t"].dtype == torch.int64 and weights["t2d"].dtype == torch.bool
        assert weights["fc.weight"].dtype == torch.float16
        assert read_checkpoint(tmp_path / layout).layout == layout
    nested = json.loads((tmp_path / "speculators" / "config.json").read_text())
    assert nested["speculators_config"]["verifier"]["name_or_path"] == "somebody/model"
    assert nested["transformer_layer_config"]["hidden_size"] == 16
    first = tiny_eagle_head(EagleKind.EAGLE1)
    write_head(first, tmp_path / "first")
    assert "layers.0.mlp.up_proj.weight" in load_file(tmp_path / "first" / "model.safetensors")


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="layout must be one of eagle, speculators, got 'onnx'"):
        write_head(tiny_eagle_head(EagleKind.EAGLE3), tmp_path, layout="onnx")
