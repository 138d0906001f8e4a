"""What would the target say next, judging by its own hidden states?

EAGLE-1, EAGLE-2 and EAGLE-3 (Li et al. 2024, 2025): one layer that continues the target's states. Always true: K/V of
accepted tokens is computed from the target's true states before a block that holds them is full; what was written
while drafting is never read again; a request that is not drafted for costs a forward a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from proposers.branching import Branching
from proposers.growth import Growth, Vocabulary, grow
from specinfer.errors import check_count
from specinfer.kernels.metadata import ForwardBatch
from specinfer.kernels.rows import Stretch, flat_batch
from specinfer.kernels.torch_ops import paged_attention, write_kv
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_checkpoint import EagleReading, load_head
from specinfer.models.packed_linear import pack_linears
from specinfer.protocols import HiddenStateModel, KVClaim, KVLayerSpec, Observation, ProposerContext, RequestView
from specinfer.types import Draft


@dataclass(slots=True)
class Unread:
    """Tokens that stand and that the head has not read: never up to the end of a block, which others could share."""

    start: int
    end: int
    states: list[Tensor]
    """[tokens, hidden_size] each, projected from the target's"""

    def stretch(self, request: RequestView, block_ids: Sequence[int]) -> Stretch:
        return Stretch(request.token_ids[self.start + 1 : self.end + 1], self.start, block_ids)


@dataclass
class EagleProposer:
    """Drafts with an EAGLE head.

    head: a folder with a checkpoint in one of the public layouts, or `demo` for the head that is shipped for the demo
    model. reading: settles what a checkpoint leaves open. growth: chain or dynamic tree.
    """

    head: str = "demo"
    num_draft_tokens: int = 4
    growth: Growth = field(default_factory=Growth)
    reading: EagleReading = field(default_factory=EagleReading)

    _head: EagleHead = field(init=False, repr=False, compare=False)
    _context: ProposerContext = field(init=False, repr=False, compare=False)
    _target: HiddenStateModel = field(init=False, repr=False, compare=False)
    _claim: KVClaim = field(init=False, repr=False, compare=False)
    _vocabulary: Vocabulary = field(init=False, repr=False, compare=False)
    _tails: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The head's output behind each request's last committed token"""
    _unread: dict[str, Unread] = field(default_factory=dict, init=False, repr=False, compare=False)
    _asked: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Requests that were drafted for in the last step"""

    def __post_init__(self) -> None:
        """Raise ConfigError for a length that cannot work."""
        check_count("eagle.num_draft_tokens", self.num_draft_tokens, 0)

    def bind(self, context: ProposerContext) -> None:
        """Load the head and check that it fits the target."""
        self._head, self._target = load_head(self.head, context.target, self.reading)
        pack_linears(self._head)
        self._context = context
        shape = self._head.shape
        context.resources.want_hidden(*shape.hidden_points)
        self._claim = context.resources.claim_kv(
            [KVLayerSpec(shape.num_kv_heads, shape.head_dim, shape.head_dim)],
            self._target.dtype,
            lookahead=1,
            extra_slots=self.growth.extra_slots,
        )
        is_mapped = shape.kind is EagleKind.EAGLE3
        self._vocabulary = Vocabulary(context.vocab_size, self._head.draft_to_target if is_mapped else None)
        self._tails, self._unread, self._asked = {}, {}, set()

    def start(self, request: RequestView) -> None:
        """Nothing is known before its first step."""

    def stop(self, request_id: str) -> None:
        self._tails.pop(request_id, None)
        self._unread.pop(request_id, None)

    @torch.inference_mode()
    def observe(self, observation: Observation) -> None:
        """Read what was computed and stands, from the target's own states; what can wait for a full block, waits."""
        points = self._head.shape.hidden_points
        states = self._head.project(torch.cat([observation.hidden[point] for point in points], dim=-1))
        reading: list[tuple[RequestView, Sequence[int]]] = []
        offset = 0
        for request, start, end, table in zip(
            observation.requests, observation.starts, observation.ends, observation.block_tables, strict=True
        ):
            if end > start:
                self._note(request.request_id, start, end, states[offset : offset + end - start])
                offset += end - start
                is_full = end // self._context.block_size > start // self._context.block_size
                if is_full or request.request_id in self._asked or request.request_id not in self._tails:
                    reading.append((request, table))
        self._asked = set()
        self._read(reading)

    def _note(self, request_id: str, start: int, end: int, states: Tensor) -> None:
        unread = self._unread.get(request_id)
        if unread is None or unread.end != start:  # none, or lost with its K/V in a preemption
            self._unread[request_id] = Unread(start, end, [states])
        else:
            unread.end = end
            unread.states.append(states)

    def _read(self, reading: Sequence[tuple[RequestView, Sequence[int]]]) -> None:
        """Run the head over the unread tokens of some requests."""
        if not reading:
            return
        unread = [self._unread[request.request_id] for request, _ in reading]
        stretches = [u.stretch(request, table) for u, (request, table) in zip(unread, reading, strict=True)]
        out = self._run(stretches, torch.cat([states for u in unread for states in u.states]))
        ends = np.cumsum([len(stretch.token_ids) for stretch in stretches])
        for (request, _), last in zip(reading, ends, strict=True):
            self._tails[request.request_id] = out[last - 1].clone()
            del self._unread[request.request_id]

    @torch.inference_mode()
    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> Sequence[Draft | None]:
        self._asked |= {request.request_id for request in requests}
        self._read([(r, r.block_ids) for r in requests if r.request_id in self._unread])
        limit = self._head.shape.max_positions
        branchings = [
            Branching(request, min(length, limit - len(request.token_ids)))
            for request, length in zip(requests, num_draft_tokens, strict=True)
        ]
        going = [i for i, b in enumerate(branchings) if b.length > 0 and b.request.request_id in self._tails]
        drafts: list[Draft | None] = [None] * len(requests)
        if going:
            chosen = [branchings[i] for i in going]
            tails = torch.stack([self._tails[b.request.request_id] for b in chosen])
            grown = grow(
                self.growth, self._context, chosen, self._logits(tails), self._vocabulary, advance=self._advance
            )
            for i, draft in zip(going, grown, strict=True):
                drafts[i] = draft
        return drafts

    def _advance(self, branchings: Sequence[Branching]) -> Tensor:
        """Read the new nodes: each continues the output behind its parent."""
        states: list[Tensor] = []
        for b in branchings:
            tail = self._tails[b.request.request_id]
            new = range(len(b.token_ids) - b.num_new, len(b.token_ids))
            states += [tail if b.parents[n] < 0 else b.states[b.parents[n]] for n in new]
        stretches = [b.stretch(len(b.request.token_ids) - 1, self._context.device) for b in branchings]
        out = self._run(stretches, self._head.fed_back(torch.stack(states)))
        bounds = np.cumsum([0, *(b.num_new for b in branchings)])
        for b, (first, last) in zip(branchings, pairwise(bounds.tolist()), strict=True):
            b.states += list(out[first:last])
        return self._logits(out)

    def _run(self, stretches: Sequence[Stretch], states: Tensor) -> Tensor:
        batch = flat_batch(stretches, self._context.block_size, self._context.device)
        embed = self._head.embed_tokens or self._target.embed
        attend = _Paged(self._claim, batch, self._head.shape.head_dim**-0.5)
        out: Tensor = self._head(embed(batch.token_ids), states, batch.positions, attend)
        return out

    def _logits(self, out: Tensor) -> Tensor:
        is_third = self._head.shape.kind is EagleKind.EAGLE3
        logits = self._head.draft_logits(out) if is_third else self._target.head(out)
        return logits if logits.dtype == torch.float64 else logits.float()


@dataclass(frozen=True, slots=True)
class _Paged:
    """Attention over the head's own layer of the cache."""

    claim: KVClaim
    batch: ForwardBatch
    scale: float

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        k_cache, v_cache = self.claim.layers[0]
        write_kv(k_cache, v_cache, key, value, self.batch.slot_mapping)
        return paged_attention(query, k_cache, v_cache, self.batch, scale=self.scale)
