"""What stood after a step, told to the drafter, and which K/V must move for it to stand?

Always true: rows are described as they were committed, finished requests included, whose blocks are still theirs until
the next allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specinfer.engine.request import Request
from specinfer.engine.scheduler import ScheduledRow
from specinfer.kernels.metadata import ForwardBatch
from specinfer.protocols import Observation


@dataclass(slots=True)
class KeptTokens:
    """One row after its commit: which of its tokens' K/V stands."""

    row: ScheduledRow
    num_before_draft: int
    """Leading tokens of the row that were committed before the step"""
    path: Sequence[int] = ()
    """The draft nodes that stand"""
    choices: Sequence[int] = ()
    """The target's most likely token at each row of the draft"""

    @property
    def end(self) -> int:
        return self.row.start + self.num_before_draft + len(self.path)

    def offsets(self) -> list[int]:
        """Where the standing tokens lie in the row."""
        return [*range(self.num_before_draft), *(self.num_before_draft + node for node in self.path)]


@dataclass(slots=True)
class KVMoves:
    """Slots whose K/V goes to other slots: accepted nodes of trees, up to behind the committed tokens."""

    sources: list[int] = field(default_factory=list)
    destinations: list[int] = field(default_factory=list)

    def add(self, kept: KeptTokens, block_size: int) -> None:
        """Note what one row's accepted path needs; nothing where it is the draft's beginning."""
        first = kept.row.start + kept.num_before_draft
        table = kept.row.request.block_ids
        for depth, node in enumerate(kept.path):
            if node != depth:
                self.sources.append(_slot(table, first + node, block_size))
                self.destinations.append(_slot(table, first + depth, block_size))


def _slot(table: Sequence[int], entry: int, block_size: int) -> int:
    return table[entry // block_size] * block_size + entry % block_size


def observation(kept: Sequence[KeptTokens], batch: ForwardBatch) -> tuple[Observation, list[Request]]:
    """What a proposer is shown of a step, and the requests it concerns."""
    wanted: list[int] = []
    offset = 0
    for item in kept:
        wanted += [offset + place for place in item.offsets()]
        offset += item.row.num_scheduled_tokens
    index = torch.tensor(wanted, dtype=torch.int64, device=batch.token_ids.device)
    requests = [item.row.request for item in kept]
    shown = Observation(
        requests=requests,
        starts=[item.row.start for item in kept],
        ends=[item.end for item in kept],
        block_tables=batch.block_tables,
        hidden={point: states.index_select(0, index) for point, states in batch.hidden.items()},
        drafts=[item.row.draft for item in kept],
        choices=[item.choices for item in kept],
    )
    return shown, requests
