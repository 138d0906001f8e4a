"""How do scheduled rows become one flat forward?

Always true: row s's tokens are its request's committed tokens from `start`, then its drafts, in consecutive slots;
positions are consecutive too, but for a draft tree, where siblings share one;
each sampled row asks for 1 + num_drafts logits rows, its last ones; a row that wants prompt logprobs asks for the rows
of its prompt tokens before those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from specinfer.engine.scheduler import ScheduledRow
from specinfer.kernels.metadata import ForwardBatch, TreeMask
from specinfer.kernels.rows import Stretch, flat_batch, tree_mask


@dataclass(slots=True)
class LogitsSpan:
    """Where one scheduled row's logits lie in the forward's output."""

    prompt_start: int
    """First logits row that predicts a prompt token."""
    sampled_start: int
    """First logits row that predicts a new token; rows before it, from `prompt_start`, are for prompt logprobs."""
    end: int


def build_batch(
    rows: Sequence[ScheduledRow], block_size: int, device: torch.device, hidden_points: tuple[int, ...] = ()
) -> tuple[ForwardBatch, list[LogitsSpan]]:
    """Flatten rows into one input, and say whose logits come where."""
    stretches: list[Stretch] = []
    spans: list[LogitsSpan] = []
    num_logits = 0
    for row in rows:
        num_sampled = 1 + row.num_drafts if row.is_sampled else 0
        num_prompt = _num_prompt_logits(row)
        sampled = range(row.num_scheduled_tokens - num_sampled, row.num_scheduled_tokens)
        positions = _positions(row)
        stretches.append(
            Stretch(
                token_ids=_row_token_ids(row),
                start=row.start,
                block_ids=row.request.block_ids,
                logits=[*range(num_prompt), *sampled],
                positions=positions,
                tree=None if positions is None else _tree(row, positions, device),
            )
        )
        spans.append(LogitsSpan(num_logits, num_logits + num_prompt, num_logits + num_prompt + num_sampled))
        num_logits += num_prompt + num_sampled
    return flat_batch(stretches, block_size, device, hidden_points), spans


def _positions(row: ScheduledRow) -> NDArray[np.int64] | None:
    """Positions of a row whose draft branches; siblings share theirs."""
    if row.draft is None or row.draft.parents is None:
        return None
    depths = np.array(row.draft.depths(), dtype=np.int64)
    return np.concatenate([np.arange(row.start, row.request.num_tokens), row.request.num_tokens + depths])


def _tree(row: ScheduledRow, positions: NDArray[np.int64], device: torch.device) -> TreeMask:
    """The row's own tokens as a tree: the committed ones a chain, the draft's nodes behind the last of them."""
    assert row.draft is not None
    num_committed = row.num_scheduled_tokens - row.num_drafts
    parents = [*range(-1, num_committed - 1), *(num_committed + row.draft.parent(i) for i in range(row.num_drafts))]
    return tree_mask(parents, positions.tolist(), len(parents), device)


def _row_token_ids(row: ScheduledRow) -> NDArray[np.int64]:
    committed = row.request.token_ids[row.start : row.start + row.num_scheduled_tokens]
    if row.draft is None:
        return committed
    return np.concatenate([committed, np.asarray(row.draft.token_ids, dtype=np.int64)])


def _num_prompt_logits(row: ScheduledRow) -> int:
    """How many of the row's first tokens precede a prompt token whose logprob is wanted; 0 when all are known."""
    request = row.request
    if request.params.prompt_logprobs is None:
        return 0
    end = min(row.start + row.num_scheduled_tokens, request.num_prompt_tokens - 1)
    is_missing = end >= request.text.num_prompt_logprobs  # entry i is the logprob of prompt token i, given those before
    return max(0, end - row.start) if is_missing else 0
