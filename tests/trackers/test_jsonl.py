"""The file holds one strict JSON object a call, as soon as the call returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specinfer.protocols import Tracker
from specinfer.trackers.jsonl import JsonlTracker


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=lambda c: 1 / 0) for line in path.read_text().splitlines()]


def test_every_call_is_a_line_in_order(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    assert isinstance(tracker, Tracker)
    tracker.start(tmp_path, {"k": 4}, name="n", group="g", job_type="compare")
    tracker.log({"tokens_per_s": 12.5}, 3)
    tracker.table("t", ["a", "b"], [[1, "x"]])
    tracker.artifact(tmp_path / "a.png", "figure")
    tracker.summary({"speedup": 1.2})
    tracker.finish()
    lines = _lines(tmp_path / "metrics.jsonl")
    assert [line["kind"] for line in lines] == ["start", "log", "table", "artifact", "summary", "finish"]
    assert lines[0]["config"] == {"k": 4}
    assert lines[1] == {"kind": "log", "step": 3, "metrics": {"tokens_per_s": 12.5}}
    assert lines[3]["path"] == "a.png"


def test_what_was_logged_is_in_the_file_before_the_run_ends(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(tmp_path, {}, name="n", group="g", job_type="j")
    tracker.log({"x": 1.0}, 0)
    assert len(_lines(tmp_path / "metrics.jsonl")) == 2
    tracker.finish()


def test_not_a_number_is_written_as_null(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(tmp_path, {"limit": float("inf")}, name="n", group="g", job_type="j")
    tracker.log({"x": float("nan")}, 0)
    tracker.finish()
    lines = _lines(tmp_path / "metrics.jsonl")
    assert lines[0]["config"]["limit"] is None
    assert lines[1]["metrics"]["x"] is None


def test_finish_without_start_does_nothing() -> None:
    JsonlTracker().finish()
