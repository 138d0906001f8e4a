"""How many forms does each grammar backend compile, how fast, and does it take the instances that it should?

Always true: a form counts once for each backend and once for `auto`, whatever became of it; an instance is judged by
the whole grammar, and what it should be comes from the file that holds it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Any

import polars as pl

from experiments.instances import spelled, takes
from experiments.validity import schema_of
from experiments.workloads import Conversation
from specinfer.config import StructuredConfig
from specinfer.errors import GrammarError
from specinfer.forms import StructuredOutputs
from specinfer.protocols import CompiledGrammar, Tokenizer
from specinfer.structured.manager import GrammarManager

if TYPE_CHECKING:
    from rich.table import Table

AUTO = "auto"


class Outcome(Enum):
    """What became of a form."""

    COMPILED = "compiled"
    REFUSED = "refused"
    """At submission: by the audit under the form's policy, or as wrong"""
    FAILED = "failed"
    """When it was compiled: by the library, or at a limit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One form, compiled by one backend."""

    backend: str
    """As asked for: one of them, or `auto`"""
    question_id: str
    outcome: Outcome
    taken_by: str | None
    """The backend that compiled it"""
    compile_s: float | None
    """Seconds of the compilation alone, waiting for others left out"""
    error: str | None
    num_valid: int
    num_valid_taken: int
    num_invalid: int
    num_invalid_taken: int


def attempts(
    conversations: Iterable[Conversation], manager: GrammarManager, tokenizer: Tokenizer, config: StructuredConfig
) -> list[Attempt]:
    """Compile every form of some conversations with each backend of a configuration and with `auto`, one at a time."""
    formed = [c for c in conversations if c.form is not None]
    return [_attempt(c, name, manager, tokenizer) for name in (*config.backends, AUTO) for c in formed]


def _attempt(conversation: Conversation, name: str, manager: GrammarManager, tokenizer: Tokenizer) -> Attempt:
    assert conversation.form is not None
    form = dataclasses.replace(conversation.form, backend=name)
    outcome, error, taken_by, grammar = Outcome.REFUSED, None, None, None
    compile_s = None
    try:
        start = perf_counter()
        pending = manager.submit(form)
        outcome = Outcome.FAILED
        grammar = pending.result()
        outcome, taken_by = Outcome.COMPILED, pending.backend
        compile_s = pending.compile_s or perf_counter() - start
    except GrammarError as problem:
        error = str(problem)
    counts = _instances(conversation.reference, form, grammar, tokenizer)
    return Attempt(
        backend=name,
        question_id=conversation.question_id,
        outcome=outcome,
        taken_by=taken_by,
        compile_s=compile_s,
        error=error,
        **counts,
    )


def _instances(
    instances: Any, form: StructuredOutputs, grammar: CompiledGrammar | None, tokenizer: Tokenizer
) -> dict[str, int]:
    counts = dict.fromkeys(("num_valid", "num_valid_taken", "num_invalid", "num_invalid_taken"), 0)
    schema = schema_of(form)
    if grammar is None or schema is None or not isinstance(instances, list):
        return counts
    for instance in instances:
        kind = "num_valid" if instance["valid"] else "num_invalid"
        counts[kind] += 1
        counts[f"{kind}_taken"] += takes(grammar, tokenizer, spelled(instance["data"], schema))
    return counts


COLUMNS: Mapping[str, str] = {
    "backend": "backend",
    "compiled": "compiled",
    "refused": "refused",
    "failed": "failed",
    "coverage": "coverage",
    "p50": "compile ms, median",
    "p99": "99th",
    "valid": "valid taken",
    "invalid": "invalid taken",
}


def coverage_frame(found: Sequence[Attempt]) -> pl.DataFrame:
    """A row an attempt."""
    rows = [{**dataclasses.asdict(attempt), "outcome": attempt.outcome.value} for attempt in found]
    return pl.DataFrame(rows, infer_schema_length=None)


def coverage_rows(found: Sequence[Attempt]) -> list[list[str]]:
    """The cells of COLUMNS, a row a backend."""
    return [_row(name, [a for a in found if a.backend == name]) for name in dict.fromkeys(a.backend for a in found)]


def _row(name: str, own: Sequence[Attempt]) -> list[str]:
    outcomes = [sum(attempt.outcome is outcome for attempt in own) for outcome in Outcome]
    times = pl.Series([attempt.compile_s for attempt in own if attempt.compile_s is not None], dtype=pl.Float64)
    return [
        name,
        *map(str, outcomes),
        f"{outcomes[0] / len(own):.0%}",
        *(_ms(times.quantile(share, "nearest")) for share in (0.5, 0.99)),
        f"{sum(a.num_valid_taken for a in own)} of {sum(a.num_valid for a in own)}",
        f"{sum(a.num_invalid_taken for a in own)} of {sum(a.num_invalid for a in own)}",
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def coverage_table(found: Sequence[Attempt]) -> Table:
    """The table for a terminal."""
    from rich.table import Table

    table = Table(title="coverage: forms compiled by each backend", title_justify="left")
    for index, column in enumerate(COLUMNS.values()):
        table.add_column(column, justify="left" if not index else "right")
    for row in coverage_rows(found):
        table.add_row(*row, style="bold" if row[0] == AUTO else None)
    return table
