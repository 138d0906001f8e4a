"""How does one step turn scheduled requests into committed tokens?

    plan    = schedule()          rows of tokens, drafts included
    logits  = forward(build(plan))
    sampled = verify(logits)      accepted drafts and one more token a row
    commit(sampled)               tokens, KV, stops, outputs, events
    propose()                     drafts for the next step

Always true: between steps every in-flight request has committed tokens only, with K/V for all but the pending ones;
a request that fails takes nobody with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, KeysView, Sequence
from functools import partial

from torch import Tensor

from specinfer import registry
from specinfer.config import EngineConfig
from specinfer.engine.admission import Admission
from specinfer.engine.batch import LogitsSpan, build_batch
from specinfer.engine.block_pool import BlockPool
from specinfer.engine.drafting import Drafter
from specinfer.engine.observing import KeptTokens, KVMoves, observation
from specinfer.engine.output import RequestGroup
from specinfer.engine.recording import RowOutcome, StepTimes, step_cost, step_events
from specinfer.engine.request import Request
from specinfer.engine.runner import Runner
from specinfer.engine.scheduler import ScheduledRow, Scheduler, StepPlan
from specinfer.engine.verification import SampledRow, verify_rows
from specinfer.errors import RequestError, UnsupportedModelError
from specinfer.events import StepEvent
from specinfer.protocols import (
    DraftController,
    EngineLoad,
    HiddenStateModel,
    LoadedModel,
    Proposer,
    ProposerContext,
    Randomness,
    Verifier,
)
from specinfer.sampling.logprobs import raw_logprobs
from specinfer.sampling.rng import CounterRandomness
from specinfer.types import FinishReason, RequestOutput, SamplingParams


class Engine:
    """One target model serving many requests, with one proposer, verifier and controller."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        proposer: Proposer,
        verifier: Verifier,
        controller: DraftController,
        *,
        proposer_name: str,
        load_model: Callable[[str], LoadedModel],
        randomness: Randomness | None = None,
    ) -> None:
        """load_model: gives drafters models of their own. randomness: None for CounterRandomness(config.seed); tests
        pass one that enumerates every outcome.
        """
        self.loaded = loaded
        self.verifier = verifier
        self.randomness = CounterRandomness(config.seed) if randomness is None else randomness
        max_model_len = min(config.max_model_len or loaded.model.max_model_len, loaded.model.max_model_len)
        kv_cache: list[tuple[Tensor, Tensor]] = []  # filled by the runner, when it is known what drafters need
        context = ProposerContext(
            vocab_size=loaded.model.vocab_size,
            max_model_len=max_model_len,
            eos_token_ids=loaded.eos_token_ids,
            tokenizer=loaded.tokenizer,
            randomness=self.randomness,
            device=loaded.model.device,
            target=loaded.model,
            block_size=config.cache.block_size,
            kv_cache=kv_cache,
            load_model=load_model,
            build=partial(registry.build, "proposers"),
        )
        self.drafter = Drafter(proposer, controller, context)
        needs = self.drafter.resources
        self._hidden_points = tuple(sorted(needs.hidden_points))
        if self._hidden_points and not isinstance(loaded.model, HiddenStateModel):
            raise UnsupportedModelError(f"{loaded.model.name} shows no hidden states; {proposer_name} reads them")
        self.runner = Runner(loaded.model, config.cache, needs.claims, kv_cache)
        self.pool = BlockPool(
            self.runner.num_blocks, config.cache.block_size, enable_prefix_caching=config.cache.enable_prefix_caching
        )
        self.scheduler = Scheduler(config.scheduler, self.pool, lookahead=needs.lookahead)
        num_kv_tokens = self.pool.num_blocks * self.pool.block_size
        self._admission = Admission(loaded, max_model_len, num_kv_tokens, config.seed)
        self.events: list[StepEvent] = []
        self._record_events = config.record_events
        self._proposer_name = proposer_name
        self._groups: dict[str, RequestGroup] = {}
        self._group_of: dict[str, RequestGroup] = {}
        self._num_arrivals = 0
        self._num_steps = 0
        self._draft_s = 0.0
        self._forgotten: list[Request] = []

    # ------------------------------------------------------------------------------------------ requests

    def add_request(
        self, request_id: str, prompt: str | Sequence[int], params: SamplingParams, *, cache_salt: str = ""
    ) -> None:
        """Queue a request; RequestError, with nothing queued, when it cannot be served.

        cache_salt: only requests with the same salt share prefix-cache blocks.
        """
        prompt_token_ids = self._admission.prompt_token_ids(prompt)
        requests = self._admission.requests(
            request_id, prompt_token_ids, params, arrival_index=self._num_arrivals, cache_salt=cache_salt
        )
        for name in (request_id, *(request.request_id for request in requests)):
            if name in self._groups or name in self._group_of:
                raise RequestError(f"request id {name!r} is already in flight; a request's completions are id/0, id/1")
        self._num_arrivals += len(requests)
        group = RequestGroup(
            request_id=request_id,
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=prompt_token_ids,
            requests=requests,
            arrival_s=time.perf_counter(),
            output_kind=params.output_kind,
        )
        self._groups[request_id] = group
        for request in requests:
            self._group_of[request.request_id] = group
            self.drafter.start(request)
            self.scheduler.add(request)

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now; its output so far, or None for an id that is not in flight."""
        group = self._groups.get(request_id)
        if group is None:
            return None
        for request in group.requests:
            if not request.is_finished:
                self._finish(request, FinishReason.ABORT)
        self._forget()
        return self._report(group)

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self._groups)

    @property
    def in_flight(self) -> KeysView[str]:
        """Ids of the unfinished requests, oldest first; a live view."""
        return self._groups.keys()

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes; requests in flight are not touched."""
        self.pool.reset_prefix_cache()

    # ---------------------------------------------------------------------------------------------- step

    def step(self) -> list[RequestOutput]:
        """Run one step; the outputs of the requests it moved on, in the kind each asked for."""
        if not self._groups:
            return []
        times = StepTimes(draft_s=self._draft_s)
        started = time.perf_counter()
        plan = self.scheduler.schedule()
        assert plan.rows, "unfinished requests, but none can run"
        batch, spans = build_batch(
            plan.rows, self.pool.block_size, self.loaded.model.device, hidden_points=self._hidden_points
        )

        before_forward = time.perf_counter()
        logits = self.runner.forward(batch)
        after_forward = time.perf_counter()
        sampled = verify_rows(
            plan.rows, spans, logits, self.verifier, self.randomness, wants_choices=self.drafter.observes
        )
        after_verify = time.perf_counter()

        outcomes, kept = self._commit(plan, spans, sampled, logits)
        before_observe = time.perf_counter()
        if self.drafter.observes and not self.drafter.observe(*observation(kept, batch)):
            self.pool.reset_prefix_cache()  # the step's blocks lack the drafter's K/V
        self._forget()
        after_observe = time.perf_counter()
        outputs = self._outputs(sampled)
        before_propose = time.perf_counter()
        self._propose()
        self._draft_s = time.perf_counter() - before_propose + after_observe - before_observe

        times.forward_s = after_forward - before_forward
        times.verify_s = after_verify - after_forward
        times.other_s = before_propose - started - times.forward_s - times.verify_s - (after_observe - before_observe)
        self.drafter.observe_step(step_cost(outcomes, times))
        if self._record_events:
            self.events += step_events(self._num_steps, self._proposer_name, outcomes, times)
        self._num_steps += 1
        return outputs

    def _commit(
        self, plan: StepPlan, spans: Sequence[LogitsSpan], sampled: Sequence[SampledRow], logits: Tensor
    ) -> tuple[list[RowOutcome], list[KeptTokens]]:
        by_request = {id(item.row): item for item in sampled}
        outcomes, kept = [], []
        moves = KVMoves()
        for row, span in zip(plan.rows, spans, strict=True):
            outcome = RowOutcome(row, context_len=row.request.num_tokens, is_prefill=row.is_prefill)
            if span.sampled_start > span.prompt_start:
                self._add_prompt_logprobs(row, logits[span.prompt_start : span.sampled_start])
            item = by_request.get(id(row))
            if item is None:
                kept.append(KeptTokens(row, row.num_scheduled_tokens))
                self.scheduler.commit(row, row.num_scheduled_tokens)
            else:
                kept.append(self._commit_sampled(item, outcome, logits, moves))
            outcomes.append(outcome)
        if moves.sources:
            self.runner.move_kv(moves.sources, moves.destinations)
        return outcomes, kept

    def _commit_sampled(self, item: SampledRow, outcome: RowOutcome, logits: Tensor, moves: KVMoves) -> KeptTokens:
        row, request = item.row, item.row.request
        num_kept = request.text.walk(item.token_ids)
        emitted = item.token_ids[:num_kept]
        # The last token always stays pending, also where a stop cut the draft behind an accepted one.
        path = item.path[: max(num_kept - 1, 0)]
        num_standing = request.num_tokens - row.start - (0 if emitted else 1)
        kept = KeptTokens(row, num_standing, path, item.choices)
        moves.add(kept, self.pool.block_size)
        request.append(emitted)
        self.scheduler.commit(row, kept.end - row.start)
        if request.params.logprobs is not None:
            first = item.span.sampled_start
            rows = logits[[first, *(first + 1 + node for node in item.path)][:num_kept]]
            entries = raw_logprobs(rows, emitted, request.params.logprobs, self.loaded.tokenizer)
            request.text.add_logprobs(entries, emitted)
        if row.num_drafts:
            self.drafter.count(request, row.num_drafts, item.num_accepted)
        outcome.draft_p, outcome.path, outcome.distance = item.draft_p, item.path, sum(item.distances[:num_kept])
        outcome.next_token_id = item.token_ids[-1] if item.error is None else None
        outcome.num_emitted, outcome.num_cut = num_kept, len(item.token_ids) - num_kept
        if request.text.finish_reason is not None:
            self._finish(request, request.text.finish_reason)
        elif item.error is not None:
            request.error = str(item.error)
            self._finish(request, FinishReason.ERROR)
        return kept

    def _add_prompt_logprobs(self, row: ScheduledRow, logits: Tensor) -> None:
        known, num_top = row.request.text.prompt_logprobs, row.request.params.prompt_logprobs
        assert known is not None and num_top is not None
        targets = row.request.token_ids[row.start + 1 : row.start + 1 + len(logits)].tolist()
        skip = len(known) - (row.start + 1)  # computed before a preemption
        if skip < len(targets):
            known += raw_logprobs(logits[skip:], targets[skip:], num_top, self.loaded.tokenizer)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.text.abandon(reason)
        self.scheduler.finish(request)
        self._forgotten.append(request)

    def _outputs(self, sampled: Sequence[SampledRow]) -> list[RequestOutput]:
        groups = {id(group): group for item in sampled if (group := self._group_of[item.row.request.request_id])}
        now = time.perf_counter()
        for group in groups.values():
            if group.first_token_s is None and any(request.num_output_tokens for request in group.requests):
                group.first_token_s = now
        return [output for group in groups.values() if (output := self._report(group)) is not None]

    def _report(self, group: RequestGroup) -> RequestOutput | None:
        if group.is_finished:
            group.finished_s = time.perf_counter()
            del self._groups[group.request_id]
            for request in group.requests:
                del self._group_of[request.request_id]
        return group.output()

    def _propose(self) -> None:
        load = EngineLoad(len(self.scheduler.running), len(self.scheduler.waiting))
        self.drafter.propose(self.scheduler.running, load, self.scheduler)

    def _forget(self) -> None:
        """Let plugins drop finished requests, after a last look at them."""
        while self._forgotten:
            self.drafter.stop(self._forgotten.pop())

    def check_integrity(self) -> None:
        """Assert the invariants of queues, block tables and pool; for tests, between steps."""
        self.scheduler.check_integrity()
        in_flight = {r.request_id for r in (*self.scheduler.running, *self.scheduler.waiting)}
        assert in_flight == {r.request_id for g in self._groups.values() for r in g.requests if not r.is_finished}
