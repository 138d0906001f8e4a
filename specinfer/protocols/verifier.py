"""What must a verifier do to plug in?

Notation, here and in the verifiers only: p is the target's law at a position after every sampling parameter, q the law
that a draft token was really drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specinfer.protocols.randomness import DrawKey, Purpose, Randomness
from specinfer.types import Draft


class TargetRows(Protocol):
    """The target's law p at a request's rows: row 0 behind the committed tokens, row i + 1 behind draft node i.

    Greedy requests have a one-hot p and use no noise. Always true: p holds every sampling parameter.
    """

    @property
    def is_greedy(self) -> bool: ...

    def prob(self, row: int, token_id: int) -> float:
        """p(token) at `row`."""
        ...

    def probs(self, row: int) -> Tensor:
        """p at `row`, [vocab_size]; not to be modified."""
        ...

    def sample(self, row: int, key: DrawKey) -> int:
        """A token drawn from p at `row`: the argmax when greedy."""
        ...


@dataclass(slots=True)
class VerifyItem:
    """One request's draft and the target's rows for it."""

    target: TargetRows
    draft: Draft
    seed: int
    position: int
    """Output position of a draft's first token."""

    def key(self, depth: int, purpose: Purpose, index: int = 0) -> DrawKey:
        """The key of a draw that decides the token at `depth`, 0 for the first; siblings differ by `index`."""
        return DrawKey(self.seed, self.position + depth, purpose, index)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The draft nodes of `path` stand, each the child of the one before, then comes `token_id`."""

    path: tuple[int, ...]
    token_id: int
    distances: tuple[float, ...] = ()
    """A lossy verifier's total variation distance from p of the law it emitted each token of the path by, the last
    token's at the end; empty where all are 0"""

    @property
    def num_accepted(self) -> int:
        return len(self.path)

    @staticmethod
    def chain(num_accepted: int, token_id: int) -> Verdict:
        """The first `num_accepted` tokens of a chain stand."""
        return Verdict(tuple(range(num_accepted)), token_id)


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """What a verifier promises of the emitted tokens: exactly p, or not, by a named parameter."""

    is_exact: bool
    parameter: str | None = None


class Verifier(Protocol):
    """Decides which draft tokens stand, and the token after them."""

    @property
    def law(self) -> OutputLaw: ...

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        """One verdict an item, in order; drafts have at least one token."""
        ...
