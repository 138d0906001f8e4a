"""Who won, at a glance?

The table at the end of a run. Always true: it prints what the summary holds and computes nothing; what was not
measured is a dash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.composition import PLAIN
from experiments.summary import MethodSummary, Scope, Value
from specinfer.metrics.figures import (
    ACCEPTANCE_LENGTH_ALL,
    ACCEPTANCE_LENGTH_DRAFTED,
    DRAFT_EFFICIENCY,
    LAW_DISTANCE,
)

if TYPE_CHECKING:
    from rich.table import Table

OVERALL = "overall"

COLUMNS = (
    "task",
    "method",
    "requests",
    "tokens/s",
    "acceptance length (drafted steps)",
    "acceptance length (all steps)",
    "draft efficiency",
    "speedup [95% interval]",
    "equal to plain",
)


def table_rows(overall: Scope, tasks: Mapping[str, Scope]) -> list[list[str]]:
    """A row a task and method, then the overall ones; the cells of COLUMNS."""
    scopes = {**tasks, OVERALL: overall} if tasks else {}
    return [[task, name, *_cells(name, method)] for task, scope in scopes.items() for name, method in scope.items()]


def _cells(name: str, method: MethodSummary) -> list[str]:
    is_plain = name == PLAIN
    shown = (ACCEPTANCE_LENGTH_DRAFTED, ACCEPTANCE_LENGTH_ALL, DRAFT_EFFICIENCY)
    speed = method.tokens_per_s
    return [
        str(method.num_requests),
        "-" if speed is None else f"{speed.value:.1f}",
        *("-" if is_plain else _number(method.figures[figure.name]) for figure in shown),
        "1" if is_plain else with_interval(method.speedup),
        "is plain" if is_plain and not method.num_different else _equality(method),
    ]


def _number(value: Value | None) -> str:
    return "-" if value is None else f"{value.value:.2f}"


def with_interval(value: Value | None) -> str:
    """`1.23x [1.10, 1.35]`, without the interval where there is none."""
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return f"{value.value:.2f}x"
    return f"{value.value:.2f}x [{value.low:.2f}, {value.high:.2f}]"


def _equality(method: MethodSummary) -> str:
    distance = method.figures[LAW_DISTANCE.name]
    if distance is not None and distance.value > 0:
        return f"law distance {distance.value:.3f}"
    checked = method.num_equal + method.num_different
    if not checked:
        return "not greedy"
    return "yes, all" if not method.num_different else f"{method.num_equal} of {checked}"


def _heading(column: str) -> str:
    """The column's name in short lines."""
    for text in (" (", " [", " length", " efficiency", " to plain"):
        column = column.replace(text, "\n" + text[1:])
    return column


def rich_table(overall: Scope, tasks: Mapping[str, Scope], title: str) -> Table:
    """The table for a terminal, a rule between tasks."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(_heading(column), justify="left" if index < 2 else "right", no_wrap=True)
    rows = table_rows(overall, tasks)
    for index, row in enumerate(rows):
        is_last = index + 1 == len(rows) or rows[index + 1][0] != row[0]
        first = index == 0 or rows[index - 1][0] != row[0]
        table.add_row(
            row[0] if first else "", *row[1:], end_section=is_last, style="bold" if row[0] == OVERALL else None
        )
    return table
