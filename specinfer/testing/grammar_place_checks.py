"""Does a matcher keep its protocol at every place of its forms?

Always true: each check is a function of a trial that returns a note, or fails with the form and the place.
"""

from __future__ import annotations

import itertools
import random
import re

import numpy as np

from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.bitmask import has_bit
from specinfer.testing.grammar_forms import DEAD_END, REGEXES, Form, cut
from specinfer.testing.grammar_walks import GARBAGE, Trial, advance, legal_at, place_at, row_at, usable_ids


def a_row_is_what_accept_takes(trial: Trial) -> str:
    """Bit by bit, at every place of every walk."""
    for form, matcher, token_ids in trial.walks():
        for behind in range(len(token_ids) + 1):
            row = row_at(form, matcher)
            for token_id in usable_ids(form):
                is_taken = matcher.accept(token_id)
                if is_taken:
                    matcher.rollback(1)
                told = f"behind {behind} of {token_ids} in {form.spec.source!r}: {form.tokens.token_bytes[token_id]!r}"
                assert is_taken == has_bit(row, token_id), (
                    f"{told} is {'' if is_taken else 'not '}taken against its bit"
                )
            advance(form, matcher, token_ids[behind : behind + 1])
    return ""


def rolling_back_restores_every_earlier_place(trial: Trial) -> str:
    """From n tokens back over every k, and forward again."""
    for form, matcher, token_ids in trial.walks():
        places = [place_at(form, matcher)]
        for token_id in token_ids:
            advance(form, matcher, [token_id])
            places.append(place_at(form, matcher))
        for num_back in range(len(token_ids) + 1):
            matcher.rollback(num_back)
            start = len(token_ids) - num_back
            told = f"{form.spec.source!r}: {num_back} of {token_ids} taken back"
            assert place_at(form, matcher) == places[start], f"{told} is not the place before them"
            for behind, token_id in enumerate(token_ids[start:], start=start + 1):
                advance(form, matcher, [token_id])
                assert place_at(form, matcher) == places[behind], f"{told} and forth is another place"
    return ""


def a_rejected_token_changes_nothing(trial: Trial) -> str:
    """Also where several are rejected one after the other, and what follows them is legal."""
    for form, matcher, token_ids in trial.walks():
        for token_id in (*token_ids, None):
            before, legal = place_at(form, matcher), set(legal_at(form, matcher))
            for illegal in [other for other in usable_ids(form) if other not in legal][:20]:
                assert not matcher.accept(illegal), f"{form.spec.source!r} takes an illegal token {illegal}"
            assert place_at(form, matcher) == before, f"{form.spec.source!r}: a rejected token moved it"
            advance(form, matcher, [] if token_id is None else [token_id])
    return ""


def a_row_is_written_whole_and_no_other(trial: Trial) -> str:
    """Over garbage."""
    for form, matcher, token_ids in trial.walks():
        for token_id in (*token_ids, None):
            wanted = row_at(form, matcher)
            for garbage in (np.int32(0), np.int32(-1), ~GARBAGE):
                bitmask = np.full((3, form.tokens.num_words), garbage)
                matcher.fill_row(bitmask, 1)
                assert np.array_equal(bitmask[1] & form.tokens.usable, wanted), "a row keeps bits from before"
                assert (bitmask[[0, 2]] == garbage).all(), "other rows were written"
            advance(form, matcher, [] if token_id is None else [token_id])
    return ""


def a_text_may_end_where_it_is_whole(trial: Trial) -> str:
    """And nothing can come behind one that is final."""
    for form, grammar in trial.forms():
        for text in (*form.whole, *form.parts, *form.final):
            matcher = grammar.matcher()
            advance(form, matcher, cut(text, form.tokens, random.Random(0)))
            is_whole = text not in form.parts
            assert matcher.is_accepting == is_whole, f"{form.spec.source!r}: {text!r} whole? {matcher.is_accepting}"
            assert not (text in form.final and legal_at(form, matcher)), f"{form.spec.source!r} goes on behind {text!r}"
            assert is_whole or legal_at(form, matcher), f"{form.spec.source!r} cannot go on behind {text!r}"
    return ""


def rows_are_those_of_re(trial: Trial) -> str:
    """On letters, against all words up to a length."""
    if GrammarKind.REGEX not in trial.backend("letters").kinds:
        return "it compiles no regular expressions"
    words = ["".join(w) for n in range(8) for w in itertools.product("abcd", repeat=n)]
    for regex in REGEXES:
        form = Form(GrammarSpec(GrammarKind.REGEX, regex), "letters")
        begun = {word[:n] for word in words if re.fullmatch(regex, word) for n in range(len(word) + 1)}
        texts = [text.decode() for text in form.tokens.token_bytes]
        for start in sorted(word for word in begun if len(word) <= 3):
            matcher = trial.grammar(form.spec, form.vocabulary).matcher()
            advance(form, matcher, cut(start, form.tokens, random.Random(start)))
            wanted = [i for i, text in enumerate(texts) if text and start + text in begun]
            assert legal_at(form, matcher) == wanted, (
                f"{regex!r} behind {start!r}: {legal_at(form, matcher)} != {wanted}"
            )
            assert matcher.is_accepting == bool(re.fullmatch(regex, start)), f"{regex!r}: {start!r} whole or not"
    return ""


def a_dead_end_is_an_empty_row(trial: Trial) -> str:
    """No error, and the way back is open."""
    form = DEAD_END
    if form.spec.kind not in trial.backend(form.vocabulary).kinds:
        return "it compiles no regular expressions"
    matcher = trial.grammar(form.spec, form.vocabulary).matcher()
    texts = form.tokens.token_bytes
    advance(form, matcher, [texts.index(b"a")])
    for _ in range(2):
        assert not legal_at(form, matcher) and not matcher.is_accepting, "something is legal where nothing can come"
    assert not matcher.accept(texts.index(b"c")), "it takes a token where nothing can come"
    matcher.rollback(1)
    advance(form, matcher, [texts.index(b"b"), texts.index(b"c")])
    assert matcher.is_accepting
    return ""
