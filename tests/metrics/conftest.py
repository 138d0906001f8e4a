"""Events of made-up requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specinfer.events import StepEvent

Make = Callable[..., StepEvent]


def make_event(
    request_id: str = "r0",
    step: int = 0,
    drafted: int = 0,
    accepted: int = 0,
    cut: int = 0,
    *,
    prefill: bool = False,
    batch_size: int = 1,
    p: list[float] | None = None,
    q: list[float] | None = None,
    seconds: float = 1.0,
) -> StepEvent:
    """One step: `accepted` of `drafted` tokens stand, one more follows, and a stop cuts the last `cut` of them."""
    return StepEvent(
        step=step,
        request_id=request_id,
        context_len=10 + step,
        batch_size=batch_size,
        num_scheduled_tokens=1 + drafted,
        is_prefill=prefill,
        proposer="scripted",
        provenance=[],
        draft_token_ids=list(range(drafted)),
        draft_parents=[],
        draft_depth=drafted,
        accepted_path=[],
        distance=0.0,
        draft_q=q or [1.0] * drafted,
        draft_p=p or [1.0 if i < accepted else 0.0 for i in range(drafted)],
        num_accepted=accepted,
        next_token_id=7,
        num_emitted=accepted + 1 - cut,
        num_cut=cut,
        grammar_states=[],
        mask_popcounts=[],
        legal_mass=[],
        draft_legal=[],
        drafted_states=[],
        legal_draft_mass=[],
        draft_s=0.1 * seconds,
        forward_s=0.6 * seconds,
        grammar_s=0.05 * seconds,
        verify_s=0.2 * seconds,
        other_s=0.05 * seconds,
    )


@pytest.fixture
def event() -> Make:
    return make_event
