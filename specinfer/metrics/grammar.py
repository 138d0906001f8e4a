"""How well are tokens guessed by what the form of the output makes of them?

Always true: every figure is over the rows that were judged: the row behind the committed tokens of each decode step of
a request with a form, and the rows behind accepted draft tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from specinfer.protocols import GRAMMAR_STATES

ALL_STATES = "all"
LEAST_MASS = 1e-30
"""What a legal mass that float32 cannot tell from zero counts as"""


@dataclass(slots=True)
class StateFigures:
    """Sums over the judged rows of one grammar state (see GRAMMAR_STATES)."""

    num_rows: int = 0
    """Positions at which a token was chosen"""
    num_drafted: int = 0
    """Of them, those with a draft token"""
    num_accepted: int = 0
    num_proposed: int = 0
    """Draft tokens as they were proposed, before the draft was fitted to the form"""
    _log_popcount: float = field(default=0.0, repr=False)
    _legal_mass: float = field(default=0.0, repr=False)
    _projection: float = field(default=0.0, repr=False)

    @property
    def acceptance(self) -> float | None:
        """Conditional acceptance: accepted tokens over positions that were reached with a draft token."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    @property
    def popcount(self) -> float | None:
        """Geometric mean of the number of legal tokens."""
        return math.exp(self._log_popcount / self.num_rows) if self.num_rows else None

    @property
    def legal_draft_mass(self) -> float | None:
        """Mean share of the drafter's law that was legal, over proposed tokens."""
        return self._legal_mass / self.num_proposed if self.num_proposed else None

    @property
    def projection(self) -> float | None:
        """Nats a token from the target's law to the masked one: the mean of KL(p' || p) = -ln of the legal mass."""
        return self._projection / self.num_rows if self.num_rows else None

    def add(self, other: StateFigures) -> None:
        """Pool with another."""
        self.num_rows += other.num_rows
        self.num_drafted += other.num_drafted
        self.num_accepted += other.num_accepted
        self.num_proposed += other.num_proposed
        self._log_popcount += other._log_popcount
        self._legal_mass += other._legal_mass
        self._projection += other._projection


def by_grammar_state(events: pl.DataFrame) -> dict[str, StateFigures]:
    """The figures of each state that occurs, and of all together; empty where no output has a form."""
    columns = [
        "grammar_states",
        "mask_popcounts",
        "legal_mass",
        "draft_token_ids",
        "draft_parents",
        "accepted_path",
        "num_accepted",
        "drafted_states",
        "legal_draft_mass",
    ]
    found: dict[str, StateFigures] = {}
    rows = events.filter(~pl.col("is_prefill") & (pl.col("grammar_states").list.len() > 0)).select(columns)
    for event in rows.iter_rows(named=True):
        _add_step(found, event)
    if found:
        found[ALL_STATES] = _pooled(found.values())
    order = [*GRAMMAR_STATES, ALL_STATES]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _add_step(found: dict[str, StateFigures], event: Mapping[str, Any]) -> None:
    num_drafts, parents = len(event["draft_token_ids"]), event["draft_parents"]
    children: list[list[int]] = [[] for _ in range(num_drafts + 1)]
    for node in range(num_drafts):
        children[(parents[node] if parents else node - 1) + 1].append(node)
    path: Sequence[int] = event["accepted_path"] if parents else range(event["num_accepted"])
    for row in [0, *(node + 1 for node in path)]:
        if not event["mask_popcounts"][row]:
            continue  # behind an accepted end no token is chosen
        figures = found.setdefault(event["grammar_states"][row], StateFigures())
        figures.num_rows += 1
        figures._log_popcount += math.log(max(event["mask_popcounts"][row], 1))
        figures._projection -= math.log(max(event["legal_mass"][row], LEAST_MASS))
        if children[row]:
            figures.num_drafted += 1
            figures.num_accepted += any(node in path for node in children[row])
    for state, mass in zip(event["drafted_states"], event["legal_draft_mass"], strict=True):
        figures = found.setdefault(state, StateFigures())
        figures.num_proposed += 1
        figures._legal_mass += mass


def _pooled(parts: Iterable[StateFigures]) -> StateFigures:
    whole = StateFigures()
    for part in parts:
        whole.add(part)
    return whole
