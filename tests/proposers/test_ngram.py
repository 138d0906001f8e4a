import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proposers.ngram import NgramProposer, Occurrence
from specinfer.errors import ConfigError


def bound(**config: Any) -> NgramProposer:
    proposer = NgramProposer(**config)
    proposer.bind(None)
    return proposer


def drafts(proposer: NgramProposer, *texts: Sequence[int], length: Any = 4) -> list[Sequence[int] | None]:
    requests = [SimpleNamespace(token_ids=np.array(text, dtype=np.int64)) for text in texts]
    proposed = proposer.propose(requests, [length] * len(texts))
    return [None if draft is None else draft.token_ids for draft in proposed]


def reference(text: Any, length: Any, min_lookup: int, max_lookup: int, occurrence: Occurrence) -> list[int] | None:
    """The definition, by slices: lengths from the longest, places from the preferred end."""
    for size in range(max_lookup, min_lookup - 1, -1):
        places = [end for end in range(size, len(text)) if text[end - size : end] == text[len(text) - size :]]
        if places:
            start = places[0] if occurrence is Occurrence.FIRST else places[-1]
            copied = list(text)
            for i in range(length):
                copied.append(copied[start + i])
            return copied[len(text) :]
    return None


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from(Occurrence),
)
def test_the_draft_is_that_of_the_definition(
    text: Any, length: Any, min_lookup: int, more: int, occurrence: Occurrence
) -> None:
    proposer = bound(min_lookup=min_lookup, max_lookup=min_lookup + more, occurrence=occurrence)
    expected = reference(text, length, min_lookup, min_lookup + more, occurrence)
    assert drafts(proposer, text, length=length) == [expected]


def test_the_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    assert drafts(bound(), [1, 2, 3, 50, 60, 9, 3, 70, 1, 2, 3], length=2) == [[50, 60]]


def test_of_equally_long_matches_the_chosen_occurrence_wins() -> None:
    text = [5, 10, 0, 5, 20, 0, 5]
    assert drafts(bound(max_lookup=1), text, length=2) == [[20, 0]]
    assert drafts(bound(max_lookup=1, occurrence=Occurrence.FIRST), text, length=2) == [[10, 0]]


def test_a_match_shorter_than_the_minimum_is_none() -> None:
    assert drafts(bound(min_lookup=2), [1, 2, 3, 9, 3]) == [None]


def test_a_text_without_a_match_or_with_a_single_token_has_no_draft() -> None:
    assert drafts(bound(), [1, 2, 3], [7]) == [None, None]


def test_a_periodic_text_is_continued_in_its_period() -> None:
    assert drafts(bound(), [8, 8], [1, 2, 1, 2, 1, 2], length=5) == [[8] * 5, [1, 2, 1, 2, 1]]


def test_a_draft_has_at_most_the_length_asked_for_and_is_one_hot() -> None:
    proposer = bound()
    request = SimpleNamespace(token_ids=np.array([1, 2, 3, 4, 1], dtype=np.int64))
    first, second, third = proposer.propose([request] * 3, [1, 3, 0])
    assert (first.token_ids, second.token_ids, third) == ([2], [2, 3, 4], None)
    assert first.probs is None and all(type(token) is int for token in second.token_ids)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens"),
        ({"min_lookup": 0}, "min_lookup"),
        ({"min_lookup": 3, "max_lookup": 2}, "max_lookup=2 is less than min_lookup=3"),
        ({"max_lookup": 2.5}, "max_lookup"),
        ({"occurrence": "recent"}, "Occurrence.MOST_RECENT"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NgramProposer(**config)


@pytest.mark.parametrize("case", ["no match", "one-token matches everywhere"])
def test_64_requests_of_4096_tokens_cost_under_a_millisecond(case: str) -> None:
    text = np.arange(4096) if case == "no match" else np.random.default_rng(0).integers(0, 2, 4096)
    text[-2] = 99_999  # no longer match
    requests = [SimpleNamespace(token_ids=text.copy()) for _ in range(64)]
    proposer = bound()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        proposed = proposer.propose(requests, [4] * 64)
        times.append(time.perf_counter() - start)
    assert all((draft is None) == (case == "no match") for draft in proposed)
    assert min(times) < 1e-3
