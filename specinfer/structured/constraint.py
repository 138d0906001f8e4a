"""Which tokens may come next in one output, behind its committed tokens and behind each node of a draft?

Always true: a place moves only with committed tokens, and asking leaves it as it was; a row that cannot be reached
(behind an end or an illegal token) has no bit set; ends and special tokens are set here and by no backend: an end is
legal exactly where the text is whole, other special tokens nowhere within the form.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specinfer.errors import GrammarError
from specinfer.protocols import Bitmask, FormRows, GrammarMatcher, TokenTable
from specinfer.structured.bitmask import popcounts, row_of
from specinfer.structured.json_place import JsonPart, JsonPlace
from specinfer.structured.reasoning import Reasoning, ReasoningPlace
from specinfer.types import Draft

MAX_CLOSED = 256
"""A string with at most so many legal tokens is one of a few given ones, not free text"""


@dataclass(frozen=True, slots=True)
class _Place:
    """Behind one token: where the reasoning stands, or the JSON text; `is_over` behind an end."""

    reasoning: ReasoningPlace | None = None
    json: JsonPlace | None = None
    is_over: bool = False


@dataclass(slots=True)
class Constraint:
    """One completion's form.

    ending_ids: the tokens that end it. reasoning: what comes before the form, None for nothing. is_json: the text is
    one JSON value, so that its states are told apart; is_closed: it is one of some given texts. backend, compile_s,
    warnings: where the grammar comes from, what it cost, and what of the form it does not enforce.
    """

    matcher: GrammarMatcher
    tokens: TokenTable
    ending_ids: Sequence[int]
    reasoning: Reasoning | None = None
    is_json: bool = False
    is_closed: bool = False
    backend: str = ""
    compile_s: float = 0.0
    warnings: Sequence[str] = ()
    _place: _Place = field(init=False)
    _endings: Bitmask = field(init=False)
    _is_lost: bool = field(default=False, init=False)
    """The matcher failed, so that nobody knows its place"""

    def __post_init__(self) -> None:
        self._endings = row_of(self.ending_ids, self.tokens.num_words)
        self._place = _Place(None if self.reasoning is None else self.reasoning.start(), self._json_start())

    def _json_start(self) -> JsonPlace | None:
        return JsonPlace() if self.is_json else None

    # ---------------------------------------------------------------------------------------- committed tokens

    def advance(self, token_ids: Sequence[int]) -> None:
        """Move behind committed tokens, which must be legal."""
        with self._trusted():
            for token_id in token_ids:
                place = self._enter(self._place, token_id)
                assert place is not None, f"token {token_id} was emitted, but the form forbids it"
                self._place = place

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end can come."""
        if self._place.is_over:
            return True
        return self._place.reasoning is None and self.matcher.is_accepting and not self._text_row().any()

    @property
    def is_satisfied(self) -> bool:
        """Whether the output so far has the form."""
        return self._place.is_over or (self._place.reasoning is None and self.matcher.is_accepting)

    # ------------------------------------------------------------------------------------------------- drafts

    def rows(self, draft: Draft | None = None) -> FormRows:
        """The rows of a draft's nodes, or of none."""
        token_ids: Sequence[int] = () if draft is None else draft.token_ids
        bitmask = np.zeros((1 + len(token_ids), self.tokens.num_words), dtype=np.int32)
        is_legal = [False] * len(token_ids)
        states = ["unreachable"] * (1 + len(token_ids))
        walk = self._walk(token_ids, None if draft is None else draft.parents)
        with self._trusted(), closing(walk):
            for row, place in walk:
                if row:
                    is_legal[row - 1] = True
                bitmask[row] = self._row(place)
                states[row] = self._state(place, bitmask[row])
        return FormRows(bitmask, is_legal, states)

    def row_behind(self, token_ids: Sequence[int]) -> Bitmask | None:
        """The row behind some uncommitted tokens, [num_words]; None where one of them is illegal."""
        with self._trusted(), self._behind(token_ids) as place:
            return None if place is None else self._row(place)

    def forced_bytes_behind(self, token_ids: Sequence[int]) -> bytes:
        """Bytes that every continuation of some uncommitted tokens begins with; b"" where there is a choice."""
        ask = getattr(self.matcher, "forced_bytes", None)
        with self._trusted(), self._behind(token_ids) as place:
            if place is None or place.is_over or place.reasoning is not None or ask is None:
                return b""
            forced: bytes = ask()
            return forced

    # ------------------------------------------------------------------------------------------------- places

    @contextmanager
    def _trusted(self) -> Iterator[None]:
        """Ask the matcher; one that failed once, whoever asked, is never asked again."""
        if self._is_lost:
            raise GrammarError("the matcher failed before")
        try:
            yield
        except Exception:
            self._is_lost = True
            raise

    def _enter(self, place: _Place, token_id: int) -> _Place | None:
        """The place behind a token, the matcher moved along; None, moving nothing, where it is illegal."""
        if place.is_over:
            return None
        if place.reasoning is not None:
            return self._reason(place.reasoning, token_id)
        text = self.tokens.token_bytes[token_id] if token_id < self.tokens.vocab_size else b""
        if text and self.matcher.accept(token_id):
            return _Place(json=None if place.json is None else place.json.behind(text))
        return _Place(is_over=True) if token_id in self.ending_ids and self.matcher.is_accepting else None

    def _reason(self, place: ReasoningPlace, token_id: int) -> _Place | None:
        assert self.reasoning is not None
        if token_id in self.ending_ids or not self.reasoning.allows(place, token_id):
            return None
        after = self.reasoning.behind(place, token_id)
        return _Place(None if after.is_over else after, self._json_start())

    def _leave(self, before: _Place, behind: _Place) -> None:
        """Take the matcher back over one token."""
        if before.reasoning is None and not behind.is_over:
            self.matcher.rollback(1)

    def _walk(self, token_ids: Sequence[int], parents: Sequence[int] | None) -> Generator[tuple[int, _Place]]:
        """Each reachable row with its place, the matcher there while the caller looks."""
        places: list[_Place | None] = [self._place] + [None] * len(token_ids)
        path: list[int] = [0]  # rows that the matcher is behind
        try:
            yield 0, self._place
            for row, token_id in enumerate(token_ids, start=1):
                before = row - 1 if parents is None else parents[row - 1] + 1
                if places[before] is None:
                    continue
                self._move(path, _ancestors(before, parents), places, token_ids)
                place = self._enter(_known(places[before]), token_id)
                if place is not None:
                    places[row] = place
                    path.append(row)
                    yield row, place
        finally:
            self._move(path, [0], places, token_ids)

    def _move(
        self, path: list[int], wanted: Sequence[int], places: Sequence[_Place | None], token_ids: Sequence[int]
    ) -> None:
        """Take the matcher from one row's path to another's."""
        while path != wanted[: len(path)]:
            row = path.pop()
            self._leave(_known(places[path[-1]]), _known(places[row]))
        for row in wanted[len(path) :]:
            entered = self._enter(_known(places[path[-1]]), token_ids[row - 1])
            assert entered is not None, "a matcher refuses what it accepted before"
            path.append(row)

    @contextmanager
    def _behind(self, token_ids: Sequence[int]) -> Iterator[_Place | None]:
        """The place behind some tokens, the matcher there meanwhile."""
        places: list[_Place] = [self._place]
        try:
            place: _Place | None = self._place
            for token_id in token_ids:
                place = self._enter(places[-1], token_id)
                if place is None:
                    break
                places.append(place)
            yield place
        finally:
            while len(places) > 1:
                behind = places.pop()
                self._leave(places[-1], behind)

    # --------------------------------------------------------------------------------------------------- rows

    def _row(self, place: _Place) -> Bitmask:
        if place.is_over:
            return np.zeros(self.tokens.num_words, dtype=np.int32)
        if place.reasoning is not None:
            assert self.reasoning is not None
            return self.reasoning.row(place.reasoning) & ~self._endings
        row = self._text_row()
        return row | self._endings if self.matcher.is_accepting else row

    def _text_row(self) -> Bitmask:
        row: NDArray[np.int32] = np.zeros((1, self.tokens.num_words), dtype=np.int32)
        self.matcher.fill_row(row, 0)
        text: Bitmask = row[0] & self.tokens.usable
        return text

    def _state(self, place: _Place, row: Bitmask) -> str:
        """What a row's token is a part of, for the metrics."""
        count = popcounts(row[None])[0]
        if place.is_over or not count:
            return "end"
        if place.reasoning is not None:
            return "reasoning"
        if count == 1:
            return "forced"
        if place.json is None:
            return "enum" if self.is_closed else "text"
        if place.json.part is JsonPart.STRING:
            return "enum" if count <= MAX_CLOSED else "free_string"
        return _STATES[place.json.part]


_STATES = {
    JsonPart.BOUNDARY: "boundary",
    JsonPart.KEY: "key",
    JsonPart.NUMBER: "number",
    JsonPart.LITERAL: "enum",
}


def _ancestors(row: int, parents: Sequence[int] | None) -> list[int]:
    """The rows from the first one to `row`."""
    if parents is None:
        return list(range(row + 1))
    found = [row]
    while found[-1]:
        found.append(parents[found[-1] - 1] + 1)
    return found[::-1]


def _known(place: _Place | None) -> _Place:
    assert place is not None
    return place
