import torch

from specinfer.protocols import DrawKey, OutputLaw, Purpose, Verdict, VerifyItem
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.types import Draft

P = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], dtype=torch.float64)
Q = torch.tensor([[0.2, 0.6, 0.2], [0.2, 0.2, 0.6]], dtype=torch.float64)


def test_greedy_rows_accept_the_argmax_and_nothing_else() -> None:
    target = GreedyRows([1, 2, 0], P[0], frozenset())
    for tokens, verdict in (
        ([1, 2], Verdict.chain(2, 0)),
        ([1, 1], Verdict.chain(1, 2)),
        ([0, 2], Verdict.chain(0, 1)),
    ):
        assert SampleMatchVerifier().verify([VerifyItem(target, Draft(tokens), 0, 0)], None) == [verdict]


def test_the_argmax_of_a_sampled_request_is_not_accepted_outright() -> None:
    randomness = CounterRandomness(0)
    items = [VerifyItem(SampledRows(P, randomness, frozenset()), Draft([0]), seed, 0) for seed in range(500)]
    num_accepted = sum(verdict.num_accepted for verdict in SampleMatchVerifier().verify(items, randomness))
    assert 240 < num_accepted < 360  # p of the argmax is 0.6


def test_seeded_tokens_are_those_of_plain_decoding_whatever_q() -> None:
    randomness = CounterRandomness(0)
    lengths = set()
    for seed in range(100):
        target = SampledRows(P, randomness, frozenset())
        plain = [target.sample(row, DrawKey(seed, row, Purpose.SAMPLE)) for row in range(3)]
        draft = [randomness.categorical(Q[row], DrawKey(seed, row, Purpose.DRAFT)) for row in range(2)]
        verdict = SampleMatchVerifier().verify([VerifyItem(target, Draft(draft, Q), seed, 0)], randomness)[0]
        lengths.add(verdict.num_accepted)
        assert [*draft[: verdict.num_accepted], verdict.token_id] == plain[: verdict.num_accepted + 1]
    assert lengths == {0, 1, 2}


def test_a_tree_is_followed_along_the_targets_own_choices() -> None:
    target = GreedyRows([1, 0, 2, 2, 0, 1], P[0], frozenset())
    draft = Draft([0, 1, 0, 2, 1], parents=[-1, -1, 0, 1, 3])  # 1 -> 2 are the choices behind nodes -1 and 1
    assert SampleMatchVerifier().verify([VerifyItem(target, draft, 0, 0)], None) == [Verdict((1, 3), 0)]


def test_it_declares_an_exact_law() -> None:
    assert SampleMatchVerifier().law == OutputLaw(is_exact=True)
