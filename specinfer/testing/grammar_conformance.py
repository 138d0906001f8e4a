"""Does a grammar backend keep its protocol?

    python -m specinfer.testing grammars mypackage.mine:MyBackend     # from a shell
    specinfer.testing.check("grammars", MyBackend)                    # from a test

Always true: what is checked is seen through the protocol alone; a check that could show nothing (the backend offers no
such method, or compiles no such form) says so in its result.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.testing.grammar_draft_checks import fill_draft_is_walking, forced_bytes_begin_every_continuation
from specinfer.testing.grammar_forms import FORMS, SPACED, WRONG_SOURCES, Form
from specinfer.testing.grammar_place_checks import (
    a_dead_end_is_an_empty_row,
    a_rejected_token_changes_nothing,
    a_row_is_what_accept_takes,
    a_row_is_written_whole_and_no_other,
    a_text_may_end_where_it_is_whole,
    rolling_back_restores_every_earlier_place,
    rows_are_those_of_re,
)
from specinfer.testing.grammar_walks import Make, Place, Trial, advance, place_at


def matchers_of_one_grammar_are_independent(trial: Trial) -> str:
    """Two at a time, one behind the other."""
    for form, matcher, token_ids in trial.walks():
        alone = _places(form, trial, token_ids)
        other = trial.grammar(form.spec, form.vocabulary).matcher()
        for behind, token_id in enumerate(token_ids):
            advance(form, matcher, [token_id])
            told = f"{form.spec.source!r}: a matcher moves another one"
            assert place_at(form, other) == alone[behind], told
            assert place_at(form, matcher) == alone[behind + 1], told
            advance(form, other, [token_id])
    return ""


def threads_get_what_one_gets(trial: Trial) -> str:
    """Compiling, loading and walking at once, with matchers of the same grammars."""
    walks = [(form, token_ids) for form, _, token_ids in trial.walks()]
    wanted = [_places(form, trial, token_ids) for form, token_ids in walks]
    shared = Trial(trial.make)
    for name in {form.vocabulary for form in FORMS}:
        shared.backend(name)
    errors: list[str] = []

    def run(seed: int) -> None:
        order = random.Random(seed).sample(range(len(walks)), len(walks))
        try:
            for index in order:
                form, token_ids = walks[index]
                backend = shared.backend(form.vocabulary)
                for grammar in (trial.grammar(form.spec, form.vocabulary), backend.load(backend.compile(form.spec))):
                    matcher, places = grammar.matcher(), []
                    for behind in range(len(token_ids) + 1):
                        places.append(place_at(form, matcher))
                        advance(form, matcher, token_ids[behind : behind + 1])
                    assert places == wanted[index], f"{form.spec.source!r}: other rows than alone"
        except BaseException as error:  # whatever it is belongs in the result
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    return ""


def wrong_sources_are_refused(trial: Trial) -> str:
    """By a GrammarError of one line, and kinds that it does not compile are too."""
    backend = trial.backend("pieces")
    foreign = [form.spec for form in FORMS if form.spec.kind not in backend.kinds]
    for spec in (*WRONG_SOURCES, *foreign):
        told = f"the {spec.kind.value} {spec.source[:60]!r}"
        try:
            backend.compile(spec)
        except GrammarError as error:
            assert len(str(error).splitlines()) == 1, f"{told} is refused in several lines: {error}"
        except BaseException as error:  # a library in Rust raises panics that are no Exception
            raise AssertionError(f"{told} raises {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{told} is compiled")
    return ""


def a_payload_loads_in_another_instance(trial: Trial) -> str:
    """As it does behind a process that only compiles."""
    for form, _, token_ids in trial.walks():
        payload = trial.backend(form.vocabulary).compile(form.spec)
        assert isinstance(payload, bytes), f"a payload is {type(payload).__name__}"
        elsewhere = trial.bind(form.vocabulary).load(payload)
        assert elsewhere.num_bytes > 0, "a grammar tells no size"
        matcher, places = elsewhere.matcher(), _places(form, trial, token_ids)
        for behind in range(len(token_ids) + 1):
            assert place_at(form, matcher) == places[behind], f"{form.spec.source!r}: other rows in another instance"
            advance(form, matcher, token_ids[behind : behind + 1])
    return ""


def whitespace_is_bounded(trial: Trial) -> str:
    """None, one or two characters where JSON allows any."""
    if GrammarKind.JSON_SCHEMA not in trial.backend("bytes").kinds:
        return "it compiles no JSON schemas"
    for max_whitespace in range(3):
        spec = GrammarSpec(GrammarKind.JSON_SCHEMA, SPACED.source, max_whitespace)
        matcher = trial.grammar(spec, "bytes").matcher()
        found = []
        for part in (b"{", b'"a"', b":", b"null", b"}"):
            assert all(matcher.accept(byte) for byte in part), f"{part!r} is refused with {max_whitespace}"
            found.append(0)
            while found[-1] <= 9 and any(matcher.accept(byte) for byte in b" \n\t\r"):
                found[-1] += 1
        told = f"max_whitespace {max_whitespace}, but there were {found} behind the parts of {SPACED.source!r}"
        assert max(found) == max_whitespace == found[0], told
    return ""


def _places(form: Form, trial: Trial, token_ids: list[int]) -> list[Place]:
    """The places of a matcher that walks alone."""
    matcher, places = trial.grammar(form.spec, form.vocabulary).matcher(), []
    for behind in range(len(token_ids) + 1):
        places.append(place_at(form, matcher))
        advance(form, matcher, token_ids[behind : behind + 1])
    return places


CHECKS: tuple[Callable[[Trial], str], ...] = (
    a_row_is_what_accept_takes,
    rows_are_those_of_re,
    a_row_is_written_whole_and_no_other,
    rolling_back_restores_every_earlier_place,
    a_rejected_token_changes_nothing,
    a_text_may_end_where_it_is_whole,
    a_dead_end_is_an_empty_row,
    fill_draft_is_walking,
    forced_bytes_begin_every_continuation,
    matchers_of_one_grammar_are_independent,
    threads_get_what_one_gets,
    wrong_sources_are_refused,
    a_payload_loads_in_another_instance,
    whitespace_is_bounded,
)


def grammar_checks(make: Make) -> dict[str, Callable[[], str]]:
    """The checks of a backend by name; each returns a note or raises."""
    trial = Trial(make)
    return {check.__name__: partial(check, trial) for check in CHECKS}
