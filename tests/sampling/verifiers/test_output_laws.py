"""Every verifier, every kind of draft: the law of what is emitted, draft included, against the product of the p."""

from typing import Any

import pytest

from specinfer.protocols import Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.block import BlockVerifier
from specinfer.sampling.verifiers.greedy_match import GreedyMatchVerifier
from specinfer.sampling.verifiers.multi_candidate import MultiCandidateVerifier, SiblingRule, drawn_laws
from specinfer.sampling.verifiers.rejection import RejectionVerifier, try_siblings
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.sampling.verifiers.threshold import ThresholdVerifier
from specinfer.sampling.verifiers.typical import TypicalVerifier
from specinfer.testing.laws import BiasedVerifier, assert_same_law, output_law
from tests.sampling.verifiers.decoding import DRAFTERS, SHAPES, Decoding, Shape

EXACT: dict[str, Any] = {
    "rejection": RejectionVerifier(),
    "block": BlockVerifier(),
    "recursive": MultiCandidateVerifier(SiblingRule.RECURSIVE),
    "k_seq": MultiCandidateVerifier(SiblingRule.K_SEQ),
    "sample_match": SampleMatchVerifier(),
    "greedy_match": GreedyMatchVerifier(),
}
LOSSY: dict[str, Any] = {"typical": TypicalVerifier(), "threshold": ThresholdVerifier()}
TABLES = (1, 2, 3)


def check(verifier: str, drafter: str, shape: Shape, *, greedy: bool = False) -> tuple[int, int]:
    """Assert the exact law on every table; how many drafted tokens were accepted and how many drafts cut short."""
    num_accepted = num_rejections = 0
    for seed in TABLES:
        decoding = Decoding({**EXACT, **LOSSY}[verifier], drafter, shape, seed, greedy=greedy)
        assert_same_law(output_law(decoding), decoding.expected_law())
        num_accepted += decoding.num_accepted
        num_rejections += decoding.num_rejections
    return num_accepted, num_rejections


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("verifier", EXACT)
def test_an_exact_verifier_gives_the_target_law_of_sampled_requests(verifier: str, drafter: str, shape: str) -> None:
    num_accepted, num_rejections = check(verifier, drafter, SHAPES[shape])
    assert num_rejections and bool(num_accepted) == (verifier != "greedy_match")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("verifier", [*EXACT, *LOSSY])
def test_every_verifier_gives_the_target_law_of_greedy_requests(verifier: str, drafter: str, shape: str) -> None:
    num_accepted, _ = check(verifier, drafter, SHAPES[shape], greedy=True)
    assert num_accepted


@pytest.mark.parametrize("drafter", ["with_replacement", "one_hot_second"])
@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_the_law_and_the_noise_hold_over_several_steps_of_longer_chains(verifier: str, drafter: str) -> None:
    assert all(check(verifier, drafter, Shape((-1, 0, 1), num_tokens=4, num_steps=3)))


class BiasedTree:
    """Wrong on purpose: after the siblings fell it draws from p, not from what they left."""

    def verify(self, items: Any, randomness: Randomness) -> list[Verdict]:
        return [self._verify(item, randomness) for item in items]

    def _verify(self, item: VerifyItem, randomness: Randomness) -> Verdict:
        children, path, row = item.draft.children(), [], 0
        while children[row]:
            node, _ = try_siblings(item, drawn_laws(item), children[row], len(path), randomness)
            if node is None:
                break
            path.append(node)
            row = node + 1
        return Verdict(tuple(path), item.target.sample(row, item.key(len(path), Purpose.SAMPLE)))


class EagerVerifier:
    """Wrong on purpose: it draws for positions that the step may not reach and the next step draws again."""

    def verify(self, items: Any, randomness: Randomness) -> list[Verdict]:
        for depth in range(len(items[0].draft.token_ids)):
            randomness.bernoulli(0.5, items[0].key(depth, Purpose.ACCEPT))
        return RejectionVerifier().verify(
            [VerifyItem(items[0].target, items[0].draft, 1, items[0].position)], randomness
        )


def is_off(verifier: Any, drafter: str, shape: Shape, seed: int) -> bool:
    decoding = Decoding(verifier, drafter, shape, seed)
    try:
        assert_same_law(output_law(decoding), decoding.expected_law())
    except AssertionError as error:
        assert "the laws differ" in str(error)
        return True
    return False


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_biased_chain_verifier_is_caught(drafter: str) -> None:
    assert any(is_off(BiasedVerifier(), drafter, SHAPES["chain"], seed) for seed in TABLES)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_biased_tree_verifier_is_caught(drafter: str, shape: str) -> None:
    assert any(is_off(BiasedTree(), drafter, SHAPES[shape], seed) for seed in TABLES)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("verifier", LOSSY)
def test_a_lossy_verifier_is_caught_on_sampled_requests(verifier: str, drafter: str, shape: str) -> None:
    assert any(is_off(LOSSY[verifier], drafter, SHAPES[shape], seed) for seed in TABLES)


def test_a_verifier_that_shares_noise_between_steps_is_caught() -> None:
    with pytest.raises(AssertionError, match="noise is shared"):
        output_law(Decoding(EagerVerifier(), "with_replacement", SHAPES["chain"], 1))
