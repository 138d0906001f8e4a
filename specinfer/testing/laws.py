"""What is the exact output law of code that draws its chance from a Randomness?

`enumerate_outcomes` replays the code once per path of choices and multiplies the weights, so the law is that of the
code that runs, not of a formula beside it. Always true: the weights of all paths sum to 1; two draws that share noise
(equal keys) within one run are an error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from specinfer.protocols import DrawKey, OutputLaw, Purpose, Randomness, Verdict, VerifyItem

T = TypeVar("T")
Law = dict[tuple[int, ...], float]
"""The probability of each sequence of output tokens."""


@dataclass(slots=True)
class _Choice:
    """One draw on the current path: its outcomes with their probabilities, and the one taken."""

    outcomes: list[int]
    weights: list[float]
    taken: int = 0


class BranchingRandomness:
    """Replays a given path of choices, then takes the first outcome of every new draw.

    `fault` keeps the first wrong draw, since an engine that survives a failing proposer swallows the exception.
    """

    def __init__(self, path: list[_Choice]) -> None:
        self.fault: str | None = None
        self._path = path
        self._depth = 0
        self._keys: set[DrawKey] = set()

    def bernoulli(self, prob: float, key: DrawKey) -> bool:
        """Both outcomes where neither is certain."""
        self._require(not math.isnan(prob), f"the probability is NaN at {key}")
        if prob >= 1.0 or prob <= 0.0:
            self._note(key)
            return prob >= 1.0
        return bool(self._choose([1, 0], [prob, 1.0 - prob], key))

    def categorical(self, probs: Tensor, key: DrawKey) -> int:
        """Every index whose weight is not 0."""
        weights = [float(weight) for weight in probs.tolist()]
        self._require(all(weight >= 0 for weight in weights), f"a weight is negative or NaN at {key}: {weights}")
        total = math.fsum(weights)
        self._require(total > 0, f"all weights are 0 at {key}")
        outcomes = [index for index, weight in enumerate(weights) if weight > 0]
        return self._choose(outcomes, [weights[index] / total for index in outcomes], key)

    @property
    def weight(self) -> float:
        """The probability of the path taken."""
        return math.prod(choice.weights[choice.taken] for choice in self._path)

    def next_path(self) -> list[_Choice] | None:
        """The next path in depth-first order; None after the last."""
        assert self._depth == len(self._path), "the run drew less than before: it is no function of its draws"
        path = list(self._path)
        while path and path[-1].taken + 1 == len(path[-1].outcomes):
            path.pop()
        if not path:
            return None
        path[-1].taken += 1
        return path

    def _choose(self, outcomes: list[int], weights: list[float], key: DrawKey) -> int:
        self._note(key)
        if self._depth == len(self._path):
            self._path.append(_Choice(outcomes, weights))
        choice = self._path[self._depth]
        is_replay = choice.outcomes == outcomes
        self._require(is_replay, f"another draw than before at {key}: the run is no function of its draws")
        self._depth += 1
        return outcomes[choice.taken]

    def _note(self, key: DrawKey) -> None:
        self._require(
            key not in self._keys,
            f"noise is shared: {key} was drawn twice in one run; a drafter that comes back to a position separates its "
            f"draws by `index`, the token's place in the draft",
        )
        self._keys.add(key)

    def _require(self, is_right: bool, fault: str) -> None:
        if not is_right:
            self.fault = self.fault or fault
            raise AssertionError(fault)


def enumerate_outcomes(run: Callable[[Randomness], T]) -> Iterator[tuple[float, T]]:
    """The probability and the result of every path through `run`, a function of its draws alone."""
    path: list[_Choice] | None = []
    while path is not None:
        randomness = BranchingRandomness(path)
        result = run(randomness)
        assert randomness.fault is None, randomness.fault
        yield randomness.weight, result
        path = randomness.next_path()


def output_law(run: Callable[[Randomness], Sequence[int]]) -> Law:
    """The law of the tokens that `run` returns."""
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for weight, token_ids in enumerate_outcomes(run):
        law[tuple(token_ids)] += weight
    return dict(law)


def assert_same_law(
    found: Mapping[tuple[int, ...], float], expected: Mapping[tuple[int, ...], float], tolerance: float = 1e-12
) -> None:
    """Fail, naming the worst sequence, where two laws differ by more than `tolerance` at any."""
    for name, law in (("found", found), ("expected", expected)):
        total = math.fsum(law.values())
        assert abs(total - 1.0) <= tolerance, f"the {name} law sums to {total!r}"

    def gap(token_ids: tuple[int, ...]) -> float:
        return abs(found.get(token_ids, 0.0) - expected.get(token_ids, 0.0))

    worst = max({**found, **expected}, key=gap)
    assert gap(worst) <= tolerance, (
        f"the laws differ by {gap(worst):.3g} at {worst}: found {found.get(worst, 0.0)!r}, "
        f"expected {expected.get(worst, 0.0)!r}"
    )


@dataclass
class BiasedVerifier:
    """Wrong on purpose: after a rejection it draws from p, not from the residual. A law test must catch it."""

    @property
    def law(self) -> OutputLaw:
        """Claims to be exact, which is the fault to be found."""
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [self._verify(item, randomness) for item in items]

    def _verify(self, item: VerifyItem, randomness: Randomness) -> Verdict:
        for row, token_id in enumerate(item.draft.token_ids):
            q = 1.0 if item.draft.probs is None else float(item.draft.probs[row, token_id])
            if not randomness.bernoulli(item.target.prob(row, token_id) / q, item.key(row, Purpose.ACCEPT)):
                return Verdict.chain(
                    row, randomness.categorical(item.target.probs(row), item.key(row, Purpose.RESIDUAL))
                )
        row = len(item.draft.token_ids)
        return Verdict.chain(row, item.target.sample(row, item.key(row, Purpose.SAMPLE)))
