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
from specinfer.engine.batch import build_batch
from specinfer.engine.block_pool import BlockPool
from specinfer.engine.committing import Committer
from specinfer.engine.drafting import Drafter
from specinfer.engine.forming import FormQueue
from specinfer.engine.masking import form_rows
from specinfer.engine.observing import observation
from specinfer.engine.output import RequestGroup
from specinfer.engine.recording import StepTimes, step_cost, step_events
from specinfer.engine.request import Request, Status
from specinfer.engine.runner import Runner
from specinfer.engine.scheduler import Scheduler
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
from specinfer.sampling.rng import CounterRandomness
from specinfer.structured.manager import GrammarManager
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
        grammars: GrammarManager | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        """load_model: gives drafters models of their own. grammars: None for a manager of its own. randomness: None for
        CounterRandomness(config.seed); tests pass one that enumerates every outcome.
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
        self.drafter = Drafter(proposer, controller, context, config.structured.illegal_drafts)
        needs = self.drafter.resources
        self._hidden_points = tuple(sorted(needs.hidden_points))
        if self._hidden_points and not isinstance(loaded.model, HiddenStateModel):
            raise UnsupportedModelError(f"{loaded.model.name} shows no hidden states; {proposer_name} reads them")
        self.runner = Runner(loaded.model, config.cache, needs.claims, kv_cache)
        self.pool = BlockPool(
            self.runner.num_blocks, config.cache.block_size, enable_prefix_caching=config.cache.enable_prefix_caching
        )
        self.scheduler = Scheduler(config.scheduler, self.pool, lookahead=needs.lookahead)
        self._committer = Committer(self.scheduler, self.drafter, loaded.tokenizer)
        num_kv_tokens = self.pool.num_blocks * self.pool.block_size
        self.forms = FormQueue(config.structured, loaded, grammars)
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
        pending = self.forms.submit(params)
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
            if pending is None:
                self.scheduler.add(request)
            else:
                self.forms.add(request, pending)

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
        unformed = self._take_formed()
        if not self.scheduler.has_requests:
            return unformed
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
        forms = form_rows(plan.rows)
        after_forms = time.perf_counter()
        sampled = verify_rows(
            plan.rows, spans, logits, self.verifier, self.randomness, forms=forms, wants_choices=self.drafter.observes
        )
        after_verify = time.perf_counter()

        commit = self._committer.commit(plan, spans, sampled, logits)
        for request, reason in commit.ended:
            self._finish(request, reason)
        if commit.moves.sources:
            self.runner.move_kv(commit.moves.sources, commit.moves.destinations)
        before_observe = time.perf_counter()
        if self.drafter.observes and not self.drafter.observe(*observation(commit.kept, batch)):
            self.pool.reset_prefix_cache()  # the step's blocks lack the drafter's K/V
        self._forget()
        after_observe = time.perf_counter()
        outputs = [*unformed, *self._outputs(sampled)]
        before_propose = time.perf_counter()
        self._propose()
        self._draft_s = time.perf_counter() - before_propose + after_observe - before_observe

        times.forward_s = after_forward - before_forward
        times.grammar_s = after_forms - after_forward
        times.verify_s = after_verify - after_forms
        times.other_s = before_propose - started - (after_verify - before_forward) - (after_observe - before_observe)
        self.drafter.observe_step(step_cost(commit.outcomes, times))
        if self._record_events:
            self.events += step_events(self._num_steps, self._proposer_name, commit.outcomes, times)
        self._num_steps += 1
        return outputs

    def _take_formed(self) -> list[RequestOutput]:
        """Queue the requests whose grammar is ready; the outputs of those whose grammar failed."""
        failed: list[Request] = []

        def fail(request: Request, error: RequestError) -> None:
            request.error = str(error)
            self._finish(request, FinishReason.ERROR)
            failed.append(request)

        self.forms.take_ready(self.scheduler.add, fail, is_idle=not self.scheduler.has_requests)
        self._forget()
        groups = {id(group): group for request in failed if (group := self._group_of[request.request_id])}
        return [output for group in groups.values() if (output := self._report(group)) is not None]

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.text.abandon(reason)
        if request.status is Status.COMPILING:
            self.forms.remove(request)
            request.status = Status.FINISHED
        else:
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
        compiling = [request for request, _ in self.forms.waiting]
        in_flight = {r.request_id for r in (*self.scheduler.running, *self.scheduler.waiting, *compiling)}
        assert in_flight == {r.request_id for g in self._groups.values() for r in g.requests if not r.is_finished}
