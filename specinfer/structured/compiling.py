"""Where does a grammar compile, and what stops it when it takes too long or too much?

Beside the step loop: in a process of its own, killed at a limit, where the backend is isolated; else on a thread, where
a limit on time ends the wait and not the work. Run as a module, this file is that process. Always true: a compilation
ends within its seconds (and a start of the process), with a payload or a GrammarError; the process ends with its
parent.
"""

from __future__ import annotations

import pickle
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import IO, Any, TypeVar

from specinfer import registry
from specinfer.errors import GrammarError
from specinfer.forms import GrammarLimits
from specinfer.protocols import GrammarSpec, TokenTable

Result = TypeVar("Result")
START_S = 120.0
"""Longest that the process may take to start and to read the vocabulary"""
_SIZE = struct.Struct("<Q")


def within(seconds: float, work: Callable[[], Result], what: str) -> Result:
    """The work's result or exception; GrammarError when it takes longer, while it goes on on a thread nobody waits
    for.
    """
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:  # the waiting side raises it
            done.put((None, error))

    threading.Thread(target=run, name=f"specinfer-{what}", daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except Empty:
        raise _over_time(what, seconds) from None
    if error is not None:
        raise error
    found: Result = result
    return found


@dataclass
class CompilerProcess:
    """A process that compiles for one caller at a time, started when first asked and again after it was killed."""

    tokens: Callable[[], TokenTable]
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _end: Callable[[], Any] | None = field(default=None, init=False)
    """Kills the process, when this object or the interpreter goes at the latest"""

    def compile(self, backend: str, spec: GrammarSpec, limits: GrammarLimits) -> tuple[bytes, float]:
        """The payload and the seconds that it took."""
        process = self._running()
        start = perf_counter()
        try:
            answer = within(limits.compile_s + 1.0, lambda: _ask(process, (backend, spec, limits)), backend)
        except GrammarError:
            self.close()
            raise _over_time(backend, limits.compile_s) from None
        except (EOFError, OSError):
            code = process.wait()
            self.close()
            if code == -signal.SIGALRM or perf_counter() - start >= limits.compile_s:
                raise _over_time(backend, limits.compile_s) from None
            raise GrammarError(
                f"grammar backend {backend} died of it (exit code {code}), as it does at limits.compile_bytes="
                f"{limits.compile_bytes}; make the form smaller"
            ) from None
        if isinstance(answer, str):
            raise GrammarError(answer)
        payload, compile_s = answer
        return payload, compile_s

    def close(self) -> None:
        """Kill the process, if there is one."""
        self._process = None
        if self._end is not None:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "specinfer.structured.compiling"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._end = weakref.finalize(self, _end, process)
            try:
                within(START_S, lambda: _ask(process, self.tokens()), "compiler")
            except (GrammarError, EOFError, OSError) as error:
                self.close()
                raise GrammarError(f"the compiling process does not start: {error}") from error
        return self._process


def _over_time(backend: str, seconds: float) -> GrammarError:
    return GrammarError(
        f"grammar backend {backend} took longer than limits.compile_s={seconds:g}; make the form smaller or raise the "
        f"limit"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _ask(process: subprocess.Popen[bytes], question: Any) -> Any:
    assert process.stdin is not None and process.stdout is not None
    _send(process.stdin, question)
    return _receive(process.stdout)


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError("the other process has ended")
    size = _SIZE.unpack(head)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("the other process has ended")
    return pickle.loads(data)


# ------------------------------------------------------------------------------------------ the process's own side


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Compile what is asked for until the parent is gone."""
    tokens: TokenTable = _receive(questions)
    backends: dict[str, Any] = {}
    _send(answers, None)
    while True:
        try:
            backend, spec, limits = _receive(questions)
        except EOFError:
            return
        try:
            if backend not in backends:
                made = registry.build("grammars", backend)
                made.bind(tokens)
                backends[backend] = made
            answer: Any = _limited(backends[backend], spec, limits)
        except MemoryError:
            answer = (
                f"grammar backend {backend} wants more memory than limits.compile_bytes={limits.compile_bytes}; make "
                f"the form smaller or raise the limit"
            )
        except GrammarError as error:
            answer = str(error)
        except Exception as error:  # whatever a foreign backend raises
            answer = f"grammar backend {backend}: {type(error).__name__}: {error}"
        _send(answers, answer)


def _limited(backend: Any, spec: GrammarSpec, limits: GrammarLimits) -> tuple[bytes, float]:
    """Compile within limits on memory and time; SIGALRM ends the process at the latter, parent or not."""
    _limit_memory(limits.compile_bytes)
    signal.setitimer(signal.ITIMER_REAL, limits.compile_s)
    start = perf_counter()
    try:
        return backend.compile(spec), perf_counter() - start
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _limit_memory(None)


def _limit_memory(extra_bytes: int | None) -> None:
    """Let the process grow by so many bytes of address space; where the system cannot say its size (not Linux), by any
    number.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard
    if extra_bytes is not None:
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        except OSError:
            return
        soft = pages * resource.getpagesize() + extra_bytes
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints must not mix with the answers
    _serve(sys.stdin.buffer, answers)
