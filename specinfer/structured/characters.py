r"""How is a set of characters written as a class that every library reads alike?

Always true: no escape takes hexadecimal digits that a following character could lengthen (xgrammar reads `\x01a` as one
character): control characters stand as themselves, and NUL, which cannot, comes behind all others but `^`. That comes
last, for xgrammar takes `[\^a]` for `[^a]`. Surrogates, which no text holds, are in no class.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]
"""Code points, ascending, both ends included"""
MAX_CODE = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
CARET = ord("^")
ANY: Ranges = [(0, MAX_CODE)]
REGEX_SPECIALS = r"\.+*?()|[]{}^$-/"
EBNF_SPECIALS = r"\]^-"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\x00"}


def normalised(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted, overlaps joined."""
    found: Ranges = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def complement(ranges: Ranges) -> Ranges:
    """All other code points, of normalised ranges."""
    found: Ranges = []
    start = 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return [*found, (start, MAX_CODE)] if start <= MAX_CODE else found


def without_surrogates(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Normalised ranges of what a text can hold."""
    parts = [
        part
        for low, high in ranges
        for part in ((low, min(high, SURROGATES[0] - 1)), (max(low, SURROGATES[1] + 1), high))
    ]
    return normalised((low, high) for low, high in parts if low <= high)


def char_class(ranges: Ranges, specials: str) -> str:
    """A class of normalised ranges, not empty; negated where they reach to the last character, which matches faster."""
    rest = without_surrogates(complement(ranges))
    if ranges[-1][1] == MAX_CODE and rest:
        return f"[^{_spelled(rest, specials)}]"
    return f"[{_spelled(without_surrogates(ranges), specials)}]"


def spelled_char(code: int, specials: str) -> str:
    """One character as itself, `specials` escaped."""
    char = chr(code)
    return _NAMED.get(char) or (f"\\{char}" if char in specials else char)


def _spelled(ranges: Ranges, specials: str) -> str:
    parts = [
        part
        for low, high in ranges
        for part in ([(low, low), (low + 1, high)] if low == CARET < high else [(low, high)])
    ]
    parts.sort(key=lambda part: (part[0] == CARET, part == (0, 0)))
    return "".join(
        spelled_char(low, specials) if low == high else f"{spelled_char(low, specials)}-{spelled_char(high, specials)}"
        for low, high in parts
    )
