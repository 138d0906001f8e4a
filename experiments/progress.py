"""How far is the run?

A bar on a terminal; elsewhere a plain line now and then. Always true: nothing here takes time inside a measured call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_LINES = 15.0


class Progress(Protocol):
    """Told after each group of calls."""

    def advance(self, note: str) -> None:
        """One more group is done; `note` says how it goes."""
        ...


@contextmanager
def shown(console: Console, total: int) -> Iterator[Progress]:
    """Progress over `total` groups of calls."""
    if console.is_terminal:
        with _bar(console, total) as bar:
            yield bar
    else:
        yield _Lines(console, total, time.monotonic())


@contextmanager
def _bar(console: Console, total: int) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with RichProgress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        class Bar:
            def advance(self, note: str) -> None:
                bar.update(task, advance=1, description=note)

        yield Bar()


@dataclass
class _Lines:
    console: Console
    total: int
    last_s: float
    done: int = 0

    def advance(self, note: str) -> None:
        self.done += 1
        if time.monotonic() - self.last_s >= SECONDS_BETWEEN_LINES:
            self.last_s = time.monotonic()
            self.console.print(f"{self.done}/{self.total} {note}", highlight=False, soft_wrap=True)
