from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proposers.lookahead import LookaheadProposer
from specinfer import LLM, SamplingParams
from specinfer.errors import ConfigError
from specinfer.protocols import Observation
from specinfer.testing import check, greedy_continuation, tiny_loaded_model
from specinfer.types import Draft


def request(text: Sequence[int]) -> Any:
    return SimpleNamespace(request_id="a", token_ids=np.array(text, dtype=np.int64), num_prompt_tokens=1)


def begun(text: Sequence[int], **config: Any) -> LookaheadProposer:
    proposer = LookaheadProposer(**config)
    proposer.bind(None)  # type: ignore[arg-type]
    proposer.start(request(text))
    return proposer


def observe(proposer: LookaheadProposer, text: Sequence[int], draft: Draft | None, choices: Sequence[int]) -> None:
    seen = request(text)
    proposer.observe(Observation([seen], [0], [len(text) - 1], [[0]], {}, [draft], [choices]))


def paths(draft: Draft) -> list[list[int]]:
    return draft.prefixes()[1:]


def step(proposer: LookaheadProposer, text: list[int], target: Callable[[list[int]], int], length: int = 24) -> int:
    """Draft, verify greedily, commit, observe; how many draft tokens stood."""
    draft = proposer.propose([request(text)], [length])[0]
    assert draft is not None and len(draft.token_ids) <= length
    choices = [target(text + path) for path in draft.prefixes()]
    row, num_accepted = 0, 0
    children = draft.children()
    while True:
        text.append(choices[row])
        found = [node for node in children[row] if draft.token_ids[node] == choices[row]]
        if not found:
            break
        row, num_accepted = found[0] + 1, num_accepted + 1
    observe(proposer, text, draft, choices)
    return num_accepted


def test_the_window_is_a_chain_with_a_chain_of_higher_levels_at_each_node() -> None:
    proposer = begun([1, 2, 3], window=3, ngram_size=3)
    first = proposer.propose([request([1, 2, 3])], [24])[0]
    assert first is not None and paths(first) == [[1], [1, 2], [1, 2, 3]]
    observe(proposer, [1, 2, 3, 9], first, [9, 11, 12, 13])
    # One token was emitted, so the columns moved by one: [2, 3, 1] with 12, 13, 11 above them.
    second = proposer.propose([request([1, 2, 3, 9])], [24])[0]
    assert second is not None
    assert paths(second) == [[2], [2, 3], [2, 3, 1], [2, 12], [2, 3, 13], [2, 3, 1, 11]]


def test_a_full_window_gives_ngrams_which_are_drafted_first_where_they_begin_with_the_last_token() -> None:
    proposer = begun([1, 2], window=2, ngram_size=3)
    draft = proposer.propose([request([1, 2])], [24])[0]
    observe(proposer, [1, 2, 9], draft, [9, 21, 22])
    draft = proposer.propose([request([1, 2, 9])], [24])[0]
    assert draft is not None and paths(draft) == [[2], [2, 1], [2, 22], [2, 1, 21]]
    observe(proposer, [1, 2, 9, 2], draft, [2, 0, 0, 31, 32])
    # The n-grams 2 22 31 and 1 21 32 were seen; the window went up a level.
    draft = proposer.propose([request([1, 2, 9, 2])], [24])[0]
    assert draft is not None
    assert paths(draft) == [[22], [22, 31], [22, 21], [22, 21, 32]]
    assert draft.probs is None


def test_a_pool_that_is_full_forgets_what_was_seen_least_recently() -> None:
    proposer = begun([1], window=1, ngram_size=3, max_candidates=2)
    state = proposer._states["a"]
    for rest in ([2, 3], [4, 5], [2, 3], [6, 7]):
        state.remember([1, *rest], 2)
    assert state.pool[1] == [(2, 3), (6, 7)]


@pytest.mark.parametrize("length", range(1, 12))
def test_ngrams_come_before_the_window_and_only_whole_columns_are_drafted(length: int) -> None:
    proposer = begun([1, 2, 3], window=3, ngram_size=3)
    state = proposer._states["a"]
    state.levels = [[10, 11, 12], [20, 21, 22]]
    state.remember([3, 4, 5], 3)
    state.remember([3, 6, 7], 3)
    draft = proposer.propose([request([1, 2, 3])], [length])[0]
    assert draft is not None and len(draft.token_ids) <= length
    assert paths(draft)[:4] == [[6], [6, 7], [4], [4, 5]][:length]
    assert len(state.last_nodes) == min(3, max(0, length - 4) // 2)


def test_the_pool_learns_a_periodic_text() -> None:
    period = [3, 1, 4, 1, 5, 9, 2, 6]
    target = lambda text: period[(period.index(text[-1]) + 1) % 8] if text[-1] != 1 else (4 if text[-2] == 3 else 5)  # noqa: E731
    proposer, text = begun([3, 1, 4]), [3, 1, 4]
    accepted = [step(proposer, text, target) for _ in range(40)]
    assert text[:35] == (period * 5)[:35]
    assert sum(accepted[-10:]) >= 20


def test_a_draft_that_was_cut_or_is_anothers_does_no_harm() -> None:
    proposer = begun([1, 2, 3], window=3, ngram_size=2)
    draft = proposer.propose([request([1, 2, 3])], [24])[0]
    assert draft is not None
    levels = proposer._states["a"].levels
    observe(proposer, [1, 2, 3, 9], Draft([7, 7]), [9, 9, 9])
    observe(proposer, [1, 2, 3, 9], None, [])
    assert proposer._states["a"].levels == levels
    draft = proposer.propose([request([1, 2, 3])], [24])[0]
    assert draft is not None
    observe(proposer, [1, 2, 3, 9], draft.truncate(1), [9, 5])
    assert proposer._states["a"].levels == [[5, 2, 3]]
    assert proposer._states["a"].pool == {1: [(5,)]}


@pytest.mark.parametrize("name", ["window", "max_candidates", "ngram_size", "num_draft_tokens"])
def test_a_configuration_that_cannot_work_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        LookaheadProposer(**{name: -1})


def test_it_keeps_the_protocol_and_the_law() -> None:
    check("proposers", lambda: LookaheadProposer(num_draft_tokens=8, window=2, ngram_size=3, max_candidates=2))


def test_greedy_tokens_equal_plain_decoding() -> None:
    loaded = tiny_loaded_model(vocab_size=8, order=2, max_model_len=160)
    output = LLM(loaded_model=loaded, proposer=LookaheadProposer()).generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=100)
    )[0]
    assert output.outputs[0].token_ids == greedy_continuation(loaded.model, [1, 2, 3], 100)  # type: ignore[arg-type]
    assert output.draft_error is None and 20 < output.stats.num_accepted_tokens < output.stats.num_draft_tokens
