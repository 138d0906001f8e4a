"""What becomes of a draft where the form forbids some of it?

Three exact ways (KEEP and CUT below; a drafter that draws from the legal tokens only is the third, `filtered`). The
biased ones cannot be written: a token that is kept is verified with the law it was drawn from, a draft that ends at an
illegal token is verified with laws restricted to the legal ones. For p' = (.2, .8, 0) and q = (.5, .1, .4), a draft cut
at its illegal token and verified with q itself would give (.28, .72). Always true: nothing follows an illegal token or
an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.forms import IllegalDrafts
from specinfer.protocols import FormRows
from specinfer.structured.bitmask import members
from specinfer.types import Draft


@dataclass(frozen=True, slots=True)
class DraftCensus:
    """What the form says of a draft as it was proposed, a value a token that a legal path leads to."""

    states: list[str]
    """What the token is a part of"""
    legal_mass: list[float]
    """How much of the law it was drawn from is legal"""


def census(draft: Draft, rows: FormRows) -> DraftCensus:
    """Count a draft's tokens before anything is done to it."""
    nodes = _reachable(draft, rows)
    return DraftCensus(
        [rows.states[draft.parent(node) + 1] for node in nodes],
        [_legal_mass(draft, rows, node) for node in nodes],
    )


def fitted(draft: Draft, rows: FormRows, policy: IllegalDrafts) -> Draft | None:
    """The draft that is verified, None where nothing of it is left."""
    is_kept = policy is IllegalDrafts.KEEP and draft.probs is not None
    nodes = [node for node in _reachable(draft, rows) if rows.is_legal[node] or is_kept]
    if not nodes:
        return None
    probs = None if draft.probs is None else draft.probs[nodes]
    if probs is not None and policy is IllegalDrafts.CUT:
        probs = _restricted(probs, rows, [draft.parent(node) + 1 for node in nodes])
    if len(nodes) == len(draft.token_ids):
        return Draft(draft.token_ids, probs, draft.provenance, draft.parents)
    place = {node: index for index, node in enumerate(nodes)} | {-1: -1}
    return Draft(
        [draft.token_ids[node] for node in nodes],
        probs,
        None if draft.provenance is None else [draft.provenance[node] for node in nodes],
        None if draft.parents is None else [place[draft.parents[node]] for node in nodes],
    )


def _reachable(draft: Draft, rows: FormRows) -> list[int]:
    """The nodes behind the committed tokens or behind legal ones that are no end."""
    return [
        node
        for node in range(len(draft.token_ids))
        if draft.parent(node) < 0 or (rows.is_legal[draft.parent(node)] and rows.bitmask[draft.parent(node) + 1].any())
    ]


def _legal_mass(draft: Draft, rows: FormRows, node: int) -> float:
    if draft.probs is None:
        return float(rows.is_legal[node])
    return float(draft.probs[node][_legal(rows, draft.parent(node) + 1, draft.probs)].sum())


def _restricted(probs: Tensor, rows: FormRows, parents: Sequence[int]) -> Tensor:
    """q' = q over the legal tokens, renormalised; [num_nodes, vocab_size]."""
    restricted = torch.stack([law * _legal(rows, row, probs) for law, row in zip(probs, parents, strict=True)])
    return restricted / restricted.sum(dim=-1, keepdim=True)


def _legal(rows: FormRows, row: int, like: Tensor) -> Tensor:
    """bool [vocab_size]"""
    legal = torch.zeros(like.shape[-1], dtype=torch.bool)
    found = torch.from_numpy(members(rows.bitmask[row]))[: len(legal)]
    legal[: len(found)] = found
    return legal.to(like.device)
