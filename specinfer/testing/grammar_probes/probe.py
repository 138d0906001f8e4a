"""What is a probe of a feature of JSON Schema?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Probe:
    """A schema with texts that are its instances and texts that are not."""

    schema: Any
    valid: Sequence[str]
    invalid: Sequence[str]


def of(**schema: Any) -> dict[str, Any]:
    """A schema of some keywords."""
    return schema


def object_with(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A schema of objects with some properties and more keywords."""
    return {"type": "object", "properties": properties, **more}


INT = {"type": "integer"}
STR = {"type": "string"}
CLOSED = {"additionalProperties": False}
D4 = "http://json-schema.org/draft-04/schema#"
D7 = "http://json-schema.org/draft-07/schema#"
