"""The real sampler with fixed seeds: chi-square over PAIRS of tokens, since a bias may hide in the second alone."""

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from specinfer.protocols import DrawKey, Purpose, VerifyItem
from specinfer.sampling.rng import CounterRandomness, request_seed
from specinfer.sampling.target import SampledRows
from specinfer.sampling.verifiers.block import BlockVerifier
from specinfer.sampling.verifiers.multi_candidate import MultiCandidateVerifier
from specinfer.sampling.verifiers.rejection import RejectionVerifier
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.sampling.verifiers.threshold import ThresholdVerifier
from specinfer.sampling.verifiers.typical import TypicalVerifier
from specinfer.testing.laws import BiasedVerifier
from specinfer.types import Draft

NUM_PAIRS = 12_000
FIRST = torch.tensor([0.5, 0.3, 0.2])
SECOND = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
"""p of the second token, by the first."""
Q = torch.tensor([[0.3, 0.3, 0.4]])


def pairs_pvalue(verifier: Any, draft_q: Tensor | None) -> float:
    """The chi-square p-value of `NUM_PAIRS` pairs whose first token is drafted and whose second follows."""
    randomness = CounterRandomness(1)
    counts = torch.zeros(3, 3)
    num_accepted = 0
    for arrival in range(NUM_PAIRS):
        seed = request_seed(1, None, arrival, 0)
        drafted = 2 if draft_q is None else randomness.categorical(draft_q[0], DrawKey(seed, 0, Purpose.DRAFT))
        target = SampledRows(torch.stack([FIRST, SECOND[drafted]]), randomness, frozenset())
        verdict = verifier.verify([VerifyItem(target, Draft([drafted], draft_q), seed, 0)], randomness)[0]
        num_accepted += verdict.num_accepted
        if verdict.num_accepted:
            first, second = drafted, verdict.token_id
        else:
            first = verdict.token_id
            second = randomness.categorical(SECOND[first], DrawKey(seed, 1, Purpose.SAMPLE))
        counts[first, second] += 1
    assert 0 < num_accepted < NUM_PAIRS
    expected = (FIRST[:, None] * SECOND).double()
    return stats.chisquare(counts.flatten(), (expected / expected.sum() * NUM_PAIRS).flatten()).pvalue


@pytest.mark.parametrize("draft_q", [None, Q], ids=["one-hot", "stochastic"])
@pytest.mark.parametrize(
    "verifier",
    [RejectionVerifier(), SampleMatchVerifier(), BlockVerifier(), MultiCandidateVerifier()],
    ids=["rejection", "sample_match", "block", "multi_candidate"],
)
def test_pairs_of_tokens_have_the_target_law(verifier: Any, draft_q: Tensor | None) -> None:
    assert pairs_pvalue(verifier, draft_q) > 1e-3


@pytest.mark.parametrize("draft_q", [None, Q], ids=["one-hot", "stochastic"])
def test_the_biased_verifier_is_caught(draft_q: Tensor | None) -> None:
    assert pairs_pvalue(BiasedVerifier(), draft_q) < 1e-6


@pytest.mark.parametrize(
    "verifier", [TypicalVerifier(0.25, 1.0), ThresholdVerifier(0.25)], ids=["typical", "threshold"]
)
def test_a_lossy_verifier_is_caught(verifier: Any) -> None:
    assert pairs_pvalue(verifier, Q) < 1e-6
