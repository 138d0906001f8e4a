"""What do the figures look like?

PNG plots of a summary: acceptance by position, speedup by task, where the time goes. Always true: each plot names the
definition of what it shows; a plot without data is not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.composition import PLAIN
from experiments.grammar_states import States
from experiments.summary import MethodSummary, Scope
from experiments.table import OVERALL
from specinfer.metrics.grammar import ALL_STATES
from specinfer.protocols import GRAMMAR_STATES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
PLAIN_COLOR = "#777777"
PARTS = {
    "forward_s": ("model forward", "#4477aa"),
    "draft_s": ("draft", "#ee6677"),
    "grammar_s": ("grammar masks", "#aa3377"),
    "verify_s": ("sample and verify", "#228833"),
    "other_s": ("rest of the step", "#ccbb44"),
    "outside_s": ("outside steps", "#bbbbbb"),
}
DPI = 150


def draw_all(
    overall: Scope, tasks: Mapping[str, Scope], folder: Path, grammar_states: States | None = None
) -> list[Path]:
    """Write the plots that have data into `folder`; their paths."""
    plots = {
        "speedup_by_task.png": speedup_by_task(overall, tasks),
        "acceptance_by_position.png": acceptance_by_position(overall),
        "acceptance_by_grammar_state.png": acceptance_by_grammar_state(overall, grammar_states or {}),
        "time_split.png": time_split(overall),
    }
    paths = []
    for name, figure in plots.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=DPI, bbox_inches="tight")
            paths.append(folder / name)
    return paths


def _methods(scope: Scope) -> dict[str, MethodSummary]:
    return {name: method for name, method in scope.items() if name != PLAIN}


def _color(scope: Scope, name: str) -> str:
    return PLAIN_COLOR if name == PLAIN else COLORS[list(_methods(scope)).index(name) % len(COLORS)]


def _new(width: float, height: float, num_axes: int = 1) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, num_axes, sharey=True)
    for ax in axes if num_axes > 1 else [axes]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)
    return figure, axes


def speedup_by_task(overall: Scope, tasks: Mapping[str, Scope]) -> Figure | None:
    """Points with 95% intervals, a row a task and the overall one at the bottom."""
    methods = _methods(overall)
    if not any(method.speedup for method in methods.values()):
        return None
    scopes = {**tasks, OVERALL: overall}
    figure, ax = _new(7.5, 1.4 + 0.16 * len(scopes) * (1.2 + len(methods)))
    spread = 0.8 / len(methods)
    for offset, name in enumerate(methods):
        for row, scope in enumerate(scopes.values()):
            speedup = scope[name].speedup if name in scope else None
            if speedup is None:
                continue
            y = row - 0.4 + spread * (offset + 0.5)
            style: dict[str, Any] = {"color": _color(overall, name), "label": name if row == 0 else None}
            if speedup.low is not None:
                ax.plot([speedup.low, speedup.high], [y, y], color=style["color"], linewidth=2, alpha=0.6)
            ax.plot([speedup.value], [y], "o", markersize=6, linestyle="none", **style)
            ax.annotate(
                f"{speedup.value:.2f}", (speedup.value, y), (0, 5), textcoords="offset points", fontsize=7, ha="center"
            )
    ax.axvline(1.0, color=PLAIN_COLOR, linewidth=1, linestyle="--")
    ax.axhline(len(scopes) - 1.5, color="#cccccc", linewidth=1)
    ax.set_yticks(range(len(scopes)), list(scopes))
    ax.set_ylim(len(scopes) - 0.4, -0.6)
    ax.set_xlim(left=min(0.9, ax.get_xlim()[0]))
    ax.grid(axis="x", color="#eeeeee")
    ax.set_xlabel("speedup: tokens/s ÷ plain tokens/s on the same requests (prefill included; line: 95% interval)")
    ax.set_title("Speedup over plain decoding, by task", loc="left")
    if len(methods) > 1:
        figure.legend(*ax.get_legend_handles_labels(), loc="outside upper right", ncols=len(methods), frameon=False)
    return figure


def acceptance_by_position(overall: Scope) -> Figure | None:
    """U_i and C_i side by side, a line a method, positions counted from 1."""
    methods = {name: m.positions for name, m in _methods(overall).items() if m.positions.num_drafted_steps}
    if not methods:
        return None
    figure, (left, right) = _new(8.5, 3.4, 2)
    for name, rates in methods.items():
        positions = range(1, len(rates.unconditional) + 1)
        style: dict[str, Any] = {"color": _color(overall, name), "marker": "o", "label": name}
        left.plot(positions, rates.unconditional, **style)
        right.plot(positions, [float("nan") if c is None else c for c in rates.conditional], **style)
    longest = max(len(rates.unconditional) for rates in methods.values())
    left.set_title("U: this token and all before it accepted", loc="left", fontsize=10)
    right.set_title("C: accepted, given all before it were", loc="left", fontsize=10)
    left.set_ylabel("share of steps with a draft")
    for ax in (left, right):
        ax.set_ylim(0, 1.02)
        ax.set_xticks(range(1, longest + 1))
        ax.set_xlabel("position in the draft")
        ax.grid(axis="y", color="#eeeeee")
    right.legend(frameon=False)
    figure.suptitle("Acceptance by draft position, all tasks", x=0.01, ha="left")
    return figure


def acceptance_by_grammar_state(overall: Scope, grammar_states: States) -> Figure | None:
    """Bars of conditional acceptance, a group a state, a colour a method."""
    shown = {
        name: states for name, states in grammar_states.items() if name in overall and states[ALL_STATES].num_drafted
    }
    if not shown:
        return None
    names = [s for s in (*GRAMMAR_STATES, ALL_STATES) if any(s in own and own[s].num_drafted for own in shown.values())]
    figure, ax = _new(1.5 + 1.1 * len(names), 3.4)
    width = 0.8 / len(shown)
    for offset, (method, states) in enumerate(shown.items()):
        values = [states[name].acceptance if name in states else None for name in names]
        places = [i - 0.4 + width * (offset + 0.5) for i, value in enumerate(values) if value is not None]
        heights = [value for value in values if value is not None]
        ax.bar(places, heights, width=0.9 * width, color=_color(overall, method), label=method)
    ax.set_xticks(range(len(names)), [name.replace("_", " ") for name in names])
    ax.set_ylim(0, 1.02)
    ax.set_ylabel("accepted of the positions with a draft")
    ax.grid(axis="y", color="#eeeeee")
    ax.set_title("Acceptance by grammar state", loc="left")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def time_split(overall: Scope) -> Figure | None:
    """Stacked bars of milliseconds an output token, a bar a method."""
    shown = {name: method for name, method in overall.items() if method.num_tokens}
    if not shown:
        return None
    figure, ax = _new(8.5, 1.3 + 0.45 * len(shown))
    lefts = [0.0] * len(shown)
    for part, (label, color) in PARTS.items():
        widths = [1000 * method.time_split[part] / method.num_tokens for method in shown.values()]
        ax.barh(range(len(shown)), widths, left=lefts, height=0.6, color=color, label=label)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    for row, (total, method) in enumerate(zip(lefts, shown.values(), strict=True)):
        share = 1000 * method.time_split["forward_s"] / method.num_tokens / total if total else 0.0
        ax.text(total, row, f" {total:.3g} ms, forward {share:.1%}", va="center", fontsize=9)
    ax.set_xlim(0, 1.2 * max(lefts) or 1.0)
    ax.set_yticks(range(len(shown)), list(shown))
    ax.invert_yaxis()
    ax.set_xlabel("milliseconds an output token (all requests, prefill included)")
    ax.set_title("Where the time goes", loc="left")
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(PARTS), frameon=False, fontsize=9
    )
    return figure
