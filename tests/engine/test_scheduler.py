"""Budget, order, fairness, preemption and prefix reuse, seen from a whole engine on a tiny model."""

from typing import Any

import pytest

from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams, SchedulerConfig, SchedulingPolicy
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def _llm(proposer: Any = None, *, cache: CacheConfig | None = None, **scheduler: Any) -> LLM:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=1024, order=2)
    cache = cache or CacheConfig(block_size=4, num_blocks=400)
    return LLM(EngineConfig(cache=cache, scheduler=SchedulerConfig(**scheduler)), proposer, loaded_model=loaded)


def test_a_step_never_exceeds_its_budget_and_no_running_request_is_passed_over() -> None:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=1024, order=2)
    model: Any = loaded.model
    config = EngineConfig(scheduler=SchedulerConfig(max_num_batched_tokens=16, max_num_seqs=6))
    llm = LLM(config, ScriptedProposer(oracle_script(model), num_draft_tokens=5), loaded_model=loaded)
    llm.generate([[i % 8] * (10 + 13 * i) for i in range(8)], SamplingParams(temperature=0, max_tokens=30))
    steps: dict[int, list[Any]] = {}
    for event in llm.events:
        steps.setdefault(event.step, []).append(event)
    totals = [sum(event.num_scheduled_tokens for event in events) for events in steps.values()]
    assert max(totals) == 16, "the budget was never used up: the test shows nothing"
    seen: dict[str, list[int]] = {}
    for event in llm.events:
        seen.setdefault(event.request_id, []).append(event.step)
    for steps_of_request in seen.values():
        assert steps_of_request == list(range(steps_of_request[0], steps_of_request[-1] + 1))


def test_a_long_prompt_does_not_hold_up_a_running_request() -> None:
    llm = _llm(max_num_batched_tokens=8, max_num_seqs=4)
    short = llm.add_request([1, 2], GREEDY)
    llm.step()
    llm.add_request([3] * 300, GREEDY)
    for _ in range(GREEDY.max_tokens - 1 if GREEDY.max_tokens else 0):
        assert any(output.request_id == short for output in llm.step())


@pytest.mark.parametrize("policy", SchedulingPolicy)
def test_requests_are_admitted_by_rank(policy: SchedulingPolicy) -> None:
    llm = _llm(max_num_seqs=1, policy=policy, priority_aging_steps=None)
    ids = [llm.add_request([1, 2], SamplingParams(temperature=0, max_tokens=3, priority=p)) for p in (2, 0, 1)]
    order = []
    while llm.has_unfinished_requests:
        order += [output.request_id for output in llm.step() if output.finished]
    expected = ids if policy is SchedulingPolicy.FCFS else [ids[1], ids[2], ids[0]]
    assert order == expected


@pytest.mark.parametrize(("aging", "starves"), [(None, True), (4, False)])
def test_ageing_lets_an_unimportant_request_through_a_stream_of_important_ones(
    aging: int | None, starves: bool
) -> None:
    llm = _llm(max_num_seqs=1, policy=SchedulingPolicy.PRIORITY, priority_aging_steps=aging)
    unimportant = llm.add_request([1], SamplingParams(temperature=0, max_tokens=2, priority=5))
    llm.add_request([2], SamplingParams(temperature=0, max_tokens=2, priority=0))
    finished: set[str] = set()
    for _ in range(60):
        llm.add_request([2], SamplingParams(temperature=0, max_tokens=2, priority=0))
        finished |= {output.request_id for output in llm.step() if output.finished}
    assert (unimportant not in finished) == starves


def test_nine_blocks_preempt_and_give_the_tokens_of_a_large_pool() -> None:
    prompts = [[i, 1, 2, 3, i] for i in range(5)]
    for proposer in (None, "ngram"):
        small = _llm(proposer, cache=CacheConfig(block_size=4, num_blocks=9)).generate(prompts, GREEDY)
        large = _llm(proposer).generate(prompts, GREEDY)
        assert sum(output.stats.num_preemptions for output in small) > 0
        assert sum(output.stats.num_preemptions for output in large) == 0
        assert [o.outputs[0].token_ids for o in small] == [o.outputs[0].token_ids for o in large]


def test_a_draft_never_costs_another_request_its_blocks() -> None:
    """Two requests fill the pool but for drafts: these are shortened, nobody is preempted."""
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    config = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=8, enable_prefix_caching=False))
    llm = LLM(config, ScriptedProposer(oracle_script(model), num_draft_tokens=6), loaded_model=loaded)
    outputs = llm.generate([[1] * 4, [2] * 4], SamplingParams(temperature=0, max_tokens=13))
    assert [output.stats.num_preemptions for output in outputs] == [0, 0]
    assert sum(output.stats.num_accepted_tokens for output in outputs) > 0


def test_a_shared_prefix_is_computed_once_and_reported() -> None:
    llm = _llm(cache=CacheConfig(block_size=16, num_blocks=100), max_num_batched_tokens=1024)
    model: Any = llm.loaded_model.model
    prefix = [(i * i) % 8 for i in range(512)]
    first = llm.generate([*prefix, 1, 2, 3], GREEDY)[0]
    before = model.num_tokens
    second = llm.generate([*prefix, 4, 5], GREEDY)[0]
    assert (first.stats.num_cached_tokens, second.stats.num_cached_tokens) == (0, 512)
    assert model.num_tokens - before == 2 + (12 - 1), "the two tokens after the prefix, then one a new token"
    assert second.outputs[0].token_ids == greedy_continuation(model, [*prefix, 4, 5], 12)


def test_a_full_hit_computes_the_last_token_again() -> None:
    llm = _llm(cache=CacheConfig(block_size=4, num_blocks=100))
    prompt = [1, 2, 3, 4, 5, 6, 7, 0]
    first = llm.generate(prompt, GREEDY)[0]
    second = llm.generate(prompt, GREEDY)[0]
    assert second.stats.num_cached_tokens == 4
    assert second.outputs[0].token_ids == first.outputs[0].token_ids


def test_salts_and_a_reset_keep_prefixes_apart() -> None:
    llm = _llm()
    prompt = [1, 2, 3, 4, 5, 6, 7, 0, 1]
    llm.generate(prompt, GREEDY, cache_salt="a")
    assert llm.generate(prompt, GREEDY, cache_salt="b")[0].stats.num_cached_tokens == 0
    assert llm.generate(prompt, GREEDY, cache_salt="a")[0].stats.num_cached_tokens == 8
    llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY, cache_salt="a")[0].stats.num_cached_tokens == 0


def test_a_rejected_draft_is_never_found_by_a_later_request() -> None:
    """Wrong drafts fill whole blocks; a prompt that equals them must not be served from their K/V."""
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=256, order=None)
    model: Any = loaded.model
    config = EngineConfig(cache=CacheConfig(block_size=2, num_blocks=100))
    wrong = ScriptedProposer(oracle_script(model, wrong_every=1), num_draft_tokens=6)
    llm = LLM(config, wrong, loaded_model=loaded)
    prompt = [1, 2, 3]
    out = llm.generate(prompt, GREEDY)[0]
    assert out.stats.num_draft_tokens > 0
    assert out.stats.num_accepted_tokens == 0
    drafted = next(event.draft_token_ids for event in llm.events if event.draft_token_ids)
    probe = [*prompt, out.outputs[0].token_ids[0], *drafted]
    again = llm.generate(probe, GREEDY)[0]
    assert again.stats.num_cached_tokens == 4
    assert again.outputs[0].token_ids == greedy_continuation(model, probe, 12)
