"""A tiny target with responses of its own and their features."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.training.data import TrainingData
from experiments.training.features import read_features, write_features
from experiments.training.responses import Response
from specinfer import LLM, EngineConfig, SamplingParams
from specinfer.testing.llama import tiny_llama

PROMPTS = [[1, 2, 3, 1, 2, 3], [5] * 9, [4, 4, 1, 7, 2], [7], [6, 1, 0], [3, 3, 2, 2], [0, 1, 2, 3, 4, 5, 6, 7], [2, 6]]


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Eight greedy responses of different lengths; the last three are held out."""
    folder: Path = tmp_path_factory.mktemp("training")
    loaded = tiny_llama(8)
    params = [SamplingParams(temperature=0, max_tokens=12 + 3 * i) for i in range(len(PROMPTS))]
    outputs = LLM(EngineConfig(), loaded_model=loaded).generate(PROMPTS, params)
    responses = [
        Response(i, 0.0, p, o.outputs[0].token_ids) for i, (p, o) in enumerate(zip(PROMPTS, outputs, strict=True))
    ]
    assert list(write_features(loaded.model, responses, (2, 2, 1), folder / "features"))  # type: ignore[arg-type]
    return TrainingData(loaded, responses, read_features(folder / "features"), folder, num_held_out=3)
