"""How is a grammar backend walked through its forms, and what is seen on the way?

Always true: places are compared by rows without special ids and by is_accepting, nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from specinfer.protocols import Bitmask, CompiledGrammar, GrammarBackend, GrammarMatcher, GrammarSpec
from specinfer.structured.bitmask import members
from specinfer.testing.grammar_forms import FORMS, VOCABULARIES, Form, cut

Make = Callable[[], GrammarBackend]
GARBAGE = np.int32(-0x55555556)
"""Every other bit"""


@dataclass
class Trial:
    """Backends of the factory, each bound once, and what they compiled."""

    make: Make
    _bound: dict[str, GrammarBackend] = field(default_factory=dict)
    _grammars: dict[tuple[GrammarSpec, str], CompiledGrammar] = field(default_factory=dict)

    def bind(self, vocabulary: str) -> GrammarBackend:
        """A new instance for a vocabulary."""
        backend = self.make()
        backend.bind(VOCABULARIES[vocabulary])
        return backend

    def backend(self, vocabulary: str) -> GrammarBackend:
        if vocabulary not in self._bound:
            self._bound[vocabulary] = self.bind(vocabulary)
        return self._bound[vocabulary]

    def grammar(self, spec: GrammarSpec, vocabulary: str) -> CompiledGrammar:
        if (spec, vocabulary) not in self._grammars:
            backend = self.backend(vocabulary)
            self._grammars[spec, vocabulary] = backend.load(backend.compile(spec))
        return self._grammars[spec, vocabulary]

    def forms(self) -> Iterator[tuple[Form, CompiledGrammar]]:
        """Those of the backend's kinds."""
        kinds = self.backend("letters").kinds
        assert kinds, "it compiles nothing"
        for form in FORMS:
            if form.spec.kind in kinds:
                yield form, self.grammar(form.spec, form.vocabulary)

    def walks(self) -> Iterator[tuple[Form, GrammarMatcher, list[int]]]:
        """A fresh matcher for each text of each form, with a way to write the text."""
        for form, grammar in self.forms():
            for text in (*form.whole, *form.parts):
                yield form, grammar.matcher(), cut(text, form.tokens, random.Random(text))


@dataclass(frozen=True)
class Place:
    """What can be seen of a matcher's place."""

    row: bytes
    is_accepting: bool


def row_at(form: Form, matcher: GrammarMatcher) -> Bitmask:
    """[num_words]: the row without special ids."""
    bitmask = np.full((1, form.tokens.num_words), GARBAGE)
    matcher.fill_row(bitmask, 0)
    row: Bitmask = bitmask[0] & form.tokens.usable
    return row


def place_at(form: Form, matcher: GrammarMatcher) -> Place:
    """The place as it can be compared."""
    return Place(row_at(form, matcher).tobytes(), matcher.is_accepting)


def legal_at(form: Form, matcher: GrammarMatcher) -> list[int]:
    """The tokens that can come next."""
    found: list[int] = np.flatnonzero(members(row_at(form, matcher))).tolist()
    return found


def advance(form: Form, matcher: GrammarMatcher, token_ids: Sequence[int]) -> None:
    """Take tokens that are part of an output."""
    for token_id in token_ids:
        text = form.tokens.token_bytes[token_id]
        assert matcher.accept(token_id), f"{form.spec.source!r} refuses {text!r} of an output that has its form"


def usable_ids(form: Form) -> list[int]:
    """The tokens that add to a text."""
    return [token_id for token_id, text in enumerate(form.tokens.token_bytes) if text]


def take_path(form: Form, matcher: GrammarMatcher, token_ids: Sequence[int]) -> int:
    """Take tokens up to the first one that is illegal or special; how many were taken."""
    for num_taken, token_id in enumerate(token_ids):
        is_text = 0 <= token_id < form.tokens.vocab_size and bool(form.tokens.token_bytes[token_id])
        if not is_text or not matcher.accept(token_id):
            return num_taken
    return len(token_ids)
