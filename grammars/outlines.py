"""How does outlines-core compile and match forms?

A form becomes a regular expression, this an automaton over tokens, so a place is one state and taking tokens back is
remembering the states before. The library's automata stop at the first match, as a search would: `a|ab` gives `a` only,
`(ab)?` nothing. So the expression is compiled with a NUL behind it, and a text is whole where the NUL could come; no
output can hold one. Always true: every byte has an id, beyond the vocabulary where no token is that byte, so that the
automaton is whole whatever the vocabulary lacks; no row shows such an id and no matcher accepts it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grammars.enforcement import enforcement
from specinfer.protocols import Bitmask, CompiledGrammar, Enforcement, GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.patterns import portable
from specinfer.structured.sources import refusals, refuse, schema_of

MAX_KEPT_ROWS = 1024
"""States of a grammar whose rows are kept"""
NUL = b"\0"
"""What stands behind a whole text"""


MAX_FORCED_BYTES = 256
MAX_FORCED_WAYS = 64
"""Tokens that forced text is looked for in: where more can come, there is a choice"""


@dataclass(frozen=True, slots=True)
class OutlinesGrammar:
    """An automaton, and the rows of the states seen so far."""

    tokens: TokenTable
    byte_ids: Sequence[int]
    """[256]: an id of each byte alone"""
    _num_payload_bytes: int
    _index: Any
    _rows: dict[int, Bitmask] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """The library does not tell: its table takes about four times what it is written in."""
        return 4 * self._num_payload_bytes + 4 * self.tokens.num_words * len(self._rows)

    def matcher(self) -> OutlinesMatcher:
        return OutlinesMatcher(self, [self._index.get_initial_state()])

    def row(self, state: int) -> Bitmask:
        """[num_words]"""
        row = self._rows.get(state)
        if row is None:
            legal = np.zeros(32 * self.tokens.num_words, dtype=bool)
            token_ids = np.array(self._index.get_allowed_tokens(state) or [], dtype=np.int64)
            legal[token_ids[token_ids < self.tokens.vocab_size]] = True
            row = np.packbits(legal, bitorder="little").view(np.int32)
            if len(self._rows) < MAX_KEPT_ROWS:
                self._rows[state] = row
        return row

    def behind(self, state: int, token_id: int) -> int | None:
        """The state behind a token, None where it is illegal."""
        if not 0 <= token_id < self.tokens.vocab_size or not self.tokens.token_bytes[token_id]:
            return None
        after: int | None = self._index.get_next_state(state, token_id)
        return after

    def is_whole(self, state: int) -> bool:
        """Whether the text may end here."""
        behind_nul = self._index.get_next_state(state, self.byte_ids[NUL[0]])
        return behind_nul is not None and bool(self._index.is_final_state(behind_nul))

    def forced_byte(self, state: int) -> int | None:
        """The byte that everything behind a state begins with, None where there is a choice or an end."""
        ways = self._index.get_allowed_tokens(state) or []
        if not 0 < len(ways) <= MAX_FORCED_WAYS or self.is_whole(state):
            return None
        end = self.tokens.vocab_size
        first = {self.tokens.token_bytes[way][0] if way < end else way - end - 1 for way in ways}
        return first.pop() if len(first) == 1 else None

    def behind_byte(self, state: int, byte: int) -> int:
        """The state behind a legal byte, be it a token or not."""
        after: int = self._index.get_next_state(state, self.byte_ids[byte])
        return after


@dataclass(slots=True)
class OutlinesMatcher:
    """The states passed, the present one last."""

    grammar: OutlinesGrammar
    states: list[int]

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        bitmask[row] = self.grammar.row(self.states[-1])

    def accept(self, token_id: int) -> bool:
        state = self.grammar.behind(self.states[-1], token_id)
        if state is None:
            return False
        self.states.append(state)
        return True

    def rollback(self, num_tokens: int) -> None:
        assert 0 <= num_tokens < len(self.states), f"{num_tokens} taken back of {len(self.states) - 1}"
        del self.states[len(self.states) - num_tokens :]

    @property
    def is_accepting(self) -> bool:
        return self.grammar.is_whole(self.states[-1])

    def forced_bytes(self) -> bytes:
        """Byte by byte, as far as there is no choice."""
        state, forced = self.states[-1], bytearray()
        while (byte := self.grammar.forced_byte(state)) is not None and len(forced) < MAX_FORCED_BYTES:
            forced.append(byte)
            state = self.grammar.behind_byte(state, byte)
        return bytes(forced)


@dataclass
class OutlinesBackend:
    """JSON schemas and regular expressions, as automata over the vocabulary's tokens."""

    is_isolated: bool = field(default=True, init=False, repr=False)
    kinds: frozenset[GrammarKind] = field(
        default=frozenset({GrammarKind.JSON_SCHEMA, GrammarKind.REGEX}), init=False, repr=False
    )
    enforces: Mapping[str, Enforcement] = field(
        default_factory=lambda: enforcement("outlines"), init=False, repr=False, compare=False
    )
    _tokens: TokenTable = field(init=False, repr=False, compare=False)
    _byte_ids: Sequence[int] = field(init=False, repr=False, compare=False)
    _vocabulary: Any = field(init=False, repr=False, compare=False)

    def bind(self, tokens: TokenTable) -> None:
        from outlines_core import Vocabulary

        ids: dict[bytes, list[int]] = {}
        for token_id, text in enumerate(tokens.token_bytes):
            if text and NUL not in text:
                ids.setdefault(text, []).append(token_id)
        for byte in range(256):
            ids.setdefault(bytes([byte]), [tokens.vocab_size + 1 + byte])  # the id between is the library's end
        self._tokens = tokens
        self._byte_ids = [ids[bytes([byte])][0] for byte in range(256)]
        self._vocabulary = Vocabulary(tokens.vocab_size, ids)

    def compile(self, spec: GrammarSpec) -> bytes:
        from outlines_core import Index
        from outlines_core.json_schema import build_regex_from_schema

        with refusals("outlines", spec.kind):
            if spec.kind is GrammarKind.REGEX:
                regex = portable(spec.source)
            elif spec.kind is GrammarKind.JSON_SCHEMA:
                space = f"[ \\n\\t\\r]{{0,{spec.max_whitespace}}}" if spec.max_whitespace else ""
                source = json.dumps(schema_of(spec.source), ensure_ascii=False)
                regex = build_regex_from_schema(source, space)
            else:
                refuse("outlines", spec.kind, "it compiles JSON schemas and regular expressions only")
            return pickle.dumps(Index(f"(?:{regex})\\x00", self._vocabulary))

    def load(self, payload: bytes) -> CompiledGrammar:
        return OutlinesGrammar(self._tokens, self._byte_ids, len(payload), pickle.loads(payload))
