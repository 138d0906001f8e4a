"""What is kept of a run?

Everything a reader needs to trust or repeat it, in one folder. Always true: `summary.json` is written last and in one
piece, so that a folder without it is half-written; a run that was interrupted says so there.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from experiments import figures, report
from experiments.comparison import Answer
from experiments.distortion import FormFigures, form_figures
from experiments.equality import Difference
from experiments.grammar_states import states_by_method
from experiments.summary import DEFINITIONS, Scope, results_table, summarise
from experiments.table import COLUMNS, rich_table, table_rows
from specinfer.metrics import table
from specinfer.metrics.grammar import StateFigures

SUMMARY_SCHEMA_VERSION = 1
SUMMARY = "summary.json"


@dataclass(kw_only=True)
class RunRecord:
    """A run as measured, with what was derived from it."""

    name: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    interrupted: bool
    config: Mapping[str, Any]
    methods: Mapping[str, Any]
    """`LLM.describe()` of each method."""
    environment: Mapping[str, Any]
    answers: Sequence[Answer]
    events: pl.DataFrame
    differences: Sequence[Difference]
    results: pl.DataFrame = field(init=False)
    overall: Scope = field(init=False)
    grammar_states: dict[str, dict[str, StateFigures]] = field(init=False)
    """By method and state, for methods whose outputs had a form"""
    forms: dict[str, FormFigures] = field(init=False)
    """By method, for those"""
    tasks: dict[str, Scope] = field(init=False)

    def __post_init__(self) -> None:
        self.results = results_table(self.answers, self.events)
        self.overall, self.tasks = summarise(self.results, self.events)
        self.grammar_states = states_by_method(self.events)
        self.forms = form_figures(self.results, self.events, self.grammar_states)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Requests that some method could not serve; they are in no figure."""
        columns = ["method", "repeat", "task", "question_id", "turn", "error"]
        return self.results.filter(pl.col("error").is_not_null()).select(columns).to_dicts()

    @property
    def draft_errors(self) -> list[dict[str, Any]]:
        """Answers whose drafter failed on the way; they are right, and slower."""
        columns = ["method", "repeat", "task", "question_id", "turn", "draft_error"]
        return self.results.filter(pl.col("draft_error").is_not_null()).select(columns).to_dicts()

    def as_summary(self) -> dict[str, Any]:
        """The content of summary.json: plain data, without the answers themselves."""
        scope = {name: {m: dataclasses.asdict(s) for m, s in found.items()} for name, found in self.tasks.items()}
        return {
            "schema_version": SUMMARY_SCHEMA_VERSION,
            "name": self.name,
            "interrupted": self.interrupted,
            "started": self.started,
            "seconds": self.seconds,
            "overall": {name: dataclasses.asdict(method) for name, method in self.overall.items()},
            "tasks": scope,
            "grammar_states": {
                method: {
                    state: {
                        **dataclasses.asdict(figures),
                        "acceptance": figures.acceptance,
                        "popcount": figures.popcount,
                        "legal_draft_mass": figures.legal_draft_mass,
                        "projection": figures.projection,
                    }
                    for state, figures in found.items()
                }
                for method, found in self.grammar_states.items()
            },
            "forms": {name: dataclasses.asdict(found) for name, found in self.forms.items()},
            "differences": [{**dataclasses.asdict(d), "is_tie": d.is_tie} for d in self.differences],
            "failures": self.failures,
            "draft_errors": self.draft_errors,
            "definitions": dict(DEFINITIONS),
            "methods": self.methods,
            "config": self.config,
            "environment": self.environment,
        }


def write_run_folder(record: RunRecord, folder: Path) -> dict[Path, str]:
    """Write every file of the run; the paths written with the kind that trackers know them by."""
    table.write(record.events, folder / "events.parquet")
    record.results.write_parquet(folder / "results.parquet")
    record.results.write_csv(folder / "results.csv")
    written = {
        folder / "events.parquet": "events",
        folder / "results.parquet": "table",
        folder / "results.csv": "table",
    }
    plots = figures.draw_all(record.overall, record.tasks, folder, record.grammar_states)
    written |= dict.fromkeys(plots, "figure")
    write_table_picture(record, folder / "table.svg")
    summary = record.as_summary()
    (folder / "report.html").write_text(report.render(record, plots), encoding="utf-8")
    written |= {folder / "report.html": "report", folder / "table.svg": "picture"}
    write_json(summary, folder / SUMMARY)
    return written | {folder / SUMMARY: "summary"}


def write_table_picture(record: RunRecord, path: Path) -> None:
    """The final table as an SVG picture."""
    import io

    from rich.console import Console

    console = Console(record=True, width=130, file=io.StringIO())
    console.print(rich_table(record.overall, record.tasks, title=""))
    path.write_text(console.export_svg(title=f"specinfer: {record.name}"), encoding="utf-8")


def write_json(value: Any, path: Path) -> None:
    """Write strict JSON (a NaN becomes null) so that the file is there whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(_strict(value), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat_figures(record: RunRecord) -> dict[str, float]:
    """The overall figures by `method/figure`, for a tracker's summary."""
    flat: dict[str, float] = {}
    for name, method in record.overall.items():
        values = {"tokens_per_s": method.tokens_per_s, "speedup": method.speedup, **method.figures}
        flat |= {f"{name}/{figure}": value.value for figure, value in values.items() if value is not None}
        flat[f"{name}/num_different"] = float(method.num_different)
    return flat


def shown_table(record: RunRecord) -> tuple[Sequence[str], list[list[str]]]:
    """Columns and rows of the final table, for a tracker."""
    return COLUMNS, table_rows(record.overall, record.tasks)
