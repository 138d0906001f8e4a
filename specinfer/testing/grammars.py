"""What is the smallest grammar that shows whether an engine keeps to one?

A finite language, spelled out. Always true: what may follow a text is found by looking through all words, so it is its
own reference; a matcher that is asked for what it never accepted fails loudly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specinfer.errors import GrammarError
from specinfer.protocols import Bitmask, CompiledGrammar, Enforcement, GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.bitmask import row_of


@dataclass
class WordsMatcher:
    """A place in a finite language: the tokens accepted so far."""

    words: Sequence[bytes]
    tokens: TokenTable
    accepted: list[int] = field(default_factory=list)
    num_fills: int = 0

    @property
    def _text(self) -> bytes:
        return b"".join(self.tokens.token_bytes[token] for token in self.accepted)

    def _is_legal(self, token_id: int) -> bool:
        text, added = self._text, self.tokens.token_bytes[token_id]
        return bool(added) and any(word.startswith(text + added) for word in self.words)

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        """Every token that some word goes on with."""
        self.num_fills += 1
        legal = [token for token in range(self.tokens.vocab_size) if self._is_legal(token)]
        bitmask[row] = row_of(legal, self.tokens.num_words)

    def accept(self, token_id: int) -> bool:
        assert self.tokens.token_bytes[token_id], f"a matcher was asked about the special token {token_id}"
        if not self._is_legal(token_id):
            return False
        self.accepted.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        assert 0 <= num_tokens <= len(self.accepted), f"{num_tokens} taken back of {len(self.accepted)}"
        del self.accepted[len(self.accepted) - num_tokens :]

    @property
    def is_accepting(self) -> bool:
        return self._text in self.words

    def forced_bytes(self) -> bytes:
        """What all words that begin with the text have in common behind it."""
        text = self._text
        ways = [word[len(text) :] for word in self.words if word.startswith(text)]
        shared = ways[0] if ways else b""
        for way in ways:
            while not way.startswith(shared):
                shared = shared[:-1]
        return shared


@dataclass(frozen=True)
class WordsGrammar:
    """A finite language over a vocabulary."""

    words: Sequence[bytes]
    tokens: TokenTable
    num_bytes: int = 100

    def matcher(self) -> WordsMatcher:
        return WordsMatcher(self.words, self.tokens)


@dataclass
class WordsBackend:
    """Compiles `a|b|c`, a pattern of plain words."""

    is_isolated: bool = False
    kinds: frozenset[GrammarKind] = field(default=frozenset({GrammarKind.REGEX}), init=False)
    enforces: Mapping[str, Enforcement] = field(default_factory=dict, init=False, compare=False)
    _tokens: TokenTable = field(init=False, repr=False, compare=False)

    def bind(self, tokens: TokenTable) -> None:
        self._tokens = tokens

    def compile(self, spec: GrammarSpec) -> bytes:
        if not set(spec.source) <= set("abcdefghijklmnopqrstuvwxyz|"):
            raise GrammarError(f"the words backend reads words of a..z joined by |, got {spec.source!r}")
        return json.dumps(spec.source.split("|")).encode()

    def load(self, payload: bytes) -> CompiledGrammar:
        return WordsGrammar([word.encode() for word in json.loads(payload)], self._tokens)
