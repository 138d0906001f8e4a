"""How does speedup move along a sweep?

    python -m experiments.sweep runs/2026-12-01_10-00-00_batch_sizes_sweep run.batch_size

Reads the run folders of a sweep (those that are finished), prints speedups with intervals against one parameter of the
configuration, and draws them. Always true: each number is a run's own, from its `summary.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.composition import PLAIN
from experiments.record import SUMMARY
from specinfer.errors import ConfigError

USAGE = "usage: python -m experiments.sweep FOLDER PARAMETER (for one, run.batch_size)"
STATUS_MISTAKE = 2


def main(arguments: Sequence[str]) -> int:
    """Print the table and write `sweep.png` into the folder; the exit status."""
    if len(arguments) != 2:
        print(USAGE, file=sys.stderr)
        return STATUS_MISTAKE
    try:
        points = read_sweep(Path(arguments[0]), arguments[1])
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return STATUS_MISTAKE
    from rich.console import Console
    from rich.table import Table

    methods = list(dict.fromkeys(name for _, found in points for name in found))
    table = Table(arguments[1], *methods, title="speedup over plain decoding of the same run [95% interval]")
    for value, found in points:
        table.add_row(str(value), *(_shown(found.get(name)) for name in methods))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    draw(points, arguments[1], Path(arguments[0]) / "sweep.png")
    return 0


Point = tuple[Any, dict[str, Mapping[str, float]]]
"""A parameter's value, and each method's speedup: value, low, high"""


def read_sweep(folder: Path, parameter: str) -> list[Point]:
    """The finished runs' points, by value; ConfigError where there are none."""
    points: list[Point] = []
    for path in sorted(folder.glob(f"*/{SUMMARY}")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        value: Any = summary["config"]
        for key in parameter.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise ConfigError(f"{parameter} is no parameter of {path.parent}")
            value = value[key]
        found = {n: m["speedup"] for n, m in summary["overall"].items() if n != PLAIN and m["speedup"] is not None}
        points.append((value, found))
    if not points:
        raise ConfigError(f"{folder} holds no finished run (a folder with {SUMMARY})")
    return sorted(points, key=lambda point: point[0])


def _shown(speedup: Mapping[str, float] | None) -> str:
    return "-" if speedup is None else f"{speedup['value']:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]"


def draw(points: Sequence[Point], parameter: str, path: Path) -> None:
    """Speedup against the parameter, a line a method, with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    places = range(len(points))
    for name in dict.fromkeys(name for _, found in points for name in found):
        shown = [(place, found[name]) for place, (_, found) in zip(places, points, strict=True) if name in found]
        values = [speedup["value"] for _, speedup in shown]
        below = [speedup["value"] - speedup["low"] for _, speedup in shown]
        above = [speedup["high"] - speedup["value"] for _, speedup in shown]
        axes.errorbar([place for place, _ in shown], values, yerr=[below, above], marker="o", capsize=3, label=name)
    axes.axhline(1.0, color="#777777", linestyle="--", linewidth=1)
    axes.set_xticks(list(places), [str(value) for value, _ in points])
    axes.set_xlabel(parameter)
    axes.set_ylabel("speedup over plain decoding")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
