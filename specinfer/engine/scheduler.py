"""Which tokens of which requests run in the next step?

One notion: a row has `num_scheduled_tokens`, be they a prompt chunk, a pending token, or a pending token and drafts.
Who owns KV: `schedule` allocates blocks for all scheduled tokens; `commit` publishes what is full and computed;
`finish` and preemption free the table. Always true: the sum of scheduled tokens is within the budget; every running
request gets at least one token a step or is preempted; the first in rank always runs, so none starves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specinfer.config import SchedulerConfig, SchedulingPolicy
from specinfer.engine.block_pool import BlockPool
from specinfer.engine.request import Request, Status
from specinfer.structured.drafts import DraftCensus
from specinfer.types import Draft


@dataclass(slots=True)
class ScheduledRow:
    """A stretch of one request: tokens `start : start + num_scheduled_tokens`, drafts last."""

    request: Request
    start: int
    num_scheduled_tokens: int
    draft: Draft | None
    """The drafts that are scheduled, None for none."""
    census: DraftCensus | None = None
    """What the request's form said of the draft as it was proposed"""

    @property
    def num_drafts(self) -> int:
        return len(self.draft.token_ids) if self.draft is not None else 0

    @property
    def is_prefill(self) -> bool:
        """Whether it computes tokens that were never pending from the step before: prompt, or KV lost to preemption."""
        pending = self.request.num_tokens - self.start
        return pending > 1 or self.request.num_output_tokens == 0

    @property
    def is_sampled(self) -> bool:
        """Whether it reaches the last committed token, so that a new one comes out."""
        return self.start + self.num_scheduled_tokens >= self.request.num_tokens


@dataclass(slots=True)
class StepPlan:
    """One step's rows, in rank order, and who lost their KV to make room."""

    rows: list[ScheduledRow] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)


class Scheduler:
    """Keeps the queues and the block tables."""

    def __init__(self, config: SchedulerConfig, pool: BlockPool, *, lookahead: int = 0) -> None:
        """lookahead: tokens behind a block that a drafter's K/V in it depends on; it is known by them too."""
        self.config = config
        self.pool = pool
        self.lookahead = lookahead
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._num_steps = 0
        self._waiting_is_sorted = True

    def add(self, request: Request) -> None:
        """Queue a new request."""
        request.queued_step = self._num_steps
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        request.status = Status.WAITING
        self.waiting.append(request)
        self._waiting_is_sorted = False

    @property
    def has_requests(self) -> bool:
        return bool(self.running or self.waiting)

    def schedule(self) -> StepPlan:
        """Choose the next step's rows and allocate their blocks: running requests first, then waiting ones."""
        self._num_steps += 1
        plan = StepPlan()
        budget = self._schedule_running(plan)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        return plan

    def _schedule_running(self, plan: StepPlan) -> int:
        """Room for every pending token first; then for drafts, so that none costs another request its KV."""
        budget = self.config.max_num_batched_tokens
        self.running.sort(key=_rank)
        granted: list[int] = []
        while len(granted) < len(self.running):
            request = self.running[len(granted)]
            # One token is kept for each request behind this one, so that a long prompt delays nobody.
            available = budget - (len(self.running) - len(granted) - 1)
            num_tokens = min(request.num_pending_tokens + request.num_draft_pending, available)
            if self._make_room(request, min(num_tokens, request.num_pending_tokens), plan):
                granted.append(num_tokens)
                budget -= num_tokens
        for request, num_tokens in zip(self.running, granted, strict=True):
            fitting = min(num_tokens, max(request.num_pending_tokens, self._capacity(request)))
            grown = self._grow(request, fitting)
            assert grown, "room for the pending tokens was made before"
            plan.rows.append(_row(request, fitting))
            budget += num_tokens - fitting
        return budget

    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        """Blocks for `num_tokens` more tokens, at the cost of the last in rank; False if that was `request` itself."""
        while not self._grow(request, num_tokens):
            victim = self.running[-1]
            self._preempt(victim, plan)
            if victim is request:
                return False
        return True

    def _capacity(self, request: Request) -> int:
        """Tokens beyond the computed ones that fit without taking anybody's KV.

        A draft is cut to this, never dropped because it is longer: its length may depend on the tokens drawn for it,
        and what is done to it must not.
        """
        return (len(request.block_ids) + self.pool.num_free) * self.pool.block_size - request.num_computed_tokens

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Extend the table to hold `num_tokens` beyond the computed ones; False, changing nothing, if it cannot."""
        needed = -(-(request.num_computed_tokens + num_tokens) // self.pool.block_size) - len(request.block_ids)
        if needed <= 0:
            return True
        new = self.pool.allocate(needed, after=request.block_ids[-1] if request.block_ids else None)
        if new is None:
            return False
        request.block_ids.extend(new)
        return True

    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        self._sort_waiting()
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            cached = self._match_prefix(request)
            self.pool.share(cached)
            request.block_ids = list(cached)
            request.num_computed_tokens = len(cached) * self.pool.block_size
            num_tokens = min(request.num_pending_tokens, budget)
            if not self._grow(request, num_tokens):
                self._release(request)
                break
            if request.num_cached_tokens is None:
                request.num_cached_tokens = request.num_computed_tokens
            request.status = Status.RUNNING
            self.running.append(self.waiting.pop(0))
            plan.rows.append(_row(request, num_tokens))
            budget -= num_tokens

    def _match_prefix(self, request: Request) -> list[int]:
        """Blocks already computed. The last token is always left to compute: its logits are needed."""
        if not self.pool.enable_prefix_caching or request.params.prompt_logprobs is not None:
            return []
        num_full = (request.num_tokens - 1) // self.pool.block_size
        return self.pool.match(request.block_hashes(num_full, self.pool.block_size, self.lookahead))

    def _sort_waiting(self) -> None:
        aging = self.config.priority_aging_steps
        if self.config.policy is SchedulingPolicy.FCFS:
            for request in self.waiting if not self._waiting_is_sorted else ():
                request.priority = 0
        elif aging is not None:
            for request in self.waiting:
                request.priority = request.params.priority - (self._num_steps - request.queued_step) // aging
            self._waiting_is_sorted = False
        if not self._waiting_is_sorted:
            self.waiting.sort(key=_rank)
            self._waiting_is_sorted = True

    def commit(self, row: ScheduledRow, num_computed: int) -> None:
        """Record that the first `num_computed` scheduled tokens stand; full blocks become findable."""
        request = row.request
        request.num_computed_tokens = row.start + num_computed
        assert request.num_computed_tokens < request.num_tokens
        if self.pool.enable_prefix_caching:
            first = row.start // self.pool.block_size
            num_full = request.num_computed_tokens // self.pool.block_size
            hashes = request.block_hashes(num_full, self.pool.block_size, self.lookahead)
            for index in range(first, num_full):
                self.pool.publish(request.block_ids[index], hashes[index])

    def reserve(self, request: Request, num_tokens: int) -> int:
        """Slots to draft in: blocks for `num_tokens` beyond the computed ones as far as there are free ones.

        Returns how many tokens fit; `release_reserved` gives the blocks back before the next step.
        """
        size = self.pool.block_size
        missing = -(-(request.num_computed_tokens + num_tokens) // size) - len(request.block_ids)
        if missing > 0:
            after = request.block_ids[-1] if request.block_ids else None
            request.block_ids.extend(self.pool.allocate(min(missing, self.pool.num_free), after=after) or ())
        return min(num_tokens, len(request.block_ids) * size - request.num_computed_tokens)

    def release_reserved(self, request: Request) -> None:
        """Give back the blocks behind the computed tokens."""
        num_kept = -(-request.num_computed_tokens // self.pool.block_size)
        self.pool.free(request.block_ids[num_kept:])
        del request.block_ids[num_kept:]

    def finish(self, request: Request) -> None:
        """Take a request out, whatever its state, and free its KV."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
        elif request.status is Status.WAITING:
            self.waiting.remove(request)
        self._release(request)
        request.status = Status.FINISHED

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        """Drop KV and drafts; outputs stay, and the tokens are computed again when it is next admitted."""
        self.running.remove(request)
        self._release(request)
        request.draft = request.draft_census = None
        request.num_preemptions += 1
        plan.preempted.append(request)
        self._enqueue(request)

    def _release(self, request: Request) -> None:
        self.pool.free(request.block_ids)
        request.block_ids = []
        request.num_computed_tokens = 0

    def check_integrity(self) -> None:
        """Assert the invariants of queues and pool, between steps."""
        self.pool.check_integrity(request.block_ids for request in self.running)
        assert not any(request.block_ids for request in self.waiting)
        assert all(request.status is Status.RUNNING for request in self.running)
        assert all(request.status is Status.WAITING for request in self.waiting)
        for request in self.running:
            assert 0 <= request.num_computed_tokens < request.num_tokens
            assert request.num_computed_tokens <= len(request.block_ids) * self.pool.block_size


def _rank(request: Request) -> tuple[int, int]:
    return request.priority, request.arrival_index


def _row(request: Request, num_tokens: int) -> ScheduledRow:
    draft, census = request.draft, request.draft_census
    request.draft = request.draft_census = None
    num_drafts = num_tokens - request.num_pending_tokens
    if draft is None or num_drafts <= 0:
        draft = None
    elif num_drafts < len(draft.token_ids):
        draft = draft.truncate(num_drafts)
    return ScheduledRow(request, request.num_computed_tokens, num_tokens, draft, census)
