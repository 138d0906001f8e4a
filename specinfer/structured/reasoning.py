"""Where does free reasoning end and the form begin?

Behind a marker such as `</think>`, given as text. Always true: the marker ends with a token, so that the form begins
with one: a token that would run past the marker is not legal; the marker is found in the text, however it is cut into
tokens, and as the token ids it is written with, where these are special.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from specinfer.protocols import Bitmask, TokenTable


@dataclass(frozen=True, slots=True)
class ReasoningPlace:
    """How much of the marker the text, and the ids, end with."""

    num_bytes: int = 0
    num_ids: int = 0
    is_over: bool = False


@dataclass(slots=True)
class Reasoning:
    """Free text up to a marker. marker_ids: the ids that the tokenizer writes it with."""

    marker: bytes
    marker_ids: tuple[int, ...]
    tokens: TokenTable
    _rows: dict[int, Bitmask] = field(default_factory=dict, init=False)
    """By the matched bytes: the tokens that do not run past the marker"""

    def start(self) -> ReasoningPlace:
        """Before any token."""
        return ReasoningPlace()

    def behind(self, place: ReasoningPlace, token_id: int) -> ReasoningPlace:
        """The place after a token."""
        num_bytes = self._matched(place.num_bytes, self._text(token_id))
        ids = _advance(self.marker_ids, place.num_ids, token_id)
        return ReasoningPlace(num_bytes, ids, num_bytes == len(self.marker) or ids == len(self.marker_ids))

    def allows(self, place: ReasoningPlace, token_id: int) -> bool:
        """Whether a token stays within the reasoning or ends with the marker."""
        text = self._text(token_id)
        return not text or not self._runs_past(place.num_bytes, text)

    def row(self, place: ReasoningPlace) -> Bitmask:
        """All tokens, special ones too, but those that run past the marker; [num_words]."""
        if place.num_bytes not in self._rows:
            legal = np.zeros(self.tokens.num_words * 32, dtype=bool)
            for token_id, text in enumerate(self.tokens.token_bytes):
                # A token of one byte cannot run past; one without the marker's last byte cannot hold its end.
                is_short = len(text) < 2 or self.marker[-1] not in text
                legal[token_id] = is_short or not self._runs_past(place.num_bytes, text)
            self._rows[place.num_bytes] = np.packbits(legal, bitorder="little").view(np.int32)
        return self._rows[place.num_bytes]

    def _text(self, token_id: int) -> bytes:
        return self.tokens.token_bytes[token_id] if token_id < self.tokens.vocab_size else b""

    def _matched(self, num_bytes: int, text: bytes) -> int:
        for byte in text:
            num_bytes = _advance(self.marker, num_bytes, byte)
        return num_bytes

    def _runs_past(self, num_bytes: int, text: bytes) -> bool:
        """Whether the marker is whole before the token's last byte."""
        for byte in text[:-1]:
            num_bytes = _advance(self.marker, num_bytes, byte)
            if num_bytes == len(self.marker):
                return True
        return False


def _advance(pattern: Sequence[int], matched: int, item: int) -> int:
    """The longest beginning of `pattern` that the sequence ends with, after one more item (Knuth, Morris, Pratt)."""
    tail = [*pattern[:matched], item]
    return next(n for n in range(min(len(tail), len(pattern)), -1, -1) if list(pattern[:n]) == tail[len(tail) - n :])
