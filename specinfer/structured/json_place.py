"""Where in a JSON text is an output?

What a token stands for decides how well it can be guessed: keys and punctuation follow the schema, free strings the
model. Always true: the place is a function of the bytes alone; a text that is no JSON gets some place, never an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WHITESPACE = b" \n\t\r"


class JsonPart(Enum):
    """What the next byte belongs to."""

    BOUNDARY = "boundary"
    """Punctuation and the first byte of a value or key"""
    KEY = "key"
    STRING = "string"
    NUMBER = "number"
    LITERAL = "literal"
    """true, false, null"""


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """A place; `behind` is the one some bytes later."""

    part: JsonPart = JsonPart.BOUNDARY
    containers: bytes = b""
    """The open brackets, outermost first"""
    awaits_key: bool = False
    is_escaped: bool = False

    def behind(self, text: bytes) -> JsonPlace:
        """The place behind `text`."""
        place = self
        for byte in text:
            place = place._after(byte)
        return place

    def _after(self, byte: int) -> JsonPlace:
        if self.part in {JsonPart.KEY, JsonPart.STRING}:
            return self._in_string(byte)
        char = bytes((byte,))
        if char in b"{[":
            return JsonPlace(containers=self.containers + char, awaits_key=char == b"{")
        if char in b"}]":
            return JsonPlace(containers=self.containers[:-1])
        if char == b",":
            return JsonPlace(containers=self.containers, awaits_key=self.containers.endswith(b"{"))
        if char == b'"':
            return JsonPlace(JsonPart.KEY if self.awaits_key else JsonPart.STRING, self.containers)
        if char == b":" or char in WHITESPACE:
            return JsonPlace(containers=self.containers, awaits_key=self.awaits_key and char != b":")
        if self.part is JsonPart.BOUNDARY:
            return JsonPlace(JsonPart.NUMBER if char in b"-0123456789" else JsonPart.LITERAL, self.containers)
        return self

    def _in_string(self, byte: int) -> JsonPlace:
        if self.is_escaped:
            return JsonPlace(self.part, self.containers)
        if byte == ord("\\"):
            return JsonPlace(self.part, self.containers, is_escaped=True)
        return JsonPlace(containers=self.containers) if byte == ord('"') else self
