"""What is known of one request's draft while it grows?

Always true: a node comes behind its parent, and its position goes by its depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from specinfer.kernels.rows import Stretch, tree_mask
from specinfer.protocols import RequestView


@dataclass(slots=True)
class Branching:
    """One request's draft while it grows. A node is expanded when the drafter has read it."""

    request: RequestView
    length: int
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """By expanded node, -1 for the committed tokens"""
    depths: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    """Of the drafter's own, one an expanded node, if it keeps any"""
    num_new: int = 0
    """Nodes of the last level, which are to be read next"""

    def add(self, token_id: int, parent: int) -> None:
        """Have a node read at the next level."""
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self.depths.append(0 if parent < 0 else self.depths[parent] + 1)

    def path(self, node: int) -> list[int]:
        """The tokens down to an expanded node; none for -1."""
        found: list[int] = []
        while node >= 0:
            found.append(self.token_ids[node])
            node = self.parents[node]
        return found[::-1]

    def stretch(self, first_entry: int, device: torch.device) -> Stretch:
        """The new nodes as a row: entries from `first_entry` on belong to the draft, positions go by depth."""
        start = len(self.token_ids) - self.num_new
        is_chain = self.parents == list(range(-1, len(self.parents) - 1))
        positions = [first_entry + depth for depth in self.depths]
        return Stretch(
            token_ids=np.array(self.token_ids[start:], dtype=np.int64),
            start=first_entry + start,
            block_ids=self.request.block_ids,
            logits=range(self.num_new),
            positions=None if is_chain else np.array(positions[start:], dtype=np.int64),
            tree=None if is_chain else tree_mask(self.parents, positions, self.num_new, device),
        )
