"""A class holds exactly its characters, however a library reads what follows an escape."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from specinfer.structured.characters import (
    ANY,
    EBNF_SPECIALS,
    MAX_CODE,
    REGEX_SPECIALS,
    SURROGATES,
    Ranges,
    char_class,
    complement,
    normalised,
    spelled_char,
    without_surrogates,
)

EDGES = [0, 1, 9, 10, 13, 31, 32, 45, 47, 48, 57, 65, 92, 93, 94, 95, 97, 127, 0xD7FF, 0xD800, 0xDFFF, 0xE000, MAX_CODE]
CODES = st.sampled_from(EDGES) | st.integers(0, 130)
RANGES = st.lists(st.tuples(CODES, CODES).map(lambda pair: (min(pair), max(pair))), max_size=5)
PROBES = sorted({min(max(code + step, 0), MAX_CODE) for code in [*EDGES, *range(130)] for step in (-1, 0, 1)})
TEXTS = [code for code in PROBES if not SURROGATES[0] <= code <= SURROGATES[1]]


def held(ranges: Ranges) -> set[int]:
    return {code for code in PROBES if any(low <= code <= high for low, high in ranges)}


@given(RANGES)
def test_ranges_are_sorted_apart_and_hold_the_same_characters(ranges: Ranges) -> None:
    found = normalised(ranges)
    assert held(found) == held(ranges)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(found))


@given(RANGES)
def test_a_complement_holds_all_others_and_is_its_own_inverse(ranges: Ranges) -> None:
    found = normalised(ranges)
    assert held(complement(found)) == set(PROBES) - held(found)
    assert complement(complement(found)) == found


@given(RANGES)
def test_no_text_holds_a_surrogate(ranges: Ranges) -> None:
    assert held(without_surrogates(ranges)) == held(ranges) & set(TEXTS)


@given(RANGES)
def test_a_class_matches_exactly_its_characters(ranges: Ranges) -> None:
    found = normalised(ranges)
    if not without_surrogates(found):
        return
    for specials in (REGEX_SPECIALS, EBNF_SPECIALS):
        text = char_class(found, specials)
        text.encode()
        pattern = re.compile(text if specials is REGEX_SPECIALS else text.replace("[", r"\[").replace(r"\[", "[", 1))
        assert {code for code in TEXTS if pattern.fullmatch(chr(code))} == held(found) & set(TEXTS)


@given(RANGES)
def test_nothing_follows_an_escape_that_could_lengthen_it_and_no_class_begins_with_a_caret(ranges: Ranges) -> None:
    found = normalised(ranges)
    if not without_surrogates(found) or found == [(94, 94)]:
        return
    text = char_class(found, REGEX_SPECIALS)
    assert not re.search(r"\\x00[0-9a-fA-F]", text)
    assert not re.search(r"\\x(?!00)", text), "no other character is spelled in digits"
    assert not text.startswith(r"[\^")


def test_any_character_is_a_class_too() -> None:
    pattern = re.compile(char_class(ANY, REGEX_SPECIALS))
    assert all(pattern.fullmatch(chr(code)) for code in TEXTS)


def test_a_character_alone_stands_for_itself() -> None:
    for code in TEXTS:
        assert re.fullmatch(spelled_char(code, REGEX_SPECIALS), chr(code))
