"""A place in a form moves with committed tokens only, and every row says exactly what can come next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinfer.protocols import Bitmask, TokenTable
from specinfer.structured.bitmask import members
from specinfer.structured.constraint import Constraint
from specinfer.structured.reasoning import Reasoning
from specinfer.testing.grammars import WordsGrammar
from specinfer.types import Draft

A, B, C, AB, SPECIAL, EOS, STOP = range(7)
TOKENS = TokenTable([b"a", b"b", b"c", b"ab", b"", b"", b""], frozenset({EOS}))
WORDS = [b"ab", b"abc", b"ca"]


def constraint(words: Sequence[bytes] = WORDS, reasoning: str | None = None) -> Constraint:
    marker = None if reasoning is None else Reasoning(reasoning.encode(), (999,), TOKENS)
    return Constraint(WordsGrammar(words, TOKENS).matcher(), TOKENS, [EOS, STOP], marker)


def legal(form: Constraint, *behind: int) -> set[int] | None:
    row = form.row_behind(behind)
    return None if row is None else set(np.flatnonzero(members(row)).tolist())


def test_a_row_holds_what_goes_on_and_ends_exactly_where_the_text_is_whole() -> None:
    form = constraint()
    assert legal(form) == {A, C, AB}
    assert legal(form, A) == {B}
    assert legal(form, AB) == {C, EOS, STOP} == legal(form, A, B)
    assert legal(form, AB, C) == {EOS, STOP}
    assert legal(form, AB, EOS) == set(), "nothing comes behind an end"
    assert legal(form, B) is None and legal(form, SPECIAL) is None and legal(form, A, EOS) is None


def test_special_tokens_are_never_legal_even_where_a_backend_says_so() -> None:
    matcher = WordsGrammar(WORDS, TOKENS).matcher()
    fill = matcher.fill_row

    def fill_too_much(bitmask: Bitmask, row: int) -> None:
        fill(bitmask, row)
        bitmask[row] |= 1 << SPECIAL | 1 << EOS

    matcher.fill_row = fill_too_much  # type: ignore[method-assign]
    form = Constraint(matcher, TOKENS, [EOS, STOP])
    assert legal(form) == {A, C, AB}


@given(
    st.lists(st.integers(0, 6), max_size=6).flatmap(
        lambda ids: st.tuples(st.just(ids), st.tuples(*[st.integers(-1, i - 1) for i in range(len(ids))]))
    ),
    st.sampled_from([[], [A], [AB], [C]]),
)
def test_the_rows_of_a_tree_are_those_of_its_paths_and_leave_the_place_as_it_was(
    tree: tuple[list[int], tuple[int, ...]], committed: list[int]
) -> None:
    ids, parents = tree
    form, fresh = constraint(), constraint()
    form.advance(committed)
    fresh.advance(committed)
    draft = Draft(ids, parents=list(parents))
    rows = form.rows(draft)
    for node, path in enumerate(draft.prefixes()[1:]):
        expected = legal(fresh, *path)
        assert rows.is_legal[node] == (expected is not None)
        assert set(np.flatnonzero(members(rows.bitmask[node + 1])).tolist()) == (expected or set())
    assert legal(form) == legal(fresh), "asking moved the place"


def test_a_committed_token_that_the_form_forbids_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="the form forbids it"):
        constraint().advance([B])


def test_every_word_of_a_finite_language_can_be_reached_and_nothing_else() -> None:
    reached = set()
    for length in range(1, 4):
        for ids in itertools.product(range(7), repeat=length):
            form = constraint([b"a", b"ab"])
            if legal(form, *ids) is not None and ids[-1] == EOS:
                reached.add(b"".join(TOKENS.token_bytes[i] for i in ids))
    assert reached == {b"a", b"ab"}


def test_the_form_begins_behind_the_marker_also_within_a_draft() -> None:
    form = constraint(reasoning="bc")
    assert legal(form) == {A, B, C, AB, SPECIAL} - {EOS, STOP}, "free before the marker, but for ends"
    assert legal(form, B, C) == {A, C, AB}
    rows = form.rows(Draft([A, B, C, B, A]))
    assert rows.is_legal == [True, True, True, False, False], "constrained from the marker on"
    form.advance([AB, C])
    assert legal(form) == {A, C, AB}
    form.advance([AB])
    assert form.is_satisfied and not form.is_complete
    form.advance([EOS])
    assert form.is_complete


def test_a_token_that_runs_past_the_marker_is_not_legal() -> None:
    form = constraint(reasoning="a")
    assert legal(form) == {A, B, C, SPECIAL} - {EOS, STOP}, "`ab` would run past `a`"
    assert legal(form, AB) is None


def test_forced_text_is_told_and_a_choice_is_not() -> None:
    form = constraint([b"abc"])
    assert form.forced_bytes_behind([]) == b"abc"
    assert form.forced_bytes_behind([A]) == b"bc"
    assert constraint().forced_bytes_behind([]) == b""
    assert constraint([b"a", b"ab"]).forced_bytes_behind([A]) == b"", "the text may end here"


def test_states_name_what_a_token_is_a_part_of() -> None:
    form = constraint()
    assert form.rows(Draft([A, B, C, EOS, A])).states == ["text", "forced", "text", "text", "end", "unreachable"]
