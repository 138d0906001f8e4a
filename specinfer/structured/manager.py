"""How does a form become a compiled grammar, without the step loop waiting for it?

What is wrong with a form is raised when it is submitted; the rest happens on threads. Always true: a grammar is
compiled once, however many ask for it at the same time, and kept by its content within `cache_bytes`; every pending
grammar ends, with a grammar or with a GrammarError of its own.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from specinfer import registry
from specinfer.config import StructuredConfig
from specinfer.errors import GrammarError, PluginError
from specinfer.forms import AuditPolicy, GrammarLimits, StructuredOutputs
from specinfer.protocols import CompiledGrammar, GrammarBackend, GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.audit import AuditReport, audit
from specinfer.structured.cache import GrammarCache
from specinfer.structured.compiling import CompilerProcess, within
from specinfer.structured.lane import Lane
from specinfer.structured.specs import schemas_in, spec_of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend that may compile a form, and what it makes of it."""

    name: str
    backend: GrammarBackend
    report: AuditReport


@dataclass(frozen=True, slots=True)
class _Compiled:
    grammar: CompiledGrammar
    compile_s: float


class PendingGrammar:
    """A grammar that is being compiled, by the first of some backends that does not refuse it."""

    def __init__(self, spec: GrammarSpec, candidates: Sequence[Candidate], policy: AuditPolicy) -> None:
        self.spec = spec
        self.compile_s = 0.0
        """Seconds that its compilation took, 0 where the grammar was there already"""
        self.refusals: list[str] = []
        """Why the backends before the present one failed"""
        self._candidates = candidates
        self._policy = policy
        self._future: Future[CompiledGrammar] = Future()

    @property
    def candidate(self) -> Candidate:
        return self._candidates[min(len(self.refusals), len(self._candidates) - 1)]

    @property
    def backend(self) -> str:
        """The name of the backend that compiles it, or that did."""
        return self.candidate.name

    @property
    def report(self) -> AuditReport:
        """What the backend makes of the form."""
        return self.candidate.report

    @property
    def warnings(self) -> list[str]:
        """What it does not enforce exactly, under the policy that asks for it."""
        return self.report.describe() if self._policy is AuditPolicy.WARN else []

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> CompiledGrammar:
        """The grammar; GrammarError where it failed. Waits at most `timeout` seconds, then raises TimeoutError."""
        return self._future.result(timeout)


def wait_any(pendings: Sequence[PendingGrammar], timeout: float | None = None) -> None:
    """Sleep until one of some grammars is done, at most `timeout` seconds."""
    wait([pending._future for pending in pendings], timeout, FIRST_COMPLETED)


class GrammarManager:
    """Compiles and keeps the grammars of one vocabulary; threads may share it.

    tokens: gives the vocabulary, asked for when the first grammar is compiled.
    """

    def __init__(self, config: StructuredConfig, tokens: Callable[[], TokenTable]) -> None:
        self.config = config
        self._tokens = tokens
        self._lock = threading.RLock()
        self._backends: dict[str, GrammarBackend] = {}
        self._bound: dict[str, Future[None]] = {}
        self._cache = GrammarCache(config.cache_bytes)
        self._flights: dict[tuple[str, GrammarLimits], Future[_Compiled]] = {}
        self._lanes = {
            is_isolated: Lane(config.num_workers, lambda: CompilerProcess(self._vocabulary))
            for is_isolated in (False, True)
        }
        self._is_closed = False

    @property
    def cached_bytes(self) -> int:
        """What the kept grammars hold, as they say."""
        with self._lock:
            return self._cache.num_bytes

    def submit(self, wanted: StructuredOutputs) -> PendingGrammar:
        """Start to compile a form; GrammarError at once where it is wrong or no backend may compile it."""
        limits = self.config.limits.tightened(wanted.limits)
        spec = spec_of(wanted, limits)
        pending = PendingGrammar(spec, self._candidates(spec, wanted), wanted.policy)
        self._try_next(pending, limits)
        return pending

    def close(self) -> None:
        """End all compilations; what is pending fails, and nothing can be submitted any more."""
        with self._lock:
            self._is_closed = True
            flights = list(self._flights.values())
        for lane in self._lanes.values():
            lane.close()
        for flight in flights:
            _fail(flight, GrammarError("the grammar manager was closed"))

    # ---------------------------------------------------------------------------------------- choosing a backend

    def _candidates(self, spec: GrammarSpec, wanted: StructuredOutputs) -> list[Candidate]:
        names = self.config.backends if wanted.backend == "auto" else [wanted.backend]
        found: list[Candidate] = []
        reasons: list[str] = []
        for name in names:
            try:
                backend = self._backend(name)
            except PluginError as error:
                reasons.append(str(error))
                continue
            if spec.kind not in backend.kinds:
                kinds = ", ".join(sorted(kind.value for kind in backend.kinds))
                reasons.append(f"{name} compiles {kinds} only")
                continue
            candidate = Candidate(name, backend, self._report(spec, name, backend))
            if wanted.policy is AuditPolicy.STRICT and not candidate.report.is_exact:
                reasons.append("; ".join(candidate.report.describe()))
            else:
                found.append(candidate)
        if not found:
            wayout = (
                "; change the schema, or allow it with policy=warn or policy=allow"
                if wanted.policy is AuditPolicy.STRICT
                and spec.kind in {GrammarKind.JSON_SCHEMA, GrammarKind.STRUCTURAL_TAG}
                else "; choose another backend"
            )
            raise GrammarError(f"no backend compiles the {spec.kind.value} as it says: {' | '.join(reasons)}{wayout}")
        return sorted(found, key=lambda candidate: candidate.report.badness)

    def _report(self, spec: GrammarSpec, name: str, backend: GrammarBackend) -> AuditReport:
        reports = [audit(schema, backend, name=name, pointer=pointer) for pointer, schema in schemas_in(spec)]
        return AuditReport(name, tuple(finding for report in reports for finding in report.findings))

    def _backend(self, name: str) -> GrammarBackend:
        with self._lock:
            if name not in self._backends:
                self._backends[name] = registry.build("grammars", name)
            return self._backends[name]

    # ------------------------------------------------------------------------------------------------- compiling

    def _try_next(self, pending: PendingGrammar, limits: GrammarLimits) -> None:
        def take(flight: Future[_Compiled]) -> None:
            error = flight.exception()
            if error is None:
                pending.compile_s += flight.result().compile_s
                pending._future.set_result(flight.result().grammar)
                return
            pending.refusals.append(str(error))
            if isinstance(error, GrammarError) and len(pending.refusals) < len(pending._candidates):
                self._try_next(pending, limits)
            else:
                pending._future.set_exception(GrammarError(" | ".join(pending.refusals)))

        self._flight(pending.candidate, pending.spec, limits).add_done_callback(take)

    def _flight(self, candidate: Candidate, spec: GrammarSpec, limits: GrammarLimits) -> Future[_Compiled]:
        """The compilation of a grammar: one that is over, one under way, or a new one."""
        address = _address(candidate.name, spec)
        flight: Future[_Compiled]
        with self._lock:
            if self._is_closed:
                raise GrammarError("the grammar manager was closed")
            kept = self._cache.get(address)
            if kept is not None:
                flight = Future()
                flight.set_result(_Compiled(kept, 0.0))
                return flight
            key = address, limits
            if key not in self._flights:
                flight = Future()
                self._flights[key] = flight
                lane = self._lanes[candidate.backend.is_isolated and self.config.isolate]
                lane.add(lambda process: self._fly(flight, key, candidate, spec, process))
            return self._flights[key]

    def _fly(
        self,
        flight: Future[_Compiled],
        key: tuple[str, GrammarLimits],
        candidate: Candidate,
        spec: GrammarSpec,
        process: CompilerProcess,
    ) -> None:
        compiled: _Compiled | None = None
        failure: Exception | None = None
        try:
            compiled = self._compiled(candidate, spec, key[1], process)
        except GrammarError as error:
            failure = error
        except Exception as error:  # whatever a foreign backend raises
            failure = GrammarError(f"grammar backend {candidate.name}: {type(error).__name__}: {error}")
        with self._lock:
            if compiled is not None:
                self._cache.put(key[0], compiled.grammar)
            del self._flights[key]
        if compiled is None:
            assert failure is not None
            _fail(flight, failure)
        else:
            with suppress(InvalidStateError):  # the manager was closed meanwhile
                flight.set_result(compiled)

    def _compiled(
        self, candidate: Candidate, spec: GrammarSpec, limits: GrammarLimits, process: CompilerProcess
    ) -> _Compiled:
        self._bind(candidate)
        backend = candidate.backend
        start = perf_counter()
        if backend.is_isolated and self.config.isolate:
            payload, compile_s = process.compile(candidate.name, spec, limits)
            start = perf_counter() - compile_s
        else:
            payload = within(limits.compile_s, lambda: backend.compile(spec), candidate.name)
        grammar = backend.load(payload)
        return _Compiled(grammar, perf_counter() - start)

    def _bind(self, candidate: Candidate) -> None:
        """Give a backend the vocabulary, once."""
        with self._lock:
            is_first = candidate.name not in self._bound
            bound: Future[None] = self._bound.setdefault(candidate.name, Future())
        if is_first:
            try:
                candidate.backend.bind(self._vocabulary())
                bound.set_result(None)
            except Exception as error:  # all who wait for it raise it
                bound.set_exception(error)
        bound.result()

    def _vocabulary(self) -> TokenTable:
        with self._lock:
            return self._tokens()


def _address(name: str, spec: GrammarSpec) -> str:
    content = f"{name}\0{spec.kind.value}\0{spec.max_whitespace}\0{spec.source}"
    return hashlib.sha256(content.encode()).hexdigest()


def _fail(flight: Future[Any], error: Exception) -> None:
    with suppress(InvalidStateError):
        flight.set_exception(error)
