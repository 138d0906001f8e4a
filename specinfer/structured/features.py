"""Which features of JSON Schema does a schema use?

A feature is a keyword, or a use or combination of keywords that backends treat unlike the keyword itself. Always true:
every keyword that an instance can break is a feature of its own or part of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specinfer.errors import GrammarError
from specinfer.structured.keywords import FORMATS, KEYWORDS, OF_TYPE, SINCE
from specinfer.structured.patterns import traits
from specinfer.structured.schemas import subschemas, target

EXACT_BOUND = 2**53
"""Beyond it a number cannot be told from the next one as a double"""


def features(schema: Any) -> list[tuple[str, str]]:
    """Each feature of a schema with the JSON pointer to its subschema, in the schema's order, each once a place."""
    found: dict[tuple[str, str], None] = {}
    dialect = str(schema.get("$schema", "")) if isinstance(schema, Mapping) else ""
    for pointer, inner in subschemas(schema):
        for feature in _features(inner, schema, pointer, dialect):
            found[feature, pointer] = None
    return list(found)


def _features(schema: Any, root: Any, pointer: str, dialect: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema and not pointer.endswith(("/additionalProperties", "/additionalItems", "/items")):
            yield "false schema"
        return
    keywords = [keyword for keyword in schema if keyword in KEYWORDS]
    if "$ref" in schema:
        yield from _ref_features(schema, root, pointer, keywords)
    for keyword in ("$dynamicRef", "$recursiveRef"):
        if keyword in schema:
            yield keyword
    yield from _combination_features(schema, keywords)
    yield from _value_features(schema, keywords)
    types = _types(schema)
    if types is None:
        for of_type, owned in OF_TYPE.items():
            if owned.intersection(keywords):
                yield f"{of_type} keywords without type"
        if not keywords:
            yield "any value"
    elif isinstance(schema["type"], list):
        yield "type list"
    for of_type, owned in OF_TYPE.items():
        used = owned.intersection(keywords)
        is_meant = types is None or of_type in types or (of_type == "number" and "integer" in types)
        if used and not is_meant:
            yield "keyword of another type"
        if is_meant and (used or types is not None):
            yield from _BY_TYPE[of_type](schema, types)
    for simple in ("integer", "boolean", "null"):
        if types is not None and simple in types:
            yield f"type {simple}"
    yield from _newer_features(keywords, dialect)


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    given = schema.get("type")
    if given is None:
        return None
    return {given} if isinstance(given, str) else set(given)


def _ref_features(schema: Mapping[str, Any], root: Any, pointer: str, keywords: list[str]) -> Iterator[str]:
    ref = schema["$ref"]
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        yield "$ref by name"
        return
    yield "$ref (recursive)" if _is_recursive(root, ref) else "$ref"
    if len(keywords) > 1:
        is_old = any(f"draft-0{draft}" in str(root.get("$schema")) for draft in (3, 4, 6, 7))
        yield "$ref with keywords that its dialect ignores" if is_old else "$ref with other keywords"
    inner = target(root, ref)
    if not any(inner is known for _, known in subschemas(root)):
        yield "$ref into an annotation"


def _is_recursive(root: Any, ref: str) -> bool:
    """Whether following references from a place leads there again."""
    seen: set[str] = set()
    waiting = [ref]
    while waiting:
        for _, inner in subschemas(target(root, waiting.pop())):
            following = inner.get("$ref") if isinstance(inner, Mapping) else None
            if following == ref:
                return True
            if isinstance(following, str) and following.startswith("#") and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _combination_features(schema: Mapping[str, Any], keywords: list[str]) -> Iterator[str]:
    for keyword in ("anyOf", "oneOf", "allOf", "not", "if"):
        if keyword in schema:
            yield keyword
            if set(keywords) - {keyword, "then", "else"}:
                yield f"{keyword} with other keywords"


def _value_features(schema: Mapping[str, Any], keywords: list[str]) -> Iterator[str]:
    for keyword in ("enum", "const"):
        if keyword not in schema:
            continue
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        yield keyword
        if any(isinstance(value, dict | list) for value in values):
            yield f"{keyword} of objects or arrays"
        if any(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            yield f"{keyword} of numbers"
        types = _types(schema)
        if types is not None and not all(_type_of(value) & types for value in values):
            yield f"{keyword} beyond type"
        if set(keywords) - {keyword, "type"}:
            yield f"{keyword} with other keywords"


def _type_of(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"number", "integer"} if value == int(value) else {"number"}
    return {"string"} if isinstance(value, str) else {"array"} if isinstance(value, list) else {"object"}


def _string_features(schema: Mapping[str, Any], types: set[str] | None) -> Iterator[str]:
    if types is not None:
        yield "type string"
    is_bounded = bool({"minLength", "maxLength"} & schema.keys())
    for keyword in ("minLength", "maxLength"):
        if keyword in schema:
            yield keyword
    if "pattern" in schema:
        yield from _pattern_features("pattern", schema["pattern"])
        if is_bounded:
            yield "pattern with minLength or maxLength"
    if "format" in schema:
        name = schema["format"]
        yield f"format {name}" if name in FORMATS else "unknown format"
        if is_bounded or "pattern" in schema:
            yield "format with pattern, minLength or maxLength"


def _pattern_features(keyword: str, pattern: str) -> Iterator[str]:
    try:
        found = traits(pattern)
    except GrammarError:
        yield f"{keyword} that is not portable"
        return
    yield keyword
    for trait in found:
        yield f"{keyword} with {trait}"


def _number_features(schema: Mapping[str, Any], types: set[str] | None) -> Iterator[str]:
    if types is not None and "number" in types:
        yield "type number"
    is_integer = types is not None and "number" not in types
    suffix = "" if is_integer else " of a number"
    bounds = [k for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if k in schema]
    for keyword in bounds:
        value = schema[keyword]
        if isinstance(value, bool):
            yield f"{keyword} as a boolean"
            continue
        yield keyword + suffix
        if abs(value) >= EXACT_BOUND:
            yield "bound beyond 2^53"
        elif is_integer and value != int(value):
            yield "fraction as an integer's bound"
    if {"minimum", "exclusiveMinimum"} <= set(bounds) or {"maximum", "exclusiveMaximum"} <= set(bounds):
        yield "two bounds on one side"
    if "multipleOf" in schema:
        is_whole = schema["multipleOf"] == int(schema["multipleOf"])
        yield f"multipleOf{suffix}" if is_whole else "multipleOf a fraction"
        if bounds:
            yield "multipleOf with bounds"


def _array_features(schema: Mapping[str, Any], types: set[str] | None) -> Iterator[str]:
    if types is not None:
        yield "type array"
    if isinstance(schema.get("items"), list):
        yield "items as a list"
    elif schema.get("items") is False:
        yield "items: false"
    elif "items" in schema:
        yield "items"
    elif "prefixItems" not in schema:
        yield "array of any items"
    for keyword in (
        "prefixItems",
        "minItems",
        "maxItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
    ):
        if keyword in schema:
            yield keyword
    if "additionalItems" in schema and isinstance(schema.get("items"), list):
        yield "additionalItems"
    if schema.get("uniqueItems"):
        yield "uniqueItems"
    if ("prefixItems" in schema or isinstance(schema.get("items"), list)) and {"minItems", "maxItems"} & schema.keys():
        yield "a tuple with minItems or maxItems"


def _object_features(schema: Mapping[str, Any], types: set[str] | None) -> Iterator[str]:
    if types is not None:
        yield "type object"
    named = schema.get("properties", {})
    required = schema.get("required", [])
    patterned = schema.get("patternProperties", {})
    if named:
        yield "properties"
    if isinstance(required, list) and required:
        yield "required"
        if set(required) - set(named):
            yield "required names beyond properties"
    if set(named) - set(required):
        yield "optional properties"
    additional = schema.get("additionalProperties", True)
    if additional is False:
        yield "additionalProperties: false"
    elif isinstance(additional, Mapping) and additional:
        yield "additionalProperties as a schema"
    elif named or patterned:
        yield "additional properties"
    if patterned:
        for pattern in patterned:
            yield from _pattern_features("patternProperties", pattern)
        if isinstance(additional, Mapping) and additional:
            yield "patternProperties beside additionalProperties as a schema"
        if named or additional is not False:
            yield "patternProperties beside other properties"
        if len(patterned) > 1:
            yield "several patternProperties"
    if "minProperties" in schema:
        yield "minProperties" if schema["minProperties"] <= 1 else "minProperties above 1"
    for keyword in ("propertyNames", "maxProperties", "dependencies", "dependentRequired",
                    "dependentSchemas", "unevaluatedProperties"):  # fmt: skip
        if keyword in schema:
            yield keyword
    if {"minProperties", "maxProperties"} & schema.keys() and (named or patterned):
        yield "minProperties or maxProperties beside named ones"
    if any(not _is_plain(name) for name in (*named, *(r for r in required if isinstance(r, str)))):
        yield "property name that JSON escapes"


_BY_TYPE = {
    "string": _string_features,
    "number": _number_features,
    "array": _array_features,
    "object": _object_features,
}


def _newer_features(keywords: list[str], dialect: str) -> Iterator[str]:
    """A keyword that the schema's own dialect does not have means nothing there."""
    for draft in (3, 4, 6, 7):
        if f"draft-0{draft}" in dialect:
            for since, names in SINCE.items():
                if since > draft and names.intersection(keywords):
                    yield "keyword beyond the dialect of $schema"


def _is_plain(name: str) -> bool:
    """Whether JSON spells a name in one way that everyone would use."""
    return all(char >= " " and char not in '"\\\x7f' for char in name)
