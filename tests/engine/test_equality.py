"""Whatever is combined with whatever, the tokens are those of plain decoding."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams, SchedulerConfig
from specinfer.protocols import LoadedModel
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import SampledProposer, ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

NUM_TOKENS = 40
PROMPTS = [[1, 2, 3], [5] * 9, [4, 4, 1, 7, 2, 2, 6, 1, 3, 3, 5, 0, 2], [7]]
PLENTY = CacheConfig(block_size=4, num_blocks=200)


def _loaded(**fields: Any) -> LoadedModel:
    return tiny_loaded_model(vocab_size=8, max_model_len=128, order=2, **fields)


def _ngram(loaded: LoadedModel, k: int) -> Any:
    from proposers.ngram import NgramProposer

    return NgramProposer(num_draft_tokens=k)


def _oracle(loaded: LoadedModel, k: int) -> Any:
    return ScriptedProposer(oracle_script(loaded.model), num_draft_tokens=k)  # type: ignore[arg-type]


def _stochastic(loaded: LoadedModel, k: int) -> Any:
    """Draws from a flatter law than the target's."""
    law = lambda tokens: torch.softmax(loaded.model.logits(tokens) * 0.7, -1)  # type: ignore[attr-defined]  # noqa: E731
    return SampledProposer(law=law, num_draft_tokens=k)


PROPOSERS: dict[str, Callable[[LoadedModel, int], Any]] = {
    "ngram": _ngram,
    "oracle": _oracle,
    "stochastic": _stochastic,
}
SHAPES = {
    "roomy": EngineConfig(cache=PLENTY),
    "no prefix cache": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=200, enable_prefix_caching=False)),
    "one-token blocks": EngineConfig(cache=CacheConfig(block_size=1, num_blocks=800)),
    "small chunks": EngineConfig(cache=PLENTY, scheduler=SchedulerConfig(max_num_batched_tokens=5, max_num_seqs=4)),
    "one at a time": EngineConfig(cache=PLENTY, scheduler=SchedulerConfig(max_num_seqs=1)),
    "preempting": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=16)),
}


def _run(config: EngineConfig, loaded: LoadedModel, proposer: Any, verifier: str, params: Any) -> tuple[LLM, list[Any]]:
    llm = LLM(config, proposer, verifier, loaded_model=loaded)
    outputs = llm.generate(PROMPTS, params)
    llm.engine.check_integrity()
    assert llm.engine.pool.num_free == llm.engine.pool.num_blocks
    return llm, outputs


@pytest.mark.parametrize("verifier", ["rejection", "greedy_match"])
@pytest.mark.parametrize("k", [1, 3, 5, 8])
@pytest.mark.parametrize(("proposer", "shape"), list(itertools.product(PROPOSERS, SHAPES)))
def test_greedy_tokens_equal_the_reference(proposer: str, shape: str, k: int, verifier: str) -> None:
    loaded = _loaded()
    config = SHAPES[shape]
    _, outputs = _run(
        config, loaded, PROPOSERS[proposer](loaded, k), verifier, SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    )
    drafted = sum(output.stats.num_draft_tokens for output in outputs)
    accepted = sum(output.stats.num_accepted_tokens for output in outputs)
    assert 0 < accepted < drafted, "a test without accepted and rejected drafts shows nothing"
    if shape == "preempting":
        assert sum(output.stats.num_preemptions for output in outputs) > 0
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output.outputs[0].token_ids == greedy_continuation(loaded.model, prompt, NUM_TOKENS)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("proposer", [None, "ngram", "oracle"])
def test_seeded_tokens_are_the_same_in_every_shape_and_equal_plain_decoding(proposer: str | None, shape: str) -> None:
    loaded = _loaded(sharpness=3.0)
    params = [SamplingParams(temperature=0.8, seed=i, max_tokens=NUM_TOKENS) for i in range(len(PROMPTS))]
    alone = [
        LLM(SHAPES["roomy"], loaded_model=loaded).generate(prompt, one)[0].outputs[0].token_ids
        for prompt, one in zip(PROMPTS, params, strict=True)
    ]
    component = PROPOSERS[proposer](loaded, 4) if proposer else None
    _, outputs = _run(SHAPES[shape], loaded, component, "rejection", params)
    if proposer:
        assert sum(output.stats.num_accepted_tokens for output in outputs) > 0
    assert [output.outputs[0].token_ids for output in outputs] == alone


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "preempting"])
def test_a_stochastic_drafter_gives_a_seeded_request_the_same_tokens_in_every_company(shape: str) -> None:
    loaded = _loaded()
    params = [SamplingParams(temperature=1, seed=i, max_tokens=NUM_TOKENS) for i in range(len(PROMPTS))]
    _, expected = _run(SHAPES["roomy"], loaded, _stochastic(loaded, 3), "rejection", params)
    _, outputs = _run(SHAPES[shape], loaded, _stochastic(loaded, 3), "rejection", params)
    if shape == "small chunks":  # the budget shortens drafts there, so only the law stays the same
        return
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in expected]


@pytest.mark.parametrize(
    "params",
    [
        {"frequency_penalty": 2.0},
        {"presence_penalty": 1.5, "repetition_penalty": 1.3},
        {"logit_bias": {0: -100.0, 3: 2.0}},
        {"allowed_token_ids": [1, 2, 3, 4]},
        {"bad_words": ["b", "cd"]},
        {"min_tokens": 20, "stop_token_ids": [1, 2]},
        {"logits_processors": [lambda output, logits: logits + 0.3 * len(output) * (logits > 0)]},
    ],
    ids=lambda params: next(iter(params)),
)
@pytest.mark.parametrize("proposer", PROPOSERS)
def test_each_draft_row_sees_its_own_prefix(proposer: str, params: dict[str, Any]) -> None:
    loaded = _loaded()
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, **params)
    _, plain = _run(SHAPES["roomy"], loaded, None, "rejection", sampling)
    _, outputs = _run(SHAPES["roomy"], loaded, PROPOSERS[proposer](loaded, 4), "rejection", sampling)
    assert sum(output.stats.num_draft_tokens for output in outputs) > 0
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]


def test_logprobs_are_those_without_speculation_one_a_token() -> None:
    loaded = _loaded()
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, logprobs=1, prompt_logprobs=2)
    _, plain = _run(SHAPES["roomy"], loaded, None, "rejection", sampling)
    _, outputs = _run(SHAPES["small chunks"], loaded, _oracle(loaded, 3), "rejection", sampling)
    for expected, output in zip(plain, outputs, strict=True):
        assert output.outputs[0].logprobs == expected.outputs[0].logprobs
        assert len(output.outputs[0].logprobs) == len(output.outputs[0].token_ids)
        assert output.prompt_logprobs == expected.prompt_logprobs
        assert len(output.prompt_logprobs) == len(output.prompt_token_ids)


def test_without_drafts_the_plain_path_is_taken() -> None:
    plain_model, drafted_model = _loaded(), _loaded()
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    _, plain = _run(SHAPES["roomy"], plain_model, None, "rejection", params)
    proposer = _oracle(drafted_model, 0)
    _, outputs = _run(SHAPES["roomy"], drafted_model, proposer, "rejection", params)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    assert proposer.num_calls == 0
    counts = [(loaded.model.num_forwards, loaded.model.num_tokens) for loaded in (plain_model, drafted_model)]  # type: ignore[attr-defined]
    assert counts[0] == counts[1]


def test_speculation_switched_off_for_one_request_makes_that_one_plain() -> None:
    loaded = _loaded()
    params = [SamplingParams(temperature=0, max_tokens=NUM_TOKENS, num_draft_tokens=k) for k in (0, None, 2, 6)]
    llm, outputs = _run(SHAPES["roomy"], loaded, _oracle(loaded, 4), "rejection", params)
    longest = {o.request_id: 0 for o in outputs}
    for event in llm.events:
        longest[event.request_id] = max(longest[event.request_id], len(event.draft_token_ids))
    assert list(longest.values()) == [0, 4, 2, 6]
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output.outputs[0].token_ids == greedy_continuation(loaded.model, prompt, NUM_TOKENS)  # type: ignore[arg-type]


def test_a_repeated_word_is_drafted_by_ngram_and_changes_nothing() -> None:
    loaded = tiny_loaded_model(vocab_size=258, max_model_len=1024, order=1)
    from proposers.ngram import NgramProposer

    proposer = NgramProposer(num_draft_tokens=4, min_lookup=2, max_lookup=5)
    prompt = "serving " * 48
    params = SamplingParams(temperature=0, max_tokens=200)
    plain = LLM(EngineConfig(), loaded_model=loaded).generate(prompt, params)[0]
    output = LLM(EngineConfig(), proposer, loaded_model=loaded).generate(prompt, params)[0]
    assert output.stats.num_accepted_tokens > 0
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids
