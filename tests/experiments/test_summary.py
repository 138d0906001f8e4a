"""The figures of a run are what its answers and events say, by hand."""

from __future__ import annotations

import polars as pl
import pytest

from experiments.comparison import Answer
from experiments.figures import acceptance_by_position, speedup_by_task, time_split
from experiments.summary import results_table, summarise
from experiments.table import COLUMNS, rich_table, table_rows, with_interval
from specinfer.metrics import table
from tests.metrics.conftest import make_event


def _answer(method: str, question: str, num_tokens: int, seconds: float, **more: object) -> Answer:
    return Answer(
        method=method,
        repeat=0,
        task="chat" if question in "ab" else "maths",
        question_id=question,
        turn=0,
        request_id=f"{method}{question}",
        prompt_token_ids=[1],
        token_ids=list(range(num_tokens)),
        text="",
        finish_reason="length",
        seconds=seconds,
        call_seconds=seconds,
        first_token_s=0.1,
        error=None,
        draft_error=None,
        equals_plain=True,
        **more,  # type: ignore[arg-type]
    )


def _events(answers: list[Answer]) -> pl.DataFrame:
    """One prefill token, then decode steps that accept two of four, except the draftless plain ones."""
    events, labels, step = [], {}, 0
    for answer in answers:
        labels[answer.request_id] = {
            name: getattr(answer, name) for name in ("method", "repeat", "task", "question_id", "turn")
        }
        drafts = {} if answer.method == "plain" else {"drafted": 4, "accepted": 2}
        events.append(make_event(answer.request_id, step, prefill=True, seconds=0.1))
        for _ in range((len(answer.token_ids) - 1) // (3 if drafts else 1)):
            step += 1
            events.append(make_event(answer.request_id, step, seconds=0.1, **drafts))
        step += 1
    return table.label(table.from_events(events), labels)


@pytest.fixture
def answers() -> list[Answer]:
    return [
        _answer("plain", "a", 10, 2.0),
        _answer("fast", "a", 10, 1.0),
        _answer("fast", "b", 40, 2.0),
        _answer("plain", "b", 40, 8.0),
        _answer("plain", "c", 10, 1.0),
        _answer("fast", "c", 10, 1.0),
    ]


def test_speedups_are_ratios_of_pooled_speeds(answers: list[Answer]) -> None:
    events = _events(answers)
    overall, tasks = summarise(results_table(answers, events), events)
    assert list(overall) == ["plain", "fast"] and list(tasks) == ["chat", "maths"]
    speedup = overall["fast"].speedup
    assert speedup is not None and speedup.low is not None and speedup.high is not None
    assert speedup.value == pytest.approx((60 / 4) / (60 / 11))
    assert speedup.low < speedup.value < speedup.high
    chat = tasks["chat"]["fast"].speedup
    assert chat is not None and chat.value == pytest.approx((50 / 3) / (50 / 10))
    assert overall["plain"].speedup is None
    assert overall["fast"].spec_bench_speedup == pytest.approx((10 + 20 + 10) / (5 + 5 + 10))


def test_one_question_has_a_speedup_without_interval(answers: list[Answer]) -> None:
    events = _events(answers)
    maths = summarise(results_table(answers, events), events)[1]["maths"]["fast"].speedup
    assert maths is not None and (maths.value, maths.low, maths.high) == (1.0, None, None)
    assert with_interval(maths) == "1.00x"


def test_acceptance_comes_from_the_events(answers: list[Answer]) -> None:
    events = _events(answers)
    fast = summarise(results_table(answers, events), events)[0]["fast"]
    length = fast.figures["acceptance_length_drafted"]
    assert length is not None and length.value == length.macro == 3.0
    assert fast.positions.unconditional == [1.0, 1.0, 0.0, 0.0]
    assert sum(fast.time_split.values()) == pytest.approx(fast.seconds)


def test_a_request_that_one_method_failed_is_in_no_figure(answers: list[Answer]) -> None:
    answers[1].error = "too long"
    events = _events(answers)
    overall, tasks = summarise(results_table(answers, events), events)
    assert overall["plain"].num_tokens == overall["fast"].num_tokens == 50
    assert tasks["chat"]["plain"].seconds == 8.0


def test_the_first_method_of_the_table_is_plain_even_if_the_first_request_failed(answers: list[Answer]) -> None:
    answers[0].error = "too long"
    events = _events(answers)
    assert list(summarise(results_table(answers, events), events)[0]) == ["plain", "fast"]


def test_no_answer_makes_an_empty_summary() -> None:
    assert summarise(results_table([], table.empty()), table.empty()) == ({}, {})


def test_the_table_has_a_row_a_task_and_method_and_dashes_where_nothing_was_measured(answers: list[Answer]) -> None:
    answers[3].equals_plain = answers[2].equals_plain = True
    answers[1].equals_plain = False
    events = _events(answers)
    scopes = summarise(results_table(answers, events), events)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in table_rows(*scopes)]
    assert [(r["task"], r["method"]) for r in rows] == [
        (task, method) for task in ("chat", "maths", "overall") for method in ("plain", "fast")
    ]
    assert [r["equal to plain"] for r in rows] == ["is plain", "1 of 2", "is plain", "yes, all", "is plain", "2 of 3"]
    assert rows[0]["draft efficiency"] == "-" and rows[1]["draft efficiency"] == "0.50"
    assert rows[0]["tokens/s"] == "5.0"
    assert rich_table(*scopes, title="t").row_count == 6


def test_plots_are_drawn_where_there_is_data_and_only_there(answers: list[Answer]) -> None:
    events = _events(answers)
    overall, tasks = summarise(results_table(answers, events), events)
    for figure in (speedup_by_task(overall, tasks), acceptance_by_position(overall), time_split(overall)):
        assert figure is not None and figure.axes[0].get_xlabel()
    plain = {"plain": overall["plain"]}
    assert speedup_by_task(plain, {}) is None
    assert acceptance_by_position(plain) is None
    assert time_split({}) is None
