"""What was recorded, in a file that any tool reads?

`metrics.jsonl` in the run folder: one JSON object a line, in the order of the calls, `kind` first. Always true: each
line is flushed as it is written, so that a killed run keeps what it recorded.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO


@dataclass(kw_only=True)
class JsonlTracker:
    """Records everything in a JSON Lines file. A NaN or an infinity is written as null."""

    filename: str = "metrics.jsonl"
    _file: TextIO | None = field(default=None, init=False, repr=False)
    _run_dir: Path = field(default=Path(), init=False, repr=False)

    def start(self, run_dir: Path, config: Mapping[str, Any], *, name: str, group: str, job_type: str) -> None:
        self._run_dir = run_dir
        self._file = (run_dir / self.filename).open("a", encoding="utf-8")
        self._write("start", name=name, group=group, job_type=job_type, config=config, time=time.time())

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._write("log", step=step, metrics=metrics)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._write("table", name=name, columns=columns, rows=rows)

    def artifact(self, path: Path, kind: str) -> None:
        shown = path.relative_to(self._run_dir) if path.is_relative_to(self._run_dir) else path
        self._write("artifact", path=str(shown), artifact_kind=kind)

    def summary(self, values: Mapping[str, Any]) -> None:
        self._write("summary", values=values)

    def finish(self) -> None:
        if self._file is not None:
            self._write("finish", time=time.time())
            self._file.close()
            self._file = None

    def _write(self, kind: str, **values: Any) -> None:
        assert self._file is not None, "start comes first"
        self._file.write(json.dumps(_plain({"kind": kind, **values}), ensure_ascii=False) + "\n")
        self._file.flush()


def _plain(value: Any) -> Any:
    """`value` as strict JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
