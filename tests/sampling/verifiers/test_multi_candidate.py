import itertools
import math
from typing import Any

import pytest
import torch

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.multi_candidate import (
    MultiCandidateVerifier,
    SiblingRule,
    division_factor,
    drawn_laws,
    overlap,
)
from specinfer.sampling.verifiers.rejection import RejectionVerifier
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.testing.laws import enumerate_outcomes
from specinfer.types import Draft
from tests.sampling.verifiers.decoding import Decoding, Shape, table
from tests.sampling.verifiers.test_rejection import Recorder

RECURSIVE, K_SEQ = MultiCandidateVerifier(SiblingRule.RECURSIVE), MultiCandidateVerifier(SiblingRule.K_SEQ)
P = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5]], dtype=torch.float64)
Q = torch.tensor([[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]], dtype=torch.float64)
SEEDS = range(12)


def item(draft: Draft, randomness: Randomness, seed: int = 7) -> VerifyItem:
    return VerifyItem(SampledRows(P, randomness, frozenset()), draft, seed, 10)


def chance(verifier: Any, drafter: str, k: int, seed: int) -> float:
    """That one of `k` siblings stands."""
    decoding = Decoding(verifier, drafter, Shape((-1,) * k, num_tokens=2), seed)

    def num_accepted(randomness: Randomness) -> int:
        return decoding.verdict(decoding.draft((), randomness), (), randomness).num_accepted

    return sum(weight * count for weight, count in enumerate_outcomes(num_accepted))


def best_chance(k: int, seed: int) -> float:
    """Of any exact rule over `k` siblings i.i.d. from q: the least cut of the transport from sibling sets to tokens."""
    p, q = (table(seed, kind, (), 3).tolist() for kind in "pq")
    return min(
        sum(p[x] for x in cut) + 1.0 - sum(q[x] for x in cut) ** k
        for size in range(4)
        for cut in itertools.combinations(range(3), size)
    )


@pytest.mark.parametrize("k", [2, 3])
def test_siblings_drawn_alike_stand_at_least_as_often_by_k_seq_and_never_more_often_than_possible(k: int) -> None:
    gains = []
    for seed in SEEDS:
        alone = chance(RejectionVerifier(), "with_replacement", 1, seed)
        recursive, k_seq = (chance(verifier, "with_replacement", k, seed) for verifier in (RECURSIVE, K_SEQ))
        best = best_chance(k, seed)
        assert alone <= recursive + 1e-12 and recursive <= k_seq + 1e-12 and k_seq <= best + 1e-12
        assert k_seq >= (1 - math.exp(-1)) * best
        gains.append((recursive - alone, k_seq - recursive))
    assert all(max(gain) > 1e-3 for gain in zip(*gains, strict=True))


@pytest.mark.parametrize("drafter", ["without_replacement", "one_hot", "one_hot_first"])
def test_siblings_drawn_from_different_laws_are_judged_alike_by_both_rules(drafter: str) -> None:
    for seed in SEEDS:
        assert chance(RECURSIVE, drafter, 2, seed) == chance(K_SEQ, drafter, 2, seed)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_division_factor_is_the_root_and_lies_on_the_side_of_a_law(k: int) -> None:
    for seed in SEEDS:
        p, q = table(seed, "p", (), 3), table(seed, "q", (), 3)
        rho = division_factor(p, q, k)
        beta = overlap(p, q, rho)
        assert 1.0 <= rho <= k
        assert abs(1 - (1 - beta) ** k - rho * beta) < 1e-12
        left = p - torch.minimum(q, p / rho) * (1 - (1 - beta) ** k) / beta
        assert left.min() >= -1e-15


def test_laws_without_a_common_token_leave_all_of_p() -> None:
    p, q = torch.tensor([1.0, 0.0, 0.0]).double(), torch.tensor([0.0, 0.5, 0.5]).double()
    assert division_factor(p, q, 2) <= 2
    recorder = Recorder(False, False, 0)
    target = SampledRows(torch.stack([p] * 3), recorder, frozenset())
    draft = Draft([1, 1], torch.stack([q, q]), parents=[-1, -1])
    assert K_SEQ.verify([VerifyItem(target, draft, 0, 0)], recorder) == [Verdict((), 0)]
    assert recorder.draws[-1] == (Purpose.RESIDUAL, 0, p.tolist())


def test_k_seq_tests_every_sibling_against_the_same_quotient() -> None:
    recorder = Recorder(False, True, 0)
    draft = Draft([0, 1], Q, parents=[-1, -1])
    assert K_SEQ.verify([item(draft, recorder)], recorder) == [Verdict((1,), 0)]
    rho = division_factor(P[0], Q[0], 2)
    assert recorder.draws[:2] == [
        (Purpose.ACCEPT, 10, pytest.approx(2.0 / rho)),
        (Purpose.ACCEPT, 10, pytest.approx(0.5 / rho)),
    ]


def test_a_one_hot_draft_is_judged_token_by_token_and_not_by_the_plain_sample() -> None:
    for verifier in (RECURSIVE, K_SEQ):
        recorder = Recorder(False, True, 2)
        assert verifier.verify([item(Draft([1, 0], parents=[-1, -1]), recorder)], recorder) == [Verdict((1,), 2)]
        assert recorder.draws == [
            (Purpose.ACCEPT, 10, 0.25),
            (Purpose.ACCEPT, 10, 0.5 / 0.75),
            (Purpose.SAMPLE, 11, P[2].tolist()),
        ]


def test_a_one_hot_q_is_written_out_in_the_dtype_of_p() -> None:
    laws = drawn_laws(VerifyItem(SampledRows(P.float(), Recorder(), frozenset()), Draft([2, 0]), 0, 0))
    assert laws.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]] and laws.dtype == torch.float32


def test_the_recursive_rule_is_that_of_rejection_where_q_is_stochastic() -> None:
    randomness = CounterRandomness(0)
    for seed in range(200):
        drafted = item(Draft([0, 1], Q, parents=[-1, -1]), randomness, seed)
        assert RECURSIVE.verify([drafted], randomness) == RejectionVerifier().verify([drafted], randomness)


def test_greedy_requests_are_judged_by_match_and_use_no_noise() -> None:
    target = GreedyRows([1, 2, 0], P[0], frozenset())
    for draft in (Draft([1, 2]), Draft([0, 1], Q, parents=[-1, -1])):
        greedy = VerifyItem(target, draft, 0, 0)
        for verifier in (RECURSIVE, K_SEQ):
            assert verifier.verify([greedy], Recorder()) == SampleMatchVerifier().verify([greedy], Recorder())


def test_a_rule_that_is_none_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"SiblingRule\.RECURSIVE, SiblingRule\.K_SEQ, got 'k_seq'"):
        MultiCandidateVerifier("k_seq")


def test_it_declares_an_exact_law() -> None:
    assert RECURSIVE.law == K_SEQ.law == OutputLaw(is_exact=True)
