"""How sure is a figure?

Percentile bootstrap over requests, because tokens and steps of one request hang together. Always true: the same
numbers give the same interval (fixed seed), and a ratio of two runs resamples the same requests in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

NUM_RESAMPLES = 2000
LEVEL = 0.95
MIN_UNITS = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval; `low` and `high` are None where too few units were measured for one."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def shift(self, offset: float) -> Interval:
        """The interval of `value + offset`."""
        low, high = self.low, self.high
        return Interval(
            self.value + offset, None if low is None else low + offset, None if high is None else high + offset
        )


def _resampled_sums(columns: list[Array], seed: int) -> list[Array]:
    """Sums of each column over resampled units, [NUM_RESAMPLES]; the same units for every column."""
    rng = np.random.default_rng(seed)
    num_units = len(columns[0])
    weights = rng.multinomial(num_units, np.full(num_units, 1.0 / num_units), size=NUM_RESAMPLES)
    return [weights @ np.asarray(column, dtype=np.float64) for column in columns]


def _percentiles(samples: Array) -> tuple[float, float]:
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(samples, [tail, 1.0 - tail])
    return float(low), float(high)


def ratio_interval(numerator: Array, denominator: Array, *, seed: int = 0) -> Interval | None:
    """sum(numerator) / sum(denominator) over units [num_units]; None when the denominators sum to zero.

    Resamples in which the denominators sum to zero are left out.
    """
    below = float(np.sum(denominator))
    if below == 0:
        return None
    value = float(np.sum(numerator)) / below
    if len(numerator) < MIN_UNITS:
        return Interval(value, None, None)
    above_s, below_s = _resampled_sums([numerator, denominator], seed)
    kept = below_s > 0
    return Interval(value, *_percentiles(above_s[kept] / below_s[kept]))


def speedup_interval(
    tokens: Array, seconds: Array, plain_tokens: Array, plain_seconds: Array, *, seed: int = 0
) -> Interval | None:
    """Tokens/s of a method over tokens/s of the plain run of the same requests, paired unit by unit [num_units].

    Tokens and seconds are summed before dividing, prefill included in both. None when nothing was measured.
    """
    columns = [tokens, seconds, plain_tokens, plain_seconds]
    totals = [float(np.sum(column)) for column in columns]
    if min(totals) <= 0:
        return None
    value = (totals[0] / totals[1]) / (totals[2] / totals[3])
    if len(tokens) < MIN_UNITS:
        return Interval(value, None, None)
    a, b, c, d = _resampled_sums(columns, seed)
    kept = (b > 0) & (c > 0) & (d > 0)
    return Interval(value, *_percentiles((a[kept] / b[kept]) / (c[kept] / d[kept])))
