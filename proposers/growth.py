"""How does a drafter that predicts one token at a time grow a draft, for a whole batch?

Depth by depth, one forward of the drafter a depth for all requests together: a chain, or the dynamic tree of EAGLE-2
(Li et al. 2024, section 4). Always true: a chain's token is drawn from the law that it comes with; a tree's nodes are
chosen without chance, so that each has a one-hot law; whether a draft goes on is decided before the next token is
drawn, and never by a token that is then dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proposers.branching import Branching
from proposers.filtering import legal_logits
from specinfer.errors import check_count
from specinfer.protocols import DrawKey, ProposerContext, Purpose
from specinfer.types import Draft


@dataclass(kw_only=True)
class Growth:
    """How drafts grow.

    tree_width: 1 for a chain; else how many nodes of a level are continued, and by how many children each. tree_depth:
    levels of a tree. greedy: draft the most likely token also for sampled requests, instead of drawing it at the
    request's temperature. A tree is always greedy.
    """

    tree_width: int = 1
    tree_depth: int = 5
    greedy: bool = False

    def __post_init__(self) -> None:
        for name in ("tree_width", "tree_depth"):
            check_count(f"growth.{name}", getattr(self, name), 1)

    @property
    def is_tree(self) -> bool:
        return self.tree_width > 1

    @property
    def extra_slots(self) -> int:
        """Slots that growing writes to: every node that is continued takes one."""
        return self.tree_width * self.tree_depth if self.is_tree else 0


Advance = Callable[[Sequence[Branching]], Tensor]
"""Reads the new nodes of every request: logits [sum(num_new), draft_vocab_size] of what follows them"""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A drafter's token ids in the target's."""

    vocab_size: int
    to_target: Tensor | None = None
    """int64 [draft_vocab_size]; None where they are the same"""

    def target_id(self, token_id: int) -> int:
        return token_id if self.to_target is None else int(self.to_target[token_id])

    def widen(self, probs: Tensor) -> Tensor:
        """A law over the draft vocabulary as one over the target's, [..., vocab_size]."""
        width = probs.shape[-1]
        if self.to_target is None:
            return probs if width == self.vocab_size else torch.nn.functional.pad(probs, (0, self.vocab_size - width))
        wide = probs.new_zeros(*probs.shape[:-1], self.vocab_size)
        wide[..., self.to_target] = probs
        return wide


def grow(
    growth: Growth,
    context: ProposerContext,
    branchings: Sequence[Branching],
    logits: Tensor,
    vocabulary: Vocabulary,
    *,
    advance: Advance,
) -> list[Draft]:
    """Drafts of at most each one's length. logits: [num_requests, draft_vocab_size], behind the committed tokens."""
    if growth.is_tree:
        return _Trees(growth, context, vocabulary, branchings).grow(logits, advance)
    return _Chains(growth, context, vocabulary, branchings).grow(logits, advance)


@dataclass
class _Drafting:
    """A batch of requests that are drafted for together."""

    growth: Growth
    context: ProposerContext
    vocabulary: Vocabulary
    branchings: Sequence[Branching]

    def legal(self, i: int, path: Sequence[int], logits: Tensor) -> Tensor | None:
        """The logits [draft_vocab_size] behind a path of target ids, restricted where drafts are filtered."""
        return legal_logits(self.context, self.branchings[i].request, path, logits, self.vocabulary.to_target)


@dataclass
class _Chains(_Drafting):
    """One token a depth for every request that goes on."""

    def __post_init__(self) -> None:
        self.drawn: list[list[int]] = [[] for _ in self.branchings]
        self.laws: list[list[Tensor]] = [[] for _ in self.branchings]
        self.is_sampled = [not self.growth.greedy and not b.request.params.is_greedy for b in self.branchings]

    def grow(self, logits: Tensor, advance: Advance) -> list[Draft]:
        active = list(range(len(self.branchings)))
        depth = 0
        while active:
            active, tokens = self._extend(active, logits, depth)
            depth += 1
            still = [(i, token) for i, token in zip(active, tokens, strict=True) if self.branchings[i].length > depth]
            active = [i for i, _ in still]
            for i, token in still:
                self.branchings[i].add(token, depth - 2)
                self.branchings[i].num_new = 1
            if active:
                logits = advance([self.branchings[i] for i in active])
        return [self._draft(i) for i in range(len(self.branchings))]

    def _extend(self, active: Sequence[int], logits: Tensor, depth: int) -> tuple[list[int], list[int]]:
        """Draw the next token of each; who went on, and their tokens."""
        best = logits.argmax(dim=-1).tolist()
        kept: list[int] = []
        tokens: list[int] = []
        for row, i in enumerate(active):
            request = self.branchings[i].request
            legal = self.legal(i, self.drawn[i], logits[row])
            if legal is None:
                continue
            scale = request.params.temperature if self.is_sampled[i] else 1.0
            law = (legal / max(scale, torch.finfo(logits.dtype).tiny)).softmax(dim=-1)
            if not self.context.continues(request, depth, law):
                continue
            likeliest = int(law.argmax()) if self.context.is_filtered else best[row]
            token = self._draw(i, law, depth) if self.is_sampled[i] else self.vocabulary.target_id(likeliest)
            self.drawn[i].append(token)
            kept.append(i)
            tokens.append(token)
        return kept, tokens

    def _draw(self, i: int, law: Tensor, depth: int) -> int:
        request = self.branchings[i].request
        wide = self.vocabulary.widen(law)
        position = len(request.token_ids) - request.num_prompt_tokens + depth
        self.laws[i].append(wide)
        return self.context.randomness.categorical(wide, DrawKey(request.seed, position, Purpose.DRAFT, depth))

    def _draft(self, i: int) -> Draft:
        return Draft(self.drawn[i], torch.stack(self.laws[i]) if self.laws[i] else None)


@dataclass(slots=True)
class _Candidate:
    """A possible node: what it says, behind which expanded node, how likely the whole path is."""

    token_id: int
    parent: int
    depth: int
    score: float
    expanded: int = -1
    """Its number among the expanded nodes, -1 while it is none"""


@dataclass
class _Trees(_Drafting):
    """EAGLE-2: the likeliest nodes of each level are continued, the likeliest of all are kept."""

    def __post_init__(self) -> None:
        self.candidates: list[list[_Candidate]] = [[] for _ in self.branchings]

    def grow(self, logits: Tensor, advance: Advance) -> list[Draft]:
        active = list(range(len(self.branchings)))
        level: dict[int, list[_Candidate]] = {i: [_Candidate(-1, -1, -1, 0.0)] for i in active}
        for depth in range(self.growth.tree_depth):
            active = self._children(active, level, logits, depth)
            active = [i for i in active if self.branchings[i].length > depth + 1]
            if depth + 1 == self.growth.tree_depth or not active:
                break
            for i in active:
                level[i] = self._expand(i, level[i])
            logits = advance([self.branchings[i] for i in active])
        return [self._draft(i) for i in range(len(self.branchings))]

    def _children(
        self, active: Sequence[int], level: dict[int, list[_Candidate]], logits: Tensor, depth: int
    ) -> list[int]:
        """The children of the level's nodes; who got any. `level` becomes the children."""
        width = min(self.growth.tree_width, logits.shape[-1])
        logits = self._filtered(active, level, logits)
        active = [i for i in active if level[i]]
        scores = logits.log_softmax(dim=-1)
        top = scores.topk(width, dim=-1)
        values, ids = top.values.tolist(), top.indices.tolist()
        row, kept = 0, []
        for i in active:
            nodes = level[i]
            rows = range(row, row + len(nodes))
            row += len(nodes)
            likeliest = max(range(len(nodes)), key=lambda n: nodes[n].score)
            if not self.context.continues(self.branchings[i].request, depth, scores[rows[likeliest]].exp()):
                continue
            level[i] = [
                _Candidate(self.vocabulary.target_id(token), node.expanded, depth, node.score + value)
                for node, r in zip(nodes, rows, strict=True)
                for token, value in zip(ids[r], values[r], strict=True)
                if value > -torch.inf
            ]
            self.candidates[i] += level[i]
            kept.append(i)
        return kept

    def _filtered(self, active: Sequence[int], level: dict[int, list[_Candidate]], logits: Tensor) -> Tensor:
        """The rows behind which something legal can come; the other nodes leave `level`."""
        if not self.context.is_filtered:
            return logits
        kept: list[Tensor] = []
        row = 0
        for i in active:
            nodes, level[i] = level[i], []
            for node in nodes:
                legal = self.legal(i, self.branchings[i].path(node.expanded), logits[row])
                row += 1
                if legal is not None:
                    kept.append(legal)
                    level[i].append(node)
        return torch.stack(kept) if kept else logits[:0]

    def _expand(self, i: int, children: Sequence[_Candidate]) -> list[_Candidate]:
        """Choose the level's likeliest nodes and have them read."""
        branching = self.branchings[i]
        chosen = sorted(children, key=lambda c: -c.score)[: self.growth.tree_width]
        for candidate in chosen:
            candidate.expanded = len(branching.token_ids)
            branching.add(candidate.token_id, candidate.parent)
        branching.num_new = len(chosen)
        return chosen

    def _draft(self, i: int) -> Draft:
        """The likeliest candidates of all levels; a child is never likelier than its parent, so these form a tree."""
        found = self.candidates[i]
        order = sorted(range(len(found)), key=lambda n: (-found[n].score, found[n].depth, n))
        kept = sorted(order[: self.branchings[i].length], key=lambda n: (found[n].depth, -found[n].score, n))
        place = {found[n].expanded: node for node, n in enumerate(kept) if found[n].expanded >= 0}
        parents = [-1 if found[n].parent < 0 else place[found[n].parent] for n in kept]
        return Draft([found[n].token_id for n in kept], parents=parents)
