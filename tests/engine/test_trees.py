"""Draft trees through the whole engine: what stands, what is moved, and what is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from specinfer import LLM, Draft, EngineConfig, SamplingParams
from specinfer.config import CacheConfig, SchedulerConfig
from specinfer.protocols import DrawKey, ProposerContext, Purpose, Randomness, RequestView
from specinfer.testing import TinyModel, assert_same_law, greedy_continuation, output_law, tiny_loaded_model
from specinfer.testing.llama import tiny_llama

CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=60))
PROMPTS = [[1, 2, 3, 4, 5], [6, 6, 6], [0, 7, 1, 3, 2, 2, 4]]
GREEDY = SamplingParams(temperature=0, max_tokens=17)
Guess = Callable[[list[int]], Draft]


@dataclass
class TreeProposer:
    """Drafts what `guess` says of the tokens so far."""

    guess: Guess
    num_draft_tokens: int = 12
    context: ProposerContext = field(init=False, repr=False)

    def bind(self, context: ProposerContext) -> None:
        self.context = context

    def start(self, request: RequestView) -> None: ...

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [
            self.guess(request.token_ids.tolist()).truncate(length)
            for request, length in zip(requests, num_draft_tokens, strict=True)
        ]

    def stop(self, request_id: str) -> None: ...


def oracle_tree(model: TinyModel, right_places: Sequence[int], depth: int) -> Guess:
    """At depth d the right token is the `right_places[d]`-th of three siblings, and only it has children.

    Beyond the places given, every sibling is wrong.
    """

    def guess(tokens: list[int]) -> Draft:
        token_ids: list[int] = []
        parents: list[int] = []
        parent, context = -1, list(tokens)
        for d in range(depth):
            best = int(model.logits(context).argmax())
            wrong = [(best + 1 + i) % model.vocab_size for i in range(3)]
            right = right_places[d] if d < len(right_places) else None
            siblings = [best if place == right else wrong[place] for place in range(3)]
            first = len(token_ids)
            token_ids += siblings
            parents += [parent] * 3
            parent = first + (0 if right is None else right)
            context.append(token_ids[parent])
        return Draft(token_ids, parents=parents)

    return guess


def expected(max_tokens: int = 17) -> list[list[int]]:
    return [greedy_continuation(TinyModel(vocab_size=8), prompt, max_tokens) for prompt in PROMPTS]


@pytest.mark.parametrize("places", [p for n in range(4) for p in itertools.product((0, 1, 2), repeat=n)])
def test_the_right_path_is_accepted_wherever_it_stands(places: Sequence[int]) -> None:
    """Also at the root alone, and not at all: then K/V of every node is gone and the next step is right."""
    loaded = tiny_loaded_model(vocab_size=8)
    assert isinstance(loaded.model, TinyModel)
    llm = LLM(CONFIG, TreeProposer(oracle_tree(loaded.model, places, 3)), loaded_model=loaded)
    outputs = llm.generate(PROMPTS, GREEDY)
    llm.engine.check_integrity()
    assert [output.outputs[0].token_ids for output in outputs] == expected()
    full = [e for e in llm.take_events() if len(e.draft_token_ids) == 9]
    assert full and {event.num_accepted for event in full} == {len(places)}
    assert all(event.draft_depth == 3 for event in full)
    assert all(event.accepted_path == [3 * d + place for d, place in enumerate(places)] for event in full)


SHAPES = {
    "roomy": CONFIG,
    "small chunks": EngineConfig(
        cache=CacheConfig(block_size=4, num_blocks=60),
        scheduler=SchedulerConfig(max_num_batched_tokens=7, max_num_seqs=3),
    ),
    "preempting": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=13)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(temperature=0, max_tokens=17, frequency_penalty=2.0, repetition_penalty=1.4),
        SamplingParams(temperature=0, max_tokens=17, min_tokens=9, stop_token_ids=[2], logprobs=3),
        SamplingParams(temperature=0, max_tokens=17, stop="c"),
    ],
    ids=["plain", "penalties", "stop ids and logprobs", "stop string"],
)
def test_every_parameter_holds_on_trees(shape: str, params: SamplingParams) -> None:
    loaded = tiny_loaded_model(vocab_size=8)
    assert isinstance(loaded.model, TinyModel)
    plain = LLM(CONFIG, loaded_model=loaded).generate(PROMPTS, params)
    proposer = TreeProposer(oracle_tree(loaded.model, (1, 2), 3))
    llm = LLM(SHAPES[shape], proposer, loaded_model=loaded)
    outputs = llm.generate(PROMPTS, params)
    llm.engine.check_integrity()
    for output, wanted in zip(outputs, plain, strict=True):
        assert output.draft_error is None
        assert output.outputs[0].token_ids == wanted.outputs[0].token_ids
        assert output.outputs[0].text == wanted.outputs[0].text
        assert output.outputs[0].logprobs == wanted.outputs[0].logprobs
        assert output.outputs[0].finish_reason == wanted.outputs[0].finish_reason


def sampled_tree(parents: Sequence[int], *, replace: bool, proposer: list[TreeProposer]) -> Guess:
    """Every node drawn from a law of its own context; siblings with or without replacement."""

    def guess(tokens: list[int]) -> Draft:
        context = proposer[0].context
        size = context.vocab_size
        draft = Draft([], parents=[])
        laws: list[torch.Tensor] = []
        for node, parent in enumerate(parents):
            drafted = Draft(draft.token_ids, parents=draft.parents).prefixes()[parent + 1]
            text = [*tokens, *drafted]
            law = torch.tensor([1.0 + (sum(text) + 2 * i) % 3 for i in range(size)], dtype=torch.float64)
            siblings = [i for i in range(node) if parents[i] == parent]
            if not replace:
                law[[draft.token_ids[i] for i in siblings]] = 0.0
            law /= law.sum()
            depth = len(drafted)
            # The prompt has three tokens, so that this is the output position.
            key = DrawKey(0, len(tokens) - 3 + depth, Purpose.DRAFT, 8 * depth + node)
            draft.token_ids = [*draft.token_ids, context.randomness.categorical(law, key)]
            draft.parents = [*(draft.parents or ()), parent]
            laws.append(law)
        return Draft(draft.token_ids, torch.stack(laws), parents=draft.parents)

    return guess


@pytest.mark.parametrize("verifier", ["rejection", "multi_candidate", "block", "sample_match"])
@pytest.mark.parametrize("replace", [True, False], ids=["with replacement", "without"])
def test_the_law_is_exact_on_sampled_trees(verifier: str, replace: bool) -> None:
    """Two siblings, and with replacement a child of the first; the first output token comes from the prompt."""
    parents, vocab_size, max_tokens = ([-1, -1, 0], 2, 5) if replace else ([-1, -1], 3, 4)
    loaded = tiny_loaded_model(vocab_size=vocab_size, order=None, sharpness=1.0)
    params = SamplingParams(max_tokens=max_tokens, seed=0, temperature=1.1, presence_penalty=0.4)
    num_trees = 0

    def run(make: Callable[[], Any]) -> Callable[[Randomness], list[int]]:
        def one(randomness: Randomness) -> list[int]:
            nonlocal num_trees
            llm = LLM(CONFIG, make(), verifier, loaded_model=loaded, randomness=randomness)
            output = llm.generate([0, 1, 0], params)[0]
            assert output.draft_error is None and output.error is None, output.draft_error or output.error
            num_trees += sum(len(e.draft_token_ids) > 1 for e in llm.take_events())
            return output.outputs[0].token_ids

        return one

    def make() -> TreeProposer:
        holder: list[TreeProposer] = []
        holder.append(TreeProposer(sampled_tree(parents, replace=replace, proposer=holder)))
        return holder[0]

    assert_same_law(output_law(run(make)), output_law(run(lambda: None)))
    assert num_trees


def test_a_tree_on_a_real_transformer_is_read_as_its_paths() -> None:
    """The mask and the positions of a transformer's attention: greedy output with trees that mostly miss."""
    loaded = tiny_llama(8)
    plain = LLM(CONFIG, loaded_model=loaded).generate(PROMPTS, GREEDY)

    def guess(tokens: list[int]) -> Draft:
        return Draft([t % 8 for t in range(sum(tokens), sum(tokens) + 8)], parents=[-1, -1, 0, 0, 1, 2, 2, 4])

    llm = LLM(CONFIG, TreeProposer(guess), loaded_model=loaded)
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    assert sum(o.stats.num_accepted_tokens for o in outputs) > 5
    assert any(e.accepted_path and e.accepted_path != list(range(e.num_accepted)) for e in llm.take_events())
