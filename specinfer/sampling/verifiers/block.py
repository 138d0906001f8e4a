"""Which draft tokens stand if a chain is judged as a whole?

Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", algorithm 2. Legend: p the target's law at a
row, q the law of the draft token behind that row, x that token; m_0 = 1 and m_i = min(1, m_(i-1) p(x_i) / q(x_i)) the
mass of the first i tokens, the probability that at least they stand. Always true: the output law is exactly the
target's; no verifier that sees p and q along the chain alone accepts more tokens on average; p is never modified;
greedy requests use no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.rejection import drawn_prob, residual, walk
from specinfer.sampling.verifiers.sample_match import match


def masses(item: VerifyItem, q: Tensor) -> list[float]:
    """m_0 .. m_n of a chain of n tokens."""
    found = [1.0]
    for row, token_id in enumerate(item.draft.token_ids):
        found.append(min(1.0, found[-1] * item.target.prob(row, token_id) / drawn_prob(item, q, row)))
    return found


def last_standing(mass: float, p: Tensor, q: Tensor) -> float:
    """h_i: the chance that the chain ends after token i, all longer ends having failed (the paper's equation for h).

    r / (r + 1 - m_i) with r = sum_x max(0, m_i p(x) - q(x)). At 0 / 0, which is m_i = 1 and p = q, a longer end fails
    with probability 0.
    """
    rest = float((mass * p - q.to(p)).clamp_(min=0).sum())
    total = rest + (1.0 - mass)  # in this order never less than `rest`
    return rest / total if total > 0 else 1.0


def length_weights(chances: Sequence[float]) -> list[float]:
    """The law of the number of accepted tokens, 0 .. n, from h_1 .. h_n: the largest i whose own trial succeeds."""
    weights, failed = [], 1.0
    for chance in reversed(chances):
        weights.append(failed * chance)
        failed *= 1.0 - chance
    return [failed, *reversed(weights)]


def verify_block(item: VerifyItem, q: Tensor, randomness: Randomness) -> Verdict:
    """One draw for the length, keyed at the first position, then one for the token after it.

    A trial of its own for every token would draw noise of positions that this step may not reach and the next one
    draws again.
    """
    target, num_drafts = item.target, len(item.draft.token_ids)
    mass = masses(item, q)
    chances = [last_standing(mass[i], target.probs(i), q[i]) for i in range(1, num_drafts)]
    weights = length_weights([*chances, mass[-1]])
    length = randomness.categorical(torch.tensor(weights, dtype=torch.float64), item.key(0, Purpose.ACCEPT))
    if length == num_drafts:
        return Verdict.chain(length, target.sample(length, item.key(length, Purpose.SAMPLE)))
    left = residual(mass[length] * target.probs(length), q[length])
    return Verdict.chain(length, randomness.categorical(left, item.key(length, Purpose.RESIDUAL)))


@dataclass
class BlockVerifier:
    """Exact. Accepts at least as many tokens of a sampled chain as `rejection` on average; one token, the same.

    A one-hot q and a greedy p are judged by `match`. A draft that branches is judged by `walk`, as `rejection` does:
    the paper's algorithm is one for chains.
    """

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [_verify(item, randomness) for item in items]


def _verify(item: VerifyItem, randomness: Randomness) -> Verdict:
    q = item.draft.probs
    if q is None or item.target.is_greedy:
        return match(item)
    if any(len(siblings) > 1 for siblings in item.draft.children()):
        return walk(item, q, randomness)
    return verify_block(item, q, randomness)
