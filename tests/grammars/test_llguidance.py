"""A failed call spoils the library's matcher for good; ours goes on as if it had not been made."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from grammars.llguidance import HEADER, LLGuidanceBackend, LLGuidanceMatcher
from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.bitmask import members
from specinfer.testing.grammar_forms import FORMS, VOCABULARIES


@cache
def backend(vocabulary: str = "bytes") -> LLGuidanceBackend:
    made = LLGuidanceBackend()
    made.bind(VOCABULARIES[vocabulary])
    return made


def matcher_of(spec: GrammarSpec, vocabulary: str = "bytes") -> Any:
    made = backend(vocabulary)
    return made.load(made.compile(spec)).matcher()


def regex(source: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.REGEX, source)


def legal(matcher: LLGuidanceMatcher) -> list[int]:
    row = np.full((1, matcher.grammar.tokens.num_words), -1, dtype=np.int32)
    matcher.fill_row(row, 0)
    found: list[int] = np.flatnonzero(members(row[0])).tolist()
    return found


ILLEGAL = {"a byte": ord("z"), "a special id": 257, "beyond the vocabulary": 258, "far beyond": 10**6, "negative": -1}


@pytest.mark.parametrize("illegal", ILLEGAL)
@pytest.mark.parametrize("times", [1, 3])
def test_an_illegal_token_leaves_a_matcher_that_goes_on(illegal: str, times: int) -> None:
    matcher = matcher_of(regex("a(?:b|cd)e"))
    for text, after in (("", "a"), ("a", "bc"), ("c", "d"), ("d", "e"), ("e", "")):
        assert all(matcher.accept(byte) for byte in text.encode())
        for _ in range(times):
            assert not matcher.accept(ILLEGAL[illegal])
            assert legal(matcher) == list(after.encode())
    assert matcher.is_accepting


@pytest.mark.parametrize("num_back", range(4))
def test_tokens_are_taken_back_exactly_also_behind_illegal_ones_and_dead_ends(num_back: int) -> None:
    spec, texts = regex("a(?:z|b)c"), VOCABULARIES["letters"].token_bytes
    a, b, c, d = (texts.index(text) for text in (b"a", b"b", b"c", b"d"))
    matcher = matcher_of(spec, "letters")
    rows = [legal(matcher)]
    for token_id in (a, b, c):
        assert matcher.accept(token_id) and not matcher.accept(d)
        rows.append(legal(matcher))
    matcher.rollback(num_back)
    assert legal(matcher) == rows[3 - num_back]
    assert all(matcher.accept(token_id) for token_id in (a, b, c)[3 - num_back :])
    assert matcher.is_accepting


def test_a_dead_end_is_an_empty_row_time_and_again() -> None:
    matcher = matcher_of(regex("az|bc"), "letters")
    a, b = (matcher.grammar.tokens.token_bytes.index(text) for text in (b"a", b"b"))
    assert matcher.accept(a)
    for _ in range(3):
        assert legal(matcher) == [] and not matcher.is_accepting
        assert not matcher.accept(b)
    matcher.rollback(1)
    assert legal(matcher) == [a, b]


def test_no_row_shows_the_end_that_the_library_keeps_behind_the_vocabulary() -> None:
    """32 ids fill a word: the library's end needs one of its own."""
    for form in FORMS:
        matcher = matcher_of(form.spec, form.vocabulary)
        row = np.full((2, form.tokens.num_words), -1, dtype=np.int32)
        matcher.fill_row(row, 0)
        assert not (row[0] & ~form.tokens.usable).any()
        assert (row[1] == -1).all()


def test_forced_text_may_be_cut_into_tokens_in_any_way() -> None:
    """Else the law of the output would change where text, but no token, is forced."""
    matcher = matcher_of(regex('null|\\{": "\\}'), "pieces")
    texts = matcher.grammar.tokens.token_bytes
    assert sorted({texts[i] for i in legal(matcher)}) == sorted([b"n", b"null", b"{", b'{"'])
    assert matcher.accept(texts.index(b"{"))
    assert sorted({texts[i] for i in legal(matcher)}) == sorted([b'"', b'":', b'": '])
    assert "no_forcing" in HEADER


@pytest.mark.parametrize(
    ("limits", "spec"),
    [
        ({"max_grammar_size": 3}, GrammarSpec(GrammarKind.EBNF, 'root ::= "a" root "b" | "c" | root root')),
        ({"initial_lexer_fuel": 10}, regex("(?:a|b)*c(?:a|b){30}")),
    ],
)
def test_a_grammar_beyond_the_librarys_limits_is_refused_at_compilation(limits: Any, spec: GrammarSpec) -> None:
    made = LLGuidanceBackend(**limits)
    made.bind(VOCABULARIES["bytes"])
    with pytest.raises(GrammarError, match=r"llguidance refuses the (regex|EBNF grammar)"):
        made.compile(spec)


@pytest.mark.parametrize("has_masks", [True, False])
@pytest.mark.parametrize("limits", [{"max_lexer_states": 20}, {"step_max_items": 3}, {"step_lexer_fuel": 3}], ids=str)
def test_a_limit_that_is_reached_is_an_error_from_then_on(limits: Any, has_masks: bool) -> None:
    """Never an empty row, which would be a dead end, nor a token of the form that is refused."""
    made = LLGuidanceBackend(**limits)
    made.bind(VOCABULARIES["bytes"])
    for spec, text in (
        (regex("(?:a|b)*a(?:a|b){12}"), "abbabaabbbaababaabaa"),
        (GrammarSpec(GrammarKind.EBNF, 'root ::= "a" root "b" | "c" | root root'), "aacbcb"),
    ):
        matcher = made.load(made.compile(spec)).matcher()
        row = np.zeros((1, VOCABULARIES["bytes"].num_words), dtype=np.int32)
        try:
            for byte in text.encode():
                if has_masks:
                    matcher.fill_row(row, 0)
                    assert row.any()
                assert matcher.accept(byte)
        except GrammarError as error:
            assert "llguidance gave up behind" in str(error) and len(str(error).splitlines()) == 1
            with pytest.raises(GrammarError, match="llguidance gave up"):
                matcher.fill_row(row, 0)
            with pytest.raises(GrammarError, match="llguidance gave up"):
                matcher.accept(ord("a"))


def test_whitespace_options_that_come_with_a_schema_are_overwritten() -> None:
    schema = {
        **{"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": False},
        "x-guidance": {"whitespace_pattern": "[ ]*", "key_separator": " : "},
    }
    for max_whitespace in range(3):
        matcher = matcher_of(GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema), max_whitespace))
        assert matcher.accept(ord("{"))
        assert [matcher.accept(ord(" ")) for _ in range(3)] == [n < max_whitespace for n in range(3)]
        assert all(matcher.accept(byte) for byte in b'"a":null}') and matcher.is_accepting
