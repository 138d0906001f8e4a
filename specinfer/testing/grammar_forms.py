"""On which forms and vocabularies is a grammar backend tried?

Always true: `whole` texts are complete outputs of their form, `parts` are not but can become one, and behind a `final`
text nothing can come; the forms are plain enough for every backend of their kind to hold exactly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from specinfer.protocols import GrammarKind, GrammarSpec, TokenTable
from specinfer.testing.models import ByteTokenizer

_PIECES = [
    *(b"", b"ab", b"null", b'{"', b'":', b'": ', b'"}', b'","', b'"<', b"</", b"true", b"1,", b"12", b"a", b"\xc3"),
    *(" é".encode(), "éa".encode(), b"\xa9b", b"\xf0\x9f", b"<f", b'<f=a>{"', b"}</f>", b"f>x", b"  ", b"\n\t", b"(1+"),
]  # among them two ids for one text, and characters cut in two
VOCABULARIES = {
    # 32 ids, so that an end behind them needs a word of its own, and no end among them
    "letters": TokenTable(
        [*(bytes([letter]) for letter in b"abc"), b"", b"d", b"ab", b"bca", b"", *[bytes([c]) for c in b"efgh"]]
        + [b""] * 20,
        frozenset(),
    ),
    "bytes": TokenTable(ByteTokenizer(258).token_bytes(), frozenset({257})),
    "pieces": TokenTable([*ByteTokenizer(258).token_bytes(), *_PIECES], frozenset({256, 257})),
}


@dataclass(frozen=True)
class Form:
    """A form with some of its outputs."""

    spec: GrammarSpec
    vocabulary: str
    whole: Sequence[str] = ()
    parts: Sequence[str] = ()
    final: Sequence[str] = ()

    @property
    def tokens(self) -> TokenTable:
        return VOCABULARIES[self.vocabulary]


def _schema(schema: object, max_whitespace: int = 1) -> GrammarSpec:
    return GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema), max_whitespace)


def _regex(source: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.REGEX, source)


_INTEGER_A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_TAGS = {
    "triggers": ["<f"],
    "structures": [
        {"begin": "<f=a>", "schema": {**_INTEGER_A, "additionalProperties": False}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": "</f>"},
        {"begin": "<f=c>", "schema": {"type": "string"}, "end": "</f>"},
    ],
}
SPACED = _schema(
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": False}
)
"""An object in which whitespace is counted"""
REGEXES = (
    "a|ab",
    "(?:ab)*c",
    "a{2,3}b?",
    "",
    "(?:ab)?",
    "[^ae-h]b|ca*",
    "(?:a|b)+?",
    "a(?:b|bc)(?:c|d)?",
    "^(?:a|bb)*$",
)
"""Tried on letters against Python's `re`"""
DEAD_END = Form(_regex("az|bc"), "letters", whole=["bc"], final=["bc"])
"""The vocabulary has no z"""
FORMS = (
    Form(_regex("a|ab"), "letters", ["a", "ab"], [""], ["ab"]),
    Form(_regex("(?:abc?)*d"), "letters", ["d", "ababcd"], ["", "ab", "abc"], ["d"]),
    Form(
        _regex("null|(?:ab+|é)?[0-9]{1,2}[^é]?"),
        "pieces",
        ["null", "12", "abb1x", "é1"],
        ["", "nu", "é"],
        ["null", "12x"],
    ),
    Form(_regex('[^"\\\\]{2,4}'), "bytes", ["ab", "é😀c"], ["", "a"], ["abcd"]),
    Form(
        _schema({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                 "required": ["a"], "additionalProperties": False}),
        "pieces",
        ['{"a":1}', '{"a": -20,"b": "x é"}', '{ "a":0}'],
        ["", "{", '{"a":1', '{"a":1,"b":"'],
        ['{"a":1}'],
    ),
    Form(_schema({"enum": ["ab", "abc", None]}, 0), "pieces", ['"ab"', "null"], ["", '"ab'], ['"abc"', "null"]),
    Form(_schema({"type": "array", "items": {"type": "boolean"}}, 0), "bytes", ["[]", "[true,false]"], ["["], ["[]"]),
    Form(GrammarSpec(GrammarKind.EBNF, 'root ::= "a" root "b" | "c"'), "letters", ["c", "aacbb"], ["", "aac"], ["acb"]),
    Form(
        GrammarSpec(
            GrammarKind.EBNF,
            'root ::= term ("+" term)*  # sums\nterm ::= [0-9]{1,3} | "(" root ")" | "é" | "a"* "ab"\n',
        ),
        "pieces",
        ["1", "1+(23+é)", "aaab", "ab+12"],
        ["", "(1", "1+", "aa"],
    ),
    Form(
        GrammarSpec(GrammarKind.STRUCTURAL_TAG, json.dumps(_TAGS), 0),
        "pieces",
        ["", "é <", 'x<f=a>{"a":1}</f>', "<f=b>true</f><f=b>false</f> <g", '<f=c>"<x"</f>'],
        ["<f", "a<f=a>{", "<f=b>true</"],
    ),
)  # fmt: skip
WRONG_SOURCES = (
    _regex("("),
    _regex("a(?=b)"),
    _regex(r"(a)\1"),
    _regex("[b-a]"),
    _regex("a\ud800"),
    GrammarSpec(GrammarKind.JSON_SCHEMA, "{bad"),
    GrammarSpec(GrammarKind.JSON_SCHEMA, "3"),
    GrammarSpec(GrammarKind.JSON_SCHEMA, "false"),
    GrammarSpec(GrammarKind.JSON_SCHEMA, "[" * 100_000),
    _schema({"type": "text"}),
    _schema({"$ref": "#/$defs/missing"}),
    GrammarSpec(GrammarKind.EBNF, 'start ::= "a"'),
    GrammarSpec(GrammarKind.EBNF, 'root ::= "a" ('),
    GrammarSpec(GrammarKind.EBNF, "root ::= other"),
    GrammarSpec(GrammarKind.STRUCTURAL_TAG, "{}"),
    GrammarSpec(GrammarKind.STRUCTURAL_TAG, json.dumps({**_TAGS, "triggers": ["<g"]})),
    GrammarSpec(GrammarKind.STRUCTURAL_TAG, json.dumps({**_TAGS, "triggers": []})),
)


def cut(text: str, tokens: TokenTable, rng: random.Random) -> list[int]:
    """Some way to write a text in tokens, which must have all its bytes."""
    rest, found = text.encode(), []
    while rest:
        ways = [i for i, piece in enumerate(tokens.token_bytes) if piece and rest.startswith(piece)]
        found.append(rng.choice(ways))
        rest = rest[len(tokens.token_bytes[found[-1]]) :]
    return found
