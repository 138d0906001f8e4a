"""Is what a proposer returned a draft at all?

Always true: a draft that passes can be verified: ids in the vocabulary, no more than were asked for, q a law that each
token could have been drawn from, parents that form a tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specinfer.errors import PluginError
from specinfer.types import Draft


def checked_draft(draft: Draft, length: int, vocab_size: int) -> Draft:
    """The draft in plain integers and normalised laws, a chain without `parents`; PluginError where it is none."""
    token_ids = _checked_ids(draft.token_ids, length, vocab_size)
    if draft.provenance is not None and len(draft.provenance) != len(token_ids):
        raise PluginError(f"provenance has {len(draft.provenance)} entries for {len(token_ids)} tokens")
    return Draft(
        token_ids,
        None if draft.probs is None else _checked_probs(token_ids, draft.probs, vocab_size),
        draft.provenance,
        None if draft.parents is None else _checked_parents(draft.parents, len(token_ids)),
    )


def _checked_parents(parents: Sequence[int], num_tokens: int) -> list[int] | None:
    """The parents as plain integers, None for those of a chain; PluginError unless each comes before its children."""
    if len(parents) != num_tokens:
        raise PluginError(f"parents has {len(parents)} entries for {num_tokens} tokens")
    checked = [int(parent) for parent in parents]
    for node, parent in enumerate(checked):
        if not -1 <= parent < node:
            raise PluginError(
                f"parents {checked}: node {node} follows {parent}; a parent is an earlier node, or -1 for the last "
                f"committed token"
            )
    return None if checked == list(range(-1, num_tokens - 1)) else checked


def _checked_ids(token_ids: Sequence[int], length: int, vocab_size: int) -> list[int]:
    """The ids as plain integers; PluginError for more than were asked for or one outside the vocabulary."""
    if len(token_ids) > length:
        raise PluginError(f"{len(token_ids)} draft tokens where at most {length} were asked for")
    ids = np.asarray(token_ids)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise PluginError(f"draft token ids must be a flat list of integers, got {token_ids!r}")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise PluginError(f"draft token ids {ids.tolist()} leave the vocabulary 0..{vocab_size - 1}")
    return [int(i) for i in ids]


def _checked_probs(token_ids: Sequence[int], probs: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """q with rows that sum to 1; PluginError unless each is a law that its token could have been drawn from.

    A draw from weights follows their normalised law, so that is the q to verify with: rounding in a drafter's sum
    would otherwise bias the output.
    """
    if tuple(probs.shape) != (len(token_ids), vocab_size):
        raise PluginError(f"draft probs have shape {tuple(probs.shape)}, expected {(len(token_ids), vocab_size)}")
    if not bool(torch.isfinite(probs).all()) or bool((probs < 0).any()):
        raise PluginError("draft probs hold a NaN, infinite or negative value")
    sums = probs.sum(dim=-1, keepdim=True, dtype=torch.float64)
    if bool((sums - 1).abs().max() > 1e-3):
        raise PluginError(f"draft probs must sum to 1 at every row, got {sums[:, 0].tolist()}")
    drawn = probs[torch.arange(len(token_ids)), torch.as_tensor(token_ids, device=probs.device)]
    if bool((drawn <= 0).any()):
        raise PluginError(f"a draft token has q = 0 under the law it came with: {drawn.tolist()}")
    return (probs / sums).to(probs.dtype)
