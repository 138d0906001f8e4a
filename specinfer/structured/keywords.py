"""Which keywords does JSON Schema have, in all its drafts?"""

from __future__ import annotations

from collections.abc import Mapping

OF_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"format", "maxLength", "minLength", "pattern"}),
    "number": frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}),
    "array": frozenset({
        "additionalItems", "contains", "items", "maxContains", "maxItems", "minContains", "minItems", "prefixItems",
        "unevaluatedItems", "uniqueItems",
    }),
    "object": frozenset({
        "additionalProperties", "dependencies", "dependentRequired", "dependentSchemas", "maxProperties",
        "minProperties", "patternProperties", "properties", "propertyNames", "required", "unevaluatedProperties",
    }),
}  # fmt: skip
"""Keywords that say something of one type's values only"""
ANY_TYPE = frozenset({
    "$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then",
    "type",
})  # fmt: skip
KEYWORDS = frozenset[str]().union(ANY_TYPE, *OF_TYPE.values())
"""Keywords that an instance can break; others are annotations"""
FORMATS = (
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template",
    "uuid",
)  # fmt: skip
"""Formats that JSON Schema defines; others are annotations"""
SINCE = {
    6: {"const", "contains", "propertyNames"},
    7: {"if", "then", "else"},
    2019: {
        "dependentRequired", "dependentSchemas", "maxContains", "minContains", "unevaluatedItems",
        "unevaluatedProperties", "$recursiveRef",
    },
    2020: {"prefixItems", "$dynamicRef"},
}  # fmt: skip
"""Keywords by the draft that brought them"""
