"""Which draft tokens stand under speculative sampling?

Leviathan et al. 2023 (algorithm 1) and Chen et al. 2023 (algorithm 2, theorem 1) for a chain; where a draft branches,
the siblings in turn, each against what the ones before it left (Miao et al. 2024, SpecInfer, algorithm 2). Legend: p
the target's law at a row, q the law a draft token was drawn from given the siblings before it, x a token. Always true:
the output law is exactly the target's; p is never modified; greedy requests use no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from specinfer.errors import PluginError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.sample_match import match


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Weights of norm(max(0, p - q)), the law after a rejection (Chen et al. 2023, equation 2); unnormalised.

    Their sum is the probability of the rejection. Where rounding leaves nothing of them, p = q up to rounding, and a
    rejection was an event of probability ~0: p itself then stands in for the quotient 0 / 0.
    """
    weights = (p - q.to(p)).clamp_(min=0)
    return weights if bool(weights.any()) else p


def drawn_prob(item: VerifyItem, q: Tensor, node: int) -> float:
    """q(x) of a node's token; PluginError where it could not have been drawn."""
    q_x = float(q[node, item.draft.token_ids[node]])
    if not q_x > 0:
        raise PluginError(
            f"draft token {item.draft.token_ids[node]} has q={q_x} in its own proposal law: Draft.probs must be the "
            f"law it was drawn from"
        )
    return q_x


def try_siblings(
    item: VerifyItem, q: Tensor, siblings: Sequence[int], depth: int, randomness: Randomness
) -> tuple[int | None, Tensor]:
    """The first of `siblings` that stands, or None; and the law left after the ones that fell, [vocab_size].

    Recursive rejection: x_s stands iff u < p_s(x_s) / q_s(x_s), else p_(s+1) = norm(max(0, p_s - q_s)).
    """
    p = item.target.probs(item.draft.parent(siblings[0]) + 1)
    for ordinal, node in enumerate(siblings):
        ratio = float(p[item.draft.token_ids[node]]) / drawn_prob(item, q, node)
        if randomness.bernoulli(ratio, item.key(depth, Purpose.ACCEPT, ordinal)):
            return node, p
        weights = residual(p, q[node])
        p = weights / weights.sum()
    return None, p


TrySiblings = Callable[[VerifyItem, Tensor, Sequence[int], int, Randomness], tuple[int | None, Tensor]]
"""(item, q, siblings, depth, randomness) -> the sibling that stands or None, and the law left if none does."""


def walk(item: VerifyItem, q: Tensor, randomness: Randomness, try_level: TrySiblings = try_siblings) -> Verdict:
    """Descend from the root by `try_level` until none stands or a leaf is reached."""
    children = item.draft.children()
    path: list[int] = []
    row = 0
    while children[row]:
        node, p = try_level(item, q, children[row], len(path), randomness)
        if node is None:
            return Verdict(tuple(path), randomness.categorical(p, item.key(len(path), Purpose.RESIDUAL)))
        path.append(node)
        row = node + 1
    return Verdict(tuple(path), item.target.sample(row, item.key(len(path), Purpose.SAMPLE)))


@dataclass
class RejectionVerifier:
    """Exact. A drafted x stands iff u < p(x) / q(x), u uniform in [0, 1).

    With a one-hot q that is "accept with p(x), else draw from p without x", and the plain sample of the row realises
    it: it is x with probability p(x), and else follows just that law. Seeded outputs then equal plain decoding's.
    The same holds for a greedy p, whatever q.
    """

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [
            match(item)
            if item.draft.probs is None or item.target.is_greedy
            else walk(item, item.draft.probs, randomness)
            for item in items
        ]
