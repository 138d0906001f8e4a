"""An automaton ends where its text is whole, not at its first match, and its states need no way back."""

from __future__ import annotations

import itertools
import re
from functools import cache

import numpy as np
import pytest

from grammars.outlines import MAX_FORCED_BYTES, MAX_KEPT_ROWS, OutlinesBackend, OutlinesGrammar
from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.bitmask import members
from specinfer.testing.grammar_forms import VOCABULARIES

WORDS = ["".join(word) for n in range(5) for word in itertools.product("ab", repeat=n)]


@cache
def backend(vocabulary: str) -> OutlinesBackend:
    made = OutlinesBackend()
    made.bind(VOCABULARIES[vocabulary])
    return made


def compiled(source: str, vocabulary: str = "bytes", kind: GrammarKind = GrammarKind.REGEX) -> OutlinesGrammar:
    made = backend(vocabulary)
    grammar = made.load(made.compile(GrammarSpec(kind, source)))
    assert isinstance(grammar, OutlinesGrammar)
    return grammar


@pytest.mark.parametrize("pattern", ["a|ab", "(?:ab)?", "", "a?", "a*", "(?:a|ab)(?:b|)", "a|ab|abb", "a+?b*?"])
def test_a_text_may_end_and_may_go_on(pattern: str) -> None:
    """A search would end at its first match: `a|ab` with `a`, `(ab)?` with nothing."""
    whole, goes_on = [], []
    for word in WORDS:
        matcher = compiled(pattern).matcher()
        if all(matcher.accept(byte) for byte in word.encode()):
            goes_on.append(word)
            whole += [word] * matcher.is_accepting
    assert whole == [word for word in WORDS if re.fullmatch(pattern, word)]
    assert set(goes_on) >= {word[:n] for word in whole for n in range(len(word) + 1)}


@pytest.mark.parametrize("pattern", ["[^a]", "[^a]?", "[\\s\\S]*", "\\W+"])
def test_the_mark_behind_a_whole_text_is_never_part_of_one(pattern: str) -> None:
    matcher = compiled(pattern).matcher()
    row = np.zeros((1, VOCABULARIES["bytes"].num_words), dtype=np.int32)
    matcher.fill_row(row, 0)
    assert not members(row[0])[0] and not matcher.accept(0)
    assert matcher.accept(ord("-"))
    assert matcher.is_accepting, "but the text before it is whole"


def test_a_vocabulary_without_some_byte_still_has_the_whole_automaton() -> None:
    grammar = compiled("a(?:zb|b)", "letters")
    matcher = grammar.matcher()
    texts = grammar.tokens.token_bytes
    assert matcher.accept(texts.index(b"a"))
    row = np.full((1, grammar.tokens.num_words), -1, dtype=np.int32)
    matcher.fill_row(row, 0)
    assert np.flatnonzero(members(row[0])).tolist() == [texts.index(b"b")], "no id beyond the vocabulary is shown"
    assert not any(matcher.accept(i) for i in range(len(texts), len(texts) + 300)), "nor taken"


def test_text_is_forced_also_through_bytes_that_are_no_token() -> None:
    texts = [b"a", b"zb", b"c"]
    made = OutlinesBackend()
    made.bind(TokenTable(texts, frozenset()))
    matcher = made.load(made.compile(GrammarSpec(GrammarKind.REGEX, "azbc"))).matcher()
    assert matcher.forced_bytes() == b"azbc"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pattern", "forced"),
    [
        ("abc", b"abc"),
        ("ab?", b"a"),
        ("a|b", b""),
        ("", b""),
        ("(?:ab)?", b""),
        ("é[ab]", "é".encode()),
        ("[éè]", b"\xc3"),
    ],
)
def test_text_is_forced_up_to_the_first_choice_or_end(pattern: str, forced: bytes) -> None:
    assert compiled(pattern).matcher().forced_bytes() == forced


def test_forced_text_and_the_rows_that_are_kept_are_bounded() -> None:
    grammar = compiled("a" * 2000)
    matcher = grammar.matcher()
    assert matcher.forced_bytes() == b"a" * MAX_FORCED_BYTES
    before = grammar.num_bytes
    row = np.zeros((1, grammar.tokens.num_words), dtype=np.int32)
    for _ in range(1500):
        matcher.fill_row(row, 0)
        assert matcher.accept(ord("a"))
    assert before < grammar.num_bytes <= before + 4 * row.size * MAX_KEPT_ROWS


@pytest.mark.parametrize("kind", [GrammarKind.EBNF, GrammarKind.STRUCTURAL_TAG])
def test_forms_that_are_not_regular_are_refused_by_kind(kind: GrammarKind) -> None:
    with pytest.raises(
        GrammarError, match=r"outlines refuses the .*: it compiles JSON schemas and regular expressions"
    ):
        compiled("", kind=kind)


def test_taking_back_more_than_was_taken_is_a_fault() -> None:
    matcher = compiled("ab").matcher()
    assert matcher.accept(ord("a"))
    with pytest.raises(AssertionError, match="2 taken back of 1"):
        matcher.rollback(2)
