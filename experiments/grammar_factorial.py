"""What does knowing the form of an output buy a drafter?

    python -m experiments.grammar_factorial
    python -m experiments.grammar_factorial workload=json_schemas workload.path=schemas.jsonl

{no form, a mask at verification, drafts from legal tokens, forced text on top} x {ngram, eagle}, in one interleaved
run:
`experiments.run` with `experiment=grammar_factorial`, whose folder holds the table, the figures and the acceptance by
grammar state.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run on a command line; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run.main(["experiment=grammar_factorial", *given])


if __name__ == "__main__":
    sys.exit(main())
