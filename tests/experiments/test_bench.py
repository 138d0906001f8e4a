"""The bench's figures are ratios within one run."""

from __future__ import annotations

import pytest

from experiments import bench
from experiments.bench import Bench, Timing, engine_generate
from specinfer import LLM, CacheConfig, EngineConfig
from specinfer.testing.models import tiny_loaded_model
from tests.metrics.conftest import make_event


@pytest.fixture
def measured() -> Bench:
    found = Bench([[1], [2]], ["repeat", "chat"])
    same, other = [1, 2, 3], [1, 2, 4]
    found.timings = {
        "transformers": Timing([4.0, 8.0], [same, same]),
        "plain": Timing([2.0, 6.0], [same, same]),
        "ngram": Timing([1.0, 6.0], [same, other]),
    }
    found.batch_seconds = [1.0, 2.0, 9.0]
    return found


def test_speedups_are_ratios_of_times_over_the_same_prompts(measured: Bench) -> None:
    assert measured.speedup("plain", "transformers").value == pytest.approx(12 / 8)
    assert measured.speedup("ngram", "plain", ["repeat"]).value == pytest.approx(2.0)
    assert measured.batch_speedup() == pytest.approx(8 / 2)


def test_outputs_are_compared_token_by_token(measured: Bench) -> None:
    assert (measured.num_equal("transformers"), measured.num_equal("ngram")) == (2, 1)


def test_time_outside_the_forward_is_that_of_decode_steps(measured: Bench) -> None:
    measured.plain_events = [
        make_event("a", 0, prefill=True, seconds=5.0),
        *[make_event("a", step, seconds=0.1) for step in (1, 2, 3)],
    ]
    event = measured.plain_events[1]
    total = event.draft_s + event.forward_s + event.grammar_s + event.verify_s + event.other_s
    assert measured.outside_forward() == pytest.approx(1 - event.forward_s / total)


def test_a_contender_decodes_to_the_length_that_is_compared() -> None:
    loaded = tiny_loaded_model(vocab_size=8, eos_token_id=3)
    llm = LLM(EngineConfig(cache=CacheConfig(num_blocks=64)), "ngram", loaded_model=loaded)
    timing = Timing()
    timing.run(engine_generate(llm), [1, 2])
    assert len(timing.token_ids[0]) == bench.NUM_TOKENS
    assert timing.tokens_per_s() > 0
