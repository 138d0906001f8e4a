"""How does llguidance compile and match forms?

A form becomes a grammar in its own Lark dialect, read within limits in milliseconds; masks come from its lexer and
Earley parser as they are asked for. Always true: text that is forced may be cut into tokens in any way (no_forcing); a
dead end, which spoils the library's matcher for good, is made up for by one that takes the same tokens again; a limit
that is reached is an error at every call, never an empty row or a refused token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grammars.enforcement import enforcement
from grammars.gbnf import LARK, rewritten
from specinfer.errors import GrammarError
from specinfer.protocols import Bitmask, CompiledGrammar, Enforcement, GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.patterns import all_but, portable
from specinfer.structured.schemas import rebuilt
from specinfer.structured.sources import refusals, refuse, schema_of, tags_of

HEADER = '%llguidance {"no_forcing": true}\n'
"""Else text that is forced must be cut into tokens in one way, which would change the output's law"""
DEAD_END = "NoExtensionBias"
"""How the library's error begins where no token can go on"""


@dataclass(slots=True)
class LLGuidanceMatcher:
    """A place in a grammar: the library's matcher, and the tokens that it has taken."""

    grammar: LLGuidanceGrammar
    _matcher: Any
    _row: NDArray[np.int32]
    """[words of the vocabulary and the end behind it]: what the library writes"""
    _taken: list[int] = field(default_factory=list)

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._row.ctypes.data, self._row.nbytes)
        if self._matcher.is_error():
            if not str(self._matcher.get_error()).startswith(DEAD_END):
                raise self._failure()
            self._start_anew()
            self._row[:] = 0
        tokens = self.grammar.tokens
        bitmask[row] = self._row[: tokens.num_words] & tokens.usable

    def accept(self, token_id: int) -> bool:
        tokens = self.grammar.tokens
        if not 0 <= token_id < tokens.vocab_size or not tokens.token_bytes[token_id]:
            return False
        is_taken = bool(self._matcher.try_consume_tokens([token_id]) == 1)
        if is_taken:
            self._taken.append(token_id)
        elif self._matcher.is_error():  # a limit: an illegal token is none
            raise self._failure()
        return is_taken

    def rollback(self, num_tokens: int) -> None:
        assert 0 <= num_tokens <= len(self._taken), f"{num_tokens} taken back of {len(self._taken)}"
        if num_tokens:
            del self._taken[-num_tokens:]
            if not self._matcher.rollback(num_tokens):
                self._start_anew()

    @property
    def is_accepting(self) -> bool:
        return bool(self._matcher.is_accepting())

    def forced_bytes(self) -> bytes:
        return bytes(self._matcher.compute_ff_bytes())

    def _start_anew(self) -> None:
        self._matcher = self.grammar.fresh()
        if self._matcher.try_consume_tokens(self._taken) != len(self._taken):
            raise self._failure()

    def _failure(self) -> GrammarError:
        reason = next(iter(str(self._matcher.get_error()).splitlines()), "it refuses what it took")
        return GrammarError(f"llguidance gave up behind {len(self._taken)} tokens: {reason}")


@dataclass(frozen=True, slots=True)
class LLGuidanceGrammar:
    """A grammar as the library's matcher at its start, which is only ever copied."""

    tokens: TokenTable
    num_bytes: int
    _prototype: Any

    def matcher(self) -> LLGuidanceMatcher:
        num_words = -(-(self.tokens.vocab_size + 1) // 32)
        return LLGuidanceMatcher(self, self.fresh(), np.zeros(num_words, dtype=np.int32))

    def fresh(self) -> Any:
        """The library's matcher at the start."""
        return self._prototype.deep_copy()


@dataclass
class LLGuidanceBackend:
    """Every kind of form; compiles in milliseconds, in the engine's process.

    The fields are the library's limits on one grammar: reading its expressions, its size, the lexer's states (some
    kilobytes each), and lexing and parsing for one mask.
    """

    initial_lexer_fuel: int = 1_000_000
    max_grammar_size: int = 500_000
    max_lexer_states: int = 50_000
    step_lexer_fuel: int = 200_000
    step_max_items: int = 200_000
    is_isolated: bool = field(default=False, init=False, repr=False)
    kinds: frozenset[GrammarKind] = field(default=frozenset(GrammarKind), init=False, repr=False)
    enforces: Mapping[str, Enforcement] = field(
        default_factory=lambda: enforcement("llguidance"), init=False, repr=False, compare=False
    )
    _tokens: TokenTable = field(init=False, repr=False, compare=False)
    _tokenizer: Any = field(init=False, repr=False, compare=False)
    _limits: Any = field(init=False, repr=False, compare=False)

    def bind(self, tokens: TokenTable) -> None:
        from llguidance import LLParserLimits, LLTokenizer

        end = tokens.vocab_size  # an end of its own, behind the vocabulary: rows must not show one
        self._tokens = tokens
        self._tokenizer = LLTokenizer(
            _Vocabulary(
                tokens=[*tokens.token_bytes, b"<end>"],
                eos_token_id=end,
                bos_token_id=None,
                special_token_ids=[*(i for i, text in enumerate(tokens.token_bytes) if not text), end],
                is_tokenizer_wrapper=True,
            )
        )
        self._limits = LLParserLimits(
            initial_lexer_fuel=self.initial_lexer_fuel,
            max_grammar_size=self.max_grammar_size,
            max_lexer_states=self.max_lexer_states,
            step_lexer_fuel=self.step_lexer_fuel,
            step_max_items=self.step_max_items,
            verbose_errors=False,
        )

    def compile(self, spec: GrammarSpec) -> bytes:
        with refusals("llguidance", spec.kind):
            grammar = HEADER + _lark(spec)
            matcher = self._matcher(grammar)
            if matcher.is_error():
                refuse("llguidance", spec.kind, str(matcher.get_error()))
            return grammar.encode()

    def load(self, payload: bytes) -> CompiledGrammar:
        matcher = self._matcher(payload.decode())
        assert not matcher.is_error(), matcher.get_error()
        return LLGuidanceGrammar(self._tokens, 65_536 + 64 * len(payload), matcher)

    def _matcher(self, grammar: str) -> Any:
        from llguidance import LLMatcher

        return LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)


class _Vocabulary(SimpleNamespace):
    """The vocabulary as the library reads it; it asks how forced text is cut into tokens only where it may force."""

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError(f"llguidance wants to cut {text!r} into tokens")


def _lark(spec: GrammarSpec) -> str:
    if spec.kind is GrammarKind.REGEX:
        return f"start: /{portable(spec.source) or '(?:)'}/"
    if spec.kind is GrammarKind.EBNF:
        return rewritten(spec.source, LARK)
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return f"start: %json {_schema_text(schema_of(spec.source), spec.max_whitespace)}"
    tags = tags_of(spec.source)
    rules = ["start: (" + " | ".join(f"tag_{i}" for i in range(len(tags))) + ")* TEXT", "TEXT: /(.|\\n)*/"]
    for i, tag in enumerate(tags):
        rules.append(f"open_{i}[lazy]: TEXT {json.dumps(tag.trigger)}")
        begin = tag.begin.removeprefix(tag.trigger)
        parts = [
            f"open_{i}",
            json.dumps(begin) if begin else "",
            f"%json {_schema_text(tag.schema, spec.max_whitespace)}",
            json.dumps(tag.end) if tag.end else "",
        ]
        rules.append(f"tag_{i}: {' '.join(part for part in parts if part)}")
    return "\n".join(rules)


def _schema_text(schema: Mapping[str, Any], max_whitespace: int) -> str:
    """The schema with the whitespace asked for; options of the library that it came with are overwritten."""
    options: dict[str, Any] = {"whitespace_flexible": False}
    if max_whitespace:
        options = {"whitespace_flexible": True, "whitespace_pattern": f"[ \\n\\t\\r]{{1,{max_whitespace}}}"}
    return json.dumps({**rebuilt(schema, _without_spelled_names), "x-guidance": options})


def _without_spelled_names(schema: dict[str, Any]) -> dict[str, Any]:
    r"""The same schema, its additional properties as patterned ones.

    The library lets an additional property be called `\u0061` beside a property `a`, but not a patterned one.
    """
    named, patterned = schema.get("properties"), schema.get("patternProperties", {})
    additional = schema.get("additionalProperties", True)
    is_open = additional is True or additional == {}
    if not named or additional is False or (patterned and not is_open):
        return schema
    others = {"": True} if is_open else {f"^{all_but(named)}$": additional}
    return {**schema, "patternProperties": {**others, **patterned}, "additionalProperties": False}
