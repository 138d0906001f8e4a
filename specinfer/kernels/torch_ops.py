"""What is the reference of every kernel?

Torch code that runs anywhere, held to a per-token formula by the tests. Always true: a token attends to the slots of
its own request up to its own, to its ancestors only where they branch (within the sliding window, if any), and to
nothing else in the cache; rows of equal shape run as one batched call; the arrangement is made once a step and shared
by all layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specinfer.kernels.metadata import ForwardBatch, TreeMask

MAX_WINDOW_LEN = 32
"""Rows of up to so many tokens (decodes, draft windows) are padded to a common length and run together."""


def write_kv(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
    """Store each token's key and value in its slot. k: [num_tokens, num_kv_heads, key_dim], v likewise."""
    k_cache.index_copy_(0, slot_mapping, k)
    v_cache.index_copy_(0, slot_mapping, v)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    batch: ForwardBatch,
    *,
    scale: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of q over each row's own context: [num_tokens, num_heads, key_dim] -> [..., value_dim].

    K/V of the batch's own tokens must be in the cache already. sliding_window: positions a token sees, itself
    included. softcap: scores become softcap * tanh(score / softcap). sinks: [num_heads] extra logits that take part in
    the softmax and carry no value.
    """
    groups = batch.plan.get("groups")
    if groups is None:
        groups = batch.plan["groups"] = arrange(batch)
    out = q.new_empty(q.shape[0], q.shape[1], v_cache.shape[-1])
    for group in groups:
        k, v = group.read(k_cache), group.read(v_cache)
        mask = group.mask(sliding_window)
        if softcap is None and sinks is None:
            attended = _attend(group.queries(q), k, v, mask, scale)
        else:
            attended = _attend_by_formula(group.queries(q), k, v, mask, scale=scale, softcap=softcap, sinks=sinks)
        group.scatter(attended, out)
    return out


@dataclass(slots=True)
class RowGroup:
    """Rows that run as one call: query length padded to the longest, context to the longest."""

    token_index: Tensor
    """int64 [num_rows, query_len] into the flat sequence; a short row repeats its last token"""
    is_real: Tensor | None
    """bool [num_rows, query_len]: not a repetition; None when there is none"""
    slots: Tensor | slice
    """int64 [num_rows, context_len], or the slice that one contiguous table is: read without a copy"""
    positions: Tensor
    """int64 [num_rows, query_len]"""
    entries: Tensor
    """int64 [num_rows, query_len]: each query's own place in its context"""
    context_len: int
    trees: list[tuple[int, int, TreeMask]]
    """(row, context length, tree) of the rows that branch"""
    is_uniform: bool
    """Single tokens that all see the whole padded context: no mask is needed"""
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)

    def read(self, cache: Tensor) -> Tensor:
        """[num_rows, num_kv_heads, context_len, dim] of a cache [num_slots, num_kv_heads, dim]."""
        if isinstance(self.slots, slice):
            return cache[self.slots].transpose(0, 1)[None]
        gathered = cache.index_select(0, self.slots.flatten())
        return gathered.view(*self.slots.shape, *cache.shape[1:]).transpose(1, 2)

    def queries(self, q: Tensor) -> Tensor:
        """[num_rows, num_heads, query_len, dim]."""
        return q[self.token_index].transpose(1, 2)

    def scatter(self, attended: Tensor, out: Tensor) -> None:
        """Write [num_rows, num_heads, query_len, dim] to the tokens' places."""
        values = attended.transpose(1, 2)
        if self.is_real is None:
            out[self.token_index] = values
        else:
            out[self.token_index[self.is_real]] = values[self.is_real]

    def mask(self, sliding_window: int | None) -> Tensor | None:
        """bool [num_rows, 1, query_len, context_len], True where a query may look; None for everywhere."""
        if sliding_window not in self.masks:
            self.masks[sliding_window] = self._make_mask(sliding_window)
        return self.masks[sliding_window]

    def _make_mask(self, sliding_window: int | None) -> Tensor | None:
        if sliding_window is None or sliding_window >= self.context_len:
            sliding_window = None
        if self.is_uniform and sliding_window is None:
            return None
        keys = torch.arange(self.context_len, device=self.positions.device)
        visible = keys <= self.entries[:, None, :, None]
        for row, end, tree in self.trees:
            query_len, tree_len = tree.visible.shape
            visible[row, 0, :query_len, end - tree_len : end] = tree.visible
            visible[row, 0, query_len:] = visible[row, 0, query_len - 1]
        if sliding_window is not None:
            key_positions = keys.expand(len(self.positions), -1).clone()
            for row, end, tree in self.trees:
                key_positions[row, end - len(tree.positions) : end] = tree.positions
            within = key_positions[:, None, None, :] > self.positions[:, None, :, None] - sliding_window
            visible = visible & within
        return visible


def arrange(batch: ForwardBatch) -> list[RowGroup]:
    """Group rows: short ones by the power of two of their context (so padding at most doubles it), long ones singly."""
    together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        is_long = query_len > MAX_WINDOW_LEN
        together[(-1, row) if is_long else (0, context_len.bit_length())].append(row)
    starts = [0]
    for query_len in batch.query_lens:
        starts.append(starts[-1] + query_len)
    return [_group(batch, rows, starts) for rows in together.values()]


def _group(batch: ForwardBatch, rows: Sequence[int], starts: Sequence[int]) -> RowGroup:
    device = batch.token_ids.device
    lens = [batch.query_lens[row] for row in rows]
    contexts = [batch.context_lens[row] for row in rows]
    query_len, context_len = max(lens), max(contexts)
    steps = torch.arange(query_len, device=device)
    last = torch.tensor(lens, device=device)[:, None] - 1
    own = torch.minimum(steps, last)
    token_index = torch.tensor([starts[row] for row in rows], device=device)[:, None] + own
    firsts = [context - length for context, length in zip(contexts, lens, strict=True)]
    trees = [
        (index, contexts[index], tree)
        for index, row in enumerate(rows)
        if batch.trees and (tree := batch.trees[row]) is not None
    ]
    return RowGroup(
        token_index=token_index,
        is_real=None if min(lens) == query_len else steps <= last,
        slots=_slots(batch, rows, context_len),
        positions=batch.positions[token_index],
        entries=torch.tensor(firsts, device=device)[:, None] + own,
        context_len=context_len,
        trees=trees,
        is_uniform=query_len == 1 and min(contexts) == context_len and not trees,
    )


def _slots(batch: ForwardBatch, rows: Sequence[int], context_len: int) -> Tensor | slice:
    """The slots of entries 0..context_len-1 of each row's context.

    Beyond a row's own context its last slot is repeated: masked, and never another request's value (0 x NaN is NaN).
    """
    size = batch.block_size
    num_blocks = -(-context_len // size)
    if len(rows) == 1:
        table = batch.block_tables[rows[0]]
        if table[num_blocks - 1] - table[0] == num_blocks - 1 and _is_consecutive(table, num_blocks):
            return slice(table[0] * size, table[0] * size + context_len)
    tables = torch.tensor([_padded(batch.block_tables[row], num_blocks) for row in rows], device=batch.token_ids.device)
    last = torch.tensor([batch.context_lens[row] - 1 for row in rows], device=tables.device)
    positions = torch.minimum(torch.arange(context_len, device=tables.device), last[:, None])
    return tables.gather(1, positions // size) * size + positions % size


def _is_consecutive(table: Sequence[int], num_blocks: int) -> bool:
    return all(table[i + 1] == table[i] + 1 for i in range(num_blocks - 1))


def _padded(table: Sequence[int], num_blocks: int) -> list[int]:
    return [*table[:num_blocks], *[0] * (num_blocks - len(table))]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Scaled dot-product attention with grouped heads.

    Short windows fold a group's heads into the query length, so that its keys are read once; single tokens and long
    chunks are faster as they are.
    """
    num_rows, num_heads, query_len, dim = q.shape
    num_kv_heads = k.shape[1]
    if not 1 < query_len <= MAX_WINDOW_LEN or num_heads == num_kv_heads:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=num_heads != num_kv_heads)
    num_groups = num_heads // num_kv_heads
    folded = q.reshape(num_rows, num_kv_heads, num_groups * query_len, dim)
    folded_mask = None if mask is None else mask.repeat(1, 1, num_groups, 1)
    attended = scaled_dot_product_attention(folded, k, v, attn_mask=folded_mask, scale=scale)
    return attended.view(num_rows, num_heads, query_len, v.shape[-1])


def _attend_by_formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """softmax(softcap(q k^T scale), sinks) v, with whole score matrices."""
    num_rows, num_heads, query_len, dim = q.shape
    num_kv_heads = k.shape[1]
    grouped = q.reshape(num_rows, num_kv_heads, num_heads // num_kv_heads * query_len, dim)
    scores = (grouped @ k.transpose(-1, -2) * scale).view(num_rows, num_heads, query_len, k.shape[2])
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        extra = sinks.to(scores.dtype).view(1, num_heads, 1, 1).expand(num_rows, -1, query_len, 1)
        scores = torch.cat([scores, extra], dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[2]]
    folded = weights.reshape(num_rows, num_kv_heads, -1, k.shape[2])
    return (folded @ v).view(num_rows, num_heads, query_len, v.shape[-1])


def mask_logits(logits: Tensor, bitmask: Tensor) -> None:
    """Set every logit without a bit to -inf, those beyond the bitmask's width too; in place.

    logits: [num_rows, vocab_size]; bitmask: int32 [num_rows, num_words], bit i % 32 of word i // 32 for token i.
    """
    width = min(logits.shape[1], bitmask.shape[1] * 32)
    if bitmask.device.type == "cpu":  # numpy unpacks several times faster than torch shifts
        bits = np.unpackbits(bitmask.numpy().view(np.uint8), axis=1, bitorder="little")
        is_set = torch.from_numpy(bits).bool()
    else:
        shifts = torch.arange(32, dtype=torch.int32, device=bitmask.device)
        is_set = ((bitmask[:, :, None] >> shifts) & 1).flatten(1).bool()
    logits[:, :width].masked_fill_(~is_set[:, :width].to(logits.device), -torch.inf)
    logits[:, width:] = -torch.inf
