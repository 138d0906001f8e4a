"""Which draft tokens stand if the target need only find them likely enough?

The plainest lossy rule, a baseline for `typical`. Legend: p the target's law at a row, x a drafted token. Always true:
a token with p(x) = 0 never stands; given the draft, no noise decides what stands; greedy requests are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.typical import check_number, judge


@dataclass
class ThresholdVerifier:
    """Lossy. A node stands iff p(x) >= threshold; the longest path, the token after it and the distances as `typical`.

    At threshold = 1 only what p is certain of stands, which is exact.
    """

    threshold: float = 0.3

    def __post_init__(self) -> None:
        """Raise ConfigError unless `threshold` is in (0, 1]."""
        check_number("threshold", self.threshold, 0.0, 1.0)
        if not self.threshold > 0:
            raise ConfigError(
                f"verifier.threshold must be more than 0, got {self.threshold!r}: at 0 a token that the request's "
                f"parameters forbid would stand; give a small number instead"
            )

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=False, parameter="threshold")

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [judge(item, self._standing) for item in items]

    def _standing(self, p: Tensor, token_ids: Sequence[int]) -> list[bool]:
        return [float(p[token_id]) >= self.threshold for token_id in token_ids]
