"""Does a grammar take the instances of its schema, and no others, token by token?

Always true: an instance is spelled once, compact, its members in the order of the schema, as every backend has them;
its tokens are the tokenizer's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from specinfer.protocols import CompiledGrammar, Tokenizer
from specinfer.structured.schemas import target

MAX_DEPTH = 16
"""References and combinations followed from one place; more is a circle"""


def takes(grammar: CompiledGrammar, tokenizer: Tokenizer, text: str) -> bool:
    """Whether a grammar takes a whole text in the tokenizer's own tokens."""
    matcher = grammar.matcher()
    return all(matcher.accept(token_id) for token_id in tokenizer.encode_plain(text)) and matcher.is_accepting


def spelled(value: Any, schema: Any) -> str:
    """A value as compact JSON, members that the schema names in its order, the others behind them."""
    return json.dumps(_ordered(value, [schema], schema), ensure_ascii=False, separators=(",", ":"))


def _ordered(value: Any, schemas: list[Any], root: Any) -> Any:
    """The value in the order of the schemas that may hold for it."""
    holding = [found for schema in schemas for found in _combined(schema, root)]
    if isinstance(value, dict):
        named = dict.fromkeys(name for schema in holding for name in schema.get("properties", ()) if name in value)
        return {name: _ordered(value[name], _of_member(name, holding), root) for name in {**named, **value}}
    if isinstance(value, list):
        return [_ordered(item, _of_item(index, holding), root) for index, item in enumerate(value)]
    return value


def _combined(schema: Any, root: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A schema and those that it refers to or combines."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    yield schema
    if str(schema.get("$ref", "")).startswith("#"):
        yield from _combined(target(root, schema["$ref"]), root, depth + 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            yield from _combined(inner, root, depth + 1)


def _of_member(name: str, schemas: list[Mapping[str, Any]]) -> list[Any]:
    found = [schema["properties"][name] for schema in schemas if name in schema.get("properties", {})]
    for schema in schemas:
        patterned = schema.get("patternProperties", {})
        found += [inner for pattern, inner in patterned.items() if re.search(pattern, name)]
    return found or [schema["additionalProperties"] for schema in schemas if "additionalProperties" in schema]


def _of_item(index: int, schemas: list[Mapping[str, Any]]) -> list[Any]:
    found = []
    for schema in schemas:
        items = schema.get("items")
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        found.append(first[index] if index < len(first) else rest)
    return found
