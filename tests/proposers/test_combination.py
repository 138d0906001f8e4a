import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from proposers.best_of import BestOfProposer
from proposers.cascade import CascadeProposer
from proposers.combination import short_name
from proposers.fallback import FallbackProposer
from proposers.lookahead import LookaheadProposer
from proposers.ngram import NgramProposer
from proposers.prompt_ahead import PromptAheadProposer
from proposers.suffix import SuffixProposer
from specinfer import LLM, SamplingParams
from specinfer.errors import ConfigError, PluginError
from specinfer.protocols import Observation, ProposerContext
from specinfer.sampling.rng import CounterRandomness
from specinfer.testing import (
    ByteTokenizer,
    SampledProposer,
    ScriptedProposer,
    TinyModel,
    check,
    greedy_continuation,
    tiny_loaded_model,
)
from specinfer.types import Draft

VOCAB_SIZE = 16


def context() -> ProposerContext:
    model = TinyModel(VOCAB_SIZE)
    return ProposerContext(
        vocab_size=VOCAB_SIZE,
        max_model_len=64,
        eos_token_ids=frozenset(),
        tokenizer=ByteTokenizer(VOCAB_SIZE),
        randomness=CounterRandomness(0),
        device=torch.device("cpu"),
        target=model,
    )


def bound(proposer: Any) -> Any:
    proposer.bind(context())
    return proposer


def request(text: Sequence[int], name: str = "a", **fields: Any) -> Any:
    defaults: dict[str, Any] = {
        "request_id": name,
        "token_ids": np.array(text, dtype=np.int64),
        "num_prompt_tokens": 1,
        "params": SamplingParams(),
        "cache_salt": "",
        "seed": 7,
        "num_draft_tokens": 0,
        "num_accepted_tokens": 0,
        "constraint": None,
        "block_ids": [0],
    }
    return SimpleNamespace(**defaults | fields)


class LeftProposer(ScriptedProposer):
    pass


class RightHandProposer(ScriptedProposer):
    pass


@dataclasses.dataclass
class WatchfulProposer(ScriptedProposer):
    seen: list[Observation] = dataclasses.field(default_factory=list, init=False)

    def observe(self, observation: Observation) -> None:
        self.seen.append(observation)


class HungryProposer(ScriptedProposer):
    def bind(self, context: ProposerContext) -> None:
        context.resources.want_hidden(0)


def odd_only(tokens: list[int], length: int) -> list[int] | None:
    return [tokens[-1]] * length if tokens[-1] % 2 else None


def always(tokens: list[int], length: int) -> list[int]:
    return [0] * length


def sampled(length: int) -> SampledProposer:
    """Draws chains of at most `length` from a law that the tokens decide."""

    def law(tokens: list[int]) -> torch.Tensor:
        size = proposer.context.vocab_size
        weights = torch.tensor([1.0 + (sum(tokens) + i) % 3 for i in range(size)], dtype=torch.float64)
        return weights / weights.sum()

    class Short(SampledProposer):
        def propose(self, requests: Any, num_draft_tokens: Any) -> Any:
            return super().propose(requests, [min(n, length) for n in num_draft_tokens])

    proposer = Short(law=law, num_draft_tokens=3)
    return proposer


# ------------------------------------------------------------------------------------------------ all of them


def test_a_proposers_short_name_is_that_of_its_class() -> None:
    named = [NgramProposer(), PromptAheadProposer(), RightHandProposer(always)]
    assert [short_name(proposer) for proposer in named] == ["ngram", "prompt_ahead", "right_hand"]


@pytest.mark.parametrize("kind", [FallbackProposer, BestOfProposer, CascadeProposer])
def test_each_part_gets_the_calls(kind: Any) -> None:
    left, right = LeftProposer(always), RightHandProposer(always)
    combination = bound(kind(proposers=[left, right]) if kind is BestOfProposer else kind(first=left, second=right))
    combination.start(request([1]))
    combination.stop("a")
    for part in (left, right):
        assert part.started == ["a"] and part.stopped == ["a"] and part.context.vocab_size == VOCAB_SIZE


def test_observations_reach_the_parts_that_observe_and_are_not_asked_for_otherwise() -> None:
    watchful = WatchfulProposer(always)
    assert not hasattr(bound(FallbackProposer(NgramProposer(), LeftProposer(always))), "observe")
    combination = bound(FallbackProposer(first=watchful, second=NgramProposer()))
    assert hasattr(combination, "observe")
    shown = Observation([], [], [], [], {}, [], [])
    combination.observe(shown)
    assert watchful.seen == [shown]
    assert hasattr(bound(BestOfProposer(proposers=[combination, NgramProposer()])), "observe")


@pytest.mark.parametrize("kind", [FallbackProposer, CascadeProposer])
def test_a_part_that_is_none_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="a part is a proposer or the name of one, got 3"):
        kind(first=3)
    with pytest.raises(ConfigError, match="num_draft_tokens"):
        kind(num_draft_tokens=-1)


def test_a_part_by_name_is_built_by_the_context() -> None:
    made = {"left": LeftProposer(odd_only), "right": RightHandProposer(always)}
    combination = FallbackProposer(first="left", second="right")
    combination.bind(dataclasses.replace(context(), build=made.__getitem__))
    assert combination.propose([request([2])], [2])[0] == Draft([0, 0], provenance=["right_hand"] * 2)


# -------------------------------------------------------------------------------------------------- fallback


def test_the_second_is_asked_where_the_first_has_no_draft() -> None:
    left, right = LeftProposer(odd_only), RightHandProposer(always)
    drafts = bound(FallbackProposer(first=left, second=right)).propose([request([3]), request([2], "b")], [2, 3])
    assert drafts == [Draft([3, 3], provenance=["left"] * 2), Draft([0, 0, 0], provenance=["right_hand"] * 3)]
    nothing = bound(FallbackProposer(LeftProposer(odd_only), RightHandProposer(lambda tokens, length: [])))
    assert nothing.propose([request([2])], [2]) == [None]


def test_a_draft_keeps_its_law_and_its_tree() -> None:
    drawn = bound(FallbackProposer(first=LeftProposer(odd_only), second=sampled(2))).propose([request([2])], [3])[0]
    assert drawn.probs.shape == (2, VOCAB_SIZE) and drawn.provenance == ["short"] * 2
    lookahead = LookaheadProposer()
    tree = bound(FallbackProposer(first=LeftProposer(odd_only), second=lookahead))
    tree.start(request([2, 4]))
    draft = tree.propose([request([2, 4])], [5])[0]
    assert draft.parents == [-1, 0, 1, 2, 3] and draft.provenance == ["lookahead"] * 5


def test_a_provenance_from_within_is_kept() -> None:
    inner = FallbackProposer(first=LeftProposer(odd_only), second=RightHandProposer(always))
    outer = bound(FallbackProposer(first=inner, second=NgramProposer()))
    assert outer.propose([request([3])], [1])[0].provenance == ["left"]


# --------------------------------------------------------------------------------------------------- best of


def run_best_of(accepts: dict[str, int], num_steps: int, **config: Any) -> list[str]:
    """Who drafted at each step, if so many tokens of each one's draft are accepted."""
    parts = [LeftProposer(always), RightHandProposer(always)]
    combination = bound(BestOfProposer(proposers=parts, **config))
    seen, names = request([1]), []
    for _ in range(num_steps):
        draft = combination.propose([seen], [4])[0]
        names.append(draft.provenance[0])
        seen.num_draft_tokens += 4
        seen.num_accepted_tokens += accepts[names[-1]]
    return names


def test_the_part_with_more_accepted_tokens_drafts_after_each_was_tried() -> None:
    assert run_best_of({"left": 1, "right_hand": 3}, 6) == ["left"] + ["right_hand"] * 5
    assert run_best_of({"left": 3, "right_hand": 1}, 6) == ["left", "right_hand"] + ["left"] * 4


def test_now_and_then_the_other_part_is_tried_again() -> None:
    names = run_best_of({"left": 1, "right_hand": 3}, 8, explore_every=4)
    assert [i for i, name in enumerate(names) if name == "left"] == [0, 3, 7]
    assert run_best_of({"left": 1, "right_hand": 3}, 40, explore_every=0).count("left") == 1


def test_a_part_without_a_draft_is_skipped_and_counts_as_nothing_accepted() -> None:
    parts = [LeftProposer(odd_only), RightHandProposer(always)]
    combination = bound(BestOfProposer(proposers=parts))
    seen = request([2])
    assert combination.propose([seen], [1])[0].provenance == ["right_hand"]
    seen.num_draft_tokens = 1
    seen.num_accepted_tokens = 1
    assert combination.propose([request([3], num_draft_tokens=1, num_accepted_tokens=1)], [1])[0].provenance == [
        "right_hand"
    ]
    assert [part.num_calls for part in parts] == [1, 2]


def test_requests_are_judged_apart_and_forgotten() -> None:
    combination = bound(BestOfProposer(proposers=[LeftProposer(always), RightHandProposer(always)]))
    combination.propose([request([1])], [4])
    drafts = combination.propose([request([1], num_draft_tokens=4), request([1], "b")], [4, 4])
    assert [draft.provenance[0] for draft in drafts] == ["right_hand", "left"]
    combination.stop("a")
    assert combination.propose([request([1])], [4])[0].provenance[0] == "left"


def test_a_draft_that_was_never_verified_counts_for_nothing() -> None:
    combination = bound(BestOfProposer(proposers=[LeftProposer(always), RightHandProposer(always)]))
    assert [combination.propose([request([1])], [4])[0].provenance[0] for _ in range(3)] == ["left"] * 3


def test_best_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        BestOfProposer(proposers=[])
    with pytest.raises(ConfigError, match="decay"):
        BestOfProposer(decay=1.0)


# --------------------------------------------------------------------------------------------------- cascade


def test_the_second_continues_behind_the_first() -> None:
    def count_up(tokens: list[int], length: int) -> list[int]:
        return [(tokens[-1] + 1 + i) % VOCAB_SIZE for i in range(length)]

    parts = {"first": LeftProposer(lambda tokens, length: [7] * min(length, 2)), "second": RightHandProposer(count_up)}
    combination = bound(CascadeProposer(**parts))
    assert combination.propose([request([1])], [5])[0] == Draft(
        [7, 7, 8, 9, 10], provenance=["left"] * 2 + ["right_hand"] * 3
    )
    assert combination.propose([request([1])], [2])[0] == Draft([7, 7], provenance=["left"] * 2)
    limited = bound(CascadeProposer(**parts, max_first_tokens=1))
    assert limited.propose([request([1])], [3])[0].token_ids == [7, 8, 9]


def test_sampled_rows_keep_their_law_and_one_hot_rows_join_them() -> None:
    combination = bound(
        CascadeProposer(first=sampled(2), second=RightHandProposer(lambda tokens, length: [5] * length))
    )
    alone = bound(sampled(2)).propose([request([1])], [4])[0]
    draft = combination.propose([request([1])], [4])[0]
    assert draft.token_ids == [*alone.token_ids, 5, 5]
    assert torch.equal(draft.probs[:2], alone.probs) and draft.probs.dtype == alone.probs.dtype
    assert draft.probs[2:].tolist() == [[float(i == 5) for i in range(VOCAB_SIZE)]] * 2


def test_where_the_first_has_nothing_the_second_drafts_alone() -> None:
    combination = bound(CascadeProposer(first=LeftProposer(odd_only), second=RightHandProposer(always)))
    assert combination.propose([request([2])], [2])[0] == Draft([0, 0], provenance=["right_hand"] * 2)
    nothing = bound(CascadeProposer(first=LeftProposer(odd_only), second=RightHandProposer(odd_only)))
    assert nothing.propose([request([2])], [2]) == [None]


def test_a_tree_of_the_first_stays_and_one_of_the_second_hangs_below() -> None:
    text = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 5, 6, 1]
    tree = SuffixProposer(is_tree=True, factor=0.0, offset=4.0, max_depth=3)
    first = bound(CascadeProposer(first=tree, second=NgramProposer())).propose([request(text)], [8])[0]
    assert (first.token_ids, first.provenance) == ([2, 3, 5, 4], ["suffix"] * 4)
    begun = LeftProposer(lambda tokens, length: [1])
    second = bound(CascadeProposer(first=begun, second=tree)).propose([request(text[:-1])], [8])[0]
    assert (second.token_ids, second.parents) == ([1, 2, 3, 5, 4], [-1, 0, 1, 0, 1])
    assert second.provenance == ["left"] + ["suffix"] * 4


@pytest.mark.parametrize("second", [NgramProposer(), SuffixProposer()])
def test_the_second_sees_the_drafts_of_no_earlier_step(second: Any) -> None:
    wrong = CascadeProposer(first=LeftProposer(lambda tokens, length: [9]), second=second)
    combination, text = bound(wrong), [1, 2, 3, 9, 8, 1, 2]
    for end in (5, 6, 7):
        found = combination.propose([request(text[:end])], [4])[0]
        fresh = dataclasses.replace(second)
        fresh.bind(context())
        alone = fresh.propose([request([*text[:end], 9])], [3])[0]
        assert found.token_ids == [9, *([] if alone is None else alone.token_ids)]


@pytest.mark.parametrize("second", [HungryProposer(always), WatchfulProposer(always), LookaheadProposer()])
def test_a_second_that_needs_more_than_tokens_is_refused(second: Any) -> None:
    with pytest.raises(PluginError, match="put it first"):
        bound(CascadeProposer(first=NgramProposer(), second=second))


def test_a_second_that_samples_is_refused_when_it_drafts() -> None:
    combination = bound(CascadeProposer(first=LeftProposer(lambda tokens, length: [1]), second=sampled(3)))
    with pytest.raises(PluginError, match="one-hot"):
        combination.propose([request([1])], [4])


# ------------------------------------------------------------------------------------------- with the engine

COMBINATIONS: dict[str, Any] = {
    "fallback": lambda: FallbackProposer(first=NgramProposer(min_lookup=2), second=SuffixProposer()),
    "best_of": lambda: BestOfProposer(proposers=[NgramProposer(), SuffixProposer(), LookaheadProposer()]),
    "cascade": lambda: CascadeProposer(first=NgramProposer(), second=SuffixProposer(), max_first_tokens=2),
    "best of cascade and fallback": lambda: BestOfProposer(
        proposers=[COMBINATIONS["cascade"](), COMBINATIONS["fallback"]()]
    ),
}
SAMPLED: dict[str, Any] = {
    "fallback": lambda: FallbackProposer(first=NgramProposer(min_lookup=2), second=sampled(2), num_draft_tokens=2),
    "best_of": lambda: BestOfProposer(proposers=[sampled(1), sampled(2)], num_draft_tokens=2, explore_every=2),
    "cascade": lambda: CascadeProposer(first=sampled(1), second=NgramProposer(), num_draft_tokens=2),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_it_keeps_the_protocol_and_the_law(name: str) -> None:
    check("proposers", COMBINATIONS[name])


@pytest.mark.parametrize("name", SAMPLED)
def test_it_keeps_the_law_where_a_part_samples(name: str) -> None:
    from specinfer.testing.conformance import checks_of

    checks = checks_of("proposers", SAMPLED[name])
    assert checks["sampled_law_is_the_targets"]() == ""
    checks["greedy_tokens_equal_plain_decoding"]()
    checks["a_seeded_request_does_not_depend_on_its_company"]()


@pytest.mark.parametrize("name", COMBINATIONS)
def test_greedy_tokens_equal_plain_decoding(name: str) -> None:
    loaded = tiny_loaded_model(vocab_size=8, order=2, max_model_len=128)
    output = LLM(loaded_model=loaded, proposer=COMBINATIONS[name]()).generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=80)
    )[0]
    assert output.outputs[0].token_ids == greedy_continuation(loaded.model, [1, 2, 3], 80)  # type: ignore[arg-type]
    assert output.draft_error is None and 20 < output.stats.num_accepted_tokens < output.stats.num_draft_tokens
