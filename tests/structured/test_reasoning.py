"""The marker is found however the text is cut into tokens, and ends with one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specinfer.protocols import TokenTable
from specinfer.structured.bitmask import members
from specinfer.structured.reasoning import Reasoning

TEXTS = [b"a", b"b", b"ab", b"aa", b"aab", b"ba", b"", b"baab"]
TOKENS = TokenTable(TEXTS, frozenset())
MARKER = b"aab"


@given(st.lists(st.integers(0, len(TEXTS) - 1), max_size=12))
def test_it_is_over_exactly_when_the_text_ends_with_the_marker_for_the_first_time(token_ids: list[int]) -> None:
    reasoning = Reasoning(MARKER, (99,), TOKENS)
    place, text = reasoning.start(), b""
    for token_id in token_ids:
        runs_past = MARKER in (text + TEXTS[token_id])[:-1] and bool(TEXTS[token_id])
        assert reasoning.allows(place, token_id) is not runs_past
        assert bool(members(reasoning.row(place))[token_id]) is not runs_past
        if runs_past:
            return
        text += TEXTS[token_id]
        place = reasoning.behind(place, token_id)
        assert place.is_over is text.endswith(MARKER)
        if place.is_over:
            return


def test_a_marker_that_is_special_is_known_by_its_ids() -> None:
    reasoning = Reasoning(b"</think>", (6, 0), TOKENS)
    place = reasoning.behind(reasoning.behind(reasoning.start(), 6), 0)
    assert place.is_over
    assert not reasoning.behind(reasoning.behind(reasoning.start(), 6), 6).is_over
    assert np.all(members(reasoning.row(reasoning.start()))[: len(TEXTS)])
