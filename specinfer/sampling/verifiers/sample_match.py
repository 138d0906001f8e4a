"""Which draft tokens stand if nothing but the target's own choice may be emitted?

The target chooses at every row as it would without a draft (its argmax when greedy, the plain sample of the position
otherwise) and a draft token stands iff it is that choice. Always true: the tokens emitted are those of plain decoding,
one by one, for every seed; so the output law is exactly the target's whatever q was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem


def match(item: VerifyItem) -> Verdict:
    """Follow the draft as long as the target itself chooses one of its branches, then give the target's next choice.

    Exact because the choice at a row is drawn from its p by the position's own noise, which no drafter has seen.
    """
    children = item.draft.children()
    path: list[int] = []
    row = 0
    while True:
        chosen = item.target.sample(row, item.key(len(path), Purpose.SAMPLE))
        node = next((node for node in children[row] if item.draft.token_ids[node] == chosen), None)
        if node is None:
            return Verdict(tuple(path), chosen)
        path.append(node)
        row = node + 1


@dataclass
class SampleMatchVerifier:
    """Exact. Accepts a token with probability sum_x p(x) q(x), rejection sampling with sum_x min(p(x), q(x)).

    The price buys seeded outputs that equal plain decoding's even with a stochastic drafter. Accepting the argmax of a
    sampled request outright would be biased, so that is not what this does.
    """

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [match(item) for item in items]
