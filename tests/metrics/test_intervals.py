"""Intervals are deterministic, paired, and cover what they should."""

from __future__ import annotations

import numpy as np
import pytest

from specinfer.metrics.intervals import Interval, ratio_interval, speedup_interval


def test_the_same_numbers_give_the_same_interval() -> None:
    rng = np.random.default_rng(3)
    above, below = rng.random(30), rng.random(30) + 1
    assert ratio_interval(above, below) == ratio_interval(above, below)
    assert ratio_interval(above, below) != ratio_interval(above, below, seed=1)


def test_one_request_has_a_value_and_no_interval() -> None:
    assert ratio_interval(np.array([3.0]), np.array([2.0])) == Interval(1.5, None, None)


def test_nothing_measured_has_no_value() -> None:
    assert ratio_interval(np.array([0.0, 0.0]), np.array([0.0, 0.0])) is None
    assert speedup_interval(*[np.array([])] * 4) is None


def test_a_speedup_that_is_the_same_for_every_request_has_no_width() -> None:
    rng = np.random.default_rng(0)
    tokens, seconds = rng.integers(10, 99, 12), rng.random(12) + 0.5
    speedup = speedup_interval(tokens, seconds / 1.5, tokens, seconds)
    assert speedup is not None
    # Unpaired resampling would mix slow requests of the one with quick ones of the other.
    assert [speedup.value, speedup.low, speedup.high] == pytest.approx([1.5, 1.5, 1.5])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        below = rng.integers(5, 15, 40)
        interval = ratio_interval(rng.binomial(below, 0.3), below)
        assert interval is not None and interval.low is not None and interval.high is not None
        hits += interval.low <= 0.3 <= interval.high
    assert 0.87 <= hits / 200 <= 0.99


def test_a_shift_moves_value_and_ends_together() -> None:
    assert Interval(1.0, 0.5, 2.0).shift(1.0) == Interval(2.0, 1.5, 3.0)
    assert Interval(1.0, None, None).shift(1.0) == Interval(2.0, None, None)
