"""What of a step stands?

Always true: tokens, text, logprobs, the form's place, K/V and events of a request are cut at the same token; the last
token stays pending; a request whose tokens do not fit its form ends with an error and takes nobody with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from specinfer.engine.batch import LogitsSpan
from specinfer.engine.drafting import Drafter
from specinfer.engine.observing import KeptTokens, KVMoves
from specinfer.engine.recording import RowOutcome
from specinfer.engine.request import Request
from specinfer.engine.scheduler import ScheduledRow, Scheduler, StepPlan
from specinfer.engine.verification import SampledRow
from specinfer.protocols import Tokenizer
from specinfer.sampling.logprobs import raw_logprobs
from specinfer.types import FinishReason


@dataclass(slots=True)
class Commit:
    """One step's rows after their commit, in order."""

    outcomes: list[RowOutcome] = field(default_factory=list)
    kept: list[KeptTokens] = field(default_factory=list)
    moves: KVMoves = field(default_factory=KVMoves)
    ended: list[tuple[Request, FinishReason]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committer:
    """Writes a step's tokens into its requests."""

    scheduler: Scheduler
    drafter: Drafter
    tokenizer: Tokenizer

    def commit(
        self, plan: StepPlan, spans: Sequence[LogitsSpan], sampled: Sequence[SampledRow], logits: Tensor
    ) -> Commit:
        """Commit every row of a step; who ended is for the caller to take out."""
        by_row = {id(item.row): item for item in sampled}
        done = Commit()
        for row, span in zip(plan.rows, spans, strict=True):
            outcome = RowOutcome(row, context_len=row.request.num_tokens, is_prefill=row.is_prefill)
            if span.sampled_start > span.prompt_start:
                self._add_prompt_logprobs(row, logits[span.prompt_start : span.sampled_start])
            item = by_row.get(id(row))
            if item is None:
                done.kept.append(KeptTokens(row, row.num_scheduled_tokens))
                self.scheduler.commit(row, row.num_scheduled_tokens)
            else:
                done.kept.append(self._commit_sampled(item, outcome, logits, done))
            done.outcomes.append(outcome)
        return done

    def _commit_sampled(self, item: SampledRow, outcome: RowOutcome, logits: Tensor, done: Commit) -> KeptTokens:
        row, request = item.row, item.row.request
        num_kept = request.text.walk(item.token_ids)
        emitted = item.token_ids[:num_kept]
        # The last token always stays pending, also where a stop cut the draft behind an accepted one.
        path = item.path[: max(num_kept - 1, 0)]
        num_standing = request.num_tokens - row.start - (0 if emitted else 1)
        kept = KeptTokens(row, num_standing, path, item.choices)
        done.moves.add(kept, self.scheduler.pool.block_size)
        request.append(emitted)
        self.scheduler.commit(row, kept.end - row.start)
        if request.params.logprobs is not None:
            first = item.span.sampled_start
            rows = logits[[first, *(first + 1 + node for node in item.path)][:num_kept]]
            request.text.add_logprobs(raw_logprobs(rows, emitted, request.params.logprobs, self.tokenizer), emitted)
        if row.num_drafts:
            self.drafter.count(request, row.num_drafts, len(item.accepted))
        outcome.draft_p, outcome.path, outcome.distance = item.draft_p, item.accepted, sum(item.distances[:num_kept])
        outcome.next_token_id = item.token_ids[-1] if item.error is None else None
        outcome.num_emitted = num_kept
        outcome.num_cut = len(item.accepted) + 1 - num_kept if item.token_ids else 0
        outcome.form, outcome.legal_mass = item.form, item.legal_mass
        self._end(request, item, emitted, done)
        return kept

    def _end(self, request: Request, item: SampledRow, emitted: list[int], done: Commit) -> None:
        """Move the form on and note whether the request is over."""
        error = None if item.error is None else str(item.error)
        if error is None and request.constraint is not None:
            error = _advance(request, emitted)
        if error is not None and request.text.finish_reason is None:
            request.error = error
            done.ended.append((request, FinishReason.ERROR))
        elif request.text.finish_reason is not None:
            done.ended.append((request, request.text.finish_reason))

    def _add_prompt_logprobs(self, row: ScheduledRow, logits: Tensor) -> None:
        known, num_top = row.request.text.prompt_logprobs, row.request.params.prompt_logprobs
        assert known is not None and num_top is not None
        targets = row.request.token_ids[row.start + 1 : row.start + 1 + len(logits)].tolist()
        skip = len(known) - (row.start + 1)  # computed before a preemption
        if skip < len(targets):
            known += raw_logprobs(logits[skip:], targets[skip:], num_top, self.tokenizer)


def _advance(request: Request, emitted: list[int]) -> str | None:
    """Move the form behind the emitted tokens, ending the request where nothing can follow; or what went wrong."""
    constraint = request.constraint
    assert constraint is not None
    try:
        constraint.advance(emitted)
        if not constraint.ending_ids and constraint.is_complete:
            request.text.abandon(FinishReason.STOP)  # a model without an end token
    except Exception as error:  # whatever a foreign matcher raises
        return f"the grammar failed at output token {request.num_output_tokens}: {type(error).__name__}: {error}"
    return None
