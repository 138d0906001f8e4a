"""What a user sees: familiar calls, outputs in order, clear errors for what cannot be served."""

import math
from typing import Any

import numpy as np
import pytest

from specinfer import LLM, CacheConfig, EngineConfig, FinishReason, OutputKind, RequestError, SamplingParams
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

LOADED = tiny_loaded_model(vocab_size=258, max_model_len=64, order=2, eos_token_id=257)
CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=64))


def _llm(proposer: Any = "ngram") -> LLM:
    return LLM(CONFIG, proposer, loaded_model=LOADED)


def test_outputs_come_in_the_order_of_the_prompts() -> None:
    prompts = ["abc", "d", "efgh"]
    outputs = _llm().generate(prompts, [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 1, 5)])
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [9, 1, 5]
    assert all(output.finished and output.outputs[0].finish_reason is FinishReason.LENGTH for output in outputs)


def test_n_completions_have_seeds_of_their_own_and_the_first_is_that_of_n_1() -> None:
    params = {"temperature": 1.0, "seed": 5, "max_tokens": 10, "ignore_eos": True}
    many = _llm().generate("abc", SamplingParams(n=4, **params))[0]  # type: ignore[arg-type]
    one = _llm().generate("abc", SamplingParams(**params))[0]  # type: ignore[arg-type]
    assert [completion.index for completion in many.outputs] == [0, 1, 2, 3]
    assert many.outputs[0].token_ids == one.outputs[0].token_ids
    assert len({tuple(completion.token_ids) for completion in many.outputs}) == 4


@pytest.mark.parametrize("proposer", [None, "ngram"])
def test_deltas_joined_are_the_cumulative_output(proposer: str | None) -> None:
    params = {"temperature": 0, "max_tokens": 30, "logprobs": 1, "stop": ["zz"], "ignore_eos": True}
    deltas = list(_llm(proposer).stream("abab", SamplingParams(output_kind=OutputKind.DELTA, **params)))  # type: ignore[arg-type]
    whole = _llm(proposer).generate("abab", SamplingParams(**params))[0].outputs[0]  # type: ignore[arg-type]
    assert len(deltas) > 1
    assert "".join(output.outputs[0].text for output in deltas) == whole.text
    assert [i for output in deltas for i in output.outputs[0].token_ids] == whole.token_ids
    assert [entry for output in deltas for entry in output.outputs[0].logprobs or ()] == whole.logprobs


def test_closing_a_stream_aborts_its_requests() -> None:
    llm = _llm()
    stream = llm.stream(["ab", "cd"], SamplingParams(max_tokens=30, ignore_eos=True))
    next(stream)
    stream.close()
    assert not llm.has_unfinished_requests
    llm.engine.check_integrity()


def test_requests_added_by_hand_go_on_beside_generate_and_lose_no_output() -> None:
    llm = _llm()
    mine = llm.add_request("abc", SamplingParams(max_tokens=5, temperature=0, ignore_eos=True))
    llm.generate("xyz", SamplingParams(max_tokens=20, temperature=0, ignore_eos=True))
    outputs = [output for output in llm.step() if output.request_id == mine]
    assert outputs[-1].finished
    assert not llm.has_unfinished_requests


def test_abort_returns_what_was_emitted() -> None:
    llm = _llm()
    request_id = llm.add_request("abc", SamplingParams(max_tokens=20, ignore_eos=True))
    llm.step()
    output = llm.abort(request_id)
    assert output is not None
    assert output.outputs[0].finish_reason is FinishReason.ABORT
    assert len(output.outputs[0].token_ids) == 1
    assert llm.abort(request_id) is None


def test_chat_renders_the_template() -> None:
    llm = _llm()
    messages = [{"role": "user", "content": "hi"}]
    output = llm.chat(messages, SamplingParams(max_tokens=3))[0]
    assert bytes(output.prompt_token_ids) == b"user: hi\nassistant: "
    assert len(llm.chat([messages, messages], SamplingParams(max_tokens=3))) == 2


def test_events_account_for_every_token() -> None:
    llm = _llm()
    outputs = llm.generate(["abab" * 5, "x"], SamplingParams(max_tokens=30, temperature=0))
    emitted = {output.request_id: len(output.outputs[0].token_ids) for output in outputs}
    counted = dict.fromkeys(emitted, 0)
    for event in llm.take_events():
        counted[event.request_id] += event.num_emitted
    assert counted == emitted
    assert llm.events == []


def test_events_count_what_a_stop_cuts_off_a_draft() -> None:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=64, order=2)
    model: Any = loaded.model
    expected = greedy_continuation(model, [1, 2], 20)
    stop = expected[7]
    right = ScriptedProposer(oracle_script(model, wrong_every=1000), num_draft_tokens=9)
    llm = LLM(CONFIG, right, loaded_model=loaded)
    output = llm.generate([1, 2], SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[stop]))[0]
    num_emitted = expected.index(stop) + 1
    assert output.outputs[0].token_ids == expected[:num_emitted]
    sampled = [event for event in llm.events if event.next_token_id is not None]
    assert [event.num_emitted + event.num_cut for event in sampled] == [event.num_accepted + 1 for event in sampled]
    assert sum(event.num_cut for event in sampled) > 0


BAD_PARAMS: list[dict[str, Any]] = [
    {"max_tokens": 0},
    {"temperature": -0.1},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": True},
    {"top_p": 0},
    {"top_p": 1.1},
    {"top_k": -2},
    {"min_p": -0.1},
    {"n": 0},
    {"repetition_penalty": 0},
    {"frequency_penalty": math.nan},
    {"min_tokens": 5, "max_tokens": 4},
    {"stop": ["x"] * 10_000},
    {"stop": ""},
    {"allowed_token_ids": []},
    {"logprobs": -1},
    {"seed": -1},
    {"num_draft_tokens": -1},
    {"logit_bias": {1: math.inf}},
    {"bad_words": [""]},
    {"bad_words": "ab"},
    {"output_kind": "delta"},
]
BAD_FOR_MODEL: list[dict[str, Any]] = [
    {"stop_token_ids": [258]},
    {"stop_token_ids": [-1]},
    {"logit_bias": {258: 1.0}},
    {"allowed_token_ids": [1, 1000]},
]


@pytest.mark.parametrize("params", BAD_PARAMS, ids=lambda params: str(params)[:40])
def test_a_bad_parameter_is_refused_with_its_name_and_value(params: dict[str, Any]) -> None:
    name = next(iter(params))
    with pytest.raises(RequestError, match=name.split("_")[0]) as error:
        SamplingParams(**params)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("params", BAD_FOR_MODEL, ids=str)
def test_a_token_id_outside_the_vocabulary_is_refused(params: dict[str, Any]) -> None:
    llm = _llm()
    with pytest.raises(RequestError, match="vocabulary"):
        llm.generate("abc", SamplingParams(**params))
    assert not llm.has_unfinished_requests


def test_an_unknown_parameter_raises() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=0.5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty"),
        ("x" * 64, "max_model_len"),
        ([1, 258], "vocabulary"),
        ([-1], "vocabulary"),
        (3.5, "prompt"),
        (b"abc", "bytes"),
        ("\ud800", "cannot be encoded"),
        ([1, 2.5], "integers"),
        ([1, True], "integers"),
    ],
)
def test_a_bad_prompt_fails_alone(prompt: Any, message: str) -> None:
    llm = _llm()
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    with pytest.raises(RequestError, match=f"prompt 1.*{message}"):
        llm.generate(["ok", prompt], params)
    assert not llm.has_unfinished_requests
    good, bad = llm.generate(["ok", prompt], params, return_errors=True)
    assert good.error is None
    assert len(good.outputs[0].token_ids) == 4
    assert bad.error is not None
    assert message in bad.error
    assert bad.outputs[0].finish_reason is FinishReason.ERROR


def test_a_request_that_the_kv_memory_cannot_hold_is_refused_with_the_way_out() -> None:
    llm = LLM(EngineConfig(cache=CacheConfig(block_size=4, num_blocks=4)), loaded_model=LOADED)
    with pytest.raises(RequestError, match=r"holds 16 tokens.*cache.num_blocks"):
        llm.generate("abcdefgh", SamplingParams(max_tokens=10))
    assert len(llm.generate("abcdefgh", SamplingParams(max_tokens=9, ignore_eos=True))[0].outputs[0].token_ids) == 9
    unlimited = llm.generate("abcdefgh", SamplingParams(max_tokens=None, ignore_eos=True))[0]
    assert len(unlimited.outputs[0].token_ids) == 9


def test_output_without_a_limit_ends_at_the_models_context() -> None:
    output = _llm().generate("abc", SamplingParams(max_tokens=None, temperature=0, ignore_eos=True))[0]
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 64


def test_a_duplicate_request_id_is_refused() -> None:
    llm = _llm()
    llm.add_request("abc", request_id="a")
    with pytest.raises(RequestError, match="already in flight"):
        llm.add_request("abc", request_id="a")


def test_an_id_is_taken_by_the_completions_of_another_request_too() -> None:
    llm = _llm()
    llm.add_request("abc", SamplingParams(n=2), request_id="a")
    with pytest.raises(RequestError, match="'a/0' is already in flight"):
        llm.add_request("abc", request_id="a/0")
    llm.add_request("abc", request_id="b/1")
    with pytest.raises(RequestError, match="'b/1' is already in flight"):
        llm.add_request("abc", SamplingParams(n=2), request_id="b")
    finished = set()
    while llm.has_unfinished_requests:
        finished |= {output.request_id for output in llm.step() if output.finished}
    assert finished == {"a", "b/1"}


def test_an_id_given_by_hand_never_stands_in_the_way_of_generate() -> None:
    llm = _llm()
    for name in ("0", "2"):
        llm.add_request("abc", SamplingParams(max_tokens=9, ignore_eos=True), request_id=name)
    outputs = llm.generate(["x", "y"], SamplingParams(max_tokens=2))
    assert [output.request_id for output in outputs] == ["1", "3"]


def test_token_ids_may_be_numpy_integers() -> None:
    params = SamplingParams(temperature=0, max_tokens=5)
    expected = _llm().generate([97, 98], params)[0]
    prompts: list[Any] = [[np.int64(97), np.int32(98)], [[np.int64(97), 98]]]
    for prompt in prompts:
        output = _llm().generate(prompt, params)[0]
        assert output.outputs[0].token_ids == expected.outputs[0].token_ids
        assert output.prompt_token_ids == [97, 98]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TypeError])
def test_whatever_stops_the_adding_of_a_batch_leaves_nothing_queued(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = _llm()
    add_request = llm.engine.add_request

    def fail_at_the_second(request_id: str, *arguments: Any, **options: Any) -> None:
        if llm.has_unfinished_requests:
            raise error
        add_request(request_id, *arguments, **options)

    monkeypatch.setattr(llm.engine, "add_request", fail_at_the_second)
    with pytest.raises(error):
        llm.generate(["ab", "cd"], return_errors=True)
    assert not llm.has_unfinished_requests


def test_an_unknown_component_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown proposer 'eagel'.*ngram"):
        LLM(CONFIG, "eagel", loaded_model=LOADED)


def test_describe_records_every_component() -> None:
    described = _llm().describe()
    assert described["proposer"]["_target_"] == "proposers.ngram.NgramProposer"
    assert described["engine"]["cache"]["num_blocks"] == 64
