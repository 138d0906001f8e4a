"""Which draft tokens stand if only argmaxes are compared?

Greedy verification as most papers describe it: cheap, and right for greedy requests alone. Always true: the output law
is exactly the target's; a sampled request, whose tokens are no argmaxes, has its draft turned down as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.verifiers.sample_match import match


@dataclass
class GreedyMatchVerifier:
    """Exact. Greedy requests accept what equals the argmax; sampled ones get the plain sample of their position.

    Accepting the argmax of a sampled request would be biased; `sample_match` is the exact way to accept by equality.
    """

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [
            match(item) if item.target.is_greedy else Verdict((), item.target.sample(0, item.key(0, Purpose.SAMPLE)))
            for item in items
        ]
