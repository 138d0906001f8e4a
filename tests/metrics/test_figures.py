"""Each figure is what its definition says, at the ends and by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinfer.events import StepEvent
from specinfer.metrics import figures, table, totals
from tests.metrics.conftest import make_event
from tests.metrics.test_totals import requests


def _micro(events: list[StepEvent]) -> dict[str, float | None]:
    sums = totals.by_request(table.from_events(events))
    return {figure.name: figure.micro(sums) for figure in figures.FIGURES}


LENGTHS = [f.name for f in figures.FIGURES if "length" in f.name or "block" in f.name or "tokens" in f.name]
RATES = ["draft_efficiency", "alpha", "vllm_draft_acceptance_rate"]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_nothing_accepted_gives_length_one_and_rate_zero(lengths: list[int]) -> None:
    values = _micro([make_event(step=i, drafted=k) for i, k in enumerate(lengths)])
    assert {values[name] for name in LENGTHS} == {1.0}
    assert {values[name] for name in RATES} == {0.0}


@given(st.integers(1, 5), st.integers(1, 6))
def test_everything_accepted_gives_rate_one_and_length_k_plus_one(k: int, num_steps: int) -> None:
    values = _micro([make_event(step=i, drafted=k, accepted=k) for i in range(num_steps)])
    assert {values[name] for name in RATES} == {1.0}
    assert {values[name] for name in LENGTHS} == {k + 1.0}


@given(st.integers(1, 6))
def test_a_figure_without_a_measurement_is_none(num_steps: int) -> None:
    values = _micro([make_event(step=i) for i in range(num_steps)])
    assert values["acceptance_length_drafted"] is None
    assert values["draft_efficiency"] is None
    assert values["acceptance_length_all"] == values["block_efficiency"] == 1.0


def test_draftless_steps_count_in_one_acceptance_length_and_not_in_the_other() -> None:
    values = _micro([make_event(step=0, drafted=4, accepted=2), make_event(step=1), make_event(step=2)])
    assert values["acceptance_length_drafted"] == values["vllm_mean_acceptance_length"] == 3.0
    assert values["acceptance_length_all"] == pytest.approx(1 + 2 / 3)


def test_peers_count_before_the_stop_cut_and_we_after_it() -> None:
    values = _micro([make_event(drafted=4, accepted=4, cut=3)])
    assert values["vllm_mean_acceptance_length"] == values["spec_bench_mean_accepted_tokens"] == 5.0
    assert values["acceptance_length_drafted"] == 3.0
    assert values["block_efficiency"] == 2.0


def test_sglang_counts_the_token_of_the_prefill() -> None:
    values = _micro([make_event(prefill=True), make_event(step=1, drafted=2, accepted=1)])
    assert values["sglang_accept_length"] == 3.0
    assert values["block_efficiency"] == 2.0


def test_micro_pools_and_macro_averages_over_requests() -> None:
    long = [make_event("a", step, 1, 1) for step in range(9)]
    sums = totals.by_request(table.from_events([*long, make_event("b", 9, 1, 0)]))
    assert figures.DRAFT_EFFICIENCY.micro(sums) == 0.9
    assert figures.DRAFT_EFFICIENCY.macro(sums) == 0.5
    assert figures.ACCEPTANCE_LENGTH_ALL.macro(sums) == 1.5


def test_the_interval_holds_the_micro_value_and_is_the_same_each_time() -> None:
    events = [make_event(f"r{i}", i, 4, i % 5) for i in range(20)]
    sums = totals.by_request(table.from_events(events))
    interval = figures.ACCEPTANCE_LENGTH_DRAFTED.interval(sums)
    assert interval is not None and interval.low is not None and interval.high is not None
    assert interval.value == figures.ACCEPTANCE_LENGTH_DRAFTED.micro(sums) == 3.0
    assert interval.low < interval.value < interval.high
    assert interval == figures.ACCEPTANCE_LENGTH_DRAFTED.interval(sums)


@given(requests())
def test_position_rates_sum_to_the_acceptance_length(events: list[StepEvent]) -> None:
    rates = figures.by_position(table.from_events(events))
    expected = figures.ACCEPTANCE_LENGTH_DRAFTED.micro(totals.by_request(table.from_events(events)))
    assert (expected is None) == (rates.num_drafted_steps == 0)
    if expected is not None:
        assert 1 + sum(rates.unconditional) == pytest.approx(expected)
        assert rates.unconditional == sorted(rates.unconditional, reverse=True)


def test_conditional_rates_are_quotients_of_unconditional_ones() -> None:
    accepted = [0, 1, 2, 2]
    rates = figures.by_position(
        table.from_events([make_event(step=i, drafted=4, accepted=n) for i, n in enumerate(accepted)])
    )
    assert rates.num_accepted == [3, 2, 0, 0]
    assert rates.unconditional == [0.75, 0.5, 0.0, 0.0]
    assert rates.conditional == [0.75, pytest.approx(2 / 3), 0.0, None]


def test_short_drafts_lower_u_but_are_counted_as_not_drafted() -> None:
    rates = figures.by_position(
        table.from_events([make_event(step=0, drafted=1, accepted=1), make_event(step=1, drafted=2, accepted=2)])
    )
    assert rates.num_drafted == [2, 1]
    assert rates.unconditional == [1.0, 0.5]


def test_acceptance_is_shown_by_context_length() -> None:
    """`context_len` of an event is ten more than its step."""
    events = table.from_events([make_event(step=step, drafted=2, accepted=2 if step < 6 else 0) for step in range(12)])
    found = figures.by_context(events, edges=(16, 18, 100))
    assert list(found) == ["0..15", "16..17", "18..99"]
    assert [rates.num_drafted_steps for rates in found.values()] == [6, 2, 4]
    assert [rates.unconditional[0] for rates in found.values()] == [1.0, 0.0, 0.0]


def test_a_tree_counts_by_depth_and_its_nodes_as_drafted() -> None:
    tree = dataclasses.replace(
        make_event(drafted=5, accepted=2), draft_parents=[-1, -1, 0, 1, 3], draft_depth=3, accepted_path=[1, 3]
    )
    events = table.from_events([tree])
    rates = figures.by_position(events)
    assert rates.num_drafted == [1, 1, 1] and rates.num_accepted == [1, 1, 0]
    sums = totals.by_request(events)
    assert sums["drafted"].item() == 5 and sums["accepted"].item() == 2
    assert sums["tested"].item() == 0, "which nodes of a tree were tested is the verifier's affair"
