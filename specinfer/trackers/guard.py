"""What if a tracker fails?

Then it is named in a warning and left out, and the run goes on. Always true: no call to `GuardedTrackers` raises an
Exception, and a tracker that failed once is not called again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specinfer.protocols import Tracker

LOG = logging.getLogger(__name__)


class GuardedTrackers:
    """Several trackers that look like one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = list(trackers)

    def start(self, run_dir: Path, config: Mapping[str, Any], *, name: str, group: str, job_type: str) -> None:
        self._each("start", run_dir, config, name=name, group=group, job_type=job_type)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._each("log", metrics, step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._each("table", name, columns, rows)

    def artifact(self, path: Path, kind: str) -> None:
        self._each("artifact", path, kind)

    def summary(self, values: Mapping[str, Any]) -> None:
        self._each("summary", values)

    def finish(self) -> None:
        self._each("finish")

    def _each(self, method: str, *args: Any, **kwargs: Any) -> None:
        for tracker in list(self.trackers):
            try:
                getattr(tracker, method)(*args, **kwargs)
            except Exception as error:  # whatever a foreign service raises
                self.trackers.remove(tracker)
                LOG.warning(
                    "tracker %s failed in %s and is left out from here on: %s: %s",
                    type(tracker).__name__,
                    method,
                    type(error).__name__,
                    error,
                )
