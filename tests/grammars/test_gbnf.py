"""A grammar in GBNF syntax has one language, whichever library matches it."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from typing import Any

import pytest

from grammars.gbnf import LARK, XGRAMMAR_EBNF, rewritten
from specinfer import registry
from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.testing.grammar_forms import VOCABULARIES

TEXTS = ["".join(word) for n in range(6) for word in itertools.product("ab", repeat=n)]
CHARS = [*"\t\n\r\x01\x1f !\"#'-./09:?AZ[\\]^_`abz{|}~\x7f\x85é\u2028\U0001f600"]


@cache
def backend(name: str) -> Any:
    made = registry.build("grammars", name)
    made.bind(VOCABULARIES["bytes"])
    return made


def reading_ebnf() -> list[str]:
    names = registry.names("grammars")
    return [name for name in names if GrammarKind.EBNF in registry.build("grammars", name).kinds]


def language(name: str, source: str, texts: list[str]) -> list[str]:
    made = backend(name)
    grammar = made.load(made.compile(GrammarSpec(GrammarKind.EBNF, source)))
    found = []
    for text in texts:
        matcher = grammar.matcher()
        if all(matcher.accept(byte) for byte in text.encode()) and matcher.is_accepting:
            found.append(text)
    return found


REGULAR = {
    'root ::= "ab"': "ab",
    'root ::= "a" "b"*': "ab*",
    'root ::= "a" | "ab" | "abb"': "a|ab|abb",
    'root ::= "a"* "ab"': "a*ab",
    'root ::= ("a" | "b" "a")+ "b"?': "(?:a|ba)+b?",
    'root ::= "a"{2} "b"{1,2} "a"{0,}': "aab{1,2}a*",
    'root ::= "a"{ 1 , 3 }': "a{1,3}",
    'root ::= ""': "",
    "root ::= ": "",
    'root ::= "a" | ': "a|",
    'root ::= ( | "b") "a"': "b?a",
    'root ::= "a"*?': "(?:a*)?",
    'root ::= "a"+*': "(?:a+)*",
    'root ::= "ab"+{2}': "(?:(?:ab)+){2}",
    'root ::= "ab"{2}?': "(?:(?:ab){2})?",
    'root ::= ("a" "b"){2}': "(?:ab){2}",
    'root ::= A b-c\nA ::= "a"\nb-c ::= "b" | A': "a[ab]",
    'root ::= x X\nx ::= "a"\nX ::= "b"': "ab",
    'root ::= x_y x-y\nx_y ::= "a"\nx-y ::= "b"': "ab",
    'root ::= start\nstart ::= "a"\n': "a",
    'root ::= r_root "b"\nr_root ::= "a"': "ab",
    'b ::= "b"\nroot ::= "a" b': "ab",
    'root ::=  # first\n  "a"  # then\n  | "b" # last': "a|b",
    'root ::= "a"\n  "b"\n\n\nother ::= "c"': "ab",
    "root ::= [ab] [^a]": "[ab]b",
    "root ::= . .": "..",
    'root ::= "\\x61" "\\u0062"': "ab",
}


@pytest.mark.parametrize("source", REGULAR, ids=ascii)
@pytest.mark.parametrize("name", reading_ebnf())
def test_a_regular_grammar_has_the_language_of_its_pattern(name: str, source: str) -> None:
    assert language(name, source, TEXTS) == [text for text in TEXTS if re.fullmatch(REGULAR[source], text)]


ONE_CHARACTER = {
    "[a-z]": "[a-z]",
    "[^a-z]": "[^a-z]",
    "[a-]": "[a-]",
    "[-a]": "[-a]",
    "[\\]a]": r"[\]a]",
    "[\\^a]": r"[\^a]",
    "[^\\^a]": r"[^\^a]",
    "[\\^-b]": r"[\^-b]",
    "[a^]": r"[a^]",
    "[\\\\-\\]]": r"[\\-\]]",
    "[a\\-z]": r"[a\-z]",
    '["#]': '["#]',
    "[\\n\\r\\t]": r"[\n\r\t]",
    "[\\x01-\\x1f]": r"[\x01-\x1f]",
    "[\\x00-\\x20]": r"[\x00-\x20]",
    "[^\\x00-\\x1f]": r"[^\x00-\x1f]",
    "[^]": r"[\s\S]",
    ".": r"[\s\S]",
    "[é]": "é",
    "[\\U0001F600]": "\U0001f600",
    "[\\u00e9a]": "[éa]",
    "[\\x61-\\u00e9]": "[a-é]",
    '"\\""': '"',
    '"\\\\"': r"\\",
    '"#"': "#",
    '"/"': "/",
    '"\\u00e9"': "é",
    '"\\n"': "\n",
    '"^" | "]" | "-"': r"[\^\]-]",
}


@pytest.mark.parametrize("element", ONE_CHARACTER, ids=ascii)
@pytest.mark.parametrize("name", reading_ebnf())
def test_each_way_to_write_a_character_means_that_character(name: str, element: str) -> None:
    wanted = [char for char in CHARS if re.fullmatch(ONE_CHARACTER[element], char)]
    assert language(name, f"root ::= {element}", ["", *CHARS]) == wanted


@pytest.mark.parametrize("name", reading_ebnf())
def test_a_rule_may_hold_itself(name: str) -> None:
    found = language(name, 'root ::= "a" root "b" | ""', TEXTS)
    assert found == ["", "ab", "aabb"]
    palindromes = language(name, 'root ::= "a" root "a" | "b" root "b" | [ab]?', TEXTS)
    assert palindromes == [text for text in TEXTS if text == text[::-1]]
    assert language(name, 'root ::= root "a" | "b"', TEXTS) == ["b", "ba", "baa", "baaa", "baaaa"], "left recursion"


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("", None, "no rule `root`"),
        ('start ::= "a"', None, "no rule `root`; add `root ::= ...`"),
        ('root = "a"', 1, "unexpected text at '= "),
        ('root "a"', 1, "`::=` should follow"),
        ('::= "a"', 1, "should begin"),
        ('root ::= "a', 1, "unexpected text"),
        ('root ::= "a\nb"', 1, "unexpected text"),
        ("root ::= [a", 1, "unexpected text"),
        ('root ::= "a"\nroot ::= "b"', 2, "'root' is defined twice"),
        ('root ::= "a"\n | other', 2, "'other' is not defined"),
        ('root ::= "a" (', 1, "`)` is missing"),
        ('root ::= "a" )', 1, "unexpected text"),
        ('root ::= ("a" "b" \n x ::= "c"', 2, "`)` is missing"),
        ('root ::= * "a"', 1, "should stand"),
        ('root ::= "a"\n ::= "b"', 2, "should stand"),
        ("root ::= []", 1, "a class matches no character"),
        ("root ::= [b-a]", 1, "from a later to an earlier"),
        (r'root ::= "\q"', 1, r"unknown escape \q"),
        (r'root ::= "\xZZ"', 1, r"unknown escape \x"),
        (r'root ::= "\ud800"', 1, "U+D800 is no character"),
        (r'root ::= "\UFFFFFFFF"', 1, "U+FFFFFFFF is no character"),
        ('root ::= "a"{2,1}', 1, "a repetition has its upper bound first"),
        ('root ::= "a"{,2}', 1, "unexpected text"),
        ("root ::= " + "(" * 3000 + ")" * 3000, None, "nested too deeply"),
    ],
    ids=lambda value: ascii(value)[:40],
)
@pytest.mark.parametrize("dialect", [LARK, XGRAMMAR_EBNF], ids=["lark", "xgrammar"])
def test_a_grammar_that_is_wrong_is_refused_with_line_and_reason(
    dialect: Any, source: str, line: int | None, reason: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)) as caught:
        rewritten(source, dialect)
    message = str(caught.value)
    assert message.startswith("the EBNF grammar ") and len(message.splitlines()) == 1
    assert line is None or f"in line {line}:" in message


def test_terminals_are_single_characters_in_every_dialect() -> None:
    source = 'root ::= "ab" [a-c] Name\nName ::= "é"'
    for dialect, pattern in ((LARK, r"/((?:[^/\\]|\\.)*)/"), (XGRAMMAR_EBNF, r"(\[(?:[^\]\\]|\\.)*\])")):
        terminals = re.findall(pattern, rewritten(source, dialect))
        assert len(terminals) == 4
        assert all(re.compile(terminal).fullmatch("ab") is None for terminal in terminals)


def test_rule_names_stay_apart_in_every_dialect() -> None:
    names = ["a", "A", "_a", "a-b", "a_b", "a2db", "a_2d_b", "start", "r_a", "TEXT"]
    source = "root ::= " + " ".join(names) + "".join(f"\n{name} ::= {json.dumps(name)}" for name in names)
    for dialect in (LARK, XGRAMMAR_EBNF):
        rules = [line.split(dialect.defines)[0] for line in rewritten(source, dialect).splitlines()]
        assert len(set(rules)) == len(names) + 1
        assert rules[0] == dialect.start and all(re.fullmatch("[a-z_][a-z0-9_]*", rule) for rule in rules)
