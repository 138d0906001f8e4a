"""What must a grammar backend do to plug in, and what does it get?

Always true: a backend knows bytes and tokens, nothing of requests, ends or batches. It never sees an end-of-sequence
token or another special one: the engine says when an output may end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from specinfer.types import Draft

Bitmask = NDArray[np.int32]
"""[num_rows, num_words]: bit i % 32 of word i // 32 is set where token i is legal"""


class GrammarKind(Enum):
    """The languages that forms are written in."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"
    STRUCTURAL_TAG = "structural_tag"


class Enforcement(Enum):
    """What a backend makes of a keyword: what it says, more outputs than it allows, fewer, or an error."""

    EXACT = "exact"
    WIDENED = "widened"
    NARROWED = "narrowed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A form to compile.

    source: a JSON schema as compact JSON text; a regular expression over the whole output (no anchors needed; the
    common subset of Rust's and Python's syntax); an EBNF grammar in GBNF syntax with a rule `root`; or a structural tag
    `{"triggers": [...], "structures": [{"begin", "schema", "end"}, ...]}` as JSON text. max_whitespace: characters of
    whitespace wherever JSON allows any.
    """

    kind: GrammarKind
    source: str
    max_whitespace: int = 1


@dataclass(frozen=True)
class TokenTable:
    """The vocabulary as a backend sees it.

    token_bytes: what each id adds to the text, b"" for special ids, padding and ends, which no grammar may use.
    eos_token_ids: the ends; a backend that asks for one may be given any of them.
    """

    token_bytes: Sequence[bytes]
    eos_token_ids: frozenset[int]

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    @property
    def num_words(self) -> int:
        """Words of a bitmask row."""
        return -(-self.vocab_size // 32)

    @cached_property
    def usable(self) -> Bitmask:
        """[num_words]: the ids that add to the text."""
        words = np.zeros(self.num_words * 32, dtype=bool)
        words[: self.vocab_size] = [bool(text) for text in self.token_bytes]
        return np.packbits(words, bitorder="little").view(np.int32)


@dataclass(slots=True)
class FormRows:
    """What the form of an output says of a draft's rows: the first behind the committed tokens, then one a node."""

    bitmask: Bitmask
    """[1 + num_nodes, num_words]"""
    is_legal: list[bool]
    """Of each node"""
    states: list[str]
    """Of each row: what its token is a part of, one of GRAMMAR_STATES"""


GRAMMAR_STATES = (
    "forced", "enum", "key", "free_string", "number", "boundary", "text", "reasoning", "end", "unreachable",
)  # fmt: skip
"""What a token can be a part of. forced: exactly one is legal; enum: one of a few given texts, literals too; boundary:
punctuation of JSON and the first token of a value; text: of a form that is no JSON; reasoning: before the form; end:
nothing but an end can come; unreachable: behind an illegal token or an end.
"""


class ConstraintView(Protocol):
    """What plugins may ask of the form of a request's output; asking changes nothing."""

    def rows(self, draft: Draft | None = None) -> FormRows:
        """The rows of a draft."""
        ...

    def row_behind(self, token_ids: Sequence[int]) -> Bitmask | None:
        """The tokens that can come behind some uncommitted ones, [num_words]; None where one of those is illegal."""
        ...

    def forced_bytes_behind(self, token_ids: Sequence[int]) -> bytes:
        """Bytes that every continuation of some uncommitted tokens begins with; b"" where there is a choice, or where
        the backend does not tell.
        """
        ...


class GrammarMatcher(Protocol):
    """One output's place in a grammar. Not thread-safe; matchers of one grammar are independent.

    It may also have

        fill_draft(token_ids, parents, bitmask) -> list[bool]
            fill row 0, and row i + 1 behind every draft node i that is legal, in one call, leaving the place as it
            was; which nodes are legal. `parents` as in Draft, None for a chain; rows behind illegal nodes are not
            written.
        forced_bytes() -> bytes
            bytes that every continuation begins with, b"" where there is a choice or the text may end here
    """

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        """Write the whole row: a bit for every token that can come next, none where only the end can. Bits of special
        ids may be set; the engine clears them.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Advance by a token; False, changing nothing, where it is illegal. Never called with a special id."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Take back the last accepted tokens, all of them at most."""
        ...

    @property
    def is_accepting(self) -> bool:
        """Whether the text so far is whole, so that it may end here."""
        ...


@runtime_checkable
class CompiledGrammar(Protocol):
    """A grammar ready to match; immutable, shared by requests and threads."""

    @property
    def num_bytes(self) -> int:
        """About how much memory it holds."""
        ...

    def matcher(self) -> GrammarMatcher:
        """A matcher at the start."""
        ...


class GrammarBackend(Protocol):
    """Compiles forms. One instance serves one vocabulary, from several threads at once.

    Compilation is split so that its costly half can run in a process of its own that is killed at a limit: `compile`
    runs there where `is_isolated`, and `load` always runs in the engine's process.
    """

    is_isolated: bool
    """Whether `compile` may take long or much memory"""
    kinds: frozenset[GrammarKind]
    """What it compiles at all"""
    enforces: Mapping[str, Enforcement]
    """What it makes of each feature of JSON Schema, by the names of specinfer.structured.features; a feature that is
    not listed is taken for REFUSED. The table is held against instances by the tests."""

    def bind(self, tokens: TokenTable) -> None:
        """Get ready for a vocabulary, once, before anything else."""
        ...

    def compile(self, spec: GrammarSpec) -> bytes:
        """The grammar in a form that `load` reads; GrammarError for one that is wrong or that the backend does not
        support.
        """
        ...

    def load(self, payload: bytes) -> CompiledGrammar:
        """The grammar that `compile` gave, in milliseconds."""
        ...
