"""Whatever is combined with whatever, is the output the target's?

The matrix is generated from the registry: every installed proposer, chain and tree, under every installed verifier, in
every engine shape. Exact verifiers must give the target's law to 1e-12 and its greedy tokens; lossy ones must be caught
by the same check.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from specinfer import LLM, EngineConfig, SamplingParams, registry
from specinfer.config import CacheConfig, SchedulerConfig
from specinfer.protocols import Randomness
from specinfer.testing import assert_same_law, output_law
from specinfer.types import RequestOutput
from tests.proposers import zoo

SHAPES = {
    "roomy": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=200)),
    "no prefix cache": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=200, enable_prefix_caching=False)),
    "small chunks": EngineConfig(
        cache=CacheConfig(block_size=4, num_blocks=200),
        scheduler=SchedulerConfig(max_num_batched_tokens=6, max_num_seqs=4),
    ),
    "preempting": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=17)),
}
VERIFIERS, _ = registry.discover("verifiers")
EXACT = [name for name, cls in VERIFIERS.items() if cls().law.is_exact]
LOSSY = [name for name, cls in VERIFIERS.items() if not cls().law.is_exact]
LENGTH = 20
# The first two share two blocks, the fourth is never drafted for, the last ends early.
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 1, 2, 3, 1, 2, 5], [5] * 9, [4, 4, 1, 7, 2], [7]]
PREDICTION = [3, 4, 4, 6, 1, 2, 3, 4, 5, 5, 0, 2]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=LENGTH, prediction=PREDICTION),
    SamplingParams(temperature=0, max_tokens=LENGTH, repetition_penalty=1.3, min_tokens=6),
    SamplingParams(temperature=0, max_tokens=LENGTH, num_draft_tokens=2),
    SamplingParams(temperature=0, max_tokens=LENGTH, num_draft_tokens=0),
    SamplingParams(temperature=0, max_tokens=5, logprobs=2),
]


@pytest.fixture(autouse=True)
def _small_draft_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specinfer.llm._load", lambda config: zoo.load_draft_model(zoo_vocab[0]))


zoo_vocab = [8]


def run(shape: str, verifier: str = "rejection", proposer: Any = None, **options: Any) -> list[RequestOutput]:
    """Greedy requests of many kinds in one batch, and one sampled one beside them."""
    zoo_vocab[0] = 8
    llm = LLM(SHAPES[shape], proposer, verifier, loaded_model=zoo.target(8), **options)
    sampled = SamplingParams(temperature=0.9, seed=3, max_tokens=LENGTH)
    outputs = llm.generate([*PROMPTS, [2, 2, 6]], [*PARAMS, sampled])
    llm.engine.check_integrity()
    assert [output.error for output in outputs] == [None] * len(outputs)
    assert [output.draft_error for output in outputs] == [None] * len(outputs)
    # A second round meets the prefix cache of the first.
    again = llm.generate(PROMPTS, PARAMS)
    llm.engine.check_integrity()
    assert [o.outputs[0].token_ids for o in again] == [o.outputs[0].token_ids for o in outputs[:-1]]
    return outputs


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return [output.outputs[0].token_ids for output in run("roomy")[:-1]]


def test_every_installed_proposer_is_in_the_matrix() -> None:
    assert set(zoo.ZOO) == set(registry.names("proposers"))


def check_greedy(name: str, kind: str, verifier: str, shape: str, plain: list[list[int]]) -> None:
    proposer = zoo.make(name, kind, vocab_size=8, num_draft_tokens=5)
    outputs = run(shape, verifier, proposer)
    assert [output.outputs[0].token_ids for output in outputs[:-1]] == plain
    drafted = [output.stats.num_draft_tokens for output in outputs]
    assert drafted[3] == 0, "it was asked for no drafts"
    if name not in NEEDS_MORE:
        assert drafted[0] > outputs[0].stats.num_accepted_tokens, "no draft was made, or none was turned down"


NEEDS_MORE = {"none"}
"""Proposers that draft nothing for these requests"""

GREEDY_CASES = [
    (*variant, verifier, shape)
    for (i, variant), (j, verifier), (k, shape) in itertools.product(
        enumerate(zoo.VARIANTS), enumerate(EXACT), enumerate(SHAPES)
    )
]
COVERING = [
    case for n, case in enumerate(GREEDY_CASES) if (n + n // len(SHAPES) + n // (len(SHAPES) * len(EXACT))) % 4 == 0
]
"""Every proposer with every verifier, and with every shape"""


@pytest.mark.parametrize(("name", "kind", "verifier", "shape"), COVERING)
def test_greedy_tokens_equal_plain_decoding(
    name: str, kind: str, verifier: str, shape: str, plain: list[list[int]]
) -> None:
    check_greedy(name, kind, verifier, shape, plain)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "verifier", "shape"), [c for c in GREEDY_CASES if c not in COVERING])
def test_greedy_tokens_equal_plain_decoding_in_every_shape(
    name: str, kind: str, verifier: str, shape: str, plain: list[list[int]]
) -> None:
    check_greedy(name, kind, verifier, shape, plain)


LAW_PARAMS = SamplingParams(prediction=[0, 1, 0, 1, 1, 0], max_tokens=4, seed=0, temperature=1.2, frequency_penalty=0.6)


def law_of(make_proposer: Callable[[], Any], verifier: str, shape: str = "roomy") -> dict[tuple[int, ...], float]:
    """The enumerated law of four tokens over a vocabulary of two; the sum of drafted tokens lies in `drafted`."""
    zoo_vocab[0] = 2

    def one(randomness: Randomness) -> list[int]:
        llm = LLM(SHAPES[shape], make_proposer(), verifier, loaded_model=zoo.target(2), randomness=randomness)
        output = llm.generate([0, 1, 0, 1, 0], LAW_PARAMS)[0]
        assert output.draft_error is None and output.error is None, output.draft_error or output.error
        return output.outputs[0].token_ids

    return output_law(one)


@pytest.fixture(scope="module")
def plain_law() -> dict[tuple[int, ...], float]:
    return law_of(lambda: None, "rejection")


@pytest.mark.parametrize("verifier", EXACT)
@pytest.mark.parametrize(("name", "kind"), zoo.VARIANTS)
def test_the_sampled_law_is_the_targets(
    name: str, kind: str, verifier: str, plain_law: dict[tuple[int, ...], float]
) -> None:
    found = law_of(lambda: zoo.make(name, kind, vocab_size=2, num_draft_tokens=3), verifier)
    assert_same_law(found, plain_law)


@pytest.mark.parametrize("verifier", LOSSY)
@pytest.mark.parametrize(("name", "kind"), [("self_draft", "chain"), ("eagle", "tree")])
def test_a_lossy_verifier_is_caught(
    name: str, kind: str, verifier: str, plain_law: dict[tuple[int, ...], float]
) -> None:
    found = law_of(lambda: zoo.make(name, kind, vocab_size=2, num_draft_tokens=3), verifier)
    with pytest.raises(AssertionError, match="the laws differ"):
        assert_same_law(found, plain_law)


def drafts_of(shape: str, proposer: Any) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """The draft (token ids and parents) by context and length, the requests run twice to meet cached prefixes."""
    zoo_vocab[0] = 8
    llm = LLM(SHAPES[shape], proposer, loaded_model=zoo.target(8))
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for _ in range(2):
        outputs = {output.request_id: output for output in llm.generate(PROMPTS[:3], PARAMS[0])}
        for event in llm.take_events():
            if event.draft_token_ids:
                output = outputs[event.request_id]
                text = (*output.prompt_token_ids, *output.outputs[0].token_ids)
                parents = event.draft_parents or range(-1, len(event.draft_token_ids) - 1)
                draft = list(zip(event.draft_token_ids, parents, strict=True))
                key = (len(draft), *text[: event.context_len])
                assert found.setdefault(key, draft) == draft, "one context had two drafts"
    return found


STATEFUL = [variant for variant in zoo.VARIANTS if variant[0] in {"eagle", "medusa", "draft_model", "self_draft"}]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "no prefix cache"])
@pytest.mark.parametrize(("name", "kind"), STATEFUL)
def test_a_draft_depends_on_the_text_alone(name: str, kind: str, shape: str) -> None:
    """Not on chunks, company, cached prefixes or a preemption before it: the drafter's K/V and states are right."""
    wanted = drafts_of("no prefix cache", zoo.make(name, kind, vocab_size=8, num_draft_tokens=4))
    found = drafts_of(shape, zoo.make(name, kind, vocab_size=8, num_draft_tokens=4))
    shared = wanted.keys() & found.keys()
    assert len(shared) >= 15
    assert {key: wanted[key] for key in shared} == {key: found[key] for key in shared}


def test_a_head_that_is_not_asked_reads_a_block_at_a_time() -> None:
    """k = 0 costs no drafter forward but one a block, and drafts that come back later are the same."""
    wanted = drafts_of("roomy", zoo.make("eagle", "chain", vocab_size=8, num_draft_tokens=4))
    proposer = zoo.make("eagle", "chain", vocab_size=8, num_draft_tokens=4)
    pauses = Pauses()
    llm = LLM(SHAPES["roomy"], proposer, controller=pauses, loaded_model=zoo.target(8))
    reads: list[int] = []
    run_head = proposer._run
    proposer._run = lambda stretches, states: reads.append(len(stretches)) or run_head(stretches, states)
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=41))[0]
    events = llm.take_events()
    assert output.draft_error is None
    text = (*output.prompt_token_ids, *output.outputs[0].token_ids)
    num_compared = 0
    for event in events:
        key = (len(event.draft_token_ids), *text[: event.context_len])
        if key in wanted:
            assert [token for token, _ in wanted[key]] == event.draft_token_ids
            num_compared += 1
    assert num_compared
    paused = [event for event in events if not event.draft_token_ids]
    assert len(paused) > 20
    drafted = sum(len(event.draft_token_ids) for event in events)
    assert len(reads) < 3 + drafted + len(events) - len(paused) + len(paused) // 4 + 2


class Pauses:
    """Drafts nothing for long stretches."""

    def num_draft_tokens(self, request: Any, load: Any) -> int:
        return 4 if len(request.token_ids) % 16 < 4 else 0

    def observe(self, request: Any, num_draft_tokens: int, num_accepted_tokens: int) -> None: ...

    def stop(self, request_id: str) -> None: ...


def test_a_request_that_fails_alone_ends_with_its_error_and_the_engine_goes_on() -> None:
    """Nothing of the step stands then, for a drafter that reads hidden states either."""

    def fail(prefix: Any, logits: Any) -> Any:
        if len(prefix) == 2:
            raise ValueError("no further")
        return logits

    for kind in ("eagle", "medusa"):
        llm = LLM(
            SHAPES["roomy"], zoo.make(kind, "chain", vocab_size=8, num_draft_tokens=3), loaded_model=zoo.target(8)
        )
        params = SamplingParams(temperature=0, max_tokens=9, logits_processors=[fail], num_draft_tokens=0)
        output = llm.generate(PROMPTS[0], params)[0]
        assert "no further" in str(output.error) and len(output.outputs[0].token_ids) == 2
        assert llm.generate(PROMPTS[1], PARAMS[0])[0].error is None


def test_a_cached_block_is_known_by_the_token_behind_it_where_a_head_depends_on_it() -> None:
    """Two prompts part exactly at a block's end; a third, like the second, must not get the first one's block."""
    shared = [1, 2, 3, 1]
    texts = [[*shared, 5, 5, 2, 6, 3], [*shared, 7, 0, 4, 4, 1], [*shared, 7, 0, 4, 4, 1, 2]]
    params = SamplingParams(temperature=0, max_tokens=6)

    def drafts(config: EngineConfig) -> list[list[int]]:
        proposer = zoo.make("eagle", "first chain", vocab_size=8, num_draft_tokens=4)
        llm = LLM(config, proposer, loaded_model=zoo.target(8))
        for text in texts[:2]:
            llm.generate(text, params)
        llm.take_events()
        llm.generate(texts[2], params)
        return [event.draft_token_ids for event in llm.take_events()]

    assert drafts(SHAPES["roomy"]) == drafts(SHAPES["no prefix cache"])


def test_a_failing_observation_costs_drafts_and_leaves_no_half_made_block_behind() -> None:
    proposer = zoo.make("eagle", "chain", vocab_size=8, num_draft_tokens=4)
    llm = LLM(SHAPES["roomy"], proposer, loaded_model=zoo.target(8))
    run_head = proposer._run
    proposer._run = lambda stretches, states: 1 / 0
    output = llm.generate(PROMPTS[0], PARAMS[0])[0]
    assert "ZeroDivisionError" in str(output.draft_error)
    proposer._run = run_head
    again = llm.generate(PROMPTS[0], PARAMS[0])[0]
    assert again.draft_error is None and again.stats.num_cached_tokens == 0
    assert again.outputs[0].token_ids == output.outputs[0].token_ids
