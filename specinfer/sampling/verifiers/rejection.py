"""Which draft tokens stand under speculative sampling?

Leviathan et al. 2023 (algorithm 1) and Chen et al. 2023 (algorithm 2, theorem 1). Legend: p the target's law at a row,
q the law a draft token was drawn from, x a token. Always true: the output law is exactly the target's; p is never
modified; greedy requests use no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specinfer.errors import PluginError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.greedy_match import match


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Weights of norm(max(0, p - q)), the law after a rejection (Chen et al. 2023, equation 2); unnormalised.

    Their sum is the probability of the rejection. Where rounding leaves nothing of them, p = q up to rounding, and a
    rejection was an event of probability ~0: p itself then stands in for the quotient 0 / 0.
    """
    weights = (p - q.to(p)).clamp_(min=0)
    return weights if bool(weights.any()) else p


def _sample(item: VerifyItem, q: Tensor, randomness: Randomness) -> Verdict:
    for row, x in enumerate(item.draft.token_ids):
        q_x = float(q[row, x])
        if not q_x > 0:
            raise PluginError(
                f"draft token {x} has q={q_x} in its own proposal law: Draft.probs must be the law it was drawn from"
            )
        if not randomness.bernoulli(item.target.prob(row, x) / q_x, item.key(row, Purpose.ACCEPT)):
            weights = residual(item.target.probs(row), q[row])
            return Verdict(row, randomness.categorical(weights, item.key(row, Purpose.RESIDUAL)))
    num_draft_tokens = len(item.draft.token_ids)
    return Verdict(num_draft_tokens, item.target.sample(num_draft_tokens, item.key(num_draft_tokens, Purpose.SAMPLE)))


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
            else _sample(item, item.draft.probs, randomness)
            for item in items
        ]
