"""A run that was interrupted goes on as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from experiments.training.loop import LoopSettings, Training, batch_numbers
from specinfer.errors import ConfigError


def make(num_steps: int) -> Training:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    settings = LoopSettings(
        num_steps=num_steps, num_warmup_steps=2, eval_every=4, save_every=3, autocast=False, num_decay_steps=0
    )
    return Training(module, settings, dense=("1",))


def run(training: Training, folder: Path) -> list[tuple[int, dict[str, float]]]:
    def loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 4, generator=generator)
        return (training.module(x) - x[:, :2]).square().mean(), {}

    def evaluate(module: nn.Module) -> dict[str, float]:
        x = torch.eye(4)
        with torch.no_grad():
            return {"score": -float((module(x) - x[:, :2]).square().mean())}

    return list(training.run(loss, evaluate, "score", folder))


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = make(12)
    figures = run(whole, tmp_path / "whole")
    assert figures[-1][1]["loss"] < figures[0][1]["loss"]
    first = make(6)
    run(first, tmp_path / "parts")
    second = make(12)
    assert second.resume(tmp_path / "parts") and second.step == 6
    run(second, tmp_path / "parts")
    for one, other in zip(whole.module.parameters(), second.module.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    for one, other in zip(whole.average.parameters(), second.average.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_maps_and_tables_have_optimisers_of_their_own() -> None:
    training = make(4)
    muon, adam = training.optimizers
    assert [tuple(p.shape) for p in muon.param_groups[0]["params"]] == [(8, 4)]
    assert {tuple(p.shape) for p in adam.param_groups[0]["params"]} == {(8,), (2, 8), (2,)}


def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path) -> None:
    training = make(100)
    training.settings.patience = 2
    training.best = 1e9
    steps = run(training, tmp_path)
    assert steps[-1][0] == 8, "two evaluations, four steps apart, were no better"


def test_every_text_comes_once_an_epoch_in_an_order_of_its_own() -> None:
    epochs = [[n for step in range(3 * e, 3 * e + 3) for n in batch_numbers(9, 3, 0, step)] for e in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(9))] * 2
    assert epochs[0] != epochs[1]
    assert batch_numbers(9, 3, 0, 1) == epochs[0][3:6]


def test_the_rate_warms_up_holds_and_decays() -> None:
    settings = LoopSettings(num_steps=10, num_warmup_steps=2, num_decay_steps=4)
    assert [round(settings.rate(step), 2) for step in range(10)] == [0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2]


def test_a_decay_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_decay_steps=5"):
        LoopSettings(num_steps=4, num_decay_steps=5)
