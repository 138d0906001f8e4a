"""Quiet where nobody watches: a line now and then."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments import progress


def test_without_a_terminal_a_line_appears_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    printed = io.StringIO()
    with progress.shown(Console(file=printed, width=80), 100) as shown:
        for _ in range(100):
            now[0] += 1.0
            shown.advance("chat")
    assert printed.getvalue().splitlines() == [f"{n}/100 chat" for n in range(15, 100, 15)]


def test_on_a_terminal_a_bar_is_drawn() -> None:
    printed = io.StringIO()
    with progress.shown(Console(file=printed, width=80, force_terminal=True), 2) as shown:
        shown.advance("chat")
        shown.advance("maths")
    assert "2/2" in printed.getvalue()
