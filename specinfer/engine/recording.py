"""How does a step become events?

Always true: one event a scheduled row; the times are the step's own, the same in each of its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specinfer.engine.scheduler import ScheduledRow
from specinfer.events import StepEvent
from specinfer.protocols import FormRows, StepCost
from specinfer.structured.bitmask import popcounts


@dataclass(slots=True)
class StepTimes:
    """Seconds of one step's phases."""

    draft_s: float = 0.0
    forward_s: float = 0.0
    grammar_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0


@dataclass(slots=True)
class RowOutcome:
    """What became of a scheduled row; context_len and is_prefill as they were before the commit."""

    row: ScheduledRow
    context_len: int
    is_prefill: bool
    draft_p: list[float] = field(default_factory=list)
    path: tuple[int, ...] = ()
    distance: float = 0.0
    next_token_id: int | None = None
    num_emitted: int = 0
    num_cut: int = 0
    form: FormRows | None = None
    """What the request's form said of the rows"""
    legal_mass: Sequence[float] = ()
    """What the target's law gives to the tokens that the form allows, a value a row"""


def step_cost(outcomes: Sequence[RowOutcome], times: StepTimes) -> StepCost:
    """What a controller is told of a step."""
    rows = [outcome.row for outcome in outcomes]
    return StepCost(
        num_requests=len(rows),
        num_tokens=sum(row.num_scheduled_tokens for row in rows),
        num_draft_tokens=sum(row.num_drafts for row in rows),
        max_draft_tokens=max(row.num_drafts for row in rows),
        has_prefill=any(outcome.is_prefill for outcome in outcomes),
        draft_s=times.draft_s,
        forward_s=times.forward_s,
        other_s=times.grammar_s + times.verify_s + times.other_s,
    )


def step_events(step: int, proposer: str, outcomes: Sequence[RowOutcome], times: StepTimes) -> list[StepEvent]:
    """The step's events, in row order."""
    return [
        StepEvent(
            step=step,
            request_id=outcome.row.request.request_id,
            context_len=outcome.context_len,
            batch_size=len(outcomes),
            num_scheduled_tokens=outcome.row.num_scheduled_tokens,
            is_prefill=outcome.is_prefill,
            proposer=proposer,
            provenance=list(outcome.row.draft.provenance or ()) if outcome.row.draft else [],
            draft_token_ids=list(outcome.row.draft.token_ids) if outcome.row.draft else [],
            draft_parents=list(outcome.row.draft.parents or ()) if outcome.row.draft else [],
            draft_depth=1 + max(outcome.row.draft.depths()) if outcome.row.draft else 0,
            draft_q=_draft_q(outcome.row),
            draft_p=outcome.draft_p,
            num_accepted=len(outcome.path),
            accepted_path=list(outcome.path) if outcome.row.draft and outcome.row.draft.parents is not None else [],
            distance=outcome.distance,
            next_token_id=outcome.next_token_id,
            num_emitted=outcome.num_emitted,
            num_cut=outcome.num_cut,
            grammar_states=outcome.form.states if outcome.form else [],
            mask_popcounts=popcounts(outcome.form.bitmask) if outcome.form else [],
            legal_mass=list(outcome.legal_mass),
            draft_legal=outcome.form.is_legal if outcome.form else [],
            drafted_states=outcome.row.census.states if outcome.row.census else [],
            legal_draft_mass=outcome.row.census.legal_mass if outcome.row.census else [],
            draft_s=times.draft_s,
            forward_s=times.forward_s,
            grammar_s=times.grammar_s,
            verify_s=times.verify_s,
            other_s=times.other_s,
        )
        for outcome in outcomes
    ]


def _draft_q(row: ScheduledRow) -> list[float]:
    if row.draft is None:
        return []
    if row.draft.probs is None:
        return [1.0] * row.num_drafts
    chosen = torch.as_tensor(row.draft.token_ids, device=row.draft.probs.device)
    q: list[float] = row.draft.probs.gather(1, chosen[:, None])[:, 0].tolist()
    return q
