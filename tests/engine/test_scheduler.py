"""Budget, order, fairness, preemption and prefix reuse, seen from a whole engine on a tiny model."""

from typing import Any

import pytest

from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams, SchedulerConfig, SchedulingPolicy
from specinfer.engine.scheduler import StepPlan
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
    """Four requests have two blocks each; a draft of six needs three, so drafts are cut while no block is free."""
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    wrong = ScriptedProposer(oracle_script(model, wrong_every=1), num_draft_tokens=6)
    for num_blocks, is_whole in ((8, False), (12, True)):
        config = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=num_blocks, enable_prefix_caching=False))
        llm = LLM(config, wrong, loaded_model=loaded)
        for token in range(4):
            llm.add_request([token] * 4, SamplingParams(temperature=0, max_tokens=20))
        for _ in range(5):  # up to eight computed tokens each
            outputs = llm.step()
            assert [output.stats.num_preemptions for output in outputs] == [0] * 4
        assert (max(len(event.draft_token_ids) for event in llm.events) == 6) == is_whole


def test_drafts_leave_every_running_request_a_token_of_the_budget() -> None:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    config = EngineConfig(scheduler=SchedulerConfig(max_num_batched_tokens=13, max_num_seqs=6))
    llm = LLM(config, ScriptedProposer(oracle_script(model), num_draft_tokens=5), loaded_model=loaded)
    llm.generate([[token] * 2 for token in range(6)], GREEDY)
    steps: dict[int, list[Any]] = {}
    for event in llm.events:
        steps.setdefault(event.step, []).append(event)
    scheduled = [[event.num_scheduled_tokens for event in events] for events in steps.values()]
    assert [6, 3, 1, 1, 1, 1] in scheduled, "the first in rank takes what is left for drafts"
    assert all(sum(tokens) <= 13 for tokens in scheduled)


def test_a_step_that_preempts_admits_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CacheConfig(block_size=4, num_blocks=6, enable_prefix_caching=False)
    llm = _llm(cache=cache, max_num_batched_tokens=6, max_num_seqs=2)  # a first chunk of the victim would fit again
    scheduler, schedule = llm.engine.scheduler, llm.engine.scheduler.schedule
    num_preempting = 0

    def watched() -> Any:
        nonlocal num_preempting
        before = list(scheduler.running)
        plan = schedule()
        if plan.preempted:
            num_preempting += 1
            assert all(row.request in before for row in plan.rows)
            assert all(request in before and request in scheduler.waiting for request in plan.preempted)
        return plan

    monkeypatch.setattr(scheduler, "schedule", watched)
    llm.generate([[0] * 3, [1] * 10], GREEDY)
    assert num_preempting > 0


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    """A request that comes back from a preemption finds its own blocks; they were computed all the same."""
    llm = _llm(cache=CacheConfig(block_size=4, num_blocks=9))
    outputs = llm.generate([[i, 1, 2, 3, i] for i in range(5)], GREEDY)
    assert any(event.is_prefill and event.context_len > 5 for event in llm.events), "none came back"
    assert [output.stats.num_cached_tokens for output in outputs] == [0] * 5


def test_prompt_logprobs_are_computed_once_whatever_is_preempted() -> None:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    forward, num_logits_rows = model.forward, 0

    def counted(batch: Any, kv_cache: Any) -> Any:
        nonlocal num_logits_rows
        num_logits_rows += len(batch.logits_rows)
        return forward(batch, kv_cache)

    model.forward = counted
    llm = LLM(EngineConfig(cache=CacheConfig(block_size=4, num_blocks=9)), loaded_model=loaded)
    params = SamplingParams(temperature=0, max_tokens=12, prompt_logprobs=0)
    outputs = llm.generate([[i, 1, 2, 3, i] for i in range(5)], params)
    assert sum(output.stats.num_preemptions for output in outputs) > 0
    assert num_logits_rows == 5 * (4 + 12), "a row a prompt token but the first, and one a new token"


def test_n_completions_share_the_first_ones_prompt_logprobs() -> None:
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=0, logprobs=0, n=3)
    llm = _llm()
    forward, num_logits_rows = llm.engine.runner.forward, 0

    def counted(batch: Any) -> Any:
        nonlocal num_logits_rows
        num_logits_rows += len(batch.logits_rows)
        return forward(batch)

    llm.engine.runner.forward = counted  # type: ignore[method-assign]
    output = llm.generate([1, 2, 3, 4], params)[0]
    assert len(output.prompt_logprobs or ()) == 4
    assert num_logits_rows == 3 + 3 * 2, "the prompt's but the first, and two a completion"


def test_a_draft_is_never_longer_than_what_may_still_be_emitted() -> None:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    right = ScriptedProposer(oracle_script(model, wrong_every=1000), num_draft_tokens=7)
    llm = LLM(EngineConfig(), right, loaded_model=loaded)
    output = llm.generate([1, 2], SamplingParams(temperature=0, max_tokens=13))[0]
    assert output.outputs[0].token_ids == greedy_continuation(model, [1, 2], 13)
    assert [len(event.draft_token_ids) for event in llm.events] == [0, 7, 3]
    assert [event.num_cut for event in llm.events] == [0, 0, 0]


def test_a_preemption_within_the_prompt_neither_loses_nor_doubles_its_logprobs() -> None:
    """The second prompt does not fit beside the first request: it gives up its blocks chunk after chunk."""
    params = SamplingParams(temperature=0, max_tokens=12, prompt_logprobs=1)
    prompts = [[i % 8 for i in range(20)], [i * i % 8 for i in range(24)]]
    limits: dict[str, Any] = {"max_num_batched_tokens": 7, "max_num_seqs": 2}
    small = _llm(cache=CacheConfig(block_size=4, num_blocks=9), **limits)
    large = _llm(**limits)
    outputs, expected = small.generate(prompts, params), large.generate(prompts, params)
    second = [event for event in small.events if event.request_id == "1"]
    first_emission = next(index for index, event in enumerate(second) if event.num_emitted)
    num_computed = sum(event.num_scheduled_tokens for event in second[: first_emission + 1])
    assert num_computed > len(prompts[1]), "it was never preempted within its prompt: the test shows nothing"
    assert [output.prompt_logprobs for output in outputs] == [output.prompt_logprobs for output in expected]


def test_a_cached_prefix_does_not_hide_its_prompt_logprobs() -> None:
    llm = _llm()
    prompt = [1, 2, 3, 4, 5, 6, 7, 0, 1]
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=1)
    first = llm.generate(prompt, params)[0]
    assert llm.generate(prompt, GREEDY)[0].stats.num_cached_tokens == 8, "without them the prefix is reused"
    assert llm.generate(prompt, params)[0].prompt_logprobs == first.prompt_logprobs
    assert [entry is None for entry in first.prompt_logprobs or ()] == [True] + [False] * 8


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


def test_a_preempted_request_keeps_the_rank_it_gained_by_waiting() -> None:
    llm = _llm(max_num_seqs=1, policy=SchedulingPolicy.PRIORITY, priority_aging_steps=2)
    scheduler = llm.engine.scheduler
    llm.add_request([1], SamplingParams(temperature=0, max_tokens=9, priority=0))
    llm.add_request([2], SamplingParams(temperature=0, max_tokens=9, priority=1))
    old = scheduler.waiting[-1]
    while old in scheduler.waiting:
        llm.step()
    gained = old.priority
    assert gained < 0, "it had not waited long enough for the test"
    scheduler._preempt(old, StepPlan())
    llm.add_request([3], SamplingParams(temperature=0, max_tokens=9, priority=0))
    llm.step()
    assert old in scheduler.running
    assert old.priority <= gained
