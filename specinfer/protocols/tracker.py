"""Where can a run be recorded?

Always true: a failure in any method warns and never ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tracker(Protocol):
    """Somewhere to record a run. A failure in any method warns and never ends the run."""

    def start(self, run_dir: Path, config: Mapping[str, Any], *, name: str, group: str, job_type: str) -> None:
        """Begin a run whose files live in `run_dir`."""
        ...

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record scalars at `step`, which never decreases."""
        ...

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Record a table."""
        ...

    def artifact(self, path: Path, kind: str) -> None:
        """Record a file of the run folder; kind is `figure`, `table`, `events` or `report`."""
        ...

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record the run's final figures."""
        ...

    def finish(self) -> None:
        """End the run and flush."""
        ...
