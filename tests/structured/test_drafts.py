"""What is verified of a draft with illegal tokens keeps the target's law; the tempting ways do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specinfer.forms import IllegalDrafts
from specinfer.protocols import FormRows
from specinfer.structured.bitmask import row_of
from specinfer.structured.drafts import census, fitted
from specinfer.types import Draft

P = torch.tensor([0.2, 0.8, 0.0], dtype=torch.float64)
Q = torch.tensor([0.5, 0.1, 0.4], dtype=torch.float64)
LEGAL = row_of([0, 1], 1)


def rows_of(draft: Draft) -> FormRows:
    legal = [token != 2 for token in draft.token_ids]
    bitmask = np.stack([LEGAL, *(LEGAL if ok else row_of([], 1) for ok in legal)])
    return FormRows(bitmask, legal, ["text"] * len(bitmask))


def law_of(draft: Draft | None) -> Tensor:
    """What one step of speculative sampling emits, given the draft's token and its law."""
    if draft is None:
        return P
    token = draft.token_ids[0]
    q = torch.nn.functional.one_hot(torch.tensor(token), 3).double() if draft.probs is None else draft.probs[0]
    accept = min(1.0, float(P[token] / q[token]))
    residual = (P - q).clamp(min=0)
    law = (1 - accept) * residual / residual.sum() if accept < 1 else torch.zeros(3, dtype=torch.float64)
    law[token] += accept
    return law


@pytest.mark.parametrize("policy", IllegalDrafts)
def test_every_policy_gives_the_masked_law(policy: IllegalDrafts) -> None:
    total = torch.zeros(3, dtype=torch.float64)
    for token in range(3):
        draft = Draft([token], Q[None])
        total += Q[token] * law_of(fitted(draft, rows_of(draft), policy))
    torch.testing.assert_close(total, P, rtol=0, atol=1e-12)


def test_cutting_and_keeping_the_raw_law_is_the_bias_that_this_measure_finds() -> None:
    total = torch.zeros(3, dtype=torch.float64)
    for token in range(3):
        total += Q[token] * law_of(Draft([token], Q[None]) if token != 2 else None)
    assert total.tolist() == pytest.approx([0.28, 0.72, 0.0])


def test_a_deterministic_draft_is_cut_at_its_first_illegal_token() -> None:
    draft = Draft([0, 1, 2, 0], provenance=["x", "y", "z", "w"])
    rows = rows_of(draft)
    rows.is_legal[3] = False
    for policy in IllegalDrafts:
        left = fitted(draft, rows, policy)
        assert left is not None and left.token_ids == [0, 1] and left.provenance == ["x", "y"]


def test_of_a_tree_the_branches_behind_legal_tokens_stay_and_are_renumbered() -> None:
    draft = Draft([2, 0, 1, 1], parents=[-1, -1, 0, 1])
    rows = rows_of(draft)
    rows.is_legal[2] = False
    left = fitted(draft, rows, IllegalDrafts.KEEP)
    assert left is not None and left.token_ids == [0, 1] and left.parents == [-1, 0]


def test_a_sampled_tree_keeps_an_illegal_node_but_nothing_behind_it() -> None:
    draft = Draft([2, 0, 1], Q.repeat(3, 1), parents=[-1, -1, 0])
    rows = rows_of(draft)
    rows.is_legal[2] = False
    kept, cut = (fitted(draft, rows, policy) for policy in (IllegalDrafts.KEEP, IllegalDrafts.CUT))
    assert kept is not None and kept.token_ids == [2, 0] and kept.probs is not None
    assert torch.equal(kept.probs, Q.repeat(2, 1)), "a kept token comes with the law it was drawn from"
    assert cut is not None and cut.token_ids == [0] and cut.probs is not None
    assert cut.probs[0].tolist() == pytest.approx([5 / 6, 1 / 6, 0])


def test_the_census_tells_how_much_of_each_law_was_legal() -> None:
    sampled, one_hot = Draft([0, 2, 0], Q.repeat(3, 1)), Draft([0, 2, 0])
    found = census(sampled, rows_of(sampled))
    assert found.legal_mass == pytest.approx([0.6, 0.6]) and found.states == ["text", "text"]
    assert census(one_hot, rows_of(one_hot)).legal_mass == [1.0, 0.0]


def test_nothing_left_is_no_draft() -> None:
    draft = Draft([2, 0])
    assert fitted(draft, rows_of(draft), IllegalDrafts.KEEP) is None
