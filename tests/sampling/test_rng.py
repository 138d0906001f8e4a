import math

import pytest
import torch
from scipy import stats

from specinfer.protocols import DrawKey, Purpose, Randomness
from specinfer.sampling import philox_numba
from specinfer.sampling.philox import philox4x32
from specinfer.sampling.rng import CounterRandomness, request_seed


@pytest.fixture(scope="module")
def randomness() -> CounterRandomness:
    return CounterRandomness(3)


def keys(num: int, purpose: Purpose = Purpose.SAMPLE, request_seed: int = 5) -> list[DrawKey]:
    return [DrawKey(request_seed, position, purpose) for position in range(num)]


def test_certain_outcomes_of_bernoulli(randomness: Randomness) -> None:
    assert all(randomness.bernoulli(prob, key) for key in keys(50) for prob in (1.0, 1.5, math.inf))
    assert not any(randomness.bernoulli(prob, key) for key in keys(50) for prob in (0.0, -0.5))


def test_bernoulli_refuses_nan(randomness: Randomness) -> None:
    with pytest.raises(AssertionError, match="NaN"):
        randomness.bernoulli(math.nan, keys(1)[0])


def test_bernoulli_has_its_probability(randomness: Randomness) -> None:
    successes = sum(randomness.bernoulli(0.3, key) for key in keys(20_000, Purpose.ACCEPT))
    assert stats.binomtest(successes, 20_000, 0.3).pvalue > 1e-3


def test_uniform_is_strictly_below_one_at_the_largest_words() -> None:
    assert ((0xFFFFFFFF << 21) | (0xFFFFFFFF >> 11)) * 2.0**-53 < 1.0
    uniforms = [philox_numba.uniform((position, 2, 0), (1, 2)) for position in range(1000)]
    assert min(uniforms) >= 0.0 and max(uniforms) < 1.0
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_categorical_has_the_law_of_its_weights(randomness: Randomness, dtype: torch.dtype) -> None:
    weights = torch.tensor([0.5, 0.0, 2.0, 0.1, 1.4], dtype=dtype)
    counts = torch.bincount(
        torch.tensor([randomness.categorical(weights, key) for key in keys(20_000)]), minlength=5
    ).double()
    assert counts[1] == 0
    expected = (weights.double() / weights.double().sum() * 20_000)[[0, 2, 3, 4]]
    assert stats.chisquare(counts[[0, 2, 3, 4]], expected).pvalue > 1e-3


def test_categorical_over_a_large_vocabulary_reaches_every_region_alike(randomness: Randomness) -> None:
    weights = torch.ones(49_152)
    draws = torch.tensor([randomness.categorical(weights, key) for key in keys(4000)])
    assert stats.chisquare(torch.bincount(draws * 16 // 49_152, minlength=16)).pvalue > 1e-3
    assert stats.chisquare(torch.bincount(draws % 8, minlength=8)).pvalue > 1e-3


def test_race_equals_its_formula_with_full_precision_noise_for_every_element() -> None:
    num_weights, place, philox_key = 1000, (7, 0, 0), (123, 456)
    weights = torch.rand(num_weights, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def exponential(i: int) -> float:
        high = philox4x32((i // 4, *place), philox_key)[i % 4]
        low = philox4x32((i // 4 | 1 << 31, *place), philox_key)[i % 4]
        return -math.log1p(-(((high << 20) | (low >> 12)) + 0.5) * 2.0**-52)

    scores = [float(weights[i]) / exponential(i) for i in range(num_weights)]
    assert philox_numba.race(weights.numpy(), place, philox_key) == scores.index(max(scores))


def test_rounding_noise_in_the_weights_does_not_change_the_token(randomness: Randomness) -> None:
    weights = torch.softmax(torch.randn(5000, generator=torch.Generator().manual_seed(1)), 0)
    noisy = weights * (1 + 1e-6 * torch.randn(5000, generator=torch.Generator().manual_seed(2)))
    assert not torch.equal(weights, noisy)
    assert all(randomness.categorical(weights, key) == randomness.categorical(noisy, key) for key in keys(300))


def test_removing_a_losing_token_does_not_change_the_winner(randomness: Randomness) -> None:
    weights = torch.rand(300, generator=torch.Generator().manual_seed(3))
    for key in keys(50):
        winner = randomness.categorical(weights, key)
        without = weights.clone()
        without[(winner + 1) % 300] = 0
        assert randomness.categorical(without * 7, key) == winner


def test_categorical_refuses_impossible_weights(randomness: Randomness) -> None:
    key = keys(1)[0]
    with pytest.raises(AssertionError, match="all weights are 0"):
        randomness.categorical(torch.zeros(4), key)
    for bad in (math.nan, -0.1):
        with pytest.raises(AssertionError, match="negative or NaN"):
            randomness.categorical(torch.tensor([0.5, bad]), key)


def test_a_draw_is_a_function_of_seed_and_key_alone() -> None:
    weights = torch.ones(1000)
    key, other = DrawKey(9, 4, Purpose.SAMPLE), DrawKey(8, 4, Purpose.SAMPLE)
    first = CounterRandomness(1)
    alone = first.categorical(weights, key)
    first.categorical(weights, other)
    assert first.categorical(weights, key) == alone == CounterRandomness(1).categorical(weights, key)


def test_every_field_of_the_key_and_the_seed_changes_the_noise() -> None:
    weights = torch.ones(100_000)
    base = DrawKey(9, 4, Purpose.SAMPLE, 0)
    variants = [
        (1, base),
        (2, base),
        (1, DrawKey(10, 4, Purpose.SAMPLE, 0)),
        (1, DrawKey(9 + 2**40, 4, Purpose.SAMPLE, 0)),
        (1, DrawKey(9, 5, Purpose.SAMPLE, 0)),
        *((1, DrawKey(9, 4, purpose, 0)) for purpose in (Purpose.DRAFT, Purpose.ACCEPT, Purpose.RESIDUAL)),
        (1, DrawKey(9, 4, Purpose.SAMPLE, 1)),
    ]
    drawn = [CounterRandomness(seed).categorical(weights, key) for seed, key in variants]
    assert len(set(drawn)) == len(drawn)


def test_an_explicit_seed_is_independent_of_arrival_and_gives_itself_to_the_first_completion() -> None:
    assert request_seed(0, 42, arrival_index=0, completion_index=0) == 42
    assert request_seed(0, 42, 1, 1) == request_seed(9, 42, 7, 1) != 42


def test_derived_seeds_are_distinct_and_in_range() -> None:
    seeds = {request_seed(e, None, a, c) for e in range(5) for a in range(20) for c in range(5)}
    seeds |= {request_seed(0, 42, 0, c) for c in range(20)}
    assert len(seeds) == 520
    assert all(0 <= seed < 2**63 for seed in seeds)
