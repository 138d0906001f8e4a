"""A sweep's runs as one table and one figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.record import SUMMARY
from experiments.sweep import STATUS_MISTAKE, main, read_sweep


def write_run(folder: Path, batch_size: int, speedup: float) -> None:
    folder.mkdir(parents=True)
    value = {"value": speedup, "low": speedup - 0.1, "high": speedup + 0.1, "macro": None}
    overall = {"plain": {"speedup": None}, "ngram": {"speedup": value}}
    (folder / SUMMARY).write_text(json.dumps({"config": {"run": {"batch_size": batch_size}}, "overall": overall}))


def test_the_finished_runs_are_ordered_by_the_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (batch_size, speedup) in enumerate([(16, 1.1), (1, 1.6), (4, 1.4)]):
        write_run(tmp_path / str(number), batch_size, speedup)
    (tmp_path / "3").mkdir()  # half-written
    assert [value for value, _ in read_sweep(tmp_path, "run.batch_size")] == [1, 4, 16]
    assert main([str(tmp_path), "run.batch_size"]) == 0
    assert "1.60x [1.50, 1.70]" in capsys.readouterr().out
    assert (tmp_path / "sweep.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "usage"), (["nowhere", "run.batch_size"], "no finished run"), (["here", "run.bach"], "no parameter")],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "here" / "0", 1, 1.5)
    assert main(arguments) == STATUS_MISTAKE
    assert message in capsys.readouterr().err
