"""No sequence of add, step and abort leaks a block, loses a request or changes a token."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams, SchedulerConfig, SchedulingPolicy
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

PREFIXES = [[1, 2, 3, 4, 5, 6, 7, 0], [1, 2, 3, 4, 7, 7, 7, 7], [6, 5]]


class EngineMachine(RuleBasedStateMachine):
    """Requests with shared prefixes on a pool that is too small for them."""

    @initialize(
        num_blocks=st.integers(9, 24),
        budget=st.integers(4, 24),
        caching=st.booleans(),
        policy=st.sampled_from(SchedulingPolicy),
        aging=st.sampled_from([None, 1, 5]),
    )
    def start(self, num_blocks: int, budget: int, caching: bool, policy: SchedulingPolicy, aging: int | None) -> None:
        loaded = tiny_loaded_model(vocab_size=8, max_model_len=40, order=2)
        self.model: Any = loaded.model
        config = EngineConfig(
            cache=CacheConfig(block_size=4, num_blocks=num_blocks, enable_prefix_caching=caching),
            scheduler=SchedulerConfig(
                max_num_seqs=4, max_num_batched_tokens=budget, policy=policy, priority_aging_steps=aging
            ),
        )
        self.llm = LLM(config, ScriptedProposer(oracle_script(self.model)), loaded_model=loaded)
        self.expected: dict[str, list[int]] = {}

    @rule(
        prefix=st.sampled_from(PREFIXES),
        rest=st.lists(st.integers(0, 7), max_size=6),
        num_tokens=st.integers(1, 16),
        k=st.sampled_from([None, 0, 1, 5]),
        priority=st.integers(-1, 1),
    )
    def add(self, prefix: list[int], rest: list[int], num_tokens: int, k: int | None, priority: int) -> None:
        prompt = prefix + rest
        params = SamplingParams(temperature=0, max_tokens=num_tokens, num_draft_tokens=k, priority=priority)
        request_id = self.llm.add_request(prompt, params)
        self.expected[request_id] = greedy_continuation(self.model, prompt, num_tokens)

    @rule()
    def step(self) -> None:
        for output in self.llm.step():
            expected = self.expected[output.request_id]
            token_ids = output.outputs[0].token_ids
            assert token_ids == expected[: len(token_ids)]
            if output.finished:
                assert token_ids == self.expected.pop(output.request_id)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.expected)))
        output = self.llm.abort(request_id)
        assert output is not None
        token_ids = output.outputs[0].token_ids
        assert token_ids == self.expected.pop(request_id)[: len(token_ids)]

    @rule()
    def forget_prefixes(self) -> None:
        self.llm.reset_prefix_cache()

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        if hasattr(self, "llm"):
            self.llm.engine.check_integrity()

    def teardown(self) -> None:
        if hasattr(self, "llm"):
            for _ in range(2000):
                if not self.llm.has_unfinished_requests:
                    break
                self.step()
            assert not self.expected, "a request starved"
            assert self.llm.engine.pool.num_free == self.llm.engine.pool.num_blocks


def _run(max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=bool(os.environ.get("CI")),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_scheduler_and_pool_keep_their_invariants_over_thousands_of_steps() -> None:
    _run(max_examples=100, steps=50)


@pytest.mark.slow
def test_scheduler_and_pool_keep_their_invariants_over_tens_of_thousands_of_steps() -> None:
    _run(max_examples=600, steps=80)
