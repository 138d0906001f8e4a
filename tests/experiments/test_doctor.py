"""The doctor ranks the readings of a head that really drafts, and says what is wrong with one that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.doctor import DoctorSettings, main, prompts_of
from experiments.training.eagle import TextBatch, soft_loss, text_batch, unroll
from experiments.training.features import Features, read_texts
from specinfer import LLM, EngineConfig, SamplingParams
from specinfer.config import CacheConfig
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_export import write_head
from specinfer.protocols import AFTER_FINAL_NORM, LoadedModel
from specinfer.testing.llama import tiny_eagle_head, tiny_llama

VOCAB_SIZE = 8
DRAFT_IDS = [7, 0, 2, 4, 1, 6, 3]
POINTS = (1, 2, 3)
NUM_TOKENS = 256
TEXT = "Who are you?"
NUM_STEPS = 3
STEPS = 120
CONFIG = EngineConfig(cache=CacheConfig(num_blocks=400))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return tiny_llama(VOCAB_SIZE, max_model_len=512, seed=6)


@pytest.fixture(scope="module")
def heads(loaded: LoadedModel) -> dict[str, EagleHead]:
    """Heads that know the doctor's text by heart, by what is unusual about them."""
    options = {"normed residual": {"norm_before_residual": True}, "normed output": {"norm_output": True}}
    return {name: taught(loaded, **given) for name, given in options.items()}


def taught(loaded: LoadedModel, **options: bool) -> EagleHead:
    """A hundred steps of the trainer's own loss; `options` are EagleShape's."""
    weights = {name: tensor.float() for name, tensor in loaded.model.weights().items()}  # type: ignore[attr-defined]
    batch = batch_of(loaded, weights["lm_head.weight"])
    head = tiny_eagle_head(EagleKind.EAGLE3, VOCAB_SIZE, hidden_points=POINTS, max_positions=512, **options).float()
    head.draft_to_target = torch.tensor(DRAFT_IDS)
    for parameter in head.requires_grad_().parameters():
        parameter.data = parameter.data * 0.3 if parameter.dim() > 1 else torch.ones_like(parameter)
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / STEPS)
        outputs = unroll(head, weights["model.embed_tokens.weight"], batch, NUM_STEPS)
        loss, _ = soft_loss(outputs, head.draft_logits, weights["lm_head.weight"][DRAFT_IDS], batch, 0.8)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return head.requires_grad_(False)


def batch_of(loaded: LoadedModel, head: torch.Tensor) -> TextBatch:
    """The doctor's text with the target's states."""
    (prompt,) = prompts_of(DoctorSettings(text=TEXT), loaded)
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    text = prompt + LLM(CONFIG, loaded_model=loaded).generate([prompt], params)[0].outputs[0].token_ids
    hidden = read_texts(loaded.model, [text], (*POINTS, AFTER_FINAL_NORM))  # type: ignore[arg-type]
    final = hidden[AFTER_FINAL_NORM].float()
    features = Features(
        points=POINTS,
        token_ids=np.array(text),
        states=torch.cat([hidden[point] for point in POINTS], dim=-1).numpy(),
        final=final.numpy(),
        starts=np.array([0, len(text)]),
        response_starts=np.array([len(prompt)]),
        is_greedy=np.array([True]),
    )
    covered = np.isin((final @ head.T).argmax(-1).numpy(), DRAFT_IDS)
    return text_batch(features, [0], NUM_STEPS, torch.device("cpu"), is_covered=covered)


def edit_config(folder: Path, *left_out: str, **changes: Any) -> None:
    """Change a checkpoint's settings."""
    path = folder / "config.json"
    config = {name: value for name, value in json.loads(path.read_text()).items() if name not in left_out}
    path.write_text(json.dumps(config | changes))


def edit_weights(folder: Path, *left_out: str, **changes: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    weights = {name: tensor for name, tensor in load_file(path).items() if name not in left_out}
    save_file(weights | changes, path)


Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(loaded: LoadedModel, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run a command line on the tiny target: the status and what was printed."""

    def run(*arguments: str, target: LoadedModel | None = None) -> tuple[int, str]:
        given = [f"num_tokens={NUM_TOKENS}", f"text={TEXT}", *arguments]
        status = main(given, load=lambda _config: target or loaded)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def ranked(printed: str) -> list[list[str]]:
    """The cells of the table, row by row."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]


def test_what_is_open_is_ranked_with_the_right_reading_first(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed residual"], tmp_path)
    edit_config(tmp_path, "layer_id_convention", "norm_before_residual")
    status, printed = doctor(f"head={tmp_path}", "open_only=true")
    rows = ranked(printed)
    assert status == 0, printed
    assert len(rows) == 4 and all(row[0] == "allowed" for row in rows)
    assert rows[0][1:5] == ["True", "False", "INPUT_OF", "OFFSETS"]
    assert "open: norm_before_residual, layer_ids" in printed
    assert "give reading.layer_ids=INPUT_OF reading.norm_before_residual=true" in printed


def test_a_wrong_statement_is_found(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed output"], tmp_path)
    edit_config(tmp_path, layer_id_convention="output_of", norm_output=False)
    status, printed = doctor(f"head={tmp_path}")
    rows = ranked(printed)
    assert status == 1 and len(rows) == 8
    assert rows[0][:5] == ["", "False", "True", "INPUT_OF", "OFFSETS"]
    assert [row[1:4] for row in rows if row[0] == "stated"] == [["False", "False", "OUTPUT_OF"]]
    assert "give reading.layer_ids=INPUT_OF reading.norm_output=true" in printed


def test_a_sound_head_is_sound_in_both_layouts(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    for layout in ("eagle", "speculators"):
        write_head(heads["normed output"], tmp_path / layout, layout=layout, target="somebody/tiny-llama-6")
        status, printed = doctor(f"head={tmp_path / layout}", "open_only=true")
        assert status == 0 and "this is the stated reading" in printed, printed
    assert "names somebody/tiny-llama-6 as its target" in printed


def test_a_map_with_swapped_entries_is_found(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed residual"], tmp_path)
    ids = torch.tensor(DRAFT_IDS).roll(2)
    edit_weights(tmp_path, d2t=ids - torch.arange(len(ids)))
    status, printed = doctor(f"head={tmp_path}", "open_only=true")
    assert status == 1 and "d2t is wrong, its entries are swapped" in printed, printed
    assert "d2t holds offsets, as t2d says" in printed, "it is a map of the right tokens"


def test_a_map_of_absolute_ids_is_found_and_read(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed residual"], tmp_path)
    edit_weights(tmp_path, d2t=torch.tensor(DRAFT_IDS))
    edit_config(tmp_path, "vocabulary_map")
    status, printed = doctor(f"head={tmp_path}", "open_only=true")
    assert status == 1 and ranked(printed)[0][4] == "ABSOLUTE"
    assert "d2t holds the target's ids themselves" in printed and "give reading.vocabulary=ABSOLUTE" in printed


@pytest.mark.parametrize("kind", EagleKind)
def test_a_head_for_another_target_is_called_so(kind: EagleKind, doctor: Doctor, tmp_path: Path) -> None:
    write_head(tiny_eagle_head(kind, VOCAB_SIZE), tmp_path)
    status, printed = doctor(f"head={tmp_path}", "num_tokens=100")
    assert status == 1 and "this head is not for this target" in printed, printed


def test_a_good_head_of_another_target_of_the_same_sizes_is_none(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed residual"], tmp_path)
    other = tiny_llama(VOCAB_SIZE, max_model_len=512, seed=4)
    status, printed = doctor(f"head={tmp_path}", "open_only=true", target=other)
    assert status == 1 and "this head is not for this target" in printed, printed


def test_sizes_of_another_target_are_named(doctor: Doctor, tmp_path: Path) -> None:
    write_head(tiny_eagle_head(EagleKind.EAGLE3, 12), tmp_path)
    status, printed = doctor(f"head={tmp_path}")
    assert status == 1 and "is for 12 tokens, tiny-llama-6 has 8" in printed and not ranked(printed)


def test_what_is_only_unusual_is_a_note(heads: Any, doctor: Doctor, tmp_path: Path) -> None:
    write_head(heads["normed residual"], tmp_path, layout="speculators", target="somebody/another-model")
    config = json.loads((tmp_path / "config.json").read_text())
    layer = config["transformer_layer_config"] | {"rope_theta": 500000.0, "max_position_embeddings": 256}
    edit_config(tmp_path, transformer_layer_config=layer)
    norms = [name for name in load_file(tmp_path / "model.safetensors") if "norm" in name]
    edit_weights(tmp_path, **{name: torch.zeros(16) for name in norms})
    _, printed = doctor(f"head={tmp_path}", "open_only=true")
    assert "note  norms: all weights lie around 0" in printed
    assert "note  positions: rope_theta is 500000, the target's 10000" in printed
    assert "note  positions: it drafts up to position 256, the target goes on to 512" in printed
    assert "note  target: it names somebody/another-model as its target; here it is tiny-llama-6" in printed


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("nun_tokens=8", "there is no 'nun_tokens' here; did you mean 'num_tokens'?"),
        ("num_tokens=2", "num_tokens must be at least 8, got 2"),
        ("depth=deep", "depth: Value 'deep' of type 'str' could not be converted to Integer"),
        ("open_only", "'open_only' is not key=value"),
        ("head=/nowhere", "the head folder '/nowhere' has no config.json"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(argument: str, complaint: str, doctor: Doctor) -> None:
    status, printed = doctor(argument)
    assert status == 2 and printed.startswith("error: ") and complaint in printed
    assert len(printed.splitlines()) == 1


def test_help_names_every_setting(doctor: Doctor) -> None:
    status, printed = doctor("--help")
    assert status == 0 and "open_only" in printed
