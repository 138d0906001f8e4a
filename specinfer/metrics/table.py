"""How are step events kept as a table?

One row an event, one column a field of `StepEvent`, and in front the labels of the run (method, repeat, task, ...).
Always true: a Parquet file of events carries the version of their schema, and another version is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from specinfer.errors import SpecinferError
from specinfer.events import EVENT_SCHEMA_VERSION, StepEvent

VERSION_KEY = "specinfer.event_schema_version"

_TYPES: Mapping[str, Any] = {
    "int": pl.Int64,
    "int | None": pl.Int64,
    "float": pl.Float64,
    "bool": pl.Boolean,
    "str": pl.String,
    "list[int]": pl.List(pl.Int64),
    "list[bool]": pl.List(pl.Boolean),
    "list[float]": pl.List(pl.Float64),
    "list[str]": pl.List(pl.String),
}

RUN_LABELS: Mapping[str, Any] = {
    "method": pl.String,
    "repeat": pl.Int64,
    "task": pl.String,
    "question_id": pl.String,
    "turn": pl.Int64,
}
"""The labels that an experiment adds, with their types."""


def event_schema() -> dict[str, Any]:
    """The columns of an events table without labels, with their types."""
    return {field.name: _TYPES[str(field.type)] for field in dataclasses.fields(StepEvent)}


def from_events(events: Iterable[StepEvent]) -> pl.DataFrame:
    """A table of events without labels."""
    schema = event_schema()
    return pl.DataFrame([[getattr(e, name) for name in schema] for e in events], schema=schema, orient="row")


def label(table: pl.DataFrame, labels: Mapping[str, Mapping[str, Any]]) -> pl.DataFrame:
    """Put the run's labels in front; `labels` maps each request id to one value a name of RUN_LABELS.

    An event of a request without labels (warm-up, for one) is dropped.
    """
    rows = [[request_id, *(values[name] for name in RUN_LABELS)] for request_id, values in labels.items()]
    names = pl.DataFrame(rows, schema={"request_id": pl.String, **RUN_LABELS}, orient="row")
    return table.join(names, on="request_id", how="inner", maintain_order="left").select(*RUN_LABELS, *table.columns)


def empty() -> pl.DataFrame:
    """A labelled table without rows."""
    return pl.DataFrame(schema={**RUN_LABELS, **event_schema()})


def concat(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One labelled table of several."""
    return pl.concat([empty(), *tables])


def write(table: pl.DataFrame, path: Path) -> None:
    """Write Parquet with the schema's version in the file's metadata."""
    table.write_parquet(path, metadata={VERSION_KEY: str(EVENT_SCHEMA_VERSION)})


def read(path: Path) -> pl.DataFrame:
    """Read what `write` wrote; SpecinferError when the file is no events table of this version."""
    version = pl.read_parquet_metadata(path).get(VERSION_KEY)
    if version != str(EVENT_SCHEMA_VERSION):
        raise SpecinferError(
            f"{path} holds events of schema version {version}, this specinfer reads {EVENT_SCHEMA_VERSION}: "
            f"read it with the specinfer that wrote it (see summary.json beside it)"
        )
    return pl.read_parquet(path)
