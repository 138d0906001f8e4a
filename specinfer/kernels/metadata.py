"""What does one forward over a mixed batch need to know?

A flat sequence of tokens, `num_seqs` rows of it, each row a stretch of one request: a prefill chunk, a pending token,
or a pending token and its drafts; the kernels see no difference. Always true: row s's tokens lie in the last slots of
its context; without a tree each sees all slots up to its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TreeMask:
    """What the tokens of a row see of the end of their context, where it branches; they see all before it."""

    visible: Tensor
    """bool [query_len, tree_len]: over the last `tree_len` slots of the context"""
    positions: Tensor
    """int64 [tree_len]: the positions of the tokens in those slots"""


@dataclass(slots=True)
class ForwardBatch:
    """One step's input. The engine fills everything but `plan` and `hidden`."""

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
    """[num_seqs]: slots of each row's context, its own tokens' included"""
    block_tables: list[list[int]]
    """[num_seqs][num_blocks]: block ids that hold the context in order; its entry i lives in slot
    block_tables[s][i // block_size] * block_size + i % block_size, and has position i where there is no tree"""
    block_size: int
    trees: list[TreeMask | None] = field(default_factory=list)
    """[num_seqs], or empty where no row branches"""
    hidden_points: tuple[int, ...] = ()
    """Hidden states that are wanted, as in DraftResources.hidden_points"""
    hidden: dict[int, Tensor] = field(default_factory=dict)
    """[num_tokens, hidden_size] a point, filled by the model"""
    plan: dict[str, Any] = field(default_factory=dict)
    """Scratch of the attention kernel, made at its first layer and shared by the others."""

    @property
    def num_tokens(self) -> int:
        return self.token_ids.shape[0]
