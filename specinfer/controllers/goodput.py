"""Which draft length gives this batch the most tokens a second, by what its steps were seen to take?

    goodput(k) = n * (1 + sum_(i<k) C_0 ... C_i) / (forward_s(tokens(k)) + overhead_s(k, n))

n requests, C_i the conditional acceptance of position i (metrics: U_i / U_(i-1)). Always true: a length is used because
it is best even if what was not measured is at its worst, or else as a trial; trials are paid from an account; the
output law stays the target's, since lengths depend on committed tokens and clocks only, before anything is drafted.
Clocks differ from run to run: a seeded request keeps its law, but token by token it may not repeat itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specinfer.controllers.goodput_tables import Acceptance, CostTable
from specinfer.errors import ConfigError, check_count
from specinfer.protocols import EngineLoad, RequestView, StepCost

FIRST_TRIALS = 3.0
"""Steps' worth of time that trials may cost before any was saved up, and may save up at most"""
MIN_GAIN = 1.02
"""Promised goodput over the best known at which an unmeasured length is worth a trial"""
STALE_WEIGHT = 4.0
"""Trials a position that old acceptance counts for once a longer draft is tried again"""
TRIAL_STEPS = 2
"""Steps of a trial: the second one shows whether the first was slow by accident"""


@dataclass(frozen=True, slots=True)
class _Round:
    """One step's choice; of a trial also its time at worst, the goodput (tokens/s) forgone, and a plain step's time."""

    length: int
    is_trial: bool = False
    worst_s: float = 0.0
    forgone: float = 0.0
    plain_s: float = 0.0


@dataclass
class GoodputController:
    """One draft length for all requests of a step: the best by the measured costs and acceptance.

    It starts with `warmup` plain steps. Lengths whose best case beats the best known are tried, cheapest promise first,
    while the trials' losses fit what they may cost: three steps at first, then `exploration` steps a step. Every
    `revisit_interval` steps the neighbours of the best, and the plain path, are measured again, on the same account.
    `decay` is what a step leaves of older acceptance counts. Costs come from steps without prefill only. `profile` is
    a list of [num_tokens, forward_s] measured before, a first guess that own measurements replace.

    It relies on the engine's order: `observe` of a step's drafts, `num_draft_tokens` for the next, `observe_step`.
    """

    max_length: int = 8
    decay: float = 0.95
    warmup: int = 2
    exploration: float = 0.005
    revisit_interval: int = 100
    profile: list[Any] | None = None

    _costs: CostTable = field(init=False, repr=False, compare=False, default_factory=CostTable)
    _acceptance: Acceptance = field(init=False, repr=False, compare=False)
    _asked: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    _chosen: _Round | None = field(init=False, repr=False, compare=False, default=None)
    _verifying: _Round | None = field(init=False, repr=False, compare=False, default=None)
    _seen: set[str] = field(init=False, repr=False, compare=False, default_factory=set)
    _trial: _Round | None = field(init=False, repr=False, compare=False, default=None)
    _trial_steps: int = field(init=False, repr=False, compare=False, default=0)
    _account: float = field(init=False, repr=False, compare=False, default=FIRST_TRIALS)  # in plain steps
    _num_accepted: int = field(init=False, repr=False, compare=False, default=0)
    _num_steps: int = field(init=False, repr=False, compare=False, default=0)
    _last_steps: dict[int, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigError for the first field out of its range."""
        for name, low in (("max_length", 0), ("warmup", 1), ("revisit_interval", 1)):
            check_count(f"controller.{name}", getattr(self, name), low)
        for name in ("decay", "exploration"):
            share: Any = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
                raise ConfigError(f"controller.{name} must be a number from 0 to less than 1, got {share!r}")
        self._acceptance = Acceptance(self.max_length)
        for num_tokens, forward_s in _checked_profile(self.profile):
            self._costs.forward.add(num_tokens, forward_s)

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        name = request.request_id
        if self._chosen is None or name in self._seen:
            self._chosen = self._choose(max(load.num_running, 1))
            self._seen.clear()
        self._seen.add(name)
        if name in self._asked:  # asked before, and nothing was drafted
            self._acceptance.record(self._asked.pop(name), 0, 0)
        if self._chosen.length:
            self._asked[name] = self._chosen.length
        return self._chosen.length

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        num_asked = self._asked.pop(request.request_id, num_draft_tokens)
        self._acceptance.record(max(num_asked, num_draft_tokens), num_draft_tokens, num_accepted_tokens)
        self._num_accepted += num_accepted_tokens

    def stop(self, request_id: str) -> None:
        self._asked.pop(request_id, None)

    def observe_step(self, cost: StepCost) -> None:
        """Learn what the step took, and settle its account if it was a trial."""
        verified, self._verifying, self._chosen = self._verifying, self._chosen, None
        num_accepted, self._num_accepted = self._num_accepted, 0
        seconds = math.inf  # with prefill, what the drafts took is unknown
        if not cost.has_prefill:
            seconds = cost.draft_s + cost.forward_s + cost.other_s
            self._num_steps += 1
            self._account = min(self._account + self.exploration, FIRST_TRIALS)
            self._measure(cost, verified)
        if verified is not None and verified.is_trial:
            emitted = cost.num_requests + num_accepted
            loss_s = min(seconds, verified.worst_s) - emitted / verified.forgone
            self._account = min(self._account - loss_s / verified.plain_s, FIRST_TRIALS)

    def _measure(self, cost: StepCost, verified: _Round | None) -> None:
        self._costs.forward.add(cost.num_tokens, cost.forward_s)
        length = cost.max_draft_tokens
        if length == 0 and verified is not None:
            length = verified.length  # a search in vain is no plain step
        self._costs.add_overhead(length, cost.num_requests, cost.draft_s + cost.other_s)
        if verified is not None:
            self._last_steps[verified.length] = self._num_steps

    def _choose(self, num_requests: int) -> _Round:
        self._acceptance.fade(self.decay)
        if self._num_steps < self.warmup:
            return _Round(0)
        if self._trial is not None and self._trial_steps > 0 and self._account > 0:
            self._trial_steps -= 1
            return self._trial
        known = [self._goodput(k, num_requests, at_worst=True) for k in range(self.max_length + 1)]
        best = max(range(len(known)), key=known.__getitem__)  # the shortest of equals
        length = self._promising(known[best], num_requests)
        if length is None:
            length = self._outdated(best, known[best], num_requests)
        self._trial = None
        if length is None:
            return _Round(best)
        self._trial_steps = TRIAL_STEPS - 1
        worst_s, plain_s = (self._seconds(k, num_requests, at_worst=True) for k in (length, 0))
        self._trial = _Round(length, True, worst_s, known[best], max(plain_s, 1e-12))
        return self._trial

    def _promising(self, best: float, num_requests: int) -> int | None:
        """The length that may gain most over the `best` goodput for what it may lose, if the account allows any."""
        chosen, best_score = None, 0.0
        for k in range(self.max_length + 1):
            gain = self._goodput(k, num_requests, at_worst=False) / best
            loss_s = self._loss_s(k, best, num_requests)
            if gain > MIN_GAIN and self._can_afford(loss_s, num_requests):
                score = (gain - 1) / max(loss_s, 1e-9)
                if score > best_score:
                    chosen, best_score = k, score
        return chosen

    def _outdated(self, best: int, goodput: float, num_requests: int) -> int | None:
        """The longest unseen of the best's neighbours and the plain path, if it is time and the account allows it."""
        others = {0, best - 1, best + 1} & set(range(self.max_length + 1)) - {best}
        length = min(others, key=lambda k: self._last_steps.get(k, 0), default=None)
        if length is None or self._num_steps - self._last_steps.get(length, 0) < self.revisit_interval:
            return None
        if not self._can_afford(self._loss_s(length, goodput, num_requests), num_requests):
            return None
        if length > best:
            self._acceptance.doubt(STALE_WEIGHT)
        return length

    def _can_afford(self, loss_s: float, num_requests: int) -> bool:
        return loss_s <= self._account * self._seconds(0, num_requests, at_worst=True)

    def _loss_s(self, length: int, forgone: float, num_requests: int) -> float:
        """What a step of `length` costs at worst beyond what its tokens are worth at the goodput forgone."""
        num_emitted = num_requests * (1 + self._acceptance.num_accepted(length, at_worst=True))
        return self._seconds(length, num_requests, at_worst=True) - num_emitted / forgone

    def _goodput(self, length: int, num_requests: int, *, at_worst: bool) -> float:
        num_emitted = num_requests * (1 + self._acceptance.num_accepted(length, at_worst=at_worst))
        return num_emitted / max(self._seconds(length, num_requests, at_worst=at_worst), 1e-12)

    def _seconds(self, length: int, num_requests: int, *, at_worst: bool) -> float:
        num_tokens = round(num_requests * (1 + self._acceptance.num_drafted(length)))
        return self._costs.seconds(length, num_requests, num_tokens, at_worst=at_worst)


def _checked_profile(profile: Any) -> list[tuple[int, float]]:
    """The pairs of a profile; ConfigError for anything that is none."""
    if profile is None:
        return []
    pairs = []
    for pair in profile if isinstance(profile, Sequence) and not isinstance(profile, str) else [profile]:
        is_pair = isinstance(pair, Sequence) and len(pair) == 2 and all(type(x) in {int, float} for x in pair)
        if not is_pair or type(pair[0]) is not int or pair[0] < 1 or not 0 < pair[1] < math.inf:
            raise ConfigError(f"controller.profile must be a list of [num_tokens, forward_s] pairs, got {pair!r} in it")
        pairs.append((pair[0], float(pair[1])))
    return pairs
