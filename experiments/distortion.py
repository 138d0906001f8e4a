"""What does a form cost, and how far does it take the output from the target's own law?

The distances have separate causes and separate terms. Projection: p restricted to the legal tokens is not p; it says
how far the model had to be pushed. Tokenisation: a form is over text, and lets tokens come that the tokenizer would not
cut it into. Speculation: what an inexact verifier adds, zero for exact ones. Widening: what the grammar lets through
and the form does not, found by independent validators. Always true: every figure is over the same measured answers as
the run's other ones; nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import polars as pl

from experiments.grammar_states import States
from experiments.summary import measured_only
from specinfer.metrics.grammar import ALL_STATES
from specinfer.metrics.totals import STEP_KEYS
from specinfer.types import FinishReason

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class FormFigures:
    """One method's answers that had a form."""

    num_outputs: int
    num_finished: int
    """Ended by themselves, not at max_tokens"""
    num_judged: int
    """Finished, and of a kind that validators can judge"""
    num_invalid: int
    """Of them, those without the form: widening"""
    num_uncanonical: int
    """Outputs in other tokens than the tokenizer's own: tokenisation"""
    projection: float | None
    """Mean KL(p' || p), nats a token"""
    speculation: float | None
    """Mean distance of the verifier's law from p' a token"""
    mask_ms: float | None
    """Mean time of filling masks a step that had any"""
    compile_ms: float | None
    """Median over grammars that were compiled, not found in the cache"""
    first_token_ms: float | None
    """Median time to the first token, compilation included"""
    token_ms: float | None
    """Median over requests of the time from the first token on, a token"""


COLUMNS: Mapping[str, str] = {
    "num_outputs": "outputs",
    "num_finished": "finished",
    "num_judged": "judged",
    "num_invalid": "invalid",
    "num_uncanonical": "other tokens",
    "projection": "nats to p'",
    "speculation": "p' to output law",
    "mask_ms": "mask, ms/step",
    "compile_ms": "compile, ms",
    "first_token_ms": "first token, ms",
    "token_ms": "ms/token",
}
"""Headings of FormFigures' fields"""
assert list(COLUMNS) == [field.name for field in fields(FormFigures)]


def form_figures(results: pl.DataFrame, events: pl.DataFrame, states: States) -> dict[str, FormFigures]:
    """The figures of each method that had forms."""
    formed = measured_only(results).filter(pl.col("is_canonical").is_not_null())
    return {
        name: _figures(
            formed.filter(pl.col("method") == name),
            events.filter(pl.col("method") == name),
            states[name][ALL_STATES].projection if name in states else None,
        )
        for name in formed["method"].unique(maintain_order=True).to_list()
    }


def _figures(own: pl.DataFrame, events: pl.DataFrame, projection: float | None) -> FormFigures:
    masked = events.filter(pl.col("grammar_states").list.len() > 0).group_by(STEP_KEYS).agg(pl.col("grammar_s").first())
    compiled = own.filter(pl.col("compile_s") > 0)["compile_s"]
    later = own.filter(pl.col("num_output_tokens") > 1)
    token_s = (later["call_seconds"] - later["first_token_s"]) / (later["num_output_tokens"] - 1)
    emitted = int(own["emitted"].sum())
    return FormFigures(
        num_outputs=len(own),
        num_finished=int((own["finish_reason"] == FinishReason.STOP.value).sum()),
        num_judged=int(own["is_valid"].is_not_null().sum()),
        num_invalid=int((~own["is_valid"]).sum()),
        num_uncanonical=int((~own["is_canonical"]).sum()),
        projection=projection,
        speculation=float(own["distance"].sum()) / emitted if emitted else None,
        mask_ms=_ms(masked["grammar_s"].mean()),
        compile_ms=_ms(compiled.median()),
        first_token_ms=_ms(own["first_token_s"].median()),
        token_ms=_ms(token_s.median()),
    )


def _ms(seconds: object) -> float | None:
    return 1000 * seconds if isinstance(seconds, float) else None


def form_rows(figures: Mapping[str, FormFigures]) -> list[list[str]]:
    """A row a method: its name and the cells of COLUMNS."""
    return [[name, *(_shown(getattr(found, field)) for field in COLUMNS)] for name, found in figures.items()]


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def form_table(figures: Mapping[str, FormFigures]) -> Table:
    """The table for a terminal."""
    from rich.table import Table

    table = Table(title="forms: validity, distances and times", title_justify="left")
    for index, column in enumerate(("method", *COLUMNS.values())):
        table.add_column(column, justify="left" if not index else "right", no_wrap=not index)
    for row in form_rows(figures):
        table.add_row(*row)
    return table
