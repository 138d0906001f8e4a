"""What will a backend make of a JSON schema?

A schema is read as a set of features: keywords, and those uses and combinations of them that backends treat unlike the
keyword itself. What a backend makes of a feature stands in its `enforces`, a table that the tests hold against
instances. Always true: a feature that the table lacks counts as refused, so that what nobody has tried is never called
exact.

Three conventions hold for every backend and are no findings: properties come in the order of the schema, additional
ones behind them; a number may have fewer spellings than JSON gives it; whitespace is bounded by the request.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from specinfer.protocols import Enforcement, GrammarBackend
from specinfer.structured.features import features


@dataclass(frozen=True, slots=True)
class Finding:
    """What a backend makes of one feature at one place of a schema."""

    feature: str
    pointer: str
    """Of the subschema, a JSON pointer"""
    enforcement: Enforcement


_BADNESS = [Enforcement.EXACT, Enforcement.NARROWED, Enforcement.WIDENED, Enforcement.REFUSED]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a backend makes of a schema."""

    backend: str
    findings: tuple[Finding, ...]

    @property
    def unmet(self) -> list[Finding]:
        """What is not enforced exactly."""
        return [finding for finding in self.findings if finding.enforcement is not Enforcement.EXACT]

    @property
    def is_exact(self) -> bool:
        return not self.unmet

    @property
    def worst(self) -> Enforcement:
        """The worst that is made of any feature."""
        return max((finding.enforcement for finding in self.findings), key=_BADNESS.index, default=Enforcement.EXACT)

    @property
    def badness(self) -> tuple[int, int]:
        """Orders backends: the worst that one does, then how often it is not exact."""
        return _BADNESS.index(self.worst), len(self.unmet)

    def describe(self) -> list[str]:
        """A line for each feature that is not enforced exactly."""
        places: dict[tuple[str, Enforcement], list[str]] = defaultdict(list)
        for finding in self.unmet:
            places[finding.feature, finding.enforcement].append(finding.pointer)
        return [
            f"{self.backend} does not know {feature} at {_shown(pointers)}"
            if enforcement is Enforcement.REFUSED
            else f"{self.backend} has {feature} at {_shown(pointers)} {enforcement.value}"
            for (feature, enforcement), pointers in places.items()
        ]


def audit(schema: Any, backend: GrammarBackend, *, name: str | None = None, pointer: str = "") -> AuditReport:
    """What a backend makes of each feature of a schema (a dict or a boolean).

    name: of the backend, as the report calls it. pointer: to the schema, where it is a part of something.
    """
    told = name or type(backend).__name__
    return AuditReport(
        told,
        tuple(
            Finding(feature, pointer + place, backend.enforces.get(feature, Enforcement.REFUSED))
            for feature, place in features(schema)
        ),
    )


def _shown(pointers: list[str]) -> str:
    more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
    return f"#{pointers[0]}{more}"
