"""Every installed backend keeps the protocol, and a matcher that breaks it is found out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from grammars.outlines import OutlinesBackend
from specinfer import registry
from specinfer.errors import GrammarError, PluginError
from specinfer.protocols import Bitmask, CompiledGrammar, GrammarMatcher, GrammarSpec
from specinfer.testing.__main__ import main
from specinfer.testing.conformance import checks_of

BACKENDS = registry.names("grammars")
CHECKS = list(checks_of("grammars", OutlinesBackend))


@pytest.fixture(scope="module", params=BACKENDS)
def checks(request: pytest.FixtureRequest) -> Any:
    return checks_of("grammars", registry.resolve("grammars", request.param))


@pytest.mark.parametrize("name", CHECKS)
def test_every_installed_backend_passes(name: str, checks: Any) -> None:
    checks[name]()


def test_the_suite_runs_from_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammars", "outlines"]) == 0
    printed = capsys.readouterr().out
    assert all(f"ok     {name}" in printed for name in CHECKS)
    assert "it has no fill_draft" in printed, "a check that could show nothing says so"


def test_a_kind_without_a_suite_is_named() -> None:
    with pytest.raises(PluginError, match=r"no conformance suite for 'models'; there is one for .*grammars"):
        checks_of("models", object)


# ----------------------------------------------------------------------------------------------- planted faults


@dataclass
class Sound:
    """A matcher around another, with a draft filled by walking; each subclass breaks one promise."""

    inner: Any
    grammar: Any

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self.inner.fill_row(bitmask, row)

    def accept(self, token_id: int) -> bool:
        taken: bool = self.inner.accept(token_id)
        return taken

    def rollback(self, num_tokens: int) -> None:
        self.inner.rollback(num_tokens)

    @property
    def is_accepting(self) -> bool:
        accepting: bool = self.inner.is_accepting
        return accepting

    def forced_bytes(self) -> bytes:
        forced: bytes = self.inner.forced_bytes()
        return forced

    def fill_draft(self, token_ids: Sequence[int], parents: Sequence[int] | None, bitmask: Bitmask) -> list[bool]:
        self.inner.fill_row(bitmask, 0)
        paths: list[list[int]] = []
        is_legal = []
        for node, token_id in enumerate(token_ids):
            parent = node - 1 if parents is None else parents[node]
            paths.append([*(paths[parent] if parent >= 0 else []), token_id])
            is_legal.append(self._fill_behind(paths[node], bitmask, node + 1))
        return is_legal

    def _fill_behind(self, path: Sequence[int], bitmask: Bitmask, row: int) -> bool:
        taken = 0
        while taken < len(path) and self.takes(path[taken]):
            taken += 1
        if taken == len(path):
            self.inner.fill_row(bitmask, row)
        self.inner.rollback(taken)
        return taken == len(path)

    def takes(self, token_id: int) -> bool:
        taken: bool = self.inner.accept(token_id)
        return taken


class ForgetsToRollBack(Sound):
    def rollback(self, num_tokens: int) -> None: ...


class RollsBackOneTooFew(Sound):
    def rollback(self, num_tokens: int) -> None:
        self.inner.rollback(max(num_tokens - 1, 0))


class HidesAToken(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self.inner.fill_row(bitmask, row)
        bitmask[row] &= bitmask[row] - 1


class ShowsAToken(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self.inner.fill_row(bitmask, row)
        bitmask[row, 0] |= 2


class AcceptsNothing(Sound):
    def accept(self, token_id: int) -> bool:
        return False


class KeepsOldBits(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        scratch = bitmask.copy()
        self.inner.fill_row(scratch, row)
        bitmask[row] |= scratch[row]


class LeavesLastWord(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        last = bitmask[row, -1]
        self.inner.fill_row(bitmask, row)
        bitmask[row, -1] = last


class WritesTheNextRow(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self.inner.fill_row(bitmask, row)
        bitmask[row + 1 :] = bitmask[row]


class MovesWhenItRejects(Sound):
    def accept(self, token_id: int) -> bool:
        taken: bool = self.inner.accept(token_id)
        if not taken and len(self.inner.states) > 1:
            self.inner.rollback(1)
        return taken


class NeverWhole(Sound):
    is_accepting = False


class AlwaysWhole(Sound):
    is_accepting = True


class RaisesAtADeadEnd(Sound):
    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self.inner.fill_row(bitmask, row)
        if not self.is_accepting and not bitmask[row].any():
            raise GrammarError("nothing can come")


@dataclass
class Shared(Sound):
    """One place for all matchers of a grammar."""

    def __post_init__(self) -> None:
        self.inner = self.grammar.places.setdefault("one", self.inner)


class ForcesTooMuch(Sound):
    def forced_bytes(self) -> bytes:
        forced: bytes = self.inner.forced_bytes()
        return forced and forced + b"\xff"


class ForcesWhereItMayEnd(Sound):
    def forced_bytes(self) -> bytes:
        return b"a"


class MovesWhenAskedForForcedBytes(Sound):
    def forced_bytes(self) -> bytes:
        forced: bytes = self.inner.forced_bytes()
        for byte in forced[:1]:
            self.inner.accept(self.inner.grammar.tokens.token_bytes.index(bytes([byte])))
        return forced


class LeaksASpecialToken(Sound):
    """A draft may hold special tokens, and go on behind them."""

    def takes(self, token_id: int) -> bool:
        token_bytes = self.inner.grammar.tokens.token_bytes
        if 0 <= token_id < len(token_bytes) and not token_bytes[token_id]:
            self.inner.states.append(self.inner.states[-1])
            return True
        return super().takes(token_id)


class WritesRowsBehindIllegalNodes(Sound):
    def _fill_behind(self, path: Sequence[int], bitmask: Bitmask, row: int) -> bool:
        bitmask[row] = 0
        return super()._fill_behind(path, bitmask, row)


class LeavesRowsOfADraftStale(Sound):
    def _fill_behind(self, path: Sequence[int], bitmask: Bitmask, row: int) -> bool:
        return super()._fill_behind(path, bitmask if row == 1 else bitmask.copy(), row)


class StaysBehindADraft(Sound):
    def _fill_behind(self, path: Sequence[int], bitmask: Bitmask, row: int) -> bool:
        is_legal = super()._fill_behind(path, bitmask, row)
        return is_legal and self.inner.accept(path[0])


class TakesADraftForAChain(Sound):
    def fill_draft(self, token_ids: Sequence[int], parents: Sequence[int] | None, bitmask: Bitmask) -> list[bool]:
        return super().fill_draft(token_ids, None, bitmask)


@dataclass
class Planted:
    """A grammar whose matchers have a fault."""

    inner: CompiledGrammar
    fault: type[Sound]
    places: dict[str, GrammarMatcher] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return self.inner.num_bytes

    def matcher(self) -> Any:
        return self.fault(self.inner.matcher(), self)


def with_matcher(fault: type[Sound]) -> Any:
    """Makes backends that are right but for their matchers."""

    def make() -> OutlinesBackend:
        backend = OutlinesBackend()
        load = backend.load
        backend.load = lambda payload: Planted(load(payload), fault)  # type: ignore[method-assign]
        return backend

    return make


@pytest.mark.parametrize("name", CHECKS)
def test_a_matcher_without_a_fault_passes_them_all(name: str) -> None:
    checks_of("grammars", with_matcher(Sound))[name]()


PLACES = "rolling_back_restores_every_earlier_place"
BITS = "a_row_is_what_accept_takes"
WHOLE_ROWS = "a_row_is_written_whole_and_no_other"
ENDS = "a_text_may_end_where_it_is_whole"
FORCED = "forced_bytes_begin_every_continuation"
DRAFTS = "fill_draft_is_walking"
FAULTS: list[tuple[type[Sound], str]] = [
    (ForgetsToRollBack, PLACES),
    (RollsBackOneTooFew, PLACES),
    (HidesAToken, BITS),
    (ShowsAToken, BITS),
    (AcceptsNothing, BITS),
    (HidesAToken, "rows_are_those_of_re"),
    (NeverWhole, "rows_are_those_of_re"),
    (KeepsOldBits, WHOLE_ROWS),
    (LeavesLastWord, WHOLE_ROWS),
    (WritesTheNextRow, WHOLE_ROWS),
    (MovesWhenItRejects, "a_rejected_token_changes_nothing"),
    (NeverWhole, ENDS),
    (AlwaysWhole, ENDS),
    (RaisesAtADeadEnd, "a_dead_end_is_an_empty_row"),
    (Shared, "matchers_of_one_grammar_are_independent"),
    (ForcesTooMuch, FORCED),
    (ForcesWhereItMayEnd, FORCED),
    (MovesWhenAskedForForcedBytes, FORCED),
    (LeaksASpecialToken, DRAFTS),
    (WritesRowsBehindIllegalNodes, DRAFTS),
    (LeavesRowsOfADraftStale, DRAFTS),
    (StaysBehindADraft, DRAFTS),
    (TakesADraftForAChain, DRAFTS),
]


@pytest.mark.parametrize(("fault", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_matcher_with_a_fault_fails_the_check_that_names_it(fault: type[Sound], name: str) -> None:
    with pytest.raises((AssertionError, GrammarError)):
        checks_of("grammars", with_matcher(fault))[name]()


# ------------------------------------------------------------------------------------- faults of whole backends


class TakesAnything(OutlinesBackend):
    """What is wrong becomes an empty pattern."""

    def compile(self, spec: GrammarSpec) -> bytes:
        try:
            return super().compile(spec)
        except GrammarError:
            return super().compile(replace(spec, source="{}" if "schema" in spec.kind.value else ""))


class RefusesInAnotherClass(OutlinesBackend):
    def compile(self, spec: GrammarSpec) -> bytes:
        try:
            return super().compile(spec)
        except GrammarError as error:
            raise RuntimeError(str(error)) from error


class TellsAStory(OutlinesBackend):
    def compile(self, spec: GrammarSpec) -> bytes:
        try:
            return super().compile(spec)
        except GrammarError as error:
            raise GrammarError(f"{error}\nand a trace") from error


class LoadsOnlyItsOwn(OutlinesBackend):
    """The payload is a key into the instance."""

    def compile(self, spec: GrammarSpec) -> bytes:
        self.__dict__.setdefault("own", {})[b"key"] = super().compile(spec)
        return b"key"

    def load(self, payload: bytes) -> CompiledGrammar:
        return super().load(self.__dict__.get("own", {})[payload])


class AllowsMoreWhitespace(OutlinesBackend):
    def compile(self, spec: GrammarSpec) -> bytes:
        return super().compile(replace(spec, max_whitespace=spec.max_whitespace + 1))


class WorksInOneThread(OutlinesBackend):
    def compile(self, spec: GrammarSpec) -> bytes:
        assert threading.current_thread() is threading.main_thread(), "made in another thread"
        return super().compile(spec)


BACKEND_FAULTS: list[tuple[type[OutlinesBackend], str]] = [
    (TakesAnything, "wrong_sources_are_refused"),
    (RefusesInAnotherClass, "wrong_sources_are_refused"),
    (TellsAStory, "wrong_sources_are_refused"),
    (LoadsOnlyItsOwn, "a_payload_loads_in_another_instance"),
    (AllowsMoreWhitespace, "whitespace_is_bounded"),
    (WorksInOneThread, "threads_get_what_one_gets"),
]


@pytest.mark.parametrize(("backend", "name"), BACKEND_FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_backend_with_a_fault_fails_the_check_that_names_it(backend: type[OutlinesBackend], name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        checks_of("grammars", backend)[name]()
