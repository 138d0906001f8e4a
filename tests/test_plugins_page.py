"""What docs/plugins.md prints runs as it is printed: a reader who copies it gets a proven drafter."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.composition import HYDRA_VERSION_BASE, make, make_methods, register_configs
from specinfer import LLM, ConfigError, EngineConfig, SamplingParams, UnsupportedModelError, registry
from specinfer.config import CacheConfig
from specinfer.events import StepEvent
from specinfer.protocols import LoadedModel
from specinfer.testing import tiny_loaded_model
from specinfer.testing.__main__ import main
from specinfer.testing.llama import tiny_llama

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = {
    block.splitlines()[0].removeprefix("# "): block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}
MAX_LINES = {"mine.py": 15, "my_tree.py": 79}
CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=400))
GREEDY = SamplingParams(temperature=0, max_tokens=40)
SEEN = [[first, second] for first in range(8) for second in range(8)]
UNSEEN = [[2, 7, 1, 0], [6, 6, 5, 3, 0], [1, 0, 4], [7, 2, 2, 2, 5, 1]]


def _commands(program: str) -> list[list[str]]:
    """The arguments of every line that runs `program`."""
    return [
        shlex.split(found) for found in re.findall(rf"^    python -m {re.escape(program)} (.*)$", PAGE, re.MULTILINE)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader has put the files, and works."""
    for name, block in BLOCKS.items():
        (tmp_path / name).write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in BLOCKS:
        sys.modules.pop(name.removesuffix(".py"), None)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def train(target: LoadedModel, path: Path) -> str:
    load("train_my_tree").train_heads(target, SEEN, str(path))
    return str(path)


def answers(target: LoadedModel, proposer: Any) -> tuple[list[list[int]], list[StepEvent]]:
    llm = LLM(CONFIG, proposer, loaded_model=target)
    outputs = llm.generate(UNSEEN, GREEDY)
    assert [output.draft_error for output in outputs] == [None] * len(UNSEEN)
    return [output.outputs[0].token_ids for output in outputs], llm.take_events()


def test_every_block_is_a_file_and_the_drafters_are_as_short_as_the_page_says() -> None:
    assert set(BLOCKS) == {
        "mine.py",
        "my_tree.py",
        "train_my_tree.py",
        "train_on_demo.py",
        "test_my_tree.py",
        "my_controller.py",
    }
    for name, limit in MAX_LINES.items():
        assert sum(bool(line.strip()) for line in BLOCKS[name].splitlines()) <= limit


@pytest.mark.usefixtures("folder")
def test_the_conformance_commands_pass(capsys: pytest.CaptureFixture[str]) -> None:
    commands = _commands("specinfer.testing")
    assert commands == [["proposers", "mine:MyProposer"]]
    for command in [*commands, ["controllers", "my_controller:QuietController"]]:
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert "ok     greedy_tokens_equal_plain_decoding\n" in printed, "it drafted nothing, or was always right"


def test_the_page_proves_its_tree(folder: Path) -> None:
    page_tests = load("test_my_tree")
    found = [name for name in vars(page_tests) if name.startswith("test_")]
    assert found == ["test_greedy_tokens_are_the_plain_ones", "test_the_law_is_the_targets"]
    for name in found:
        getattr(page_tests, name)(folder)


def test_its_drafts_are_trees_and_learned_heads_beat_random_ones(folder: Path) -> None:
    target, proposer = tiny_llama(8), load("my_tree").TreeProposer
    learned, random = train(target, folder / "learned.safetensors"), str(folder / "random.safetensors")
    heads = load_file(learned)["heads"]
    save_file({"heads": torch.randn(heads.shape, generator=torch.Generator().manual_seed(0)).to(heads)}, random)
    plain, _ = answers(target, None)
    tokens, events = answers(target, proposer(learned))
    guessed, others = answers(target, proposer(random))
    assert tokens == guessed == plain
    full = [event.draft_parents for event in events if len(event.draft_token_ids) == 6]
    assert full
    assert all(parents == [-1, -1, 0, 1, 2, 3] for parents in full)
    second = [event.accepted_path for event in events if event.accepted_path[:1] == [1]]
    assert second, "no second choice of the first head was ever accepted"
    assert sum(event.num_accepted for event in events) > 1.5 * sum(event.num_accepted for event in others)


def test_the_shape_of_the_tree_is_configuration(folder: Path) -> None:
    target, proposer = tiny_llama(8), load("my_tree").TreeProposer
    path = train(target, folder / "heads.safetensors")
    plain, _ = answers(target, None)
    for widths, parents in (([1, 3], [-1, 0, 0, 0]), ([3, 1, 2], [-1, -1, -1, 0, 1, 2, 3, 3, 4, 4, 5, 5])):
        tokens, events = answers(target, proposer(path, widths=widths, num_draft_tokens=20))
        assert tokens == plain
        assert parents in [event.draft_parents for event in events]
    with pytest.raises(ConfigError, match="has 3 heads for states of 16"):
        answers(target, proposer(path, widths=[1, 1, 1, 1]))
    with pytest.raises(ConfigError, match="heads='' is no file"):
        answers(target, proposer())
    with pytest.raises(UnsupportedModelError, match="tiny shows no hidden states"):
        answers(tiny_loaded_model(vocab_size=8), proposer(path))


def test_the_script_for_the_demo_model_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_llama(258, num_layers=1, max_model_len=4096)
    monkeypatch.setattr("specinfer.models.loading.load_model", lambda config: target)
    load("train_on_demo")
    assert load_file(folder / "heads.safetensors")["heads"].shape == (3, 32, 16)


@pytest.mark.usefixtures("folder")
def test_the_runs_that_the_page_shows_can_be_composed() -> None:
    from hydra import compose, initialize_config_module

    commands = [command for command in _commands("experiments.run") if command != ["proposer=my_tree", *command[1:]]]
    assert len(commands) == 6
    for command in commands:
        # A sweep's commas are many command lines: the first one stands for them.
        overrides = [re.sub(r"^([\w.]+=[^,\[]*),.*", r"\1", item) for item in command if item != "-m"]
        register_configs(overrides)
        with initialize_config_module("conf", version_base=HYDRA_VERSION_BASE):
            config = compose("config", overrides=overrides)
        assert len(make_methods(config)) == 2
        assert make(config.workload).load()


@pytest.mark.usefixtures("folder")
def test_the_entry_point_names_the_drafter() -> None:
    groups = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["project"]["entry-points"]
    (target,) = groups["specinfer.proposers"].values()
    assert registry.resolve("proposers", target) is load("my_tree").TreeProposer


def test_every_path_that_it_names_exists() -> None:
    named = re.findall(r"`((?:docs|experiments|proposers|specinfer|tests)/[\w/.]*)`", PAGE)
    assert len(named) >= 6
    assert all((ROOT / path).exists() for path in named)
