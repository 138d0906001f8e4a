"""The law of what the real engine emits, every outcome enumerated, is the target's."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from specinfer import LLM, CacheConfig, Draft, EngineConfig, SamplingParams, SchedulerConfig
from specinfer.protocols import DrawKey, LoadedModel, Purpose, Randomness
from specinfer.testing.laws import BiasedVerifier, assert_same_law, output_law
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import SampledProposer, ScriptedProposer

VOCAB = 3
NUM_TOKENS = 3
"""The first comes from the prompt, so that drafts of one token are verified; `test_chains...` has longer ones."""
PROMPT = [0, 1, 0]
CONFIG = EngineConfig(cache=CacheConfig(block_size=2, num_blocks=32), record_events=False)
SMALL_CHUNKS = EngineConfig(
    cache=CacheConfig(block_size=2, num_blocks=32),
    scheduler=SchedulerConfig(max_num_batched_tokens=3, max_num_seqs=2),
    record_events=False,
)


def _loaded(vocab_size: int = VOCAB) -> LoadedModel:
    return tiny_loaded_model(vocab_size=vocab_size, max_model_len=32, order=None, sharpness=1.0)


def _ngram(k: int) -> Any:
    from proposers.ngram import NgramProposer

    return NgramProposer(num_draft_tokens=k, min_lookup=1, max_lookup=2)


def _scripted(k: int) -> Any:
    return ScriptedProposer(lambda tokens, length: [(tokens[-1] + i) % 2 for i in range(length)], num_draft_tokens=k)


def _sampled(k: int) -> Any:
    """A q of its own; with three tokens it never draws one of them at odd sums."""

    def law(tokens: list[int]) -> torch.Tensor:
        odd, even = (
            ([0.6, 0.4, 0.0], [0.1, 0.3, 0.6]) if proposer.context.vocab_size == VOCAB else ([0.9, 0.1], [0.3, 0.7])
        )
        return torch.tensor(odd if sum(tokens) % 2 else even, dtype=torch.float64)

    proposer = SampledProposer(law=law, num_draft_tokens=k)
    return proposer


PROPOSERS: dict[str, Callable[[int], Any]] = {"ngram": _ngram, "scripted": _scripted, "sampled": _sampled}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.75},
    "min_p": {"min_p": 0.4},
    "penalties": {"frequency_penalty": 0.9, "presence_penalty": 0.4, "repetition_penalty": 1.4},
    "logit_bias": {"logit_bias": {1: 1.5, 2: -100.0}},
    "bad_words": {"bad_words": ["ab", "c"]},
    "allowed": {"allowed_token_ids": [0, 2]},
    "processor": {"logits_processors": [lambda output, logits: logits * (1 + len(output))]},
    "stop": {"stop_token_ids": [1], "min_tokens": 2},
}


def _law(
    proposer: Any,
    params: dict[str, Any],
    *,
    verifier: Any = "rejection",
    config: EngineConfig = CONFIG,
    beside: int = 0,
    vocab_size: int = VOCAB,
    num_tokens: int = NUM_TOKENS,
) -> dict[tuple[int, ...], float]:
    """The law of one request's tokens, beside `beside` greedy requests (whose tokens draw nothing)."""
    loaded = _loaded(vocab_size)
    if "logit_bias" in params:
        params = {"logit_bias": {i: bias for i, bias in params["logit_bias"].items() if i < vocab_size}}
    sampled = SamplingParams(max_tokens=num_tokens, seed=0, **params)
    greedy = SamplingParams(max_tokens=num_tokens + 1, temperature=0)

    def run(randomness: Randomness) -> Sequence[int]:
        llm = LLM(config, proposer, verifier, loaded_model=loaded, randomness=randomness)
        outputs = llm.generate([PROMPT, *[[1, 2]] * beside], [sampled, *[greedy] * beside])
        assert all(output.draft_error is None for output in outputs)
        return outputs[0].outputs[0].token_ids

    return output_law(run)


def test_without_drafts_the_law_is_the_models() -> None:
    loaded = _loaded()
    expected: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(VOCAB), repeat=NUM_TOKENS):
        weight = 1.0
        for i, token in enumerate(tokens):
            weight *= float(torch.softmax(loaded.model.logits([*PROMPT, *tokens[:i]]), -1)[token])  # type: ignore[attr-defined]
        expected[tokens] = weight
    assert_same_law(_law(None, {}), expected)


@pytest.mark.parametrize("verifier", ["rejection", "greedy_match"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("proposer", PROPOSERS)
def test_the_law_is_the_targets_under_every_parameter(proposer: str, sampling: str, verifier: str) -> None:
    params = SAMPLINGS[sampling]
    assert_same_law(_law(PROPOSERS[proposer](2), params, verifier=verifier), _law(None, params))


@pytest.mark.parametrize("config", [CONFIG, SMALL_CHUNKS], ids=["one chunk", "small chunks"])
@pytest.mark.parametrize("beside", [0, 1])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("proposer", PROPOSERS)
def test_the_law_is_the_targets_in_every_batch(proposer: str, k: int, beside: int, config: EngineConfig) -> None:
    params = {"temperature": 1.3, "frequency_penalty": 0.5}
    assert_same_law(_law(PROPOSERS[proposer](k), params, config=config, beside=beside), _law(None, params))


@pytest.mark.parametrize("verifier", ["rejection", "greedy_match"])
@pytest.mark.parametrize("sampling", ["plain", "top_p", "penalties", "logit_bias", "processor"])
@pytest.mark.parametrize("proposer", PROPOSERS)
def test_chains_of_two_keep_the_law(proposer: str, sampling: str, verifier: str) -> None:
    params, shape = SAMPLINGS[sampling], {"vocab_size": 2, "num_tokens": 4}
    found = _law(PROPOSERS[proposer](2), params, verifier=verifier, **shape)
    assert_same_law(found, _law(None, params, **shape))


def test_a_q_that_sums_to_one_only_nearly_keeps_the_law() -> None:
    """A drafter's rounded sum: the token is drawn from the normalised weights, so these are verified with."""
    weights = torch.tensor([0.5, 0.3005, 0.2], dtype=torch.float64)
    proposer = SampledProposer(law=lambda tokens: weights, num_draft_tokens=2)
    assert_same_law(_law(proposer, {}), _law(None, {}))


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_a_biased_verifier_is_caught(proposer: str) -> None:
    with pytest.raises(AssertionError, match="laws differ"):
        assert_same_law(_law(PROPOSERS[proposer](2), {}, verifier=BiasedVerifier()), _law(None, {}))


def test_a_draft_that_its_own_tokens_make_long_is_cut_and_never_dropped_when_blocks_are_short() -> None:
    """Whether it grows is decided before each draw, so any length is exact; what a full pool does to it must be too.

    Beside it runs a request that takes every block but one; a dropped long draft would favour the tokens of short ones.
    """

    def law(tokens: list[int]) -> torch.Tensor:
        return torch.tensor([0.5, 0.5], dtype=torch.float64)

    class Growing(SampledProposer):
        def propose(self, requests: Sequence[Any], num_draft_tokens: Sequence[int]) -> list[Any]:
            drafts = super().propose(requests, [1] * len(requests))
            return [
                draft if draft is None or draft.token_ids[0] == 0 or length < 2 else self._second(request, draft)
                for request, length, draft in zip(requests, num_draft_tokens, drafts, strict=True)
            ]

        def _second(self, request: Any, draft: Any) -> Any:
            position = len(request.token_ids) - request.num_prompt_tokens + 1
            q = self.law([])
            token = self.context.randomness.categorical(q, DrawKey(request.seed, position, Purpose.DRAFT, 1))
            return Draft([*draft.token_ids, token], probs=torch.stack([draft.probs[0], q]))

    loaded = _loaded(2)
    tight = EngineConfig(cache=CacheConfig(block_size=1, num_blocks=9, enable_prefix_caching=False))
    drawn = SamplingParams(max_tokens=4, seed=0, temperature=1.0)
    beside = SamplingParams(max_tokens=4, temperature=0, num_draft_tokens=0)
    lengths: set[int] = set()

    def run(proposer: Callable[[], Any], config: EngineConfig) -> Callable[[Randomness], Sequence[int]]:
        def one(randomness: Randomness) -> Sequence[int]:
            llm = LLM(config, proposer(), loaded_model=loaded, randomness=randomness)
            outputs = llm.generate([[0, 1, 0], [1, 1, 1]], [drawn, beside])
            assert outputs[0].draft_error is None and outputs[0].error is None
            lengths.update(len(event.draft_token_ids) for event in llm.take_events())
            return outputs[0].outputs[0].token_ids

        return one

    plain = output_law(run(lambda: None, EngineConfig()))
    lengths.clear()
    assert_same_law(output_law(run(lambda: Growing(law=law, num_draft_tokens=2), tight)), plain)
    assert 1 in lengths
