"""The law of what a verifier emits, every outcome enumerated, against the product of the reference's laws."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specinfer.protocols import DrawKey, Purpose, Randomness, VerifyItem
from specinfer.sampling.processing import LawSegment, process
from specinfer.sampling.target import SampledRows
from specinfer.sampling.verifiers.block import BlockVerifier
from specinfer.sampling.verifiers.rejection import RejectionVerifier
from specinfer.sampling.verifiers.sample_match import SampleMatchVerifier
from specinfer.testing.laws import BiasedVerifier, assert_same_law, output_law
from specinfer.types import Draft, SamplingParams
from tests.sampling.reference_law import PROMPT, compile_law, reference_output_law, tiny_logits, tiny_proposal

SEED = 0


def sharpen_after_1(prefix: Sequence[int], logits: Tensor) -> Tensor:
    return logits * 2 if prefix[-1:] == [1] else logits


PARAMS = {
    "plain": SamplingParams(),
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.6),
    "top_k": SamplingParams(top_k=2),
    "top_p": SamplingParams(top_p=0.8),
    "min_p": SamplingParams(min_p=0.25),
    "penalties": SamplingParams(repetition_penalty=1.4, frequency_penalty=0.9, presence_penalty=-0.6),
    "logit_bias": SamplingParams(logit_bias={0: -2.0, 2: 1.5}),
    "bad_words": SamplingParams(bad_words=["bc", "aa", "cbb"]),
    "allowed": SamplingParams(allowed_token_ids=[0, 2]),
    "min_tokens": SamplingParams(min_tokens=2),
    "processor": SamplingParams(logits_processors=[sharpen_after_1]),
    "everything": SamplingParams(
        temperature=1.3,
        top_k=2,
        top_p=0.9,
        min_p=0.05,
        frequency_penalty=0.5,
        logit_bias={1: 0.5},
        bad_words=["bb"],
        min_tokens=1,
        logits_processors=[sharpen_after_1],
    ),
}
VERIFIERS = {"rejection": RejectionVerifier(), "block": BlockVerifier(), "sample_match": SampleMatchVerifier()}


def scripted(prefix: Sequence[int], vocab_size: int, length: Any, draw: Callable[[int, Tensor], int]) -> Draft:
    """One-hot q: the tokens count on from the last one."""
    return Draft([(prefix[-1] + i) % vocab_size for i in range(length)])


def sampled(prefix: Sequence[int], vocab_size: int, length: Any, draw: Callable[[int, Tensor], int]) -> Draft:
    """Stochastic q: a law of its own at every prefix."""
    token_ids, probs = [], []
    for _ in range(length):
        probs.append(tiny_proposal(prefix + tuple(token_ids), vocab_size))
        token_ids.append(draw(len(token_ids), probs[-1]))
    return Draft(token_ids, torch.stack(probs))


DRAFTERS = {"one-hot": scripted, "stochastic": sampled}


class Decoding:
    """Draft, process, verify, commit: the loop of an engine, for one request and without one."""

    def __init__(
        self, params: Any, verifier: Any, drafter: Any, *, vocab_size: int = 3, num_tokens: int = 3, max_drafts: int = 2
    ) -> None:
        self.law = compile_law(params, vocab_size)
        self.verifier, self.drafter = verifier, drafter
        self.vocab_size, self.num_tokens, self.max_drafts = vocab_size, num_tokens, max_drafts
        self.num_accepted = self.num_rejections = 0

    def __call__(self, randomness: Randomness) -> list[int]:
        outputs = []
        while len(outputs) < self.num_tokens:
            outputs += self.step(outputs, randomness)
        return outputs

    def step(self, outputs: Sequence[int], randomness: Randomness) -> list[int]:
        position = len(outputs)
        length = min(self.max_drafts, self.num_tokens - position - 1)
        draft = (
            self.drafter(
                PROMPT + tuple(outputs),
                self.vocab_size,
                length,
                lambda i, q: randomness.categorical(q, DrawKey(SEED, position + i, Purpose.DRAFT, index=i)),
            )
            if length
            else Draft([])
        )
        prefixes = [PROMPT + tuple(outputs) + tuple(draft.token_ids[:i]) for i in range(length + 1)]
        logits = torch.stack([tiny_logits(prefix, self.vocab_size) for prefix in prefixes])
        target = process(logits, [LawSegment(self.law, outputs, draft.token_ids)], randomness)[0]
        item = VerifyItem(target, draft, SEED, position)
        if not length:
            return [target.sample(0, item.key(0, Purpose.SAMPLE))]
        before = [target.probs(row).clone() for row in range(length + 1)]
        verdict = self.verifier.verify([item], randomness)[0]
        assert all(torch.equal(target.probs(row), p) for row, p in enumerate(before)), "p was modified"
        self.num_accepted += verdict.num_accepted
        self.num_rejections += verdict.num_accepted < length
        return [*draft.token_ids[: verdict.num_accepted], verdict.token_id]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("params", PARAMS)
def test_output_law_is_the_target_law(params: Any, drafter: Any, verifier: Any) -> None:
    decoding = Decoding(PARAMS[params], VERIFIERS[verifier], DRAFTERS[drafter])
    law = output_law(decoding)
    if params == "greedy":  # a single path, on which a scripted draft need not be met by both fates
        assert decoding.num_rejections + decoding.num_accepted
    else:
        assert decoding.num_rejections and decoding.num_accepted
    assert_same_law(law, reference_output_law(PARAMS[params], 3, 3))


@pytest.mark.parametrize("max_drafts", [1, 3])
@pytest.mark.parametrize("verifier", ["rejection", "block"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_law_of_short_and_long_chains(drafter: Any, verifier: Any, max_drafts: int) -> None:
    params = SamplingParams(temperature=0.8, top_k=2, frequency_penalty=0.5)
    decoding = Decoding(params, VERIFIERS[verifier], DRAFTERS[drafter], num_tokens=4, max_drafts=max_drafts)
    law = output_law(decoding)
    assert decoding.num_rejections and decoding.num_accepted
    assert_same_law(law, reference_output_law(params, 3, 4))


@pytest.mark.parametrize("vocab_size", [5, 6])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_law_over_larger_vocabularies(drafter: Any, vocab_size: int) -> None:
    params = SamplingParams(top_p=0.9)
    decoding = Decoding(params, RejectionVerifier(), DRAFTERS[drafter], vocab_size=vocab_size, num_tokens=2)
    assert_same_law(output_law(decoding), reference_output_law(params, vocab_size, 2))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("params", [name for name in PARAMS if name != "greedy"])
def test_the_biased_verifier_is_caught(params: Any, drafter: Any) -> None:
    decoding = Decoding(PARAMS[params], BiasedVerifier(), DRAFTERS[drafter])
    law = output_law(decoding)
    assert decoding.num_rejections
    with pytest.raises(AssertionError, match="the laws differ"):
        assert_same_law(law, reference_output_law(PARAMS[params], 3, 3))


WEIGHTS = st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 1.0, 3.0]), min_size=4, max_size=4).filter(any)


def as_law(weights: Any) -> Tensor:
    return torch.tensor(weights, dtype=torch.float64) / sum(weights)


@pytest.mark.parametrize("verifier", VERIFIERS.values(), ids=VERIFIERS)
@settings(max_examples=50, deadline=None)
@given(st.lists(WEIGHTS, min_size=3, max_size=3), st.lists(WEIGHTS, min_size=2, max_size=2))
def test_any_p_and_q_give_back_p_at_the_first_token_and_at_every_one_after_an_acceptance(
    verifier: Any, p_weights: Any, q_weights: Any
) -> None:
    p, q = torch.stack([as_law(w) for w in p_weights]), torch.stack([as_law(w) for w in q_weights])

    def emitted(randomness: Randomness) -> list[int]:
        draft = [randomness.categorical(q[i], DrawKey(SEED, i, Purpose.DRAFT)) for i in range(2)]
        item = VerifyItem(SampledRows(p, randomness, frozenset()), Draft(draft, q), SEED, 0)
        verdict = verifier.verify([item], randomness)[0]
        tokens = [*draft[: verdict.num_accepted], verdict.token_id]
        # The rows' laws do not depend on the prefix here, so plain sampling can go on with them.
        rest = [DrawKey(SEED + 1, row, Purpose.SAMPLE) for row in range(len(tokens), 3)]
        return tokens + [randomness.categorical(p[key.position], key) for key in rest]

    expected = {
        (a, b, c): float(p[0, a] * p[1, b] * p[2, c])
        for a in range(4)
        for b in range(4)
        for c in range(4)
        if p[0, a] * p[1, b] * p[2, c] > 0
    }
    assert_same_law(output_law(emitted), expected)
