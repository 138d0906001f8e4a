"""How does a Hydra application of ours start and fail?

Always true: a mistake of the user's is one line on stderr and status 2, an interruption status 130; HYDRA_FULL_ERROR=1
brings the traceback back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from experiments.complaint import one_line
from experiments.composition import HYDRA_VERSION_BASE

FULL_ERROR = "HYDRA_FULL_ERROR"
STATUS_MISTAKE = 2
STATUS_INTERRUPTED = 130


def run_app(
    job: Callable[[Any], None],
    config_name: str,
    register: Callable[[Sequence[str]], None],
    arguments: Sequence[str] | None = None,
) -> int:
    """Compose `config_name` from conf/ and run `job` on it; the exit status.

    register: stores what the command line may choose. arguments: None for those of the process.
    """
    import hydra

    if arguments is not None:
        sys.argv[1:] = arguments
    wants_traceback = os.environ.get(FULL_ERROR) == "1"
    # Hydra prints errors itself unless told to raise them; the one line is ours.
    os.environ[FULL_ERROR] = "1"

    def guarded(config: Any) -> None:
        with _mistakes_as_lines(wants_traceback):
            job(config)

    try:
        with _mistakes_as_lines(wants_traceback):
            register(sys.argv[1:])
            hydra.main(version_base=HYDRA_VERSION_BASE, config_path="pkg://conf", config_name=config_name)(guarded)()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return STATUS_INTERRUPTED
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    finally:
        if not wants_traceback:
            del os.environ[FULL_ERROR]
    return 0


@contextmanager
def _mistakes_as_lines(wants_traceback: bool) -> Iterator[None]:
    """Turn a mistake of the user's into one line and SystemExit, which Hydra lets through without a word."""
    try:
        yield
    except Exception as error:
        complaint = None if wants_traceback else one_line(error)
        if complaint is None:
            raise
        print(f"error: {complaint}", file=sys.stderr)
        raise SystemExit(STATUS_MISTAKE) from None
