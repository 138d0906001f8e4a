"""A form that is wrong is refused when it is read, by name; equal forms give equal specs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

from specinfer.errors import GrammarError
from specinfer.forms import GrammarLimits, StructuredOutputs
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.specs import schemas_in, spec_of

LIMITS = GrammarLimits()
TAG = {"triggers": ["<f"], "structures": [{"begin": "<f=a>", "schema": {"type": "null"}, "end": "</f>"}]}


def spec(**form: Any) -> GrammarSpec:
    return spec_of(StructuredOutputs(**form), LIMITS)


class Person(BaseModel):
    name: str
    age: int


def test_a_schema_is_the_same_as_a_dict_a_text_and_a_model() -> None:
    schema = Person.model_json_schema()
    given = (schema, json.dumps(schema, indent=3), Person)
    assert len({spec(json=form) for form in given}) == 1
    assert schemas_in(spec(json=Person)) == [("", schema)]


def test_json_object_is_the_schema_of_objects() -> None:
    assert spec(json_object=True) == spec(json={"type": "object"})


def test_whitespace_and_the_order_of_properties_make_another_grammar() -> None:
    two = {"properties": {"a": {}, "b": {}}}
    turned = {"properties": {"b": {}, "a": {}}}
    assert len({spec(json=two), spec(json=turned), spec(json=two, max_whitespace=0)}) == 3


@pytest.mark.parametrize(
    "texts", [["a", "ab"], ["a.b", "(c)"], ["é😀", "\n", " "], ["", "x"], ["a|b", "\\d"]], ids=ascii
)
def test_a_choice_is_a_pattern_of_exactly_its_texts(texts: list[str]) -> None:
    found = spec(choice=texts)
    assert found.kind is GrammarKind.REGEX
    assert all(re.fullmatch(found.source, text) for text in texts)
    assert not any(re.fullmatch(found.source, other) for other in ("axb", "c", "ac", "5", "b"))


def test_the_schemas_of_a_structural_tag_are_found() -> None:
    found = spec(structural_tag=TAG)
    assert found == spec(structural_tag=json.dumps(TAG))
    assert schemas_in(found) == [("/structures/0/schema", {"type": "null"})]
    assert schemas_in(spec(regex="a")) == []


class NoModel:
    pass


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"json": "{bad"}, "is not JSON"),
        ({"json": "3"}, "must be an object"),
        ({"json": {"a": {1, 2}}}, "is not JSON"),
        ({"json": {"minimum": float("nan")}}, "is not JSON"),
        ({"json": NoModel}, "the class NoModel, which has no model_json_schema"),
        ({"json": {"type": "text"}}, "not a valid JSON schema, at type: 'text'"),
        ({"json": {"properties": {"a": {"minLength": -1}}}}, "at properties/a/minLength"),
        ({"json": {"required": "a"}}, "not a valid JSON schema, at required"),
        ({"json": {"$ref": "http://a.b/c.json"}}, "leaves the schema"),
        ({"json": {"$ref": "other.json#/x"}}, "leaves the schema"),
        ({"json": {"properties": {"a": {"$ref": "#/$defs/x"}}}}, "'#/$defs/x' at #/properties/a points at nothing"),
        ({"regex": "a("}, "unterminated subpattern"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": "\ud800"}, "surrogate"),
        ({"choice": ["\ud800"]}, "surrogate"),
        ({"grammar": "start ::= 'a'"}, "has no rule `root ::= ...`"),
        ({"structural_tag": {"triggers": ["<"]}}, "structures"),
        ({"structural_tag": {**TAG, "structures": [{"begin": "<f", "schema": {"type": "x"}, "end": ""}]}}, "at type"),
        ({"structural_tag": "[}"}, "is not JSON"),
    ],
    ids=ascii,
)
def test_what_is_wrong_is_said_in_one_line(form: dict[str, Any], reason: str) -> None:
    with pytest.raises(GrammarError) as caught:
        spec(**form)
    assert reason in str(caught.value) and len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 700


def test_a_property_that_is_called_like_a_keyword_is_none() -> None:
    names = ["$ref", "enum", "pattern", "required", "properties"]
    assert spec(json={"type": "object", "properties": {name: {"type": "string"} for name in names}})
    assert spec(json={"const": {"$ref": "nowhere", "pattern": "("}, "default": {"$ref": 3}})
