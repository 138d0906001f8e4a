"""How do scheduled rows become one flat forward?

Always true: row s's tokens are its request's committed tokens from `start`, then its drafts, at consecutive positions;
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
from specinfer.kernels.metadata import ForwardBatch


@dataclass(slots=True)
class LogitsSpan:
    """Where one scheduled row's logits lie in the forward's output."""

    prompt_start: int
    """First logits row that predicts a prompt token."""
    sampled_start: int
    """First logits row that predicts a new token; rows before it, from `prompt_start`, are for prompt logprobs."""
    end: int


def build_batch(
    rows: Sequence[ScheduledRow], block_size: int, device: torch.device
) -> tuple[ForwardBatch, list[LogitsSpan]]:
    """Flatten rows into one input, and say whose logits come where."""
    token_ids: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    slots: list[NDArray[np.int64]] = []
    logits_rows: list[NDArray[np.int64]] = []
    spans: list[LogitsSpan] = []
    offset = num_logits = 0
    for row in rows:
        row_positions = np.arange(row.start, row.start + row.num_scheduled_tokens)
        token_ids.append(_row_token_ids(row))
        positions.append(row_positions)
        table = np.array(row.request.block_ids, dtype=np.int64)
        slots.append(table[row_positions // block_size] * block_size + row_positions % block_size)

        num_sampled = 1 + row.num_drafts if row.is_sampled else 0
        num_prompt = _num_prompt_logits(row)
        sampled = np.arange(row.num_scheduled_tokens - num_sampled, row.num_scheduled_tokens)
        logits_rows += [offset + np.arange(num_prompt), offset + sampled]
        spans.append(LogitsSpan(num_logits, num_logits + num_prompt, num_logits + num_prompt + num_sampled))
        num_logits += num_prompt + num_sampled
        offset += row.num_scheduled_tokens

    def tensor(parts: list[NDArray[np.int64]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device, non_blocking=True)

    batch = ForwardBatch(
        token_ids=tensor(token_ids),
        positions=tensor(positions),
        slot_mapping=tensor(slots),
        logits_rows=tensor(logits_rows),
        query_lens=[row.num_scheduled_tokens for row in rows],
        context_lens=[row.start + row.num_scheduled_tokens for row in rows],
        block_tables=[row.request.block_ids for row in rows],
        block_size=block_size,
    )
    return batch, spans


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
