"""How does xgrammar compile and match forms?

Compiling makes the grammar only; its masks are computed where they are first needed, which keeps loading at
milliseconds and a grammar at kilobytes (all masks ahead: seconds, and a hundred megabytes for a schema of thirty nested
objects). Always true: a matcher's library object never sees a special id, so it never terminates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grammars.enforcement import enforcement
from grammars.gbnf import XGRAMMAR_EBNF, rewritten
from specinfer.protocols import Bitmask, CompiledGrammar, Enforcement, GrammarKind, GrammarSpec, TokenTable
from specinfer.structured.patterns import portable
from specinfer.structured.sources import refusals, schema_of, tags_of

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|(?P<ahead> \(=\(.*)')
_CODE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|.)")


@dataclass(slots=True)
class XGrammarMatcher:
    """A place in a grammar."""

    tokens: TokenTable
    _matcher: Any

    def fill_row(self, bitmask: Bitmask, row: int) -> None:
        self._matcher.fill_next_token_bitmask(bitmask, row)

    def accept(self, token_id: int) -> bool:
        return self._is_usable(token_id) and bool(self._matcher.accept_token(token_id))

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)

    @property
    def is_accepting(self) -> bool:
        return bool(self._matcher.is_completed())

    def forced_bytes(self) -> bytes:
        """Whole characters only: the library gives a text."""
        return str(self._matcher.find_jump_forward_string()).encode()

    def fill_draft(self, token_ids: Sequence[int], parents: Sequence[int] | None, bitmask: Bitmask) -> list[bool]:
        """In one call of the library, which leaves rows behind illegal nodes zero or as they were."""
        num_rows = len(token_ids) + 1
        scratch = np.zeros((num_rows, self.tokens.num_words), dtype=np.int32)
        behind = [node if parents is None else parents[node] + 1 for node in range(len(token_ids))]
        self._matcher.traverse_draft_tree(*self._tree(token_ids, behind), scratch)
        bitmask[0] = scratch[0]
        is_legal: list[bool] = []
        for node, (token_id, row) in enumerate(zip(token_ids, behind, strict=True)):
            is_reached = row == 0 or is_legal[row - 1]
            is_legal.append(is_reached and self._is_usable(token_id) and _has(scratch[row], token_id))
            if is_legal[node]:
                bitmask[node + 1] = scratch[node + 1]
        return is_legal

    def _tree(self, token_ids: Sequence[int], behind: Sequence[int]) -> tuple[Any, Any, Any]:
        """First child, next sibling and token of each row; special ids, which the library would take, are left out."""
        first, sibling = np.full((2, len(token_ids) + 1), -1, dtype=np.int64)
        last: dict[int, int] = {}
        for node, row in enumerate(behind):
            if not self._is_usable(token_ids[node]):
                continue
            if row in last:
                sibling[last[row]] = node + 1
            else:
                first[row] = node + 1
            last[row] = node + 1
        return first, sibling, np.array([0, *token_ids], dtype=np.int64)

    def _is_usable(self, token_id: int) -> bool:
        return 0 <= token_id < self.tokens.vocab_size and bool(self.tokens.token_bytes[token_id])


@dataclass(frozen=True, slots=True)
class XGrammarGrammar:
    """A grammar with the masks found so far."""

    tokens: TokenTable
    _grammar: Any

    @property
    def num_bytes(self) -> int:
        return int(self._grammar.memory_size_bytes)

    def matcher(self) -> XGrammarMatcher:
        import xgrammar

        return XGrammarMatcher(self.tokens, xgrammar.GrammarMatcher(self._grammar))


@dataclass
class XGrammarBackend:
    """Every kind of form, with a pushdown automaton over bytes."""

    is_isolated: bool = field(default=True, init=False, repr=False)
    kinds: frozenset[GrammarKind] = field(default=frozenset(GrammarKind), init=False, repr=False)
    enforces: Mapping[str, Enforcement] = field(
        default_factory=lambda: enforcement("xgrammar"), init=False, repr=False, compare=False
    )
    _tokens: TokenTable = field(init=False, repr=False, compare=False)
    _compiler: Any = field(init=False, repr=False, compare=False)

    def bind(self, tokens: TokenTable) -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo(
            list(tokens.token_bytes),
            xgrammar.VocabType.RAW,
            vocab_size=tokens.vocab_size,
            stop_token_ids=sorted(tokens.eos_token_ids),  # an empty list too: else it guesses by spelling
        )
        self._tokens = tokens
        self._compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True
        )

    def compile(self, spec: GrammarSpec) -> bytes:
        with refusals("xgrammar", spec.kind):
            grammar = self._grammar(spec)
            self._compiler.compile_grammar(grammar)  # what takes too long, or fails, does so here and not in `load`
            return str(grammar.serialize_json()).encode()

    def load(self, payload: bytes) -> CompiledGrammar:
        import xgrammar

        grammar = xgrammar.Grammar.deserialize_json(payload.decode())
        return XGrammarGrammar(self._tokens, self._compiler.compile_grammar(grammar))

    def _grammar(self, spec: GrammarSpec) -> Any:
        import xgrammar

        if spec.kind is GrammarKind.REGEX:
            return xgrammar.Grammar.from_regex(portable(spec.source))
        if spec.kind is GrammarKind.EBNF:
            return xgrammar.Grammar.from_ebnf(rewritten(spec.source, XGRAMMAR_EBNF))
        if spec.kind is GrammarKind.JSON_SCHEMA:
            return _from_schema(schema_of(spec.source), spec.max_whitespace)
        tags = tags_of(spec.source)
        format_ = {
            "type": "triggered_tags",
            "triggers": sorted({tag.trigger for tag in tags}),
            "tags": [
                {
                    "type": "tag",
                    "begin": tag.begin,
                    # As a grammar: given a schema, a tag would forbid additional properties.
                    "content": {"type": "grammar", "grammar": _printed(_from_schema(tag.schema, spec.max_whitespace))},
                    "end": tag.end,
                }
                for tag in tags
            ],
        }
        return xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": format_})


def _from_schema(schema: Mapping[str, Any], max_whitespace: int) -> Any:
    import xgrammar

    spacing = {"max_whitespace_cnt": max_whitespace} if max_whitespace else {"any_whitespace": False}
    return xgrammar.Grammar.from_json_schema(
        json.dumps(schema, ensure_ascii=False), strict_mode=False, separators=(",", ":"), **spacing
    )


def _has(row: Bitmask, token_id: int) -> bool:
    return bool(row[token_id // 32] >> (token_id % 32) & 1)


def _printed(grammar: Any) -> str:
    r"""A JSON schema's grammar as EBNF that the library reads as it was.

    Printed character codes are written as the characters: `\xe9a` would be read as one. What must follow a string in
    JSON (`,` or `}` and so on) is left out: in a tag its end may follow, and rows would lack what `accept` takes.
    """

    def plain(match: re.Match[str]) -> str:
        digits = next((group for group in match.groups() if group), None)
        return chr(int(digits, 16)) if digits else match[0]

    def quoted(match: re.Match[str]) -> str:
        return "" if match["ahead"] else _CODE.sub(plain, match[0])

    return "\n".join(_QUOTED.sub(quoted, line) for line in str(grammar).splitlines())
