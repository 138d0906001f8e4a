"""The sums behind every figure are those of the events, exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinfer.events import StepEvent
from specinfer.metrics import table, totals
from tests.metrics.conftest import make_event


@st.composite
def requests(draw: st.DrawFn) -> list[StepEvent]:
    """One to four requests of a prefill step and some decode steps; only a last step may hold a stop."""
    events = []
    for request in range(draw(st.integers(1, 4))):
        events.append(make_event(f"r{request}", 0, prefill=True))
        num_steps = draw(st.integers(0, 5))
        for step in range(1, num_steps + 1):
            drafted = draw(st.integers(0, 4))
            accepted = draw(st.integers(0, drafted))
            cut = draw(st.integers(0, accepted)) if step == num_steps else 0
            events.append(make_event(f"r{request}", step, drafted, accepted, cut))
    return events


@given(requests())
def test_emitted_is_the_output_tokens_and_accepted_never_counts_a_cut_one(events: list[StepEvent]) -> None:
    sums = totals.by_request(table.from_events(events))
    for row in sums.to_dicts():
        own = [e for e in events if e.request_id == row["request_id"]]
        assert row["emitted"] == sum(e.num_emitted for e in own)
        # An uncut step emits what it accepted and one more; a cut one emits accepted tokens only.
        assert row["emitted_decode"] == row["accepted"] + sum(e.is_decode and e.num_cut == 0 for e in own)
        assert row["accepted"] <= row["accepted_uncut"] <= row["tested"] <= row["drafted"]


def test_a_stop_inside_a_draft_counts_only_what_was_emitted(event: Callable[..., StepEvent]) -> None:
    sums = totals.by_request(table.from_events([event(drafted=4, accepted=4, cut=3)])).row(0, named=True)
    assert (sums["accepted"], sums["accepted_uncut"], sums["emitted"]) == (2, 4, 2)


def test_a_prefill_step_adds_emitted_tokens_and_nothing_else(event: Callable[..., StepEvent]) -> None:
    sums = totals.by_request(table.from_events([event(prefill=True)])).row(0, named=True)
    assert sums.pop("request_id") == "r0"
    assert sums.pop("emitted") == 1
    assert set(sums.values()) == {0}


def test_overlap_sums_the_tested_tokens_only(event: Callable[..., StepEvent]) -> None:
    step = event(drafted=3, accepted=1, p=[0.9, 0.2, 0.7], q=[0.5, 0.4, 0.7])
    sums = totals.by_request(table.from_events([step])).row(0, named=True)
    assert sums["tested"] == 2
    assert sums["overlap"] == pytest.approx(1.0 + 0.5)


def test_a_step_is_shared_equally_among_its_requests(event: Callable[..., StepEvent]) -> None:
    events = [event("a", 0, batch_size=2, seconds=4.0), event("b", 0, batch_size=2, seconds=4.0), event("a", 1)]
    shared = totals.shared_seconds(table.from_events(events))
    assert dict(zip(shared["request_id"], shared["seconds"], strict=True)) == pytest.approx({"a": 3.0, "b": 2.0})


def test_the_time_split_counts_a_step_once(event: Callable[..., StepEvent]) -> None:
    events = [event("a", 0, batch_size=2), event("b", 0, batch_size=2), event("a", 1)]
    split = totals.time_split(table.from_events(events))
    assert split == pytest.approx({"draft_s": 0.2, "forward_s": 1.2, "grammar_s": 0.1, "verify_s": 0.4, "other_s": 0.1})
