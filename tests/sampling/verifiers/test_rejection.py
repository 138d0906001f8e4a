from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer.errors import PluginError
from specinfer.protocols import DrawKey, OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.rejection import RejectionVerifier, residual
from specinfer.types import Draft


class Recorder:
    """Gives the outcomes it is told and keeps the keys and arguments."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes, self.draws = list(outcomes), []

    def bernoulli(self, prob: float, key: DrawKey) -> bool:
        self.draws.append((key.purpose, key.position, prob))
        return self.outcomes.pop(0)

    def categorical(self, probs: Tensor, key: DrawKey) -> int:
        self.draws.append((key.purpose, key.position, probs.tolist()))
        return self.outcomes.pop(0)


P = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5]], dtype=torch.float64)
Q = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], dtype=torch.float64)


def verify(randomness: Randomness, draft: Draft, p: Tensor = P, position: int = 10) -> Verdict:
    item = VerifyItem(SampledRows(p, randomness, frozenset()), draft, 7, position)
    return RejectionVerifier().verify([item], randomness)[0]


def test_a_stochastic_draft_is_tested_by_p_over_q_and_followed_by_a_plain_sample() -> None:
    recorder = Recorder(True, True, 2)
    assert verify(recorder, Draft([1, 0], Q)) == Verdict.chain(2, 2)
    assert recorder.draws == [
        (Purpose.ACCEPT, 10, 0.5),
        (Purpose.ACCEPT, 11, 0.25),
        (Purpose.SAMPLE, 12, P[2].tolist()),
    ]


def test_a_rejection_draws_from_the_residual_of_its_row() -> None:
    recorder = Recorder(True, False, 1)
    assert verify(recorder, Draft([1, 0], Q)) == Verdict.chain(1, 1)
    assert recorder.draws[-1] == (Purpose.RESIDUAL, 11, [0.0, 1.0, 0.0])


def test_a_one_hot_draft_is_matched_against_the_plain_sample_of_its_row() -> None:
    recorder = Recorder(1, 2)
    assert verify(recorder, Draft([1, 0])) == Verdict.chain(1, 2)
    assert [draw[:2] for draw in recorder.draws] == [(Purpose.SAMPLE, 10), (Purpose.SAMPLE, 11)]


def test_greedy_rows_use_no_noise_even_for_a_stochastic_draft() -> None:
    item = VerifyItem(GreedyRows([1, 2, 0], P[0], frozenset()), Draft([1, 0], Q), 7, 0)
    assert RejectionVerifier().verify([item], Recorder())[0] == Verdict.chain(1, 2)
    item.draft = Draft([1, 2], Q)
    assert RejectionVerifier().verify([item], Recorder())[0] == Verdict.chain(2, 0)


def test_a_masked_token_is_never_accepted() -> None:
    p = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    q = torch.tensor([[1.0, 0.0]])
    for seed in range(200):
        item = VerifyItem(SampledRows(p, CounterRandomness(seed), frozenset()), Draft([0], q), seed, 0)
        assert RejectionVerifier().verify([item], CounterRandomness(seed)) == [Verdict.chain(0, 1)]


def test_a_sibling_is_tested_against_what_the_ones_before_it_left() -> None:
    recorder = Recorder(False, True, 0)
    q = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.0, 0.5]], dtype=torch.float64)  # the second without replacement
    assert verify(recorder, Draft([1, 0], q, parents=[-1, -1])) == Verdict((1,), 0)
    assert recorder.draws == [
        (Purpose.ACCEPT, 10, 0.5),
        (Purpose.ACCEPT, 10, 2.0),  # p of [0.5, 0.25, 0.25] less q is all on token 0
        (Purpose.SAMPLE, 11, P[2].tolist()),
    ]


def test_residual_leaves_p_and_q_as_they_were() -> None:
    p, q = P[0].clone(), Q[0].clone()
    assert residual(p, q).tolist() == [0.25, 0.0, 0.0]
    assert torch.equal(p, P[0]) and torch.equal(q, Q[0])


def test_a_residual_lost_to_rounding_falls_back_to_p() -> None:
    assert residual(P[0], P[0]).tolist() == P[0].tolist()
    recorder = Recorder(False, 2)
    assert verify(recorder, Draft([1], P[:1])) == Verdict.chain(0, 2)
    assert recorder.draws[-1] == (Purpose.RESIDUAL, 10, P[0].tolist())


def test_q_in_another_dtype_than_p_is_taken_to_that_of_p() -> None:
    assert residual(P[0].float(), Q[0]).dtype == torch.float32


def test_a_token_that_its_own_q_cannot_draw_is_a_plugin_error() -> None:
    with pytest.raises(PluginError, match=r"draft token 1 has q=0\.0"):
        verify(Recorder(), Draft([1], torch.tensor([[1.0, 0.0, 0.0]])))


def test_verdicts_come_in_order_and_do_not_depend_on_company() -> None:
    randomness = CounterRandomness(0)
    items = [
        VerifyItem(SampledRows(P, randomness, frozenset()), Draft([0, 1], Q if seed % 2 else None), seed, 3)
        for seed in range(100)
    ]
    together = RejectionVerifier().verify(items, randomness)
    assert together == [RejectionVerifier().verify([item], randomness)[0] for item in items]
    assert {verdict.num_accepted for verdict in together} == {0, 1, 2}


def test_seeded_tokens_with_one_hot_drafts_are_those_of_plain_decoding() -> None:
    randomness = CounterRandomness(0)
    for seed in range(50):
        target = SampledRows(P, randomness, frozenset())
        plain = [target.sample(row, DrawKey(seed, row, Purpose.SAMPLE)) for row in range(3)]
        verdict = RejectionVerifier().verify([VerifyItem(target, Draft([1, 1]), seed, 0)], randomness)[0]
        assert [1] * verdict.num_accepted + [verdict.token_id] == plain[: verdict.num_accepted + 1]


def test_it_declares_an_exact_law() -> None:
    assert RejectionVerifier().law == OutputLaw(is_exact=True)
