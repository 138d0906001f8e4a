"""On which threads do compilations wait and run?

Always true: at most `num_workers` run at once, in the order they came; a thread ends when nothing waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from specinfer.structured.compiling import CompilerProcess

Job = Callable[[CompilerProcess], None]


@dataclass
class Lane:
    """A queue of compilations with some threads, which end when it is empty, and a process each."""

    num_workers: int
    make_process: Callable[[], CompilerProcess]
    _jobs: deque[Job] = field(default_factory=deque, init=False)
    _idle: list[CompilerProcess] = field(default_factory=list, init=False)
    _busy: list[CompilerProcess] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def add(self, job: Job) -> None:
        with self._lock:
            self._jobs.append(job)
            if len(self._busy) < self.num_workers:
                process = self._idle.pop() if self._idle else self.make_process()
                self._busy.append(process)
                threading.Thread(target=self._work, args=(process,), name="specinfer-grammars", daemon=True).start()

    def _work(self, process: CompilerProcess) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy.remove(process)
                    self._idle.append(process)
                    return
                job = self._jobs.popleft()
            job(process)

    def close(self) -> None:
        with self._lock:
            self._jobs.clear()
            processes = [*self._idle, *self._busy]
        for process in processes:
            process.close()
