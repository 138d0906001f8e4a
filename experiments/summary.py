"""What came out, by task and overall, for each method?

Always true: every figure is computed from the requests that all methods answered without an error; the others are
listed as failures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from experiments.comparison import Answer
from experiments.composition import PLAIN
from specinfer.metrics import intervals, totals
from specinfer.metrics.figures import FIGURES, PositionRates, by_position
from specinfer.metrics.intervals import Interval

DEFINITIONS: Mapping[str, str] = {
    "tokens_per_s": "output tokens / seconds, both summed over the requests before dividing; seconds are the wall "
    "time of the calls, prefill included. macro: the mean of the requests' own tokens/s",
    "speedup": "tokens_per_s of the method / tokens_per_s of plain decoding on the same requests in the same run",
    "spec_bench_speedup": "Spec-Bench: macro tokens/s of the method / macro tokens/s of plain decoding",
    "low, high": "95% percentile bootstrap over questions (a conversation's turns and repeats stay together), the same "
    "questions for both sides of a ratio; at a batch size above 1 the requests of a batch share one clock, whose noise "
    "the interval then understates. With fewer than about ten questions an interval is too narrow",
    "macro": "mean over requests of the request's own value; without it, pooled over all",
    "unconditional": "U_i = P(more than i draft tokens accepted), over all steps with a draft",
    "conditional": "C_i = U_i / U_(i-1)",
    "time_split": "seconds spent in all steps, prefill included: drafting, the model's forward, sampling and "
    "verification, everything else in a step; `outside` is wall time outside any step",
    **{figure.name: figure.definition for figure in FIGURES},
}


@dataclass(frozen=True, slots=True)
class Value:
    """A pooled value with its 95% interval, and its mean over requests."""

    value: float
    low: float | None
    high: float | None
    macro: float | None


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method on one task, or on all; what was not measured is None."""

    num_requests: int
    """Answers measured, repeats counted."""
    num_tokens: int
    seconds: float
    num_equal: int
    num_different: int
    """Answers that are, and are not, the plain method's; both 0 where sampling is random."""
    tokens_per_s: Value | None
    speedup: Value | None
    """None for the plain method itself."""
    spec_bench_speedup: float | None
    figures: dict[str, Value | None]
    positions: PositionRates
    time_split: dict[str, float]


Scope = dict[str, MethodSummary]
"""Summaries by method, plain first."""


def results_table(answers: Sequence[Answer], events: pl.DataFrame) -> pl.DataFrame:
    """One row an answer: what was measured of it, and its counts from the events."""
    rows = [
        {
            "method": a.method,
            "repeat": a.repeat,
            "task": a.task,
            "question_id": a.question_id,
            "turn": a.turn,
            "request_id": a.request_id,
            "num_prompt_tokens": len(a.prompt_token_ids),
            "num_output_tokens": len(a.token_ids),
            "seconds": a.seconds,
            "call_seconds": a.call_seconds,
            "first_token_s": a.first_token_s,
            "finish_reason": a.finish_reason,
            "equals_plain": a.equals_plain,
            "grammar_backend": a.grammar_backend,
            "compile_s": a.compile_s,
            "is_valid": a.is_valid,
            "is_canonical": a.is_canonical,
            "error": a.error,
            "draft_error": a.draft_error,
            "text": a.text,
            "token_ids": json.dumps(a.token_ids),
        }
        for a in answers
    ]
    table = pl.DataFrame(rows, schema=dict(_RESULT_COLUMNS), orient="row")
    keys = list(totals.REQUEST_KEYS)
    return table.join(totals.by_request(events), on=keys, how="left", maintain_order="left")


_RESULT_COLUMNS: Mapping[str, Any] = {
    "method": pl.String,
    "repeat": pl.Int64,
    "task": pl.String,
    "question_id": pl.String,
    "turn": pl.Int64,
    "request_id": pl.String,
    "num_prompt_tokens": pl.Int64,
    "num_output_tokens": pl.Int64,
    "seconds": pl.Float64,
    "call_seconds": pl.Float64,
    "first_token_s": pl.Float64,
    "finish_reason": pl.String,
    "equals_plain": pl.Boolean,
    "grammar_backend": pl.String,
    "compile_s": pl.Float64,
    "is_valid": pl.Boolean,
    "is_canonical": pl.Boolean,
    "error": pl.String,
    "draft_error": pl.String,
    "text": pl.String,
    "token_ids": pl.String,
}

_REQUEST = ["repeat", "question_id", "turn"]


def measured_only(results: pl.DataFrame) -> pl.DataFrame:
    """The answers to requests that no method failed."""
    failed = results.filter(pl.col("error").is_not_null()).select(_REQUEST).unique()
    return results.join(failed, on=_REQUEST, how="anti", maintain_order="left")


def summarise(results: pl.DataFrame, events: pl.DataFrame) -> tuple[Scope, dict[str, Scope]]:
    """The overall figures, and those of each task in order of appearance."""
    measured = measured_only(results)
    kept = events.join(measured, on=list(totals.REQUEST_KEYS), how="semi", maintain_order="left")
    # The first group of calls has the methods in their order, plain first.
    names = results["method"].unique(maintain_order=True).to_list()
    tasks = measured["task"].unique(maintain_order=True).to_list()
    return _scope(names, measured, kept), {
        task: _scope(names, measured.filter(pl.col("task") == task), kept.filter(pl.col("task") == task))
        for task in tasks
    }


def _scope(names: Sequence[str], results: pl.DataFrame, events: pl.DataFrame) -> Scope:
    plain, present = results.filter(pl.col("method") == PLAIN), set(results["method"])
    return {
        name: _method(results.filter(pl.col("method") == name), plain, events.filter(pl.col("method") == name))
        for name in names
        if name in present
    }


def _method(results: pl.DataFrame, plain: pl.DataFrame, events: pl.DataFrame) -> MethodSummary:
    is_plain = results["method"].first() == PLAIN
    seconds = float(results["seconds"].sum())
    split = totals.time_split(events)
    macro, plain_macro = _macro_speed(results), _macro_speed(plain)
    return MethodSummary(
        num_requests=len(results),
        num_tokens=int(results["num_output_tokens"].sum()),
        seconds=seconds,
        num_equal=int(results["equals_plain"].sum()),
        num_different=int((~results["equals_plain"]).sum()),
        tokens_per_s=_value(_speed(results), macro),
        speedup=None if is_plain else _value(_speedup(results, plain), None),
        spec_bench_speedup=None if is_plain or not macro or not plain_macro else macro / plain_macro,
        figures={f.name: _value(f.interval(results, "question_id"), f.macro(results)) for f in FIGURES},
        positions=by_position(events),
        time_split={**split, "outside_s": max(0.0, seconds - sum(split.values()))},
    )


def _value(interval: Interval | None, macro: float | None) -> Value | None:
    return None if interval is None else Value(interval.value, interval.low, interval.high, macro)


def _sums(results: pl.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Tokens and seconds of each question [num_questions], in the order of the questions' ids."""
    sums = results.group_by("question_id").agg(pl.col("num_output_tokens", "seconds").sum()).sort("question_id")
    return sums["num_output_tokens"].to_numpy(), sums["seconds"].to_numpy()


def _speed(results: pl.DataFrame) -> Interval | None:
    return intervals.ratio_interval(*_sums(results))


def _speedup(results: pl.DataFrame, plain: pl.DataFrame) -> Interval | None:
    return intervals.speedup_interval(*_sums(results), *_sums(plain))


def _macro_speed(results: pl.DataFrame) -> float | None:
    rows = results.filter(pl.col("seconds") > 0)
    return float(np.mean((rows["num_output_tokens"] / rows["seconds"]).to_numpy())) if len(rows) else None
