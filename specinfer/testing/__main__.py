"""Is this plugin fit for use? `python -m specinfer.testing proposers pkg.module:Class` answers, check by check."""

from __future__ import annotations

import sys

from specinfer import registry
from specinfer.errors import PluginError
from specinfer.testing.conformance import run_checks


def main(arguments: list[str]) -> int:
    """Print a line a check; 0 when all passed, 1 when one failed, 2 when it could not start."""
    if len(arguments) != 2:
        print(
            "usage: python -m specinfer.testing {proposers|verifiers|controllers|grammars|trackers} "
            "NAME|pkg.module:Class",
            file=sys.stderr,
        )
        return 2
    kind, name = arguments
    try:
        results = run_checks(kind, registry.resolve(kind, name))
    except PluginError as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        print(f"{'ok    ' if result.passed else 'FAILED'} {result.name}{f' ({result.note})' if result.note else ''}")
        if result.error:
            print(f"       {result.error}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
