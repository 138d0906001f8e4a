"""Methods meet the same requests, in turn, and only whole groups count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from experiments.comparison import Comparison, batches_of
from experiments.workloads import Conversation
from proposers.ngram import NgramProposer
from specinfer.config import CacheConfig, EngineConfig
from specinfer.llm import LLM
from specinfer.metrics import table
from specinfer.types import SamplingParams
from tests.experiments.conftest import load_tiny

GREEDY = SamplingParams(temperature=0, max_tokens=16)
CONVERSATIONS = [
    Conversation("1", "chat", ("Hello", "And then?")),
    Conversation("2", "chat", ("Who?",)),
    Conversation("3", "maths", ("1+1",)),
]


class Spy(LLM):
    """Notes the prompts it was given."""

    def generate(self, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        self.log.append((self.label, [tuple(p) for p in prompts]))
        return super().generate(prompts, *args, **kwargs)

    log: list[tuple[str, list[tuple[int, ...]]]]
    label: str


def _engines(names: Sequence[str]) -> tuple[dict[str, Spy], list[tuple[str, list[tuple[int, ...]]]]]:
    loaded, log = load_tiny(), []
    engines = {}
    for name in names:
        proposer = None if name == "plain" else NgramProposer()
        engine = Spy(EngineConfig(cache=CacheConfig(num_blocks=64)), proposer, loaded_model=loaded)
        engine.log, engine.label = log, name
        engines[name] = engine
    return engines, log


def test_batches_never_mix_tasks_and_keep_the_order() -> None:
    ids = [[c.question_id for c in batch] for batch in batches_of(CONVERSATIONS, 2)]
    assert ids == [["1", "2"], ["3"]]
    assert [len(batch) for batch in batches_of(CONVERSATIONS, 1)] == [1, 1, 1]


def test_every_method_sees_the_same_prompts_in_a_rotating_order() -> None:
    engines, log = _engines(["plain", "a", "b"])
    groups = list(Comparison(engines, GREEDY).run(batches_of(CONVERSATIONS, 1), repeats=1))
    assert len(groups) == 4
    assert [name for name, _ in log] == ["plain", "a", "b", "a", "b", "plain", "b", "plain", "a", "plain", "a", "b"]
    for group in range(4):
        prompts = [prompts for _, prompts in log[3 * group : 3 * group + 3]]
        assert prompts[0] == prompts[1] == prompts[2]


def test_a_later_turn_holds_the_plain_answer_of_the_turn_before() -> None:
    engines, log = _engines(["plain", "a"])
    comparison = Comparison(engines, GREEDY)
    list(comparison.run(batches_of(CONVERSATIONS[:1], 1), repeats=2))
    answer = next(a for a in comparison.answers if a.method == "plain" and a.turn == 0)
    expected = engines["plain"].render_chat(
        [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": answer.text},
            {"role": "user", "content": "And then?"},
        ]
    )
    assert answer.text
    assert [prompts[0] for _, prompts in log[2:4]] == [tuple(expected)] * 2
    # The second repeat asks exactly what the first one asked.
    assert [sorted(log[i][1] for i in (0, 1))] == [sorted(log[i][1] for i in (4, 5))]
    assert [prompts[0] for _, prompts in log[6:8]] == [tuple(expected)] * 2


def test_warm_up_leaves_no_answer_and_no_event() -> None:
    engines, log = _engines(["plain", "a"])
    comparison = Comparison(engines, GREEDY)
    comparison.warm_up(batches_of(CONVERSATIONS, 2), 1)
    assert [name for name, _ in log] == ["plain", "a"]
    assert not comparison.answers and not comparison.events
    assert not any(engine.events for engine in engines.values())


def test_the_requests_of_a_call_share_its_wall_time() -> None:
    engines, _ = _engines(["plain"])
    ticks = iter(range(100))
    comparison = Comparison(engines, GREEDY, clock=lambda: float(next(ticks)))
    answers = next(iter(comparison.run(batches_of(CONVERSATIONS[:2], 2), repeats=1)))
    assert [a.call_seconds for a in answers] == [1.0, 1.0]
    assert sum(a.seconds for a in answers) == pytest.approx(1.0)
    assert all(a.seconds > 0 for a in answers)


def test_no_method_finds_a_prefix_in_its_cache() -> None:
    engines, _ = _engines(["plain", "a"])
    comparison = Comparison(engines, GREEDY)
    long = [Conversation("1", "chat", ("x" * 100, "y" * 100))]
    list(comparison.run(batches_of(long, 1), repeats=2))
    events = table.concat(comparison.events)
    labels = ["method", "repeat", "turn"]
    scheduled = events.filter(events["is_prefill"]).group_by(labels).agg(pl.col("num_scheduled_tokens").sum())
    prompts = {(a.method, a.repeat, a.turn): len(a.prompt_token_ids) for a in comparison.answers}
    assert len(prompts) == 8
    found = {(r["method"], r["repeat"], r["turn"]): r["num_scheduled_tokens"] for r in scheduled.to_dicts()}
    assert found == prompts


def test_a_group_that_is_interrupted_is_dropped_whole() -> None:
    engines, _ = _engines(["plain", "a"])
    comparison = Comparison(engines, GREEDY)
    groups = iter(comparison.run(batches_of(CONVERSATIONS, 1), repeats=1))
    next(groups)
    # In the second group `a` comes first, then plain is interrupted.
    engines["plain"].generate = _interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        next(groups)
    assert [(a.method, a.turn) for a in comparison.answers] == [("plain", 0), ("a", 0)]
    assert len(comparison.events) == 2


def _interrupt(*_args: Any, **_kwargs: Any) -> Any:
    raise KeyboardInterrupt
