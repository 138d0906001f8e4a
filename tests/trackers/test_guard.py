"""A tracker that fails warns once, is left out, and harms no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specinfer.protocols import Tracker
from specinfer.trackers.guard import GuardedTrackers

CALLS: dict[str, Callable[[Tracker], None]] = {
    "start": lambda t: t.start(Path(), {}, name="n", group="g", job_type="j"),
    "log": lambda t: t.log({"x": 1.0}, 0),
    "table": lambda t: t.table("t", ["a"], [[1]]),
    "artifact": lambda t: t.artifact(Path("x.png"), "figure"),
    "summary": lambda t: t.summary({"x": 1}),
    "finish": lambda t: t.finish(),
}


class Recorder:
    """Notes its calls, and raises in one of them."""

    def __init__(self, fails_in: str | None = None) -> None:
        self.fails_in = fails_in
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_args: Any, **_kwargs: Any) -> None:
            self.calls.append(name)
            if name == self.fails_in:
                raise OSError("no space left")

        return call


@pytest.mark.parametrize("fails_in", CALLS)
def test_a_failure_in_any_call_warns_and_the_other_tracker_goes_on(
    fails_in: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Recorder(fails_in), Recorder()
    trackers = GuardedTrackers([bad, good])  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        for call in CALLS.values():
            call(trackers)
    assert good.calls == list(CALLS)
    assert bad.calls == list(CALLS)[: list(CALLS).index(fails_in) + 1]
    assert [r.getMessage() for r in caplog.records] == [
        f"tracker Recorder failed in {fails_in} and is left out from here on: OSError: no space left"
    ]
