"""Experiments on a tiny model and a tiny workload."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.composition import HYDRA_VERSION_BASE, register_configs
from experiments.record import RunRecord
from experiments.run import execute
from specinfer.config import EngineConfig
from specinfer.protocols import LoadedModel
from specinfer.testing.models import TinyModel, tiny_loaded_model

QUESTIONS = [
    {"question_id": 1, "category": "chat", "turns": ["Hello there", "And then?"]},
    {"question_id": 2, "category": "chat", "turns": ["Who are you?"]},
    {"question_id": 3, "category": "maths", "turns": ["One plus one"], "reference": 2},
]


def load_tiny(_config: EngineConfig | None = None) -> LoadedModel:
    """A model with a memory of one token: greedy decoding soon goes in a circle, which n-grams foresee."""
    return tiny_loaded_model(vocab_size=258, order=1, max_model_len=400)


class Interrupting(TinyModel):
    """A user presses Ctrl-C at a forward."""

    at_forward = 0

    def forward(self, batch: Any, kv_cache: Any) -> Any:
        if self.num_forwards == self.at_forward:
            raise KeyboardInterrupt
        return super().forward(batch, kv_cache)


def interrupted_at(num_forwards: int) -> Any:
    """Load a model whose forward number `num_forwards` is interrupted."""

    def load(_config: Any) -> LoadedModel:
        loaded = load_tiny()
        model = Interrupting(vocab_size=258, order=1, max_model_len=400)
        model.at_forward = num_forwards
        return LoadedModel(model, loaded.tokenizer, loaded.eos_token_ids)

    return load


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


@pytest.fixture
def tiny_overrides(workload_file: Path) -> list[str]:
    return [
        "workload=jsonl",
        f"workload.path={workload_file}",
        "sampling.max_tokens=24",
        "model.cache.num_blocks=64",
        "model.scheduler.max_num_batched_tokens=512",
    ]


Compose = Callable[..., Any]


@pytest.fixture
def compose() -> Compose:
    """Compose the configuration of a command line."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module

    def composed(*overrides: str) -> Any:
        register_configs(overrides)
        with initialize_config_module("conf", version_base=HYDRA_VERSION_BASE):
            return hydra_compose("config", overrides=list(overrides))

    return composed


@pytest.fixture
def run_tiny(compose: Compose, tiny_overrides: list[str], tmp_path: Path) -> Callable[..., tuple[RunRecord, Path, str]]:
    """Run a command line on the tiny model: the record, its folder and what was printed."""

    def run(*overrides: str, load: Callable[[EngineConfig], LoadedModel] = load_tiny) -> tuple[RunRecord, Path, str]:
        folder = tmp_path / "run"
        folder.mkdir()
        printed = io.StringIO()
        config = compose(*tiny_overrides, *overrides)
        record = execute(config, folder, Console(file=printed, width=130), load=load)
        return record, folder, printed.getvalue()

    return run
