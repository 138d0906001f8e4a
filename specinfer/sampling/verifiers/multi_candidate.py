"""Which of several drafted siblings stands, if any?

RECURSIVE: Miao et al. 2024 (SpecInfer, algorithm 2), each sibling against what the ones before it left. K_SEQ: Sun et
al. 2023 (SpecTr, algorithm 2), every sibling against the same p / rho. Legend: p the target's law at a row, q the law
a sibling was drawn from given the ones before it, k their number, beta = sum_x min(q(x), p(x) / rho). Always true: the
output law is exactly the target's; p is never modified; greedy requests use no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.rejection import TrySiblings, drawn_prob, residual, try_siblings, walk
from specinfer.sampling.verifiers.sample_match import match

NUM_BISECTIONS = 52
"""Of the interval [1, k]: what is left of it is less than a float64 can tell."""


class SiblingRule(Enum):
    """How siblings are judged."""

    RECURSIVE = "recursive"
    K_SEQ = "k_seq"


def overlap(p: Tensor, q: Tensor, rho: float) -> float:
    """beta, the chance that one sibling stands."""
    return min(1.0, float(torch.minimum(q, p / rho).sum(dtype=torch.float64)))


def division_factor(p: Tensor, q: Tensor, k: int) -> float:
    """The least rho in [1, k] with 1 - (1 - beta)^k <= rho beta, which keeps the residual from being negative.

    The left side falls and the right one, sum_x min(rho q(x), p(x)), grows with rho, so bisection finds it; the upper
    end is returned, where the inequality holds.
    """
    low, high = 1.0, float(k)
    for _ in range(NUM_BISECTIONS):
        rho = (low + high) / 2
        beta = overlap(p, q, rho)
        if 1.0 - (1.0 - beta) ** k <= rho * beta:
            high = rho
        else:
            low = rho
    return high


def try_k_seq(
    item: VerifyItem, q: Tensor, siblings: Sequence[int], depth: int, randomness: Randomness
) -> tuple[int | None, Tensor]:
    """x stands iff u < p(x) / (rho q(x)); what is left is p - min(q, p / rho) (1 - (1 - beta)^k) / beta, unnormalised.

    Siblings whose q differ were not drawn i.i.d.; they, and a single one, are judged by `try_siblings`.
    """
    shared, k = q[siblings[0]], len(siblings)
    if k == 1 or any(not torch.equal(q[node], shared) for node in siblings[1:]):
        return try_siblings(item, q, siblings, depth, randomness)
    p = item.target.probs(item.draft.parent(siblings[0]) + 1)
    shared = shared.to(p)
    rho = division_factor(p, shared, k)
    for ordinal, node in enumerate(siblings):
        ratio = float(p[item.draft.token_ids[node]]) / (rho * drawn_prob(item, q, node))
        if randomness.bernoulli(ratio, item.key(depth, Purpose.ACCEPT, ordinal)):
            return node, p
    beta = overlap(p, shared, rho)
    scale = (1.0 - (1.0 - beta) ** k) / beta if beta > 0 else 0.0
    return None, residual(p, scale * torch.minimum(shared, p / rho))


_RULES: dict[SiblingRule, TrySiblings] = {SiblingRule.RECURSIVE: try_siblings, SiblingRule.K_SEQ: try_k_seq}


def drawn_laws(item: VerifyItem) -> Tensor:
    """q of every node, [num_draft_tokens, vocab_size], written out where it is one-hot."""
    if item.draft.probs is not None:
        return item.draft.probs
    p = item.target.probs(0)
    q = p.new_zeros(len(item.draft.token_ids), p.shape[0])
    return q.scatter_(1, torch.tensor(list(item.draft.token_ids), device=p.device)[:, None], 1.0)


@dataclass
class MultiCandidateVerifier:
    """Exact. Siblings are judged one by one, by the `rule`; unlike `rejection`, those of a one-hot q too.

    So seeded outputs differ from plain decoding's. K_SEQ is for siblings drawn i.i.d. from one q: one of them stands at
    least as often as by RECURSIVE, and at least (1 - 1/e) times as often as by any exact rule. Other siblings are
    judged by RECURSIVE. A draft that repeats an earlier output of the same explicit seed would share noise with this
    one; `rejection` has no such case for one-hot drafts.
    """

    rule: SiblingRule = SiblingRule.RECURSIVE

    def __post_init__(self) -> None:
        """Raise ConfigError unless `rule` is a SiblingRule."""
        rule: object = self.rule
        if not isinstance(rule, SiblingRule):
            known = ", ".join(f"SiblingRule.{member.name}" for member in SiblingRule)
            raise ConfigError(f"verifier.rule must be one of {known}, got {rule!r}")

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [
            match(item) if item.target.is_greedy else walk(item, drawn_laws(item), randomness, _RULES[self.rule])
            for item in items
        ]
