"""One call for a whole draft says what walking it says, and no special id reaches the library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammars.xgrammar import XGrammarBackend
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.bitmask import members
from specinfer.testing.grammar_forms import FORMS, VOCABULARIES, Form

STALE = np.int32(0x5A5A5A5A)


@cache
def backend(vocabulary: str) -> XGrammarBackend:
    made = XGrammarBackend()
    made.bind(VOCABULARIES[vocabulary])
    return made


@cache
def grammar(form: int) -> Any:
    made = backend(FORMS[form].vocabulary)
    return made.load(made.compile(FORMS[form].spec))


def by_walking(form: Form, matcher: Any, token_ids: Sequence[int], parents: Sequence[int]) -> tuple[Any, list[bool]]:
    """The rows of a draft and what is legal, each path walked alone."""
    bitmask = np.full((len(token_ids) + 1, form.tokens.num_words), STALE)
    matcher.fill_row(bitmask, 0)
    paths: list[list[int]] = []
    is_legal = []
    for node, (token_id, parent) in enumerate(zip(token_ids, parents, strict=True)):
        paths.append([*(paths[parent] if parent >= 0 else []), token_id])
        taken = 0
        while taken < len(paths[node]) and matcher.accept(paths[node][taken]):
            taken += 1
        is_legal.append(taken == len(paths[node]))
        if is_legal[node]:
            matcher.fill_row(bitmask, node + 1)
        matcher.rollback(taken)
    return bitmask, is_legal


@st.composite
def drafts(draw: st.DrawFn) -> tuple[int, list[int], list[int], list[int]]:
    """A form, a walk into it, and a tree of tokens, most of them legal behind their parent."""
    form = draw(st.integers(0, len(FORMS) - 1))
    matcher, tokens = grammar(form).matcher(), FORMS[form].tokens

    def some_token(behind: Sequence[int]) -> int:
        row = np.zeros((1, tokens.num_words), dtype=np.int32)
        taken = 0
        while taken < len(behind) and matcher.accept(behind[taken]):
            taken += 1
        matcher.fill_row(row, 0)
        legal = np.flatnonzero(members(row[0] & tokens.usable)).tolist() if taken == len(behind) else []
        matcher.rollback(taken)
        anything = st.integers(-1, tokens.vocab_size)
        return draw(st.sampled_from(legal) | anything if legal else anything)

    start: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        token_id = some_token(start)
        if not matcher.accept(token_id):
            break
        matcher.rollback(1)
        start.append(token_id)
        matcher.rollback(0)
        assert matcher.accept(token_id)
        matcher.rollback(1)
    token_ids: list[int] = []
    parents: list[int] = []
    for node in range(draw(st.integers(0, 6))):
        parents.append(draw(st.integers(-1, node - 1)))
        path = [*start, *_path(token_ids, parents, parents[node])]
        token_ids.append(some_token(path))
    return form, start, token_ids, parents


def _path(token_ids: Sequence[int], parents: Sequence[int], node: int) -> list[int]:
    found: list[int] = []
    while node >= 0:
        found.append(token_ids[node])
        node = parents[node]
    return found[::-1]


@settings(max_examples=150, deadline=None)
@given(drafts())
def test_the_rows_of_a_draft_are_those_of_walking_it(draft: tuple[int, list[int], list[int], list[int]]) -> None:
    index, start, token_ids, parents = draft
    form, matcher = FORMS[index], grammar(index).matcher()
    for token_id in start:
        if not matcher.accept(token_id):
            return
    wanted, is_legal = by_walking(form, matcher, token_ids, parents)
    shapes = [parents] + ([None] if parents == list(range(-1, len(parents) - 1)) else [])
    for shape in shapes:
        bitmask = np.full((len(token_ids) + 1, form.tokens.num_words), STALE)
        assert matcher.fill_draft(token_ids, shape, bitmask) == is_legal
        assert np.array_equal(bitmask & form.tokens.usable, wanted & form.tokens.usable)
    row = np.zeros((1, form.tokens.num_words), dtype=np.int32)
    matcher.fill_row(row, 0)
    assert np.array_equal(row[0], wanted[0]), "the place moved"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.spec.source[:20])
def test_no_special_id_is_taken_and_none_ends_a_matcher(form: Form) -> None:
    made = backend(form.vocabulary)
    matcher: Any = made.load(made.compile(form.spec)).matcher()
    special = [i for i, text in enumerate(form.tokens.token_bytes) if not text]
    for token_id in (*special, -1, form.tokens.vocab_size, 10**6):
        assert not matcher.accept(token_id)
    for text in form.final:
        for byte in text.encode():
            assert matcher.accept(form.tokens.token_bytes.index(bytes([byte])))
        row = np.full((1, form.tokens.num_words), STALE)
        matcher.fill_row(row, 0)
        assert not (row[0] & form.tokens.usable).any(), "a finished text has an empty row and no error"
        matcher.rollback(len(text.encode()))


SCHEMAS: list[tuple[dict[str, Any], list[str]]] = [
    ({"enum": ["éa", "\x7f1", "\u2028f"]}, ['"éa"', '"\\u2028f"'][:1]),
    ({"type": "string", "pattern": "^[^0-9]b$"}, ['"ab"']),
    ({"type": "string"}, ['"</f"', '"}"', '"é"']),
    ({"type": "object", "properties": {"é1": {"type": "null"}}, "required": ["é1"]}, ['{"é1":null}']),
]


@pytest.mark.parametrize(("schema", "texts"), SCHEMAS, ids=str)
def test_a_schema_within_a_tag_takes_what_it_takes_alone(schema: dict[str, Any], texts: list[str]) -> None:
    """The tag holds the schema's grammar as printed, which must be read as it was."""
    made = backend("bytes")
    tags = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}]}
    inside = made.load(made.compile(GrammarSpec(GrammarKind.STRUCTURAL_TAG, json.dumps(tags), 0)))
    alone = made.load(made.compile(GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema), 0)))
    for text in texts:
        matcher, tagged = alone.matcher(), inside.matcher()
        assert all(tagged.accept(byte) for byte in b"<f>")
        rows = np.zeros((2, VOCABULARIES["bytes"].num_words), dtype=np.int32)
        for byte in text.encode():
            matcher.fill_row(rows, 0)
            tagged.fill_row(rows, 1)
            usable = VOCABULARIES["bytes"].usable
            assert np.array_equal(rows[0] & usable, rows[1] & usable), f"other tokens are legal in {text!r}"
            assert matcher.accept(byte) and tagged.accept(byte), f"{text!r} is not taken at {byte}"
        assert all(tagged.accept(byte) for byte in b"</f> x") and tagged.is_accepting
