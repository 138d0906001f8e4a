"""Does a matcher say of a whole draft, and of forced text, what walking would say?

Always true: each check is a function of a trial that returns a note, or fails with the form and the draft.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from specinfer.protocols import Bitmask, GrammarMatcher
from specinfer.testing.grammar_forms import Form
from specinfer.testing.grammar_walks import GARBAGE, Trial, advance, legal_at, place_at, row_at, take_path

DRAFTS_A_PLACE = 4
WALK = 6
"""Tokens that a random continuation of forced text takes at most"""


def fill_draft_is_walking(trial: Trial) -> str:
    """Chains and trees; rows behind illegal nodes stay as they were, and so does the place."""
    for form, matcher, token_ids in trial.walks():
        fill_draft = getattr(matcher, "fill_draft", None)
        if fill_draft is None:
            return "it has no fill_draft"
        rng = random.Random(len(token_ids))
        for token_id in (*token_ids, None):
            before = place_at(form, matcher)
            for _ in range(DRAFTS_A_PLACE):
                draft, parents = _draft(form, matcher, rng)
                bitmask = np.full((len(draft) + 1, form.tokens.num_words), GARBAGE)
                is_legal = fill_draft(draft, parents, bitmask)
                assert place_at(form, matcher) == before, f"{form.spec.source!r}, draft {draft}: the place moved"
                _compare(form, matcher, _paths(draft, parents), bitmask, is_legal)
            advance(form, matcher, [] if token_id is None else [token_id])
    return ""


def forced_bytes_begin_every_continuation(trial: Trial) -> str:
    """As far as tokens go on, and asking leaves the place as it was."""
    num_forced = 0
    for form, matcher, token_ids in trial.walks():
        forced_bytes = getattr(matcher, "forced_bytes", None)
        if forced_bytes is None:
            return "it has no forced_bytes"
        rng = random.Random(len(token_ids))
        for token_id in (*token_ids, None):
            before = place_at(form, matcher)
            forced = forced_bytes()
            assert place_at(form, matcher) == before, f"{form.spec.source!r}: asking for forced bytes moved it"
            if forced:
                num_forced += 1
                told = f"{form.spec.source!r} forces {forced!r}"
                assert not before.is_accepting, f"{told} where the text may end"
                _compare_forced(form, matcher, forced, rng, told)
            advance(form, matcher, [] if token_id is None else [token_id])
    return "" if num_forced else "nothing was ever forced"


def _draft(form: Form, matcher: GrammarMatcher, rng: random.Random) -> tuple[list[int], list[int] | None]:
    """A chain or tree from here, some of it illegal, special or unknown (-1)."""
    is_chain = rng.random() < 0.4
    token_ids: list[int] = []
    parents: list[int] = []
    for node in range(rng.randrange(1, 9)):
        parents.append(node - 1 if is_chain else rng.randrange(-1, node))
        path = _paths([*token_ids, -1], parents)[node][:-1]
        num_taken = take_path(form, matcher, path)
        legal = legal_at(form, matcher) if num_taken == len(path) else []
        matcher.rollback(num_taken)
        is_wild = not legal or rng.random() < 0.25
        token_ids.append(rng.randrange(-1, form.tokens.vocab_size) if is_wild else rng.choice(legal))
    return token_ids, None if is_chain else parents


def _paths(draft: Sequence[int], parents: Sequence[int] | None) -> list[list[int]]:
    """The tokens up to each node, itself included."""
    paths: list[list[int]] = []
    for node, token_id in enumerate(draft):
        parent = node - 1 if parents is None else parents[node]
        paths.append([*(paths[parent] if parent >= 0 else []), token_id])
    return paths


def _compare(
    form: Form,
    matcher: GrammarMatcher,
    paths: Sequence[Sequence[int]],
    bitmask: Bitmask,
    is_legal: Sequence[bool],
) -> None:
    told = f"{form.spec.source!r}, draft with the paths {paths}"
    assert np.array_equal(bitmask[0] & form.tokens.usable, row_at(form, matcher)), f"{told}: row 0"
    assert len(is_legal) == len(paths), f"{told}: {len(is_legal)} verdicts"
    for node, path in enumerate(paths):
        num_taken = take_path(form, matcher, path)
        is_reached = num_taken == len(path)
        wanted = row_at(form, matcher)
        matcher.rollback(num_taken)
        assert is_legal[node] == is_reached, f"{told}: node {node} legal? {is_legal[node]}"
        if is_reached:
            assert np.array_equal(bitmask[node + 1] & form.tokens.usable, wanted), f"{told}: the row behind node {node}"
        else:
            assert (bitmask[node + 1] == GARBAGE).all(), f"{told}: the row behind illegal node {node} was written"


def _compare_forced(form: Form, matcher: GrammarMatcher, forced: bytes, rng: random.Random, told: str) -> None:
    """Every legal token, and some walk behind each, keeps to the forced bytes."""
    texts = form.tokens.token_bytes
    for first in legal_at(form, matcher):
        text, num_taken = b"", 0
        token_id: int | None = first
        while token_id is not None and num_taken < WALK:
            assert matcher.accept(token_id), f"{told}, but the legal {texts[token_id]!r} is not taken"
            text += texts[token_id]
            num_taken += 1
            token_id = rng.choice(legal_at(form, matcher) or [None])
        matcher.rollback(num_taken)
        assert text.startswith(forced[: len(text)]), f"{told}, but {text!r} is legal"
