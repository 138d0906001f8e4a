"""Events survive the way into a table and a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from specinfer.errors import SpecinferError
from specinfer.events import StepEvent
from specinfer.metrics import table

LABELS = {"method": "ngram", "repeat": 0, "task": "chat", "question_id": "1", "turn": 0}


def test_a_row_holds_every_field_of_its_event(event: Callable[..., StepEvent]) -> None:
    events = [event(prefill=True), dataclasses.replace(event(drafted=2, accepted=1), next_token_id=None)]
    rows = table.from_events(events).to_dicts()
    assert rows == [dataclasses.asdict(e) for e in events]


def test_parquet_gives_back_the_same_table(event: Callable[..., StepEvent], tmp_path: Path) -> None:
    events = table.label(table.from_events([event(drafted=3, accepted=3)]), {"r0": LABELS})
    table.write(events, tmp_path / "events.parquet")
    assert table.read(tmp_path / "events.parquet").equals(events)


def test_another_schema_version_is_refused(event: Callable[..., StepEvent], tmp_path: Path) -> None:
    table.from_events([event()]).write_parquet(tmp_path / "old.parquet", metadata={table.VERSION_KEY: "0"})
    with pytest.raises(SpecinferError, match="schema version 0"):
        table.read(tmp_path / "old.parquet")


def test_events_of_unlabelled_requests_are_dropped(event: Callable[..., StepEvent]) -> None:
    events = table.from_events([event("warmup"), event("r0", 1), event("r0", 2)])
    kept = table.label(events, {"r0": LABELS})
    assert kept["step"].to_list() == [1, 2]
    assert kept.columns[:5] == list(table.RUN_LABELS)


def test_no_tables_make_an_empty_one_of_the_same_schema(event: Callable[..., StepEvent]) -> None:
    full = table.concat([table.label(table.from_events([event()]), {"r0": LABELS})])
    assert table.concat([]).schema == full.schema
    assert isinstance(full, pl.DataFrame)
