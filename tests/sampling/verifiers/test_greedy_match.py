import torch

from specinfer.protocols import DrawKey, OutputLaw, Purpose, Verdict, VerifyItem
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.greedy_match import GreedyMatchVerifier
from specinfer.types import Draft

P = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], dtype=torch.float64)


def test_greedy_rows_accept_the_argmax_and_nothing_else() -> None:
    target = GreedyRows([1, 2, 0], P[0], frozenset())
    for tokens, verdict in (
        ([1, 2], Verdict.chain(2, 0)),
        ([1, 1], Verdict.chain(1, 2)),
        ([0, 2], Verdict.chain(0, 1)),
    ):
        assert GreedyMatchVerifier().verify([VerifyItem(target, Draft(tokens), 0, 0)], None) == [verdict]


def test_a_sampled_request_gets_the_plain_sample_and_no_draft_token() -> None:
    randomness = CounterRandomness(0)
    for seed in range(100):
        target = SampledRows(P, randomness, frozenset())
        plain = target.sample(0, DrawKey(seed, 0, Purpose.SAMPLE))
        item = VerifyItem(target, Draft([0, 1]), seed, 0)
        assert GreedyMatchVerifier().verify([item], randomness) == [Verdict((), plain)]


def test_it_declares_an_exact_law() -> None:
    assert GreedyMatchVerifier().law == OutputLaw(is_exact=True)
