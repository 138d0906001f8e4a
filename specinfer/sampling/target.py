"""What are the target's laws at one request's rows, and what token comes out of them?

Two kinds of TargetRows: greedy ones hold a token a row and no probabilities, sampled ones hold p. Always true: row 0
has a law. A row of `lawless` has none: the request fails after the drafts before it; nobody who rejects one of these
drafts may notice, so the failure waits until a prefix that causes it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.protocols import DrawKey, Randomness, Verdict


@dataclass(slots=True)
class GreedyRows:
    """One-hot laws: row i's whole mass on token_ids[i]."""

    token_ids: list[int]
    like: Tensor
    """Any row of the logits: the vocabulary's size, dtype and device."""
    lawless: frozenset[int]

    is_greedy = True

    def prob(self, row: int, token_id: int) -> float:
        return 1.0 if self.token_ids[row] == token_id else 0.0

    def probs(self, row: int) -> Tensor:
        one_hot = torch.zeros_like(self.like)
        one_hot[self.token_ids[row]] = 1.0
        return one_hot

    def sample(self, row: int, key: DrawKey) -> int:
        """The argmax; `key` is not used."""
        return self.token_ids[row]

    def choices(self) -> list[int]:
        """The most likely token of each row."""
        return self.token_ids


@dataclass(slots=True)
class SampledRows:
    """Laws drawn from with `randomness`."""

    laws: Tensor
    """p: [num_rows, vocab_size]"""
    randomness: Randomness
    lawless: frozenset[int]

    is_greedy = False

    def prob(self, row: int, token_id: int) -> float:
        return float(self.laws[row, token_id])

    def probs(self, row: int) -> Tensor:
        return self.laws[row]

    def sample(self, row: int, key: DrawKey) -> int:
        return self.randomness.categorical(self.laws[row], key)

    def choices(self) -> list[int]:
        """The most likely token of each row."""
        token_ids: list[int] = self.laws.argmax(dim=-1).tolist()
        return token_ids


def cut_verdict(verdict: Verdict, target: GreedyRows | SampledRows, draft_token_ids: Sequence[int]) -> Verdict:
    """`verdict` without the token of a row that has no law, and what follows it.

    The accepted draft tokens before it stand: the last of them takes the place of the token after the accepted ones,
    and the next step meets the failure at its first row, just as plain decoding does.
    """
    if not target.lawless:
        return verdict
    for depth, node in enumerate(verdict.path):
        if node + 1 in target.lawless:
            return Verdict(verdict.path[:depth], int(draft_token_ids[node]), verdict.distances[: depth + 1])
    return verdict
