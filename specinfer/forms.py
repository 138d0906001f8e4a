"""In what form must an output be, and what may that cost?

Plain data, as in `types`. Always true: an instance asks for exactly one form; whether the form itself is right (a valid
schema, a pattern that parses) is found when the request reaches an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from specinfer.errors import ConfigError, RequestError, check_count


class AuditPolicy(Enum):
    """What to do with a schema that no backend enforces exactly: refuse it by name, say so, or go on."""

    STRICT = "strict"
    WARN = "warn"
    ALLOW = "allow"


class IllegalDrafts(Enum):
    """What becomes of a draft token that the grammar forbids. All are exact.

    KEEP: it is verified with the law it was drawn from, and p = 0 rejects it. CUT: the draft ends before it, and the
    tokens before it are verified with their laws restricted to the legal tokens. A deterministic draft is cut either
    way.
    """

    KEEP = "keep"
    CUT = "cut"


@dataclass(frozen=True, kw_only=True)
class GrammarLimits:
    """What a grammar may cost before it is refused.

    max_source_bytes, max_nesting: of the schema, pattern or grammar as given. max_alternatives: entries of one `enum`
    or choice. max_repetitions: product of the bounds of nested repetitions in a pattern, as `(a{1,10}){1,10}`.
    compile_s: seconds of compilation. compile_bytes: memory that a compilation may take.
    """

    max_source_bytes: int = 262_144
    max_nesting: int = 64
    max_alternatives: int = 5_000
    max_repetitions: int = 20_000
    compile_s: float = 10.0
    compile_bytes: int = 2 << 30

    def __post_init__(self) -> None:
        for name in ("max_source_bytes", "max_nesting", "max_alternatives", "max_repetitions", "compile_bytes"):
            check_count(f"limits.{name}", getattr(self, name), 1)
        if not self.compile_s > 0:
            raise ConfigError(f"limits.compile_s must be more than 0, got {self.compile_s!r}")

    def tightened(self, other: GrammarLimits | None) -> GrammarLimits:
        """The smaller of both at each limit."""
        if other is None:
            return self
        names = [f.name for f in fields(self)]
        return GrammarLimits(**{name: min(getattr(self, name), getattr(other, name)) for name in names})


@dataclass(frozen=True, kw_only=True)
class StructuredOutputs:
    """What form an output must have; exactly one of the first six fields.

    json: a JSON schema as a dict, as text, or a Pydantic model's class. json_object: any JSON object. regex: the whole
    output matches. choice: the output is one of these texts. grammar: EBNF with a rule `root ::= ...`. structural_tag:
    `{"triggers": [...], "structures": [{"begin", "schema", "end"}, ...]}`, free text in which a trigger opens a tag
    whose content follows its schema (tool calls).

    backend: `auto` takes the first one that is exact. policy: for schemas that it does not enforce exactly.
    max_whitespace: whitespace characters at each place where JSON allows any. reasoning_end: text before which the
    output is free, as `</think>`; the form begins behind it. limits: of this request, within those of the engine.

    What is sampled is p restricted to the tokens that can go on and renormalised, position by position; that is not p
    conditioned on the whole form.
    """

    json: Mapping[str, Any] | str | type | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    structural_tag: Mapping[str, Any] | str | None = None
    backend: str = "auto"
    policy: AuditPolicy = AuditPolicy.STRICT
    max_whitespace: int = 1
    reasoning_end: str | None = None
    limits: GrammarLimits | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StructuredOutputs:
        """From a mapping of its fields, enums by value, as configurations and files hold it."""
        values = dict(values)
        unknown = sorted(map(str, values.keys() - {f.name for f in fields(cls)}))
        if unknown:
            raise RequestError(
                f"structured_outputs has no {', '.join(unknown)}; it has {', '.join(f.name for f in fields(cls))}"
            )
        policy = values.get("policy")
        if isinstance(policy, str):
            known = {member.value: member for member in AuditPolicy}
            if policy.lower() not in known:
                raise RequestError(f"structured_outputs.policy must be one of {', '.join(known)}, got {policy!r}")
            values["policy"] = known[policy.lower()]
        limits = values.get("limits")
        if isinstance(limits, Mapping):
            values["limits"] = GrammarLimits(**limits)
        return cls(**values)

    def __post_init__(self) -> None:
        """Raise RequestError unless exactly one form is asked for, in a sensible way."""
        names = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
        given = [name for name in names if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise RequestError(
                f"structured_outputs needs exactly one of {', '.join(names)}; got {', '.join(given) or 'none'}"
            )
        for name in ("regex", "grammar", "reasoning_end"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or (not value and name != "regex")):
                raise RequestError(f"structured_outputs.{name} must be a non-empty string, got {value!r}")
        if self.choice is not None:
            is_list = isinstance(self.choice, Sequence) and not isinstance(self.choice, str)
            if not is_list or not self.choice or any(not isinstance(text, str) for text in self.choice):
                raise RequestError(f"structured_outputs.choice must be a non-empty list of texts, got {self.choice!r}")
        if not isinstance(self.policy, AuditPolicy):
            raise RequestError(f"structured_outputs.policy must be an AuditPolicy, got {self.policy!r}")
        check_count("structured_outputs.max_whitespace", self.max_whitespace, 0, error=RequestError)
