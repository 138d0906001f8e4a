r"""How does one regular expression mean the same to every backend?

It is read by Python's own parser and written again in what all of them read alike: groups that capture nothing, greedy
repetitions, character classes by their ranges. Always true: the language is that of
`re.fullmatch(pattern, text, re.ASCII)`, so `.` is any character but a newline and `\d`, `\w`, `\s` are ASCII; what is
not regular, or cannot be said so, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from re import _constants, _parser  # type: ignore[attr-defined]  # typeshed has no stubs for the parser
from typing import Any

from specinfer.errors import GrammarError
from specinfer.structured.characters import (
    ANY,
    REGEX_SPECIALS,
    Ranges,
    char_class,
    complement,
    normalised,
    spelled_char,
    without_surrogates,
)

_REFUSED_FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.LOCALE
_WORDS: dict[str, Ranges] = {
    "DIGIT": [(48, 57)],
    "SPACE": [(9, 13), (32, 32)],
    "WORD": [(48, 57), (65, 90), (95, 95), (97, 122)],
}
_REFUSALS = {
    "ASSERT": "look-around is not regular here; write out what may follow",
    "ASSERT_NOT": "look-around is not regular here; write out what may follow",
    "GROUPREF": "a back-reference is not regular; write the group out again",
    "GROUPREF_EXISTS": "a conditional group is not regular; write both cases out",
    "ATOMIC_GROUP": "atomic groups are not supported; use (?:...)",
    "POSSESSIVE_REPEAT": "possessive repetition is not supported; use *, + or ? alone",
}


def portable(pattern: str) -> str:
    """The pattern in the syntax that all backends read alike; GrammarError for one that is wrong or not regular."""
    try:
        pattern.encode()
        tree = _parser.parse(pattern, re.ASCII)
        if tree.state.flags & _REFUSED_FLAGS:
            raise _Refused("flags are not supported; write [aA] for both cases and [\\s\\S] for any character")
        return _sequence(list(tree), is_first=True, is_last=True)
    except UnicodeEncodeError as error:
        raise _error(pattern, "it holds half a surrogate pair; write the character itself") from error
    except re.error as error:
        raise _error(pattern, f"{error}; mend it") from error
    except OverflowError as error:
        raise _error(pattern, "a repetition's bound is too large; lower it") from error
    except RecursionError as error:
        raise _error(pattern, "its groups are nested too deeply; flatten them") from error
    except _Refused as error:
        raise _error(pattern, str(error)) from error


def traits(pattern: str) -> list[str]:
    """What backends read unlike each other in a pattern of JSON Schema, which is searched for in a text; GrammarError
    for one that is not portable.
    """
    portable(pattern)
    tree = list(_parser.parse(pattern, re.ASCII))
    found = {str(op) for op, _ in _leaves(tree)}
    told: list[str] = []
    if not (_is_anchored(tree, "AT_BEGINNING", 0) and _is_anchored(tree, "AT_END", -1)):
        told.append("an open end")
    if any(op.startswith("CATEGORY") for op in found):
        told.append("a class escape")
    if "ANY" in found:
        told.append("any character")
    if found & {"NEGATE", "NOT_LITERAL", "CATEGORY_NOT_DIGIT", "CATEGORY_NOT_SPACE", "CATEGORY_NOT_WORD"}:
        told.append("a negated class")
    if any(str(op) == "LITERAL" and (value < 32 or chr(value) in '"\\') for op, value in _leaves(tree)):
        told.append("a character that JSON escapes")
    return told


def all_but(words: Iterable[str]) -> str:
    """A pattern, without anchors, of every text but some words."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _all_but(tree)


def _all_but(tree: Mapping[str, Any]) -> str:
    """Of a tree of words: a node's keys are the characters that go on, and "" where a word ends."""
    chars = [char for char in tree if char]
    elsewhere = complement(normalised((ord(char), ord(char)) for char in chars))
    ways = [f"{_class(elsewhere)}{_class(ANY)}*"]
    ways += [spelled_char(ord(char), REGEX_SPECIALS) + _all_but(tree[char]) for char in chars]
    return f"(?:{'|'.join(ways)})" + ("" if "" in tree else "?")


def _is_anchored(items: Sequence[tuple[Any, Any]], anchor: str, end: int) -> bool:
    """Whether every way through begins, or ends, with an anchor."""
    if not items:
        return False
    op, value = items[end]
    if str(op) == "AT":
        return str(value).startswith(anchor)
    if str(op) == "BRANCH":
        return all(_is_anchored(list(way), anchor, end) for way in value[1])
    return str(op) == "SUBPATTERN" and _is_anchored(list(value[3]), anchor, end)


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    """Each operation of a parse tree; a category as one of its own."""
    if isinstance(node, tuple) and len(node) == 2 and str(node[0]).isupper():
        if str(node[0]) == "CATEGORY":
            yield node[1], None
        yield node
        yield from _leaves(node[1])
    elif isinstance(node, list | tuple | _parser.SubPattern):
        for inner in list(node):
            yield from _leaves(inner)


class _Refused(Exception):  # noqa: N818  # becomes a GrammarError that names the pattern
    """Why a pattern cannot be written portably."""


def _error(pattern: str, reason: str) -> GrammarError:
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "..."
    return GrammarError(f"the regex {shown!r} cannot be used: {reason}")


def _class(ranges: Ranges) -> str:
    found = without_surrogates(ranges)
    if not found:
        raise _Refused("a class of it matches no character; take it out")
    if len(found) == 1 and 0 < found[0][0] == found[0][1]:
        return spelled_char(found[0][0], REGEX_SPECIALS)
    return char_class(found, REGEX_SPECIALS)


def _sequence(items: Sequence[tuple[Any, Any]], *, is_first: bool, is_last: bool) -> str:
    """is_first, is_last: nothing comes before, or after, so that an anchor says nothing new."""
    is_anchor = [str(op) == "AT" for op, _ in items]
    return "".join(
        _item(
            str(op),
            value,
            is_first=is_first and all(is_anchor[:index]),
            is_last=is_last and all(is_anchor[index + 1 :]),
        )
        for index, (op, value) in enumerate(items)
    )


def _item(op: str, value: Any, *, is_first: bool, is_last: bool) -> str:
    if op == "LITERAL":
        return _class([(value, value)])
    if op == "NOT_LITERAL":
        return _class(complement([(value, value)]))
    if op == "ANY":
        return _class(complement([(10, 10)]))
    if op == "IN":
        return _class(_members(value))
    if op == "BRANCH":
        ways = [_sequence(list(way), is_first=is_first, is_last=is_last) for way in value[1]]
        return f"(?:{'|'.join(ways)})"
    if op == "SUBPATTERN":
        _, added, removed, inner = value
        if (added | removed) & _REFUSED_FLAGS:
            raise _Refused("flags are not supported; write [aA] for both cases and [\\s\\S] for any character")
        return f"(?:{_sequence(list(inner), is_first=is_first, is_last=is_last)})"
    if op in {"MAX_REPEAT", "MIN_REPEAT"}:
        return _repeat(*value)
    if op == "AT":
        return _anchor(str(value), is_first=is_first, is_last=is_last)
    raise _Refused(_REFUSALS.get(op, f"{op.lower()} is not supported"))


def _members(items: Iterable[tuple[Any, Any]]) -> Ranges:
    """The code points of a class."""
    found: Ranges = []
    is_negated = False
    for op, value in items:
        name = str(op)
        if name == "NEGATE":
            is_negated = True
        elif name == "LITERAL":
            found.append((value, value))
        elif name == "RANGE":
            found.append(value)
        else:  # CATEGORY_DIGIT, CATEGORY_NOT_DIGIT and so on
            _, *negation, word = str(value).split("_")
            found += complement(_WORDS[word]) if negation else _WORDS[word]
    return complement(normalised(found)) if is_negated else normalised(found)


def _repeat(low: int, high: int, inner: Any) -> str:
    text = _sequence(list(inner), is_first=False, is_last=False)
    if high == 0 or not text:
        return ""
    is_single = len(inner) == 1 and str(inner[0][0]) in {"LITERAL", "NOT_LITERAL", "ANY", "IN", "SUBPATTERN", "BRANCH"}
    atom = text if is_single else f"(?:{text})"
    if high == _constants.MAXREPEAT:
        return atom + ("*" if low == 0 else "+" if low == 1 else f"{{{low},}}")
    if (low, high) == (0, 1):
        return f"{atom}?"
    return atom + (f"{{{low}}}" if low == high else f"{{{low},{high}}}")


def _anchor(name: str, *, is_first: bool, is_last: bool) -> str:
    if name.startswith("AT_BEGINNING") and is_first:
        return ""
    if name.startswith("AT_END") and is_last:
        return ""
    if "BOUNDARY" in name:
        raise _Refused("word boundaries are not supported; write out what may stand there")
    raise _Refused("an anchor stands inside it; take it out, the whole output matches anyway")
