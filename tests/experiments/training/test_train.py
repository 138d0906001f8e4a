"""From a workload to an export that the engine serves, for every recipe, on a tiny target."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import train
from experiments.training.responses import read_responses
from specinfer.config import EngineConfig
from specinfer.models.eagle_weights import read_tensors
from specinfer.protocols import LoadedModel
from specinfer.testing.llama import tiny_llama

RECIPES = {
    "eagle3": ["recipe.draft_vocab_size=6"],
    "eagle1": ["recipe.num_entropy_tokens=6"],
    "medusa": ["recipe.num_entropy_tokens=6", "recipe.num_heads=2"],
}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run a command line on a tiny float32 target."""
    lines = [json.dumps({"question_id": i, "category": "c", "turns": ["abcdefgh"[i:] + "dcba"]}) for i in range(8)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    loaded = tiny_llama(8)
    loaded.model._model.float()  # type: ignore[attr-defined]
    loaded.model.dtype = loaded.model._model.dtype  # type: ignore[attr-defined]

    def load(config: EngineConfig) -> LoadedModel:
        return dataclasses.replace(loaded)

    monkeypatch.setattr("specinfer.models.loading.load_model", load)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train"])

    def run(*arguments: str) -> int:
        base = [
            "workload=jsonl",
            "workload.path=prompts.jsonl",
            "responses.num_conversations=8",
            "responses.temperatures=[0.0]",
            "responses.max_response_tokens=14",
            "train.num_held_out=2",
            "train.batch_size=3",
            "train.num_eval_tokens=2",
            "train.folder=out",
            "loop.eval_every=2",
            "loop.autocast=false",
        ]
        return train.main([*base, *arguments])

    yield run


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_goes_from_prompts_to_an_export_that_the_engine_serves(
    recipe: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(f"recipe={recipe}", "loop.num_steps=4", *RECIPES[recipe]) == 0
    out = capsys.readouterr().out
    assert "position 0: foretold" in out, out
    card = Path("out", recipe, "export", "README.md").read_text()
    assert "- steps: 4" in card and "python -m experiments.train" in card
    assert Path("out", recipe, "export", "learning_curve.png").stat().st_size > 1000
    assert len(read_responses(Path("out/responses.jsonl"))) == 8
    # Run again with more steps: the data is there, and training goes on.
    before = Path("out/responses.jsonl").stat().st_mtime_ns
    assert command(f"recipe={recipe}", "loop.num_steps=6", *RECIPES[recipe]) == 0
    assert "going on at step 4" in capsys.readouterr().out
    assert Path("out/responses.jsonl").stat().st_mtime_ns == before


def test_a_head_is_trained_on_from_its_weights_and_vocabulary(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["recipe=eagle3", "recipe.draft_vocab_size=5"]
    assert command(*first, "loop.num_steps=4") == 0
    before = [line for line in capsys.readouterr().out.splitlines() if line.startswith("exported")]
    still = ["loop.num_steps=1", "loop.learning_rate=0", "loop.table_learning_rate=0", "recipe.on_prompts=true"]
    assert command(*first, "recipe.start=out/eagle3/export", "train.name=more", *still) == 0
    after = [line for line in capsys.readouterr().out.splitlines() if line.startswith("exported")]
    assert after[0].split(": ")[1] == before[0].split(": ")[1]
    heads = [read_tensors(Path("out", name, "export")) for name in ("eagle3", "more")]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    assert command("recipe=eagle3", "recipe.start=nowhere", "train.name=other") == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_mistake_is_one_line(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("recipe.num_steps=0") == 2
    assert "recipe.num_steps must be at least 1" in capsys.readouterr().err
    assert command("recipe=eagle4") == 2


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    line = json.dumps({"index": 0, "temperature": 0.0, "prompt_token_ids": [1], "token_ids": [2, 3]})
    path.write_text(f"{line}\n{line[:20]}")
    assert [response.token_ids for response in read_responses(path)] == [[2, 3]]
