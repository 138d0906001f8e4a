"""What does one forward over a mixed batch need to know?

A flat sequence of tokens, `num_seqs` rows of it, each row a stretch of one request: a prefill chunk, a pending token,
or a pending token and its drafts; the kernels see no difference. Always true: row s holds tokens
`query_start[s]:query_start[s + 1]`, at the last positions of its context.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class ForwardBatch:
    """One step's input. The engine fills everything but `plan`."""

    token_ids: Tensor
    """int64 [num_tokens]"""
    positions: Tensor
    """int64 [num_tokens]"""
    slot_mapping: Tensor
    """int64 [num_tokens]: the cache slot that each token's K/V is written to"""
    logits_rows: Tensor
    """int64 [num_logits_rows]: indices into the flat sequence whose logits are wanted"""
    query_lens: list[int]
    """[num_seqs]: tokens of each row"""
    context_lens: list[int]
    """[num_seqs]: tokens each row's last token attends to, itself included"""
    block_tables: list[list[int]]
    """[num_seqs][num_blocks]: block ids that hold positions 0.. in order; position p lives in slot
    block_tables[s][p // block_size] * block_size + p % block_size"""
    block_size: int
    plan: dict[str, Any] = field(default_factory=dict)
    """Scratch of the attention kernel, made at its first layer and shared by the others."""

    @property
    def num_tokens(self) -> int:
        return self.token_ids.shape[0]
