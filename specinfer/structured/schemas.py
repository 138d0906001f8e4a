"""Where in a JSON schema are its subschemas?

Always true: what stands in an `enum`, `const`, `default` or an unknown keyword is data, not a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})


def subschemas(schema: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Every subschema with its JSON pointer, the schema itself first; booleans are schemas too."""
    if not isinstance(schema, Mapping | bool):
        return
    yield pointer, schema
    if isinstance(schema, bool):
        return
    for keyword, value in schema.items():
        below = f"{pointer}/{escaped(keyword)}"
        if keyword in _NAMED and isinstance(value, Mapping):
            for name, inner in value.items():
                yield from subschemas(inner, f"{below}/{escaped(name)}")
        elif keyword in _LIST and isinstance(value, list):
            for index, inner in enumerate(value):
                yield from subschemas(inner, f"{below}/{index}")
        elif keyword in _ONE:
            yield from subschemas(value, below)


def rebuilt(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy in which every subschema that is an object is what `change` makes of it, the innermost first."""
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            copy[keyword] = {name: rebuilt(inner, change) for name, inner in value.items()}
        elif keyword in _LIST and isinstance(value, list):
            copy[keyword] = [rebuilt(inner, change) for inner in value]
        else:
            copy[keyword] = rebuilt(value, change) if keyword in _ONE else value
    return change(copy)


def escaped(name: str) -> str:
    """A name as one step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def target(root: Any, ref: str) -> Any:
    """What `#` or `#/a/b` points at in a schema; LookupError where there is nothing."""
    if ref in {"#", "#/"}:
        return root
    if not ref.startswith("#/"):
        raise LookupError(ref)
    found = root
    for step in ref[2:].split("/"):
        name = unquoted(step)
        found = found[int(name)] if isinstance(found, list) and name.isdigit() else found[name]
    return found


def unquoted(step: str) -> str:
    """One step of a JSON pointer in a URI as the name that it stands for."""
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")
