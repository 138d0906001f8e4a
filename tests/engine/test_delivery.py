"""Every output reaches the one who asked for it, whoever else makes the engine step."""

import dataclasses
import itertools
from typing import Any

import pytest

from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=100))
GREEDY = SamplingParams(temperature=0, max_tokens=20)
ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


def _llm() -> tuple[LLM, Any]:
    loaded = tiny_loaded_model(vocab_size=8, max_model_len=128, order=2)
    model: Any = loaded.model
    return LLM(CONFIG, ScriptedProposer(oracle_script(model)), loaded_model=loaded), model


def _tokens(output: Any) -> list[int]:
    assert output.finished
    return list(output.outputs[0].token_ids)


def test_two_streams_read_in_turns_each_get_their_own_whole_output() -> None:
    llm, model = _llm()
    pairs = list(itertools.zip_longest(llm.stream([1, 2], GREEDY), llm.stream([3], ONE_TOKEN)))
    first, second = ([output for output in column if output is not None] for column in zip(*pairs, strict=True))
    assert len(first) > 1
    assert _tokens(first[-1]) == greedy_continuation(model, [1, 2], 20)
    assert _tokens(second[-1]) == greedy_continuation(model, [3], 1)


def test_a_stream_loses_nothing_to_generate_or_step_in_between() -> None:
    llm, model = _llm()
    stream = llm.stream([1, 2], GREEDY)
    seen = [next(stream)]
    llm.generate([3], ONE_TOKEN)
    assert llm.step() == [], "the stream's outputs are left to it"
    llm.generate([3], dataclasses.replace(GREEDY, max_tokens=60))
    assert not llm.has_unfinished_requests, "the stream's request is done, but not read"
    seen += stream
    lengths = [len(output.outputs[0].token_ids) for output in seen]
    assert lengths == sorted(set(lengths))
    assert _tokens(seen[-1]) == greedy_continuation(model, [1, 2], 20)


def test_a_stream_whose_requests_are_aborted_by_hand_ends() -> None:
    llm, model = _llm()
    stream = llm.stream([[1, 2], [3]], GREEDY)
    first = next(stream)
    llm.abort(first.request_id)
    rest = list(stream)
    assert _tokens(rest[-1]) == greedy_continuation(model, [3], 20)
    assert not llm.has_unfinished_requests


def test_a_stream_closed_or_dropped_before_its_first_output_aborts_its_requests() -> None:
    llm, _ = _llm()
    closed = llm.stream([[1, 2], [3]], GREEDY)
    closed.close()
    assert len(llm.engine.in_flight) == 0
    assert list(closed) == []
    dropped = llm.stream([1, 2], GREEDY)
    assert len(llm.engine.in_flight) == 1
    del dropped
    assert len(llm.engine.in_flight) == 0


def test_closing_a_stream_loses_no_output_of_the_same_step() -> None:
    llm, _ = _llm()
    before = llm.add_request([1], ONE_TOKEN)
    stream = llm.stream([3], GREEDY)
    after = llm.add_request([5], ONE_TOKEN)
    next(stream)
    stream.close()
    assert [output.request_id for output in llm.step() if output.finished] == [before, after]
    assert not llm.has_unfinished_requests


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("num_good_forwards", [0, 1, 3])
def test_a_forward_that_raises_ends_generate_alone_and_leaks_nothing(
    error: type[BaseException], num_good_forwards: int
) -> None:
    llm, model = _llm()
    mine = llm.add_request([4, 4, 1], GREEDY)
    forward, calls = model.forward, itertools.count()

    def fail_once(*arguments: Any) -> Any:
        if next(calls) == num_good_forwards:
            raise error
        return forward(*arguments)

    model.forward = fail_once
    with pytest.raises(error):
        llm.generate([[1, 2], [3]], GREEDY)
    llm.engine.check_integrity()
    assert list(llm.engine.in_flight) == [mine]
    outputs = []
    while llm.has_unfinished_requests:
        outputs += llm.step()
    assert {output.request_id for output in outputs} == {mine}
    assert _tokens(outputs[-1]) == greedy_continuation(model, [4, 4, 1], 20)
    assert llm.engine.pool.num_free == llm.engine.pool.num_blocks
