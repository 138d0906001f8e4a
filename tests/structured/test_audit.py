"""The audit reads every keyword as a feature, and calls nothing exact that its table lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specinfer.protocols import Enforcement
from specinfer.structured.audit import audit
from specinfer.structured.features import features
from specinfer.structured.keywords import KEYWORDS
from specinfer.testing.grammar_probes import PROBES

EXACT, NARROWED, WIDENED, REFUSED = (
    Enforcement.EXACT,
    Enforcement.NARROWED,
    Enforcement.WIDENED,
    Enforcement.REFUSED,
)


def backend(**enforces: Enforcement) -> Any:
    return SimpleNamespace(enforces={name.replace("_", " "): value for name, value in enforces.items()})


def test_a_feature_that_the_table_lacks_counts_as_refused() -> None:
    report = audit({"type": "string", "maxLength": 3}, backend(type_string=EXACT), name="b")
    assert [(f.feature, f.enforcement) for f in report.findings] == [("type string", EXACT), ("maxLength", REFUSED)]
    assert report.worst is REFUSED and not report.is_exact
    assert report.describe() == ["b does not know maxLength at #"]


def test_the_worst_finding_orders_backends_then_their_number() -> None:
    schema = {"type": "string", "maxLength": 3, "minLength": 1}

    def badness(short: Enforcement, long: Enforcement) -> tuple[int, int]:
        return audit(schema, backend(type_string=EXACT, minLength=short, maxLength=long)).badness

    kinds = [(EXACT, EXACT), (EXACT, NARROWED), (NARROWED, NARROWED), (WIDENED, EXACT), (REFUSED, EXACT)]
    assert sorted(kinds, key=lambda kind: badness(*kind)) == kinds


def test_places_are_json_pointers_and_equal_ones_are_told_together() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"a/b": {"const": 1}, "c": {"const": 2}}}}
    report = audit(schema, SimpleNamespace(enforces={"const": WIDENED}), name="b", pointer="/structures/0/schema")  # type: ignore[arg-type]
    told = next(line for line in report.describe() if "const" in line and "numbers" not in line)
    assert told == "b has const at #/structures/0/schema/items/properties/a~1b and 1 more widened"


WITHOUT_EFFECT = {"then", "else", "additionalItems", "maxContains", "minContains"}
"""Keywords that say nothing without another one"""
VALUES: dict[str, Any] = {
    "$ref": "#", "type": "null", "enum": [None], "const": None, "format": "date", "pattern": "^a$", "required": ["a"],
    "uniqueItems": True, "multipleOf": 2, "items": {"type": "null"}, "additionalProperties": False,
    "dependentRequired": {"a": ["b"]}, "$dynamicRef": "#a", "$recursiveRef": "#",
    **{key: [{"type": "null"}] for key in ("allOf", "anyOf", "oneOf", "prefixItems")},
    **{key: {"a": {"type": "null"}} for key in ("properties", "dependencies", "dependentSchemas")},
    "patternProperties": {"^a$": {"type": "null"}},
    **dict.fromkeys(("if", "not", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"), False),
}  # fmt: skip


@pytest.mark.parametrize("keyword", sorted(KEYWORDS - WITHOUT_EFFECT))
def test_every_keyword_is_a_feature_that_is_not_there_without_it(keyword: str) -> None:
    with_it = {feature for feature, _ in features({keyword: VALUES.get(keyword, 1)})}
    without = {feature for feature, _ in features({})}
    assert with_it - without, f"{keyword} goes unseen"


@pytest.mark.parametrize("feature", PROBES)
def test_the_schemas_that_probe_a_feature_have_it(feature: str) -> None:
    for probe in PROBES[feature]:
        assert feature in {found for found, _ in features(probe.schema)}


@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"minimum": 3, "uniqueItems": True}},
        {"enum": [{"not": {}}]},
        {"type": "object", "default": {"uniqueItems": True}, "examples": [{"not": {}}], "x-mine": {"not": {}}},
        {"type": "object", "properties": {"uniqueItems": {"type": "null"}, "not": {"type": "null"}}},
    ],
    ids=str,
)
def test_data_and_names_are_no_keywords(schema: Any) -> None:
    assert not {feature for feature, _ in features(schema)} & {"uniqueItems", "not", "minimum"}
