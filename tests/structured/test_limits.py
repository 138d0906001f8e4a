"""A source over a limit is refused with the limit's name, in a moment, whatever its shape."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from specinfer.errors import GrammarError
from specinfer.forms import GrammarLimits, StructuredOutputs
from specinfer.structured.specs import spec_of


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def array_text(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


MONSTERS: dict[str, tuple[dict[str, Any], str]] = {
    "a schema nested 500 deep": ({"json": nested(500)}, "max_nesting|nested too deeply"),
    "a schema text nested 100,000 deep": ({"json": array_text(100_000)}, "max_source_bytes"),
    "a schema text nested 20,000 deep": ({"json": array_text(20_000)}, "max_nesting"),
    "brackets that never close": ({"json": "[" * 200_000}, "max_nesting"),
    "an enum of 10,000": ({"json": {"enum": list(range(10_000))}}, "max_alternatives"),
    "an inner enum of 10,000": ({"json": {"items": {"anyOf": [{"enum": list(range(10_000))}]}}}, "max_alternatives"),
    "a choice of 10,000": ({"choice": [str(i) for i in range(10_000)]}, "max_alternatives"),
    "a regex that multiplies": ({"regex": "(a{1,1000}){1,1000}"}, "max_repetitions"),
    "a regex that multiplies by open bounds": ({"regex": "((a{100,}){20}b){20}"}, "max_repetitions"),
    "a regex with a huge bound": ({"regex": "a{99999999999}"}, "max_repetitions"),
    "a regex with groups 300 deep": ({"regex": "(" * 300 + "a" + ")" * 300}, "max_nesting"),
    "a pattern that multiplies": ({"json": {"pattern": "(a{1,1000}){1,1000}"}}, "max_repetitions"),
    "a pattern of names that multiplies": ({"json": {"patternProperties": {"(a{9,999}){999}": {}}}}, "max_repetitions"),
    "a tag's schema with a large enum": (
        {
            "structural_tag": {
                "triggers": ["<"],
                "structures": [{"begin": "<a>", "schema": {"enum": list(range(6_000))}, "end": ""}],
            }
        },
        "max_alternatives",
    ),
    "a long grammar": ({"grammar": 'root ::= "a"\n' * 30_000}, "max_source_bytes"),
    "a grammar with groups 300 deep": ({"grammar": "root ::= " + "(" * 300 + '"a"' + ")" * 300}, "max_nesting"),
    "a long regex": ({"regex": "a" * 300_000}, "max_source_bytes"),
}


@pytest.mark.parametrize("name", MONSTERS)
def test_a_monster_is_refused_with_the_limits_name_in_bounded_time(name: str) -> None:
    form, limit = MONSTERS[name]
    start = perf_counter()
    with pytest.raises(GrammarError, match=limit) as caught:
        spec_of(StructuredOutputs(**form), GrammarLimits())
    assert perf_counter() - start < 5.0, (
        "a bound on the machine's speed, not a measurement: work is linear in the source"
    )
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "form",
    [
        {"json": nested(25)},
        {"json": {"enum": list(range(5_000))}},
        {"json": {"const": "[" * 100 + '\\"' + "{" * 100}},
        {"regex": "[(]{70}\\(" * 9},
        {"regex": "(?:a{1,100}b{1,100}){1,200}"},
        {"grammar": 'root ::= "' + "(" * 100 + '" [(((((((((((] # ' + "(" * 100},
    ],
    ids=lambda form: str(form)[:40],
)
def test_what_is_within_the_limits_passes(form: dict[str, Any]) -> None:
    assert spec_of(StructuredOutputs(**form), GrammarLimits())


def test_a_request_can_lower_limits_but_not_raise_them() -> None:
    engine, request = GrammarLimits(max_nesting=8, compile_s=2.0), GrammarLimits(max_nesting=99, compile_s=0.5)
    found = engine.tightened(request)
    assert (found.max_nesting, found.compile_s) == (8, 0.5)
