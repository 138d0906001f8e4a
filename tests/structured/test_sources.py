"""Whatever is wrong with a source is a GrammarError of one line that shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind
from specinfer.structured.sources import MAX_SHOWN, NAMES, Tag, refusals, refuse, schema_of, shown, tags_of

TAG = {"begin": "<f=a>", "schema": {"type": "null"}, "end": "</f>"}


def tags(**changes: Any) -> str:
    return json.dumps({"triggers": ["<f"], "structures": [TAG], **changes})


def test_a_schema_is_an_object_and_true_one_that_says_nothing() -> None:
    assert schema_of('{"type": "null"}') == {"type": "null"}
    assert schema_of("true") == schema_of("{}") == {}


@pytest.mark.parametrize("value", ["3", "null", '"a"', "[]", "1.5", '[{"type": "null"}]'])
def test_a_schema_of_another_kind_is_shown(value: str) -> None:
    with pytest.raises(GrammarError, match="the JSON schema must be an object, got ") as caught:
        schema_of(value)
    assert repr(json.loads(value)) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "is not JSON"),
        ("{bad", "is not JSON"),
        ('{"a": 1}x', "is not JSON"),
        ("NaN", "NaN is not a JSON value"),
        ('{"minimum": -Infinity}', "-Infinity is not a JSON value"),
        ('"\ud800"', "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("false", "is `false`, which nothing matches"),
    ],
    ids=lambda value: ascii(value)[:30],
)
@pytest.mark.parametrize("kind", ["schema", "tags"])
def test_what_is_no_json_or_allows_nothing_is_refused_in_one_short_line(kind: str, source: str, reason: str) -> None:
    if kind == "tags":
        source = (
            source if reason != "is `false`, which nothing matches" else tags(structures=[{**TAG, "schema": False}])
        )
    with pytest.raises(GrammarError) as caught:
        (schema_of if kind == "schema" else tags_of)(source)
    message = str(caught.value)
    assert reason in message and len(message.splitlines()) == 1 and len(message) < 2 * MAX_SHOWN
    assert ("JSON schema" if kind == "schema" else "structur") in message


def test_a_tag_has_the_longest_trigger_that_its_beginning_starts_with() -> None:
    found = tags_of(
        tags(
            triggers=["<", "<f", "<f=b"],
            structures=[TAG, {**TAG, "begin": "<f=b>"}, {"begin": "<x>", "end": ""}],
        )
    )
    assert found == [
        Tag("<f", "<f=a>", {"type": "null"}, "</f>"),
        Tag("<f=b", "<f=b>", {"type": "null"}, "</f>"),
        Tag("<", "<x>", {}, ""),
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{}", 'must be {"triggers": [...], "structures": [...]}'),
        ("[]", 'must be {"triggers": [...], "structures": [...]}'),
        (tags(more=1), 'must be {"triggers": [...], "structures": [...]}'),
        (tags(triggers=[]), "triggers of a structural tag must be non-empty texts, got []"),
        (tags(triggers="<f"), "triggers of a structural tag must be non-empty texts"),
        (tags(triggers=["<f", ""]), "triggers of a structural tag must be non-empty texts"),
        (tags(triggers=["<f", 3]), "triggers of a structural tag must be non-empty texts"),
        (tags(structures=[]), "structures of a structural tag must be a non-empty list, got []"),
        (tags(structures={"a": TAG}), "structures of a structural tag must be a non-empty list"),
        (tags(structures=["<f>"]), "must have begin, schema and end, got '<f>'"),
        (tags(structures=[{"begin": "<f"}]), "must have begin, schema and end"),
        (tags(structures=[{**TAG, "name": "x"}]), "must have begin, schema and end"),
        (tags(structures=[{**TAG, "end": None}]), "begin and end of a structure must be texts"),
        (tags(structures=[{**TAG, "begin": 1}]), "begin and end of a structure must be texts"),
        (tags(structures=[{**TAG, "begin": "f"}]), "'f' starts with none of the triggers ['<f']"),
        (tags(triggers=["<f", "<g"]), "no structure begins with the trigger '<g'"),
        (tags(structures=[{**TAG, "schema": 3}]), "the schema of the structure '<f=a>' must be an object, got 3"),
    ],
)
def test_a_structural_tag_that_cannot_work_is_refused_by_what_is_wrong(source: str, reason: str) -> None:
    with pytest.raises(GrammarError) as caught:
        tags_of(source)
    assert reason in str(caught.value)


class PanicException(BaseException):  # the name that panics have
    """As a library in Rust raises it."""


@pytest.mark.parametrize("error", [ValueError, RuntimeError, AssertionError, MemoryError, PanicException])
@pytest.mark.parametrize("kind", GrammarKind)
def test_what_a_library_raises_becomes_a_refusal_by_its_first_line(
    kind: GrammarKind, error: type[BaseException]
) -> None:
    with pytest.raises(GrammarError) as caught, refusals("lib", kind):
        raise error("\n  bad thing \nand a trace")
    assert str(caught.value) == f"lib refuses the {NAMES[kind]}: bad thing; change it or choose another backend"
    assert isinstance(caught.value.__cause__, error)


def test_a_refusal_without_a_reason_tells_the_class() -> None:
    with pytest.raises(GrammarError, match="lib refuses the regex: KeyError;"), refusals("lib", GrammarKind.REGEX):
        raise KeyError


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_no_refusal(error: type[BaseException]) -> None:
    with pytest.raises(error), refusals("lib", GrammarKind.REGEX):
        raise error


def test_an_error_of_ours_passes_as_it_is() -> None:
    own = GrammarError("the regex is wrong")
    with pytest.raises(GrammarError) as caught, refusals("lib", GrammarKind.REGEX):
        raise own
    assert caught.value is own


@pytest.mark.parametrize("place", ["[16:19:56] /project/cpp/grammar_parser.cc:820: ", "at 3(12): ", ""])
def test_the_place_in_the_librarys_own_text_is_left_out_and_a_long_reason_cut(place: str) -> None:
    with pytest.raises(GrammarError) as caught:
        refuse("lib", GrammarKind.REGEX, place + "x" * (MAX_SHOWN + 1))
    assert str(caught.value).startswith(f"lib refuses the regex: {'x' * MAX_SHOWN}...; change it")


def test_a_value_is_shown_as_it_is_and_cut_where_it_is_long() -> None:
    assert shown([1, "é"]) == "[1, 'é']"
    assert shown("a" * 1000) == "'" + "a" * (MAX_SHOWN - 1) + "..."
