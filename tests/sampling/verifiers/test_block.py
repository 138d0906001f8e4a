from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer.errors import PluginError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.block import BlockVerifier, last_standing, length_weights
from specinfer.sampling.verifiers.rejection import RejectionVerifier
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.testing.laws import enumerate_outcomes
from specinfer.types import Draft
from tests.sampling.verifiers.decoding import Decoding, Shape
from tests.sampling.verifiers.test_rejection import Recorder

P = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5]], dtype=torch.float64)
Q = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], dtype=torch.float64)


def verify(verifier: Any, randomness: Randomness, draft: Draft, p: Tensor = P) -> Verdict:
    return verifier.verify([VerifyItem(SampledRows(p, randomness, frozenset()), draft, 7, 10)], randomness)[0]


def expected_length(verifier: Any, drafter: str, length: int, seed: int) -> float:
    shape = Shape(tuple(range(-1, length - 1)), num_tokens=length + 1)
    decoding = Decoding(verifier, drafter, shape, seed)

    def num_accepted(randomness: Randomness) -> int:
        return decoding.verdict(decoding.draft((), randomness), (), randomness).num_accepted

    return sum(weight * count for weight, count in enumerate_outcomes(num_accepted))


@pytest.mark.parametrize("drafter", ["with_replacement", "without_replacement", "one_hot_first", "one_hot_second"])
def test_no_chain_is_accepted_further_on_average_by_rejection(drafter: str) -> None:
    gains = [
        expected_length(BlockVerifier(), drafter, 3, seed) - expected_length(RejectionVerifier(), drafter, 3, seed)
        for seed in range(12)
    ]
    assert min(gains) >= -1e-12
    assert max(gains) > 1e-3


def test_one_token_is_accepted_as_often_as_by_rejection() -> None:
    for seed in range(12):
        by_block = expected_length(BlockVerifier(), "with_replacement", 1, seed)
        assert abs(by_block - expected_length(RejectionVerifier(), "with_replacement", 1, seed)) < 1e-12


@pytest.mark.parametrize(("verifier", "length"), [(RejectionVerifier(), 10 / 9), (BlockVerifier(), 11 / 9)])
def test_the_motivating_example_of_the_paper(verifier: Any, length: float) -> None:
    p = torch.tensor([[1 / 3, 2 / 3]] * 3, dtype=torch.float64)
    q = torch.tensor([[2 / 3, 1 / 3]] * 2, dtype=torch.float64)
    found = 0.0
    for tokens in ([0, 0], [0, 1], [1, 0], [1, 1]):
        draft = Draft(tokens, q)
        outcomes = enumerate_outcomes(lambda randomness, draft=draft: verify(verifier, randomness, draft, p))
        weight = float(q[0, tokens[0]] * q[1, tokens[1]])
        found += weight * sum(chance * verdict.num_accepted for chance, verdict in outcomes)
    assert abs(found - length) < 1e-12


def test_one_draw_decides_the_length_and_one_the_token_after_it() -> None:
    # m = 1, 1/2, 1/8; h_1 = r / (r + 1 - m_1) with r = sum max(0, p_1 / 2 - q_1) = 1/8
    weights = [0.8 * 0.875, 0.2 * 0.875, 0.125]
    for length, purpose, law, token in (
        (0, Purpose.RESIDUAL, [0.25, 0.0, 0.0], 0),
        (1, Purpose.RESIDUAL, [0.0, 0.125, 0.0], 1),
        (2, Purpose.SAMPLE, P[2].tolist(), 2),
    ):
        recorder = Recorder(length, token)
        assert verify(BlockVerifier(), recorder, Draft([1, 0], Q)) == Verdict.chain(length, token)
        assert recorder.draws[0] == (Purpose.ACCEPT, 10, pytest.approx(weights, abs=1e-15))
        assert recorder.draws[1:] == [(purpose, 10 + length, law)]


def test_the_law_of_the_length_sums_to_1_and_is_that_of_the_largest_trial_that_succeeds() -> None:
    assert length_weights([0.5, 0.25]) == [0.375, 0.375, 0.25]
    assert length_weights([1.0, 0.0]) == [0.0, 1.0, 0.0]


def test_rounding_gives_no_chance_above_1() -> None:
    for seed in range(2000):
        law = torch.from_numpy(torch.rand(5, generator=torch.Generator().manual_seed(seed)).double().numpy())
        p = law / law.sum()
        for mass in (1.0, 1.0 - 2**-53, 1.0 - 2**-52):
            assert 0.0 <= last_standing(mass, p, p.flip(0)) <= 1.0
            assert 0.0 <= last_standing(mass, p, p) <= 1.0


def test_a_masked_token_never_stands_nor_what_follows_it() -> None:
    p = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    q = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    for seed in range(200):
        assert verify(BlockVerifier(), CounterRandomness(seed), Draft([0, 0], q), p) == Verdict.chain(0, 1)


def test_a_one_hot_or_a_greedy_law_is_judged_by_match() -> None:
    randomness = CounterRandomness(0)
    for seed in range(50):
        for target, draft in (
            (SampledRows(P, randomness, frozenset()), Draft([0, 1])),
            (GreedyRows([0, 1, 2], P[0], frozenset()), Draft([0, 0], Q)),
        ):
            item = VerifyItem(target, draft, seed, 0)
            assert BlockVerifier().verify([item], randomness) == SampleMatchVerifier().verify([item], randomness)


def test_a_draft_that_branches_is_judged_as_by_rejection_and_one_that_does_not_as_a_chain() -> None:
    randomness = CounterRandomness(0)
    differing = 0
    for seed in range(200):
        target = SampledRows(P, randomness, frozenset())
        fork, chain, plain = (
            VerifyItem(target, Draft([1, 0], Q, parents=parents), seed, 0) for parents in ([-1, -1], [-1, 0], None)
        )
        assert BlockVerifier().verify([fork], randomness) == RejectionVerifier().verify([fork], randomness)
        assert BlockVerifier().verify([chain], randomness) == BlockVerifier().verify([plain], randomness)
        differing += BlockVerifier().verify([plain], randomness) != RejectionVerifier().verify([plain], randomness)
    assert differing


def test_a_token_that_its_own_q_cannot_draw_is_a_plugin_error() -> None:
    with pytest.raises(PluginError, match=r"draft token 1 has q=0\.0"):
        verify(BlockVerifier(), Recorder(), Draft([1], torch.tensor([[1.0, 0.0, 0.0]])))


def test_it_declares_an_exact_law() -> None:
    assert BlockVerifier().law == OutputLaw(is_exact=True)
