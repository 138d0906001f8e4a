"""How good were the drafts?

Each figure is `offset + sum(numerator) / sum(denominator)` over requests, named and defined in words. Always true: a
figure whose denominator is zero is None, never 0 or 1, because nothing was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from specinfer.metrics.intervals import Interval, ratio_interval
from specinfer.metrics.totals import with_counts


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio of two counts of `totals.by_request`, plus a constant."""

    name: str
    definition: str
    numerator: str
    denominator: str
    offset: float = 0.0

    def micro(self, totals: pl.DataFrame) -> float | None:
        """Pooled over all requests: long requests weigh more."""
        below = totals[self.denominator].sum()
        return None if not below else self.offset + float(totals[self.numerator].sum()) / float(below)

    def macro(self, totals: pl.DataFrame) -> float | None:
        """The mean of the requests' own values, requests without any left out."""
        rows = totals.filter(pl.col(self.denominator) > 0)
        if not len(rows):
            return None
        return self.offset + float(np.mean((rows[self.numerator] / rows[self.denominator]).to_numpy()))

    def interval(self, totals: pl.DataFrame, unit: str = "request_id") -> Interval | None:
        """The micro value with a 95% bootstrap interval, resampling the values of column `unit` whole."""
        sums = totals.group_by(unit, maintain_order=True).agg(pl.col({self.numerator, self.denominator}).sum())
        found = ratio_interval(sums[self.numerator].to_numpy(), sums[self.denominator].to_numpy())
        return None if found is None else found.shift(self.offset)


ACCEPTANCE_LENGTH_DRAFTED = Figure(
    "acceptance_length_drafted",
    "1 + accepted draft tokens / decode steps with a draft; what a stop cut off is not counted",
    "accepted",
    "drafted_steps",
    1.0,
)
ACCEPTANCE_LENGTH_ALL = Figure(
    "acceptance_length_all",
    "1 + accepted draft tokens / all decode steps; what a stop cut off is not counted",
    "accepted",
    "decode_steps",
    1.0,
)
DRAFT_EFFICIENCY = Figure(
    "draft_efficiency",
    "accepted draft tokens / drafted tokens; what a stop cut off is not accepted",
    "accepted",
    "drafted",
)
BLOCK_EFFICIENCY = Figure(
    "block_efficiency",
    "tokens emitted by decode steps / decode steps, a batched forward counted once a request; prefill excluded",
    "emitted_decode",
    "decode_steps",
)
ALPHA = Figure(
    "alpha",
    "mean of min(1, p/q) over the tested draft tokens (accepted ones and the first rejected one of a step): an "
    "unbiased estimate of E[sum over x of min(p(x), q(x))] where q is the law the tokens were drawn from, if they are "
    "tested one by one; the verifier `block` judges a chain as a whole, which biases it upwards",
    "overlap",
    "tested",
)
LAW_DISTANCE = Figure(
    "law_distance",
    "mean over the tokens of decode steps of the total variation distance between the target's law and the law that a "
    "lossy verifier emitted the token by, given the draft; 0 for exact verifiers",
    "distance",
    "emitted_decode",
)
VLLM_ACCEPTANCE_LENGTH = Figure(
    "vllm_mean_acceptance_length",
    "vLLM: 1 + accepted draft tokens / steps with a draft, counted before the stop cut",
    "accepted_uncut",
    "drafted_steps",
    1.0,
)
VLLM_DRAFT_ACCEPTANCE_RATE = Figure(
    "vllm_draft_acceptance_rate",
    "vLLM: accepted draft tokens / draft tokens, counted before the stop cut",
    "accepted_uncut",
    "drafted",
)
SGLANG_ACCEPT_LENGTH = Figure(
    "sglang_accept_length",
    "SGLang: completion tokens (the prefill's token included) / verify calls, every decode step being one",
    "emitted",
    "decode_steps",
)
SPEC_BENCH_MEAN_ACCEPTED_TOKENS = Figure(
    "spec_bench_mean_accepted_tokens",
    "Spec-Bench: mean tokens a decode step adds (its own token included), counted before the stop cut",
    "accepted_uncut",
    "decode_steps",
    1.0,
)

FIGURES: Sequence[Figure] = (
    ACCEPTANCE_LENGTH_DRAFTED,
    ACCEPTANCE_LENGTH_ALL,
    DRAFT_EFFICIENCY,
    BLOCK_EFFICIENCY,
    ALPHA,
    LAW_DISTANCE,
    VLLM_ACCEPTANCE_LENGTH,
    VLLM_DRAFT_ACCEPTANCE_RATE,
    SGLANG_ACCEPT_LENGTH,
    SPEC_BENCH_MEAN_ACCEPTED_TOKENS,
)


@dataclass(frozen=True, slots=True)
class PositionRates:
    """Acceptance by draft position (depth in a tree), 0 for the first: U_i and C_i."""

    num_drafted_steps: int
    num_drafted: list[int]
    """Steps whose draft reached the position."""
    num_accepted: list[int]
    unconditional: list[float]
    """U_i = P(accepted > i) over all drafted steps, however short their drafts; the sum is E[accepted]."""
    conditional: list[float | None]
    """C_i = U_i / U_(i-1), C_0 = U_0; None behind a position where nothing was accepted."""


def by_position(events: pl.DataFrame) -> PositionRates:
    """Acceptance by position over the drafted steps of `events`; what a stop cut off is not accepted."""
    steps = with_counts(events).filter(pl.col("drafted_steps") > 0)
    lengths, accepted = steps["depth"].to_numpy(), steps["accepted"].to_numpy()
    positions = np.arange(int(lengths.max())) if len(steps) else np.arange(0)
    num_drafted = [int((lengths > i).sum()) for i in positions]
    num_accepted = [int((accepted > i).sum()) for i in positions]
    unconditional = [count / len(steps) for count in num_accepted]
    before = [1.0, *unconditional]
    conditional = [u / v if v else None for u, v in zip(unconditional, before, strict=False)]
    return PositionRates(len(steps), num_drafted, num_accepted, unconditional, conditional)


CONTEXT_EDGES = (128, 256, 512, 1024, 2048)


def by_context(events: pl.DataFrame, edges: Sequence[int] = CONTEXT_EDGES) -> dict[str, PositionRates]:
    """Acceptance by position for stretches of the context's length, `0..127` and so on; empty ones are left out.

    edges: first lengths of the stretches after the first one, ascending.
    """
    found: dict[str, PositionRates] = {}
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        inside = pl.col("context_len") >= low
        rates = by_position(events.filter(inside if high is None else inside & (pl.col("context_len") < high)))
        if rates.num_drafted_steps:
            found[f"{low}.." if high is None else f"{low}..{high - 1}"] = rates
    return found
