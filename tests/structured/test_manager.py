"""Compiled once, kept within bytes, chosen by the audit, ended at a limit; a failure is its request's alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from specinfer.config import StructuredConfig
from specinfer.errors import GrammarError
from specinfer.forms import AuditPolicy, GrammarLimits, StructuredOutputs
from specinfer.protocols import CompiledGrammar, Enforcement, GrammarKind, GrammarSpec
from specinfer.structured.manager import GrammarManager, wait_any
from specinfer.testing.grammar_features import BYTES
from specinfer.testing.grammars import WordsBackend

HERE = "tests.structured.test_manager"
MULTIPLE = {"type": "integer", "multipleOf": 3}
REFUSED_BY_ALL = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
CALLS: list[str] = []
GATE = threading.Event()


@dataclass
class CountingBackend(WordsBackend):
    """Notes what it compiles, when the gate is open."""

    def compile(self, spec: GrammarSpec) -> bytes:
        assert GATE.wait(20)
        CALLS.append(spec.source)
        return super().compile(spec)


@dataclass
class JsonBackend(CountingBackend):
    """Takes every schema for the word `a`, as one of two keywords asks."""

    kinds: frozenset[GrammarKind] = field(default=frozenset({GrammarKind.JSON_SCHEMA}), init=False)
    enforces: Mapping[str, Enforcement] = field(
        default_factory=lambda: {"type integer": Enforcement.EXACT, "minimum": Enforcement.NARROWED}, init=False
    )

    def compile(self, spec: GrammarSpec) -> bytes:
        return super().compile(GrammarSpec(GrammarKind.REGEX, "a"))


@dataclass
class RefusingBackend(JsonBackend):
    """Says that it is exact, then refuses."""

    def compile(self, spec: GrammarSpec) -> bytes:
        raise GrammarError("this one refuses all")


@dataclass
class BrokenBackend(WordsBackend):
    def compile(self, spec: GrammarSpec) -> bytes:
        raise ZeroDivisionError("a bug")


@dataclass
class UnboundBackend(WordsBackend):
    def bind(self, tokens: Any) -> None:
        raise OSError("no such vocabulary")


@dataclass
class GreedyBackend(WordsBackend):
    """Isolated: hangs, dies or eats memory, as the pattern says."""

    is_isolated: bool = True

    def compile(self, spec: GrammarSpec) -> bytes:
        if spec.source == "hang":
            time.sleep(60)
        if spec.source == "die":
            os._exit(3)
        if spec.source == "eat":
            return bytes(1 << 30)
        return super().compile(spec)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    CALLS.clear()
    GATE.set()
    yield
    GATE.set()


def manager(*backends: str, **config: Any) -> GrammarManager:
    names = backends or ("llguidance", "xgrammar", "outlines")
    return GrammarManager(StructuredConfig(backends=names, **config), lambda: BYTES)


def words(pattern: str, backend: str = "CountingBackend", **fields: Any) -> StructuredOutputs:
    return StructuredOutputs(regex=pattern, backend=f"{HERE}:{backend}", **fields)


# --------------------------------------------------------------------------------------------- once, and kept


def test_threads_that_want_the_same_grammar_compile_it_once() -> None:
    shared = manager(num_workers=4)
    GATE.clear()
    found: list[CompiledGrammar] = []
    threads = [threading.Thread(target=lambda: found.append(shared.submit(words("ab|c")).result(20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    GATE.set()
    for thread in threads:
        thread.join()
    assert CALLS == ["ab|c"] and len(found) == 8 and len({id(grammar) for grammar in found}) == 1
    again = shared.submit(words("ab|c"))
    assert again.done and again.compile_s == 0.0 and again.result() is found[0] and CALLS == ["ab|c"]
    shared.close()


def test_other_content_and_another_backend_are_other_grammars() -> None:
    shared = manager()
    wanted = [words("a"), words("b"), words("a", "GreedyBackend"), StructuredOutputs(regex="a", backend="llguidance")]
    found = [shared.submit(form).result(60) for form in wanted]
    assert len({id(grammar) for grammar in found}) == 4
    shared.close()


def test_the_least_recently_used_grammars_are_dropped_beyond_the_bytes() -> None:
    shared = manager(cache_bytes=300)  # a grammar of words says that it holds 100
    for pattern in ("a", "b", "c"):
        shared.submit(words(pattern)).result(20)
    shared.submit(words("a")).result(20)  # now the latest
    shared.submit(words("d")).result(20)  # drops b
    assert shared.cached_bytes == 300
    for pattern in ("a", "c", "d"):
        shared.submit(words(pattern)).result(20)
    assert CALLS == ["a", "b", "c", "d"]
    shared.submit(words("b")).result(20)
    assert CALLS[-1] == "b"
    shared.close()


def test_a_cache_of_nothing_keeps_nothing_and_works() -> None:
    shared = manager(cache_bytes=0)
    for _ in range(2):
        assert shared.submit(words("a")).result(20).matcher().accept(ord("a"))
    assert CALLS == ["a", "a"] and shared.cached_bytes == 0
    shared.close()


def test_waiting_for_any_ends_with_the_first() -> None:
    shared = manager(num_workers=2)
    GATE.clear()
    slow, fast = shared.submit(words("ab")), shared.submit(StructuredOutputs(regex="a", backend="llguidance"))
    wait_any([slow, fast], 60)
    assert fast.done and not slow.done
    GATE.set()
    wait_any([slow], 20)
    assert slow.done
    shared.close()


# ------------------------------------------------------------------------------------------------- the choice


def test_auto_takes_the_first_backend_that_is_exact() -> None:
    shared = manager("outlines", "xgrammar", "llguidance", isolate=False)
    for schema, backend in (
        (MULTIPLE, "xgrammar"),
        ({"allOf": [MULTIPLE]}, "llguidance"),
        ({"enum": ["a"]}, "outlines"),
    ):
        pending = shared.submit(StructuredOutputs(json=schema))
        pending.result(60)
        assert pending.backend == backend and pending.report.is_exact and not pending.warnings
    shared.close()


def test_strict_refuses_by_name_what_no_backend_does_exactly() -> None:
    shared = manager(isolate=False)
    with pytest.raises(GrammarError, match="uniqueItems at #") as caught:
        shared.submit(StructuredOutputs(json=REFUSED_BY_ALL))
    assert all(name in str(caught.value) for name in ("llguidance", "xgrammar", "outlines", "policy=warn"))
    with pytest.raises(GrammarError, match="outlines has multipleOf at # widened"):
        shared.submit(StructuredOutputs(json=MULTIPLE, backend="outlines"))
    tag = {"triggers": ["<"], "structures": [{"begin": "<a>", "schema": REFUSED_BY_ALL, "end": "</a>"}]}
    with pytest.raises(GrammarError, match="uniqueItems at #/structures/0/schema"):
        shared.submit(StructuredOutputs(structural_tag=tag))
    shared.close()


@pytest.mark.parametrize("policy", [AuditPolicy.WARN, AuditPolicy.ALLOW])
def test_other_policies_take_the_backend_that_does_least_wrong_and_warn_only_where_asked(policy: AuditPolicy) -> None:
    shared = manager(isolate=False)
    pending = shared.submit(StructuredOutputs(json=REFUSED_BY_ALL, policy=policy))
    pending.result(60)
    assert pending.backend == "xgrammar"
    assert pending.warnings == (["xgrammar has uniqueItems at # widened"] if policy is AuditPolicy.WARN else [])
    shared.close()


def test_a_backend_that_refuses_what_it_calls_exact_is_followed_by_the_next() -> None:
    names = [f"{HERE}:{name}" for name in ("RefusingBackend", "JsonBackend")]
    shared = manager(*names)
    pending = shared.submit(StructuredOutputs(json={"type": "integer"}))
    assert pending.result(20) and pending.backend == names[1] and pending.refusals == ["this one refuses all"]
    alone = manager(names[0]).submit(StructuredOutputs(json={"type": "integer"}))
    with pytest.raises(GrammarError, match="this one refuses all"):
        alone.result(20)
    shared.close()


def test_less_than_exact_comes_after_exact_whatever_the_order() -> None:
    shared = manager(f"{HERE}:JsonBackend", "llguidance", isolate=False)
    schema = {"type": "integer", "minimum": 3}
    assert shared.submit(StructuredOutputs(json=schema, policy=AuditPolicy.ALLOW)).backend == "llguidance"
    shared.close()


def test_a_backend_that_cannot_is_named() -> None:
    shared = manager()
    for form, reason in (
        (StructuredOutputs(grammar='root ::= "a"', backend="outlines"), "outlines compiles json_schema, regex only"),
        (StructuredOutputs(regex="a", backend="xgramar"), "unknown grammar 'xgramar'"),
        (StructuredOutputs(regex="a", backend="no.such:Module"), "failed to import"),
    ):
        with pytest.raises(GrammarError, match=reason):
            shared.submit(form)
    assert manager("no.such:Module", "llguidance").submit(StructuredOutputs(regex="a")).result(60)
    shared.close()


# --------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("backend", "pattern", "reason"),
    [
        ("BrokenBackend", "a", "BrokenBackend: ZeroDivisionError: a bug"),
        ("UnboundBackend", "a", "UnboundBackend: OSError: no such vocabulary"),
        ("CountingBackend", "A", "reads words of a..z"),
    ],
)
def test_whatever_a_backend_raises_is_its_requests_error(backend: str, pattern: str, reason: str) -> None:
    shared = manager()
    for _ in range(2):
        with pytest.raises(GrammarError, match=reason):
            shared.submit(words(pattern, backend)).result(20)
    assert shared.submit(words("a")).result(20)
    shared.close()


def test_a_compilation_in_the_engines_process_is_waited_for_no_longer_than_its_limit() -> None:
    shared = manager(limits=GrammarLimits(compile_s=0.2))
    GATE.clear()
    with pytest.raises(GrammarError, match=r"took longer than limits.compile_s=0.2"):
        shared.submit(words("a")).result(20)
    GATE.set()
    assert shared.submit(words("b")).result(20)
    shared.close()


def test_a_process_that_hangs_dies_or_eats_memory_costs_its_request_alone() -> None:
    """And the next one is compiled by a new process, in order."""
    limits = GrammarLimits(compile_s=1.0, compile_bytes=200 << 20)
    shared = manager(limits=limits)
    patterns = ["fine", "hang", "fineagain", "die", "eat", "still", "A"]
    pendings = [shared.submit(words(pattern, "GreedyBackend")) for pattern in patterns]
    errors = {}
    for pattern, pending in zip(patterns, pendings, strict=True):
        try:
            pending.result(120)
        except GrammarError as error:
            errors[pattern] = str(error)
    assert set(errors) == {"hang", "die", "eat", "A"}
    assert "took longer than limits.compile_s=1" in errors["hang"]
    assert "died of it (exit code 3)" in errors["die"]
    assert "limits.compile_bytes" in errors["eat"]
    assert "reads words" in errors["A"]
    shared.close()


def test_a_closed_manager_fails_what_is_pending_and_takes_nothing() -> None:
    shared = manager()
    GATE.clear()
    pending = [shared.submit(words(pattern)) for pattern in ("a", "b")]
    shared.close()
    for one in pending:
        with pytest.raises(GrammarError, match="was closed"):
            one.result(20)
    with pytest.raises(GrammarError, match="was closed"):
        shared.submit(words("c"))


def test_a_thousand_distinct_grammars_stay_within_the_bytes_and_the_threads() -> None:
    shared = manager(cache_bytes=64 * 100)
    before = threading.active_count()
    patterns = [f"a{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}{chr(97 + i // 676)}" for i in range(1000)]
    pendings = [shared.submit(words(pattern)) for pattern in patterns]
    assert threading.active_count() <= before + 3
    for pending in pendings:
        pending.result(60)
    assert shared.cached_bytes <= 64 * 100 and sorted(CALLS) == sorted(patterns)
    shared.close()
