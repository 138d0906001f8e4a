"""What does a backend make of each feature of JSON Schema, seen on instances?

A feature has probes: a schema that holds it, and texts that are and are not its instances. Always true: a text is
judged by the whole grammar, byte by byte, up to the end; what a backend says of itself is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specinfer.errors import GrammarError
from specinfer.protocols import Enforcement, GrammarBackend, GrammarKind, GrammarSpec, TokenTable
from specinfer.testing.grammar_probes import Probe

BYTES = TokenTable([*(bytes([byte]) for byte in range(256)), b""], frozenset({256}))
"""A vocabulary in which every text is one sequence of tokens"""


def verdicts(backend: GrammarBackend, probe: Probe) -> tuple[list[bool], list[bool]] | None:
    """Of each valid and of each invalid text, whether the backend's grammar takes it; None where it compiles none.

    backend: bound to BYTES.
    """
    source = json.dumps(probe.schema, ensure_ascii=False, separators=(",", ":"))
    try:
        grammar = backend.load(backend.compile(GrammarSpec(GrammarKind.JSON_SCHEMA, source, max_whitespace=0)))
    except GrammarError:
        return None

    def takes(text: str) -> bool:
        matcher = grammar.matcher()
        return all(matcher.accept(byte) for byte in text.encode()) and matcher.is_accepting

    return [takes(text) for text in probe.valid], [takes(text) for text in probe.invalid]


def observed(backend: GrammarBackend, probes: Sequence[Probe]) -> Enforcement:
    """What a backend, bound to BYTES, makes of a feature: the worst of its probes. A probe that it refuses says
    nothing, as long as it compiles another one: a refusal is seen when a request comes.
    """
    results = [result for result in (verdicts(backend, probe) for probe in probes) if result is not None]
    if not results:
        return Enforcement.REFUSED
    if any(any(invalid) for _, invalid in results):
        return Enforcement.WIDENED
    if not all(all(valid) for valid, _ in results):
        return Enforcement.NARROWED
    return Enforcement.EXACT
