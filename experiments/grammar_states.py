"""Where in a form are drafts accepted?

A table and a figure by grammar state, for the methods of a run whose outputs had one. Always true: they print what
`by_grammar_state` counted and compute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from specinfer.metrics.grammar import ALL_STATES, StateFigures, by_grammar_state

if TYPE_CHECKING:
    from rich.table import Table

States = Mapping[str, Mapping[str, StateFigures]]
"""Figures by method and state"""

COLUMNS = (
    "method",
    "state",
    "positions",
    "legal tokens",
    "with a draft",
    "acceptance",
    "legal draft mass",
    "nats to p'",
)


def states_by_method(events: pl.DataFrame) -> dict[str, dict[str, StateFigures]]:
    """The figures of each method that had forms, in the order of the events."""
    if "method" not in events.columns:
        return {}
    found = {
        str(name): by_grammar_state(events.filter(pl.col("method") == name))
        for name in events["method"].unique(maintain_order=True)
    }
    return {name: states for name, states in found.items() if states}


def states_rows(states: States) -> list[list[str]]:
    """The cells of COLUMNS, a row a method and state."""
    return [
        [
            method,
            state,
            str(figures.num_rows),
            _number(figures.popcount, "{:.3g}"),
            str(figures.num_drafted),
            _number(figures.acceptance, "{:.2f}"),
            _number(figures.legal_draft_mass, "{:.2f}"),
            _number(figures.projection, "{:.2g}"),
        ]
        for method, found in states.items()
        for state, figures in found.items()
    ]


def _number(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)


def states_table(states: States) -> Table:
    """The table for a terminal, a rule between methods."""
    from rich.table import Table

    table = Table(title="acceptance by grammar state", title_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    rows = states_rows(states)
    for index, row in enumerate(rows):
        is_first = index == 0 or rows[index - 1][0] != row[0]
        is_last = index + 1 == len(rows) or rows[index + 1][0] != row[0]
        style = "bold" if row[1] == ALL_STATES else None
        table.add_row(row[0] if is_first else "", *row[1:], end_section=is_last, style=style)
    return table
