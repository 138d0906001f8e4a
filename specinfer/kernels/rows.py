"""How do stretches of some requests become one flat forward?

Always true: a stretch's tokens take consecutive entries of their request's context, from `start` on; their positions
are those entries unless they branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from specinfer.kernels.metadata import ForwardBatch, TreeMask
from specinfer.protocols import KVLayerSpec


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some tokens of one request."""

    token_ids: NDArray[np.int64]
    start: int
    """The context entry of the first one"""
    block_ids: Sequence[int]
    logits: Sequence[int] = ()
    """Which of them have their logits wanted"""
    positions: NDArray[np.int64] | None = None
    """Where they are not the entries"""
    tree: TreeMask | None = None

    @property
    def entries(self) -> NDArray[np.int64]:
        return np.arange(self.start, self.start + len(self.token_ids))


def flat_batch(
    stretches: Sequence[Stretch], block_size: int, device: torch.device, hidden_points: tuple[int, ...] = ()
) -> ForwardBatch:
    """The stretches' tokens one after another; logits rows in the same order."""
    slots, positions, logits_rows = [], [], []
    offset = 0
    for stretch in stretches:
        entries = stretch.entries
        table = np.array(stretch.block_ids, dtype=np.int64)
        slots.append(table[entries // block_size] * block_size + entries % block_size)
        positions.append(entries if stretch.positions is None else stretch.positions)
        logits_rows.append(offset + np.asarray(stretch.logits, dtype=np.int64))
        offset += len(entries)

    def tensor(parts: list[NDArray[np.int64]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device, non_blocking=True)

    return ForwardBatch(
        token_ids=tensor([stretch.token_ids for stretch in stretches]),
        positions=tensor(positions),
        slot_mapping=tensor(slots),
        logits_rows=tensor(logits_rows),
        query_lens=[len(stretch.token_ids) for stretch in stretches],
        context_lens=[stretch.start + len(stretch.token_ids) for stretch in stretches],
        block_tables=[list(stretch.block_ids) for stretch in stretches],
        block_size=block_size,
        trees=[s.tree for s in stretches] if any(s.tree is not None for s in stretches) else [],
        hidden_points=hidden_points,
    )


def new_cache(
    specs: Sequence[KVLayerSpec], num_slots: int, dtype: torch.dtype, device: torch.device
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A cache of zeros, a (K, V) pair a layer, for a forward beside the engine's own."""

    def zeros(spec: KVLayerSpec, dim: int) -> torch.Tensor:
        return torch.zeros(num_slots, spec.num_kv_heads, dim, dtype=dtype, device=device)

    return [(zeros(spec, spec.key_dim), zeros(spec, spec.value_dim)) for spec in specs]


def tree_mask(parents: Sequence[int], positions: Sequence[int], num_queries: int, device: torch.device) -> TreeMask:
    """What the last `num_queries` nodes of a tree see of it: themselves and their ancestors.

    parents: the node that each follows, -1 for the committed tokens.
    """
    visible = np.zeros((len(parents), len(parents)), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            visible[node] = visible[parent]
        visible[node, node] = True
    shown = torch.from_numpy(visible[len(parents) - num_queries :]).to(device)
    return TreeMask(shown, torch.tensor(positions, device=device))
