"""A portable pattern has the language of `re.fullmatch(pattern, text, re.ASCII)`, or is refused by name."""

from __future__ import annotations

import itertools
import re
import warnings
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specinfer import registry
from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.patterns import portable
from specinfer.testing.grammar_forms import VOCABULARIES

LETTERS = ["".join(word) for n in range(5) for word in itertools.product("ab", repeat=n)]
CHARS = [*"\t\n\x0b\r\x1f !-/09:AZ[\\]^_`az{|}~\x7f\x85\xa0éß\u0660\u2028\ud7ff\ue000\U0001f600\U0010ffff", "\x00"]


def language(pattern: str, texts: list[str], *, flags: int = 0) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a later Python may read otherwise
        compiled = re.compile(pattern, flags)
    return [text for text in texts if compiled.fullmatch(text)]


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[^ab]", r"\w", r"\W", "(?:)", "[^\n]", r"\x61"])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{0,2}", "{,2}", "{1,2}?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(st.sampled_from(["(", "(?:", "(?P<n>"]), inner).map(lambda p: "".join(p) + ")"),
        st.tuples(inner, repeats).map(lambda p: f"(?:{p[0]}){p[1]}"),
        st.tuples(ATOMS, repeats).map("".join),
        inner.map(lambda p: f"^(?:{p})$"),
    )


PATTERNS = st.recursive(ATOMS, _extended, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(PATTERNS)
def test_the_language_is_that_of_a_full_match_on_every_short_text(pattern: str) -> None:
    try:
        wanted = language(pattern, LETTERS, flags=re.ASCII)
        found = portable(pattern)
    except (GrammarError, re.error):
        return
    assert language(found, LETTERS) == wanted, f"{pattern!r} became {found!r}"


ONE_CHARACTER = [
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", r"[\s\S]", r"[^\d]", r"[\W\d]", r"[^\W_]", r"[^\s\S]|a",
    "[a-z]", "[^a-z]", "[]a]", "[^]]", "[-a]", "[a-]", r"[\]\\^-]", r"[\^a]", r"[^\^a]",
    r"[\^-b]", r"[\^]", r"[\^\x00]", r"\-", r"\.", r"\/", "/", "[/]", r"\\",
    r"\t", r"\n", r"\r", r"\v", r"\x00", r"\x1f", "\x1f", "[\x00-\x1f]", r"[^\x00]", r"[\x00a]", "é", "[ß-é]", "[^é]",
    "\U0001f600", r"\U0001f600", "[\ud7fe-\ue001]", r"[\ud7fe-\ue001]", r"[^\ud800]", r"[^\ud800-\udfff]",
    r"[\x7f-\U0010ffff]", "(?x) a # a letter", "(?a)\\w", "(?s:a)|(?-i:b)", "{", "a|}", "[{}]", "[|]", "[$]", r"\$",
]  # fmt: skip


def _is_readable(pattern: str) -> bool:
    try:
        portable(pattern)
    except GrammarError:
        return False
    return True


REFUSED = ["(?s:a)|(?-i:b)", r"[^\s\S]|a"]
"""Of these: a flag, and a class without a character"""


@pytest.mark.parametrize("pattern", ONE_CHARACTER, ids=ascii)
def test_each_way_to_write_a_character_means_what_it_means_to_re(pattern: str) -> None:
    if pattern in REFUSED:
        assert not _is_readable(pattern)
        return
    assert language(portable(pattern), CHARS) == language(pattern, CHARS, flags=re.ASCII)


@cache
def backend(name: str) -> Any:
    made = registry.build("grammars", name)
    made.bind(VOCABULARIES["bytes"])
    return made


def matches(matcher: Any, text: str) -> bool:
    """Whether the bytes are taken one by one and the text is whole; the matcher is at the start again."""
    data = text.encode()
    taken = next((n for n, byte in enumerate(data) if not matcher.accept(byte)), len(data))
    is_match = taken == len(data) and bool(matcher.is_accepting)
    matcher.rollback(taken)
    return is_match


@pytest.mark.parametrize("pattern", [p for p in ONE_CHARACTER if p not in REFUSED], ids=ascii)
@pytest.mark.parametrize("name", registry.names("grammars"))
def test_every_backend_reads_each_way_alike(name: str, pattern: str) -> None:
    made = backend(name)
    matcher = made.load(made.compile(GrammarSpec(GrammarKind.REGEX, pattern))).matcher()
    chars = [char for char in CHARS if char != "\x00"]  # outlines marks the end of a text with it
    assert [c for c in ["", *chars] if matches(matcher, c)] == language(pattern, ["", *chars], flags=re.ASCII)


LONGER = [
    "a|ab", "ab|a", "(?:a|ab)(?:b|)", "", "(?:)", "a??b", "(?:a*)*", "(?:a?){2,3}", "a{0}b", "(a|b)*?a", "^a$|^b",
    "(?:ab){,1}", "(?:(?:a|)b)+", "[^b]{2}", r"\Aa\Z", "((((a))))", "(?P<x>a)b?",
]  # fmt: skip


@pytest.mark.parametrize("pattern", LONGER)
@pytest.mark.parametrize("name", registry.names("grammars"))
def test_every_backend_has_the_language_of_re_on_every_short_text(name: str, pattern: str) -> None:
    made = backend(name)
    matcher = made.load(made.compile(GrammarSpec(GrammarKind.REGEX, pattern))).matcher()
    assert [text for text in LETTERS if matches(matcher, text)] == language(pattern, LETTERS, flags=re.ASCII)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(", "mend it"),
        ("*a", "mend it"),
        ("[b-a]", "mend it"),
        ("a{2,1}", "mend it"),
        ("a(?=b)", "look-around"),
        ("a(?!b)", "look-around"),
        ("(?<=a)b", "look-around"),
        (r"(a)\1", "back-reference"),
        ("(?P<n>a)(?P=n)", "back-reference"),
        ("(a)?(?(1)b|c)", "conditional"),
        ("(?>a)b", "atomic"),
        ("a*+b", "possessive"),
        ("a{1,3}+b", "possessive"),
        (r"a\b", "word boundaries"),
        (r"\Ba", "word boundaries"),
        ("a$b", "an anchor stands inside"),
        ("a^b", "an anchor stands inside"),
        ("(?:a$)*", "an anchor stands inside"),
        (r"a$\n", "an anchor stands inside"),
        ("(?i)a", "flags"),
        ("(?i:a)", "flags"),
        ("(?m)^a", "flags"),
        ("(?s).", "flags"),
        ("(?-i:a)", "flags"),
        (r"[^\s\S]", "matches no character"),
        (r"\ud800", "matches no character"),
        (r"a[\ud800-\udfff]", "matches no character"),
        ("a\ud800", "surrogate"),
        ("a{99999999999999999999}", "bound is too large"),
        ("(" * 3000 + ")" * 3000, "nested too deeply"),
    ],
    ids=ascii,
)
def test_what_is_wrong_or_not_regular_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason) as caught:
        portable(pattern)
    message = str(caught.value)
    assert message.startswith("the regex ") and len(message.splitlines()) == 1 and len(message) < 300
