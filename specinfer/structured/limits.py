"""Is a form's source small enough to be looked at?

Found by reading brackets and patterns, before anything is parsed at length. Always true: every check takes time in
proportion to the source, without deep recursion, and a source over a limit is refused with the limit's name.
"""

from __future__ import annotations

import re
from itertools import accumulate
from re import _constants, _parser  # type: ignore[attr-defined]  # typeshed has no stubs for the parser
from typing import Any, NoReturn

from specinfer.errors import GrammarError
from specinfer.forms import GrammarLimits
from specinfer.protocols import GrammarKind

_JSON_STRING = r'"(?:[^"\\]|\\.)*"?'
_CLASS = r"\[(?:[^\]\\]|\\.)*\]?"
_BRACKETS = {
    GrammarKind.JSON_SCHEMA: re.compile(rf"(?s:{_JSON_STRING})|(?P<bracket>[][{{}}])"),
    GrammarKind.REGEX: re.compile(rf"(?s:\\.|{_CLASS})|(?P<bracket>[()])"),
    GrammarKind.EBNF: re.compile(rf"(?s:{_JSON_STRING}|{_CLASS})|#[^\n]*|(?P<bracket>[()])"),
}
_BRACKETS[GrammarKind.STRUCTURAL_TAG] = _BRACKETS[GrammarKind.JSON_SCHEMA]
_REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}


def check_source(kind: GrammarKind, source: str, limits: GrammarLimits) -> None:
    """Raise GrammarError where a source is too long or its brackets are nested too deeply."""
    num_bytes = len(source.encode(errors="surrogatepass"))
    if num_bytes > limits.max_source_bytes:
        _refuse(kind.value, f"has {num_bytes} bytes", "max_source_bytes", limits.max_source_bytes)
    brackets = (match["bracket"] for match in _BRACKETS[kind].finditer(source))
    depth = max(accumulate(1 if bracket in "([{" else -1 for bracket in brackets if bracket), default=0)
    if depth > limits.max_nesting:
        _refuse(kind.value, f"is nested {depth} deep", "max_nesting", limits.max_nesting)


def check_alternatives(where: str, count: int, limits: GrammarLimits) -> None:
    """Raise GrammarError where an enum or a choice has too many entries."""
    if count > limits.max_alternatives:
        _refuse(where, f"has {count} entries", "max_alternatives", limits.max_alternatives)


def check_pattern(where: str, pattern: str, limits: GrammarLimits) -> None:
    """Raise GrammarError where nested repetitions of a pattern multiply beyond the limit.

    A pattern that Python cannot read passes: whether it is right is not asked here.
    """
    check_source(GrammarKind.REGEX, pattern, limits)
    try:
        tree = _parser.parse(pattern, re.ASCII)
    except OverflowError:
        _refuse(where, "has a bound beyond 2^32", "max_repetitions", limits.max_repetitions)
    except (re.error, RecursionError):
        return
    product = _repetitions(tree)
    if product > limits.max_repetitions:
        _refuse(where, f"repeats {product} times", "max_repetitions", limits.max_repetitions)


def _repetitions(node: Any) -> int:
    """The largest product of bounds on the way from a node of Python's parse tree to a leaf."""
    if isinstance(node, tuple) and len(node) == 2 and node[0] in _REPEATS:
        low, high, inner = node[1]
        return max(int(low if high is _constants.MAXREPEAT else high), 1) * _repetitions(inner)
    if isinstance(node, list | tuple | _parser.SubPattern):
        return max(map(_repetitions, list(node)), default=1)
    return 1


def _refuse(where: str, what: str, limit: str, value: int) -> NoReturn:
    raise GrammarError(f"the {where} {what}, more than limits.{limit}={value}; make it smaller or raise the limit")
