import contextlib
import math
from typing import Any

import pytest
import torch

from specinfer.protocols import DrawKey, Purpose, Randomness
from specinfer.testing.laws import assert_same_law, enumerate_outcomes, output_law


def key(position: int, purpose: Purpose = Purpose.SAMPLE) -> DrawKey:
    return DrawKey(0, position, purpose)


def two_tokens(randomness: Randomness) -> tuple[int, int]:
    first = randomness.categorical(torch.tensor([1.0, 0.0, 3.0]), key(0))
    second = int(randomness.bernoulli(0.2 if first == 0 else 0.7, key(1)))
    return first, second


def test_every_path_is_replayed_once_depth_first_with_its_weight() -> None:
    outcomes = list(enumerate_outcomes(two_tokens))
    assert [result for _, result in outcomes] == [(0, 1), (0, 0), (2, 1), (2, 0)]
    assert [weight for weight, _ in outcomes] == pytest.approx([0.25 * 0.2, 0.25 * 0.8, 0.75 * 0.7, 0.75 * 0.3])


def test_output_law_adds_up_paths_that_give_the_same_tokens() -> None:
    law = output_law(lambda randomness: [sum(two_tokens(randomness))])
    assert law == pytest.approx({(1,): 0.05, (0,): 0.2, (3,): 0.525, (2,): 0.225})


def test_certain_outcomes_do_not_branch() -> None:
    def run(randomness: Randomness) -> list[int]:
        assert randomness.bernoulli(1.0, key(0)) and randomness.bernoulli(7.0, key(1))
        assert not randomness.bernoulli(0.0, key(2))
        return [randomness.categorical(torch.tensor([0.0, 5.0]), key(3))]

    assert list(enumerate_outcomes(run)) == [(1.0, [1])]


def test_a_run_without_draws_has_one_path() -> None:
    assert list(enumerate_outcomes(lambda randomness: "done")) == [(1.0, "done")]


@pytest.mark.parametrize("prob", [0.5, 1.0])
def test_noise_asked_for_twice_is_an_error(prob: float) -> None:
    def run(randomness: Randomness) -> list[int]:
        return [randomness.bernoulli(prob, key(0)), randomness.categorical(torch.ones(2), key(0))]

    with pytest.raises(AssertionError, match="noise is shared"):
        output_law(run)


def test_a_wrong_draw_is_an_error_even_where_the_run_swallows_it() -> None:
    def run(randomness: Randomness) -> list[int]:
        with contextlib.suppress(AssertionError):
            randomness.categorical(torch.zeros(2), key(0))
        return []

    with pytest.raises(AssertionError, match="all weights are 0"):
        output_law(run)


def test_the_same_position_may_be_drawn_for_two_purposes() -> None:
    def run(randomness: Randomness) -> list[int]:
        return [
            randomness.categorical(torch.ones(2), key(0, purpose)) for purpose in (Purpose.ACCEPT, Purpose.RESIDUAL)
        ]

    assert output_law(run) == {(a, b): 0.25 for a in (0, 1) for b in (0, 1)}


def test_a_run_that_remembers_earlier_runs_is_an_error() -> None:
    runs = []

    def draws_less(randomness: Randomness) -> list[int]:
        runs.append(1)
        return [randomness.categorical(torch.ones(3), key(position)) for position in range(3 - len(runs) % 2)]

    with pytest.raises(AssertionError, match="no function of its draws"):
        output_law(draws_less)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, math.nan], [1.0, -0.5]])
def test_impossible_weights_are_an_error(weights: Any) -> None:
    with pytest.raises(AssertionError, match="weight"):
        output_law(lambda randomness: [randomness.categorical(torch.tensor(weights), key(0))])


def test_a_nan_probability_is_an_error() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        output_law(lambda randomness: [randomness.bernoulli(math.nan, key(0))])


def test_laws_that_differ_fail_with_the_worst_sequence() -> None:
    assert_same_law({(0,): 0.5, (1,): 0.5}, {(0,): 0.5, (1,): 0.5 + 1e-13})
    with pytest.raises(AssertionError, match=r"differ by 0\.1 at \(1,\)"):
        assert_same_law({(0,): 0.5, (1,): 0.3, (2,): 0.2}, {(0,): 0.55, (1,): 0.2, (2,): 0.25})


def test_a_law_that_does_not_sum_to_one_fails() -> None:
    with pytest.raises(AssertionError, match=r"found law sums to 0\.9"):
        assert_same_law({(0,): 0.9}, {(0,): 0.9, (1,): 0.1})
