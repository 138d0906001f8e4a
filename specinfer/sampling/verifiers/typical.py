"""Which draft tokens stand if being typical of the target is enough?

Cai et al. 2024 (Medusa), section 2.3.1. Legend: p the target's law at a row, H(p) its entropy in nats, x a drafted
token. Always true: a token with p(x) = 0 never stands; given the draft, no noise decides what stands; greedy requests
are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.sample_match import match

Standing = Callable[[Tensor, Sequence[int]], list[bool]]
"""(p at a row [vocab_size], the tokens drafted behind it) -> which of them stand."""


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Raise ConfigError unless `value` is a number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"verifier.{name} must be a number in [{low:g}, {high:g}], got {value!r}")


def longest_path(item: VerifyItem, standing: Standing) -> tuple[int, ...]:
    """The longest path all of whose nodes stand; of equally long ones, that whose last node is first in the draft."""
    paths: dict[int, tuple[int, ...]] = {0: ()}
    for row, siblings in enumerate(item.draft.children()):  # a parent's row comes before its children's
        if row not in paths or not siblings:
            continue
        stand = standing(item.target.probs(row), [item.draft.token_ids[node] for node in siblings])
        for node in (node for node, stands in zip(siblings, stand, strict=True) if stands):
            paths[node + 1] = (*paths[row], node)
    return max((paths[row] for row in sorted(paths)), key=len)


def judge(item: VerifyItem, standing: Standing) -> Verdict:
    """The longest standing path, then a token drawn from p at its end; greedy requests by `match`.

    The distances are total variation distances between p at a token's row and the law that this verifier emits the
    token by, given the draft and the tokens before. Given the draft nothing random decides the path, so an accepted x
    has the point mass on x for its law, at the distance 1 - p(x), whatever q was (an average over the drafts of a
    stochastic q can only be nearer to p). The last token is drawn from p: 0.
    """
    if item.target.is_greedy:
        return match(item)
    path = longest_path(item, standing)
    row = path[-1] + 1 if path else 0
    token_id = item.target.sample(row, item.key(len(path), Purpose.SAMPLE))
    chances = [item.target.prob(item.draft.parent(node) + 1, item.draft.token_ids[node]) for node in path]
    return Verdict(path, token_id, (*(max(0.0, 1.0 - chance) for chance in chances), 0.0))


@dataclass
class TypicalVerifier:
    """Lossy. A node stands iff p(x) > min(epsilon, delta exp(-H(p))); the longest standing path is emitted.

    Behind a fallen draft the next token is drawn from p. The lower bar counts: at epsilon = 0 or delta = 0 all stands
    that p does not forbid. `epsilon` is in [0, 1], `delta` in [0, 1e9].
    """

    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        """Raise ConfigError for a field out of its range."""
        check_number("epsilon", self.epsilon, 0.0, 1.0)
        check_number("delta", self.delta, 0.0, 1e9)

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=False, parameter="epsilon")

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [judge(item, self._standing) for item in items]

    def _standing(self, p: Tensor, token_ids: Sequence[int]) -> list[bool]:
        bar = min(self.epsilon, self.delta * math.exp(-float(torch.special.entr(p).sum())))
        return [float(p[token_id]) > bar for token_id in token_ids]
