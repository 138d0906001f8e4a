"""How is an EBNF grammar in GBNF syntax said in the libraries' own languages?

It is read here, so that all read the same syntax, and written again character by character: a terminal of several
characters is matched greedily in Lark and would lose outputs (`"a"* "ab"` would not match `ab`). Always true: the
language is the grammar's, whatever its terminals have in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from specinfer.errors import GrammarError
from specinfer.structured.characters import (
    ANY,
    EBNF_SPECIALS,
    MAX_CODE,
    REGEX_SPECIALS,
    SURROGATES,
    Ranges,
    char_class,
    complement,
    normalised,
)

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)|(?P<is>::=)|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    |"(?P<text>(?:[^"\\\n]|\\.)*)"|\[(?P<set>(?:[^\]\\\n]|\\.)*)\]
    |(?P<times>[*+?]|\{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\})|(?P<mark>[().|])""",
    re.VERBOSE,
)
_CHAR = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)", re.DOTALL)
_ESCAPES = {"n": 10, "r": 13, "t": 9}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one language writes a grammar: the first rule's name, what defines a rule, and a class of characters."""

    start: str
    defines: str
    terminal: Callable[[Ranges], str]


LARK = Dialect("start", ":", lambda ranges: f"/{char_class(ranges, REGEX_SPECIALS)}/")
XGRAMMAR_EBNF = Dialect("root", " ::=", lambda ranges: char_class(ranges, EBNF_SPECIALS))


def rewritten(source: str, dialect: Dialect) -> str:
    """The grammar in another language; GrammarError for one that is wrong."""
    try:
        return _Reader(source, dialect, list(_tokens(source))).rules()
    except RecursionError as error:
        raise GrammarError("the EBNF grammar is nested too deeply; name its inner parts as rules") from error


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def _tokens(source: str) -> Iterator[_Token]:
    offset = 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            raise _error(source, offset, "unexpected text")
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match[kind], offset)
        offset = match.end()


def _error(source: str, offset: int, reason: str) -> GrammarError:
    line = source.count("\n", 0, offset) + 1
    return GrammarError(
        f"the EBNF grammar is wrong in line {line}: {reason} at {source[offset : offset + 30]!r}; mend it"
    )


@dataclass(slots=True)
class _Reader:
    """A descent through the tokens, writing on the way."""

    source: str
    dialect: Dialect
    tokens: list[_Token]
    next: int = 0
    used: dict[str, int] = field(default_factory=dict)
    """Rules referred to, with the first place"""

    def rules(self) -> str:
        found: dict[str, str] = {}
        while self.next < len(self.tokens):
            offset = self._offset
            name = self._take("name", "a rule `name ::= ...` should begin")
            if name in found:
                raise _error(self.source, offset, f"the rule {name!r} is defined twice")
            self._take("is", "`::=` should follow a rule's name")
            found[name] = self._alternatives()
            if self.next < len(self.tokens) and not self._begins_rule:
                raise _error(self.source, self._offset, "unexpected text")
        if "root" not in found:
            raise GrammarError("the EBNF grammar has no rule `root`; add `root ::= ...`")
        for name, offset in self.used.items():
            if name not in found:
                raise _error(self.source, offset, f"the rule {name!r} is not defined")
        return "\n".join(f"{self._rule(name)}{self.dialect.defines} {text}" for name, text in found.items())

    @property
    def _offset(self) -> int:
        return self.tokens[self.next].offset if self.next < len(self.tokens) else len(self.source)

    @property
    def _begins_rule(self) -> bool:
        return [token.kind for token in self.tokens[self.next : self.next + 2]] == ["name", "is"]

    def _is_at(self, kind: str, text: str | None = None) -> bool:
        token = self.tokens[self.next] if self.next < len(self.tokens) else None
        return token is not None and token.kind == kind and text in {None, token.text}

    def _take(self, kind: str, expectation: str, text: str | None = None) -> str:
        if not self._is_at(kind, text):
            raise _error(self.source, self._offset, expectation)
        self.next += 1
        return self.tokens[self.next - 1].text

    def _alternatives(self) -> str:
        ways = [self._sequence()]
        while self._is_at("mark", "|"):
            self.next += 1
            ways.append(self._sequence())
        return " | ".join(ways)

    def _sequence(self) -> str:
        parts: list[str] = []
        while self.next < len(self.tokens) and not self._begins_rule:
            if self._is_at("mark", "|") or self._is_at("mark", ")"):
                break
            part = self._element()
            if self._is_at("times"):
                part += self._repetition()
            while self._is_at("times"):
                part = f"({part}){self._repetition()}"
            parts.append(part)
        return " ".join(parts) or '""'

    def _repetition(self) -> str:
        offset = self._offset
        text = "".join(self._take("times", "").split())
        low, _, high = text.strip("{}").partition(",")
        if high and int(high) < int(low):
            raise _error(self.source, offset, "a repetition has its upper bound first")
        return text

    def _element(self) -> str:
        if self._is_at("mark", "("):
            self.next += 1
            inner = self._alternatives()
            self._take("mark", "`)` is missing", ")")
            return f"({inner})"
        if self._is_at("mark", "."):
            self.next += 1
            return self.dialect.terminal(ANY)
        if self._is_at("name"):
            offset = self._offset
            name = self._take("name", "")
            self.used.setdefault(name, offset)
            return self._rule(name)
        offset = self._offset
        if self._is_at("text"):
            chars = self._chars(self._take("text", ""), offset)
            return "(" + (" ".join(self.dialect.terminal([(code, code)]) for code, _ in chars) or '""') + ")"
        text = self._take("set", "a text, a class, a rule or a group should stand")
        return self.dialect.terminal(self._members(text, offset))

    def _members(self, text: str, offset: int) -> Ranges:
        chars = self._chars(text.removeprefix("^"), offset)
        found: Ranges = []
        while chars:
            low, _ = chars.pop(0)
            high = low
            if len(chars) > 1 and chars[0] == (ord("-"), False):
                high = chars[1][0]
                del chars[:2]
            if high < low:
                raise _error(self.source, offset, "a class has a range from a later to an earlier character")
            found.append((low, high))
        members = complement(normalised(found)) if text.startswith("^") else normalised(found)
        if not members:
            raise _error(self.source, offset, "a class matches no character")
        return members

    def _chars(self, text: str, offset: int) -> list[tuple[int, bool]]:
        """Each character with whether it was escaped."""
        found: list[tuple[int, bool]] = []
        for match in _CHAR.finditer(text):
            *codes, escaped, plain = match.groups()
            code = next((int(code, 16) for code in codes if code), None)
            if code is None:
                code = ord(plain) if plain else _ESCAPES.get(escaped, ord(escaped))
                if escaped and escaped.isalnum() and escaped not in _ESCAPES:
                    raise _error(self.source, offset, f"unknown escape \\{escaped}")
            if code > MAX_CODE or SURROGATES[0] <= code <= SURROGATES[1]:
                raise _error(self.source, offset, f"U+{code:X} is no character")
            found.append((code, plain is None))
        return found

    def _rule(self, name: str) -> str:
        """Lower case and unlike any other name: upper case would make a Lark terminal of it."""
        if name == "root":
            return self.dialect.start
        return "r_" + "".join(c if c.islower() or c.isdigit() else f"_{ord(c):x}_" for c in name)
