"""What does a step take, and what does a draft bring, as far as it was seen?

Always true: beyond what was measured a table gives the worst and the best that is possible, and never a guess between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

WINDOW = 9
"""Times kept a measured count; their lower median is the estimate, so that a slow step misleads nobody"""
MAX_COUNTS = 64
"""Counts kept a curve; the one measured longest ago goes first"""
PRIOR_ACCEPTANCE, PRIOR_WEIGHT = 0.8, 1.0


class Curve:
    """Seconds as a monotone function of a count, from measurements at some counts.

    Between measured counts it is linear. Beyond them time grows at least not at all and at most in proportion
    (computing a + b tokens at once takes no longer than one after the other): the two ends of what it may be.
    """

    def __init__(self) -> None:
        self._samples: dict[int, deque[float]] = {}
        self._counts: list[int] = []
        self._seconds: list[float] = []

    def __bool__(self) -> bool:
        return bool(self._samples)

    def add(self, count: int, seconds: float) -> None:
        """See what `count` took once."""
        samples = self._samples.pop(count, deque(maxlen=WINDOW))
        samples.append(seconds)
        self._samples[count] = samples  # last in order: measured latest
        if len(self._samples) > MAX_COUNTS:
            del self._samples[next(iter(self._samples))]
        self._counts = sorted(self._samples)
        self._seconds = self._monotone()

    def _monotone(self) -> list[float]:
        """Pool neighbours that fall until none does: the closest rising sequence, weighted by numbers of samples."""
        pools: list[tuple[float, int, int]] = []  # seconds, samples, counts
        for count in self._counts:
            samples = self._samples[count]
            seconds, weight, width = sorted(samples)[(len(samples) - 1) // 2], len(samples), 1
            while pools and pools[-1][0] > seconds:
                before = pools.pop()
                seconds = (before[0] * before[1] + seconds * weight) / (before[1] + weight)
                weight, width = weight + before[1], width + before[2]
            pools.append((seconds, weight, width))
        return [seconds for seconds, _, width in pools for _ in range(width)]

    def seconds(self, count: int, *, at_worst: bool) -> float:
        """The time of `count`: interpolated, or the upper or lower end beyond what was measured."""
        counts, seconds = self._counts, self._seconds
        if count <= counts[0]:
            return seconds[0] * (1.0 if at_worst else count / counts[0])
        if count >= counts[-1]:
            return seconds[-1] * (count / counts[-1] if at_worst else 1.0)
        right = bisect_left(counts, count)
        share = (count - counts[right - 1]) / (counts[right] - counts[right - 1])
        return seconds[right - 1] + share * (seconds[right] - seconds[right - 1])


class CostTable:
    """What a step takes: its forward by tokens, the rest (drafting, verifying, commit) by draft length and requests."""

    def __init__(self) -> None:
        self.forward = Curve()
        self.overheads: dict[int, Curve] = {}

    def seconds(self, length: int, num_requests: int, num_tokens: int, *, at_worst: bool) -> float:
        """The time of a step, at worst or at best where it was not measured."""
        forward = self.forward.seconds(max(num_tokens, 1), at_worst=at_worst)
        return forward + self._overhead(length, num_requests, at_worst=at_worst)

    def add_overhead(self, length: int, num_requests: int, seconds: float) -> None:
        """See what a step took beside its forward."""
        self.overheads.setdefault(length, Curve()).add(num_requests, seconds)

    def _overhead(self, length: int, num_requests: int, *, at_worst: bool) -> float:
        """As measured; else between that of the next shorter draft and in proportion to it.

        Before anything was drafted, a drafted token is taken to cost as much as one of the target, at worst.
        """
        shorter = max((k for k in self.overheads if k <= length), default=None)
        if shorter is None:
            return 0.0
        known = self.overheads[shorter].seconds(num_requests, at_worst=at_worst)
        if shorter == length or not at_worst:
            return known
        if shorter == 0:
            return known + length * self.forward.seconds(num_requests, at_worst=True)
        return known * length / shorter


class Acceptance:
    """How much of drafts is found and accepted, a position: counts of all requests that fade with age.

    A position after a rejection, or one for which the drafter had no token, says nothing or no. One that was not
    tried lately is expected to do as well as the one before it.
    """

    def __init__(self, max_length: int) -> None:
        self._tries = [0.0] * max_length
        self._hits = [0.0] * max_length
        self._asked = [0.0] * max_length
        self._found = [0.0] * max_length
        self._is_fresh = False

    def record(self, num_asked: int, num_found: int, num_accepted: int) -> None:
        """See one draft's end, or that there was none (0 found)."""
        self._is_fresh = True
        for i in range(min(num_asked, len(self._asked))):
            self._asked[i] += 1
            self._found[i] += i < num_found
            self._tries[i] += i <= num_accepted
            self._hits[i] += i < num_accepted

    def fade(self, decay: float) -> None:
        """Let everything seen so far count `decay` times as much; nothing where nothing new came since."""
        for counts in (self._tries, self._hits, self._asked, self._found):
            counts[:] = [count * (decay if self._is_fresh else 1.0) for count in counts]
        self._is_fresh = False

    def doubt(self, max_tries: float) -> None:
        """Let no position count for more than `max_tries`, so that what comes next decides."""
        for i, tries in enumerate(self._tries):
            if tries > max_tries:
                self._hits[i] *= max_tries / tries
                self._tries[i] = max_tries

    def num_accepted(self, length: int, *, at_worst: bool) -> float:
        """Expected accepted tokens of a draft: sum of C_0 ... C_i; at worst nothing where none was tried."""
        total, reach, expected = 0.0, 1.0, PRIOR_ACCEPTANCE
        for tries, hits in zip(self._tries[:length], self._hits, strict=False):
            if at_worst and tries < 1:
                break
            expected = (hits + PRIOR_WEIGHT * expected) / (tries + PRIOR_WEIGHT)
            reach *= expected
            total += reach
        return total

    def num_drafted(self, length: int) -> float:
        """Expected tokens that the drafter finds for a draft."""
        pairs = zip(self._found[:length], self._asked, strict=False)
        return sum((found + PRIOR_WEIGHT) / (asked + PRIOR_WEIGHT) for found, asked in pairs)
