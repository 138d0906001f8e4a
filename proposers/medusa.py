"""What do heads on the target's last state guess, each a place of its own?

Medusa (Cai et al. 2024): head k guesses the token k + 1 places on from the state of the last computed token, without
knowing the tokens between. Always true: no K/V, one small forward a step; a chain's token is drawn from its own head's
law, a tree's nodes are chosen without chance.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from proposers.filtering import legal_logits
from specinfer.errors import ConfigError, UnsupportedModelError, check_count
from specinfer.models.medusa import MedusaHeads, read_medusa
from specinfer.models.packed_linear import pack_linears
from specinfer.protocols import (
    AFTER_FINAL_NORM,
    DrawKey,
    HiddenStateModel,
    Observation,
    ProposerContext,
    Purpose,
    RequestView,
)
from specinfer.types import Draft


@dataclass
class MedusaProposer:
    """Drafts with Medusa heads.

    heads: a folder with a checkpoint. tree_width: 1 for a chain; else the likeliest tokens of each head from which the
    likeliest paths are taken. greedy: draft the likeliest token also for sampled requests. A tree is always greedy.
    """

    heads: str = ""
    num_draft_tokens: int = 3
    tree_width: int = 1
    greedy: bool = False

    _heads: MedusaHeads = field(init=False, repr=False, compare=False)
    _target: HiddenStateModel = field(init=False, repr=False, compare=False)
    _context: ProposerContext = field(init=False, repr=False, compare=False)
    _states: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The target's state at each request's last computed token"""

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that cannot work."""
        for name, low in (("num_draft_tokens", 0), ("tree_width", 1)):
            check_count(f"medusa.{name}", getattr(self, name), low)

    def bind(self, context: ProposerContext) -> None:
        """Load the heads and check that they fit the target."""
        target = context.target
        if not isinstance(target, HiddenStateModel):
            raise UnsupportedModelError(f"{target.name} shows no hidden states; Medusa heads need them")
        if not self.heads:
            raise ConfigError("medusa.heads is not given: give a folder with a checkpoint")
        heads = read_medusa(Path(self.heads).expanduser())
        if (heads.shape.hidden_size, heads.shape.vocab_size) != (target.hidden_size, target.vocab_size):
            raise ConfigError(
                f"{self.heads} is for states of {heads.shape.hidden_size} numbers and {heads.shape.vocab_size} tokens, "
                f"{target.name} has {target.hidden_size} and {target.vocab_size}"
            )
        self._heads = heads.to(target.device, target.dtype).requires_grad_(False)
        pack_linears(self._heads)
        self._target, self._context, self._states = target, context, {}
        context.resources.want_hidden(AFTER_FINAL_NORM)

    def start(self, request: RequestView) -> None:
        """Nothing is known before its first step."""

    def stop(self, request_id: str) -> None:
        self._states.pop(request_id, None)

    def observe(self, observation: Observation) -> None:
        """Keep the state of the last token that stands."""
        hidden, offset = observation.hidden[AFTER_FINAL_NORM], 0
        for request, start, end in zip(observation.requests, observation.starts, observation.ends, strict=True):
            offset += end - start
            if end > start:
                self._states[request.request_id] = hidden[offset - 1].clone()

    @torch.inference_mode()
    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        known = [i for i, request in enumerate(requests) if request.request_id in self._states]
        drafts: list[Draft | None] = [None] * len(requests)
        if known:
            out = self._heads(torch.stack([self._states[requests[i].request_id] for i in known]))
            logits = out if self._heads.shape.has_own_heads else self._target.head(out)
            logits = logits if logits.dtype == torch.float64 else logits.float()
            for row, i in enumerate(known):
                drafts[i] = self._draft(requests[i], logits[:, row], num_draft_tokens[i])
        return drafts

    def _draft(self, request: RequestView, logits: Tensor, length: int) -> Draft:
        """logits: [num_heads, vocab_size]; a chain of as many heads as the controller lets go on, or a tree."""
        depth = 0
        while depth < min(length, len(logits)):
            if not self._context.continues(request, depth, logits[depth].softmax(-1)):
                break
            depth += 1
        if self.tree_width > 1:
            return likeliest_paths(logits[:depth].log_softmax(-1), self.tree_width, length)
        return self._chain(request, logits[:depth])

    def _chain(self, request: RequestView, logits: Tensor) -> Draft:
        """A token of each head, restricted to what may come behind those before it where drafts are filtered."""
        is_greedy = self.greedy or request.params.is_greedy
        scale = max(request.params.temperature, torch.finfo(logits.dtype).tiny)
        position = len(request.token_ids) - request.num_prompt_tokens
        drawn: list[int] = []
        laws: list[Tensor] = []
        for k, own in enumerate(logits):
            legal = legal_logits(self._context, request, drawn, own)
            if legal is None:
                break
            if is_greedy:
                drawn.append(int(legal.argmax()))
            else:
                laws.append((legal / scale).softmax(dim=-1))
                key = DrawKey(request.seed, position + k, Purpose.DRAFT, k)
                drawn.append(self._context.randomness.categorical(laws[-1], key))
        return Draft(drawn, torch.stack(laws) if laws else None)


def likeliest_paths(scores: Tensor, width: int, num_nodes: int) -> Draft:
    """The tree of the likeliest paths, where place k takes one of the `width` likeliest tokens of scores[k].

    scores: log-probabilities [depth, vocab_size]. A child is never likelier than its parent, so taking the likeliest
    node left, again and again, gives the best tree of every size.
    """
    if not len(scores):
        return Draft([])
    top = scores.topk(min(width, scores.shape[1]), dim=-1)
    values, ids = top.values.tolist(), top.indices.tolist()
    token_ids: list[int] = []
    parents: list[int] = []
    heap = [(-value, 0, rank, -1, value) for rank, value in enumerate(values[0])]
    heapq.heapify(heap)
    while heap and len(token_ids) < num_nodes:
        _, depth, rank, parent, score = heapq.heappop(heap)
        node = len(token_ids)
        token_ids.append(ids[depth][rank])
        parents.append(parent)
        if depth + 1 < len(ids):
            for child_rank, value in enumerate(values[depth + 1]):
                heapq.heappush(heap, (-(score + value), depth + 1, child_rank, node, score + value))
    return Draft(token_ids, parents=parents)
