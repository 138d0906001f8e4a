import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specinfer.errors import RequestError
from specinfer.protocols import DrawKey, Purpose, Verdict
from specinfer.sampling.processing import LawSegment, process
from specinfer.sampling.rng import CounterRandomness
from specinfer.sampling.target import GreedyRows, SampledRows, cut_verdict
from specinfer.types import SamplingParams
from tests.sampling.reference_law import compile_law, reference_probs

V = 6
RANDOMNESS = CounterRandomness(0)
KEY = DrawKey(0, 0, Purpose.SAMPLE)


def random_logits(num_rows: int, vocab_size: int = V, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num_rows, vocab_size, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 2


def segment(
    params: SamplingParams, outputs: Sequence[int] = (), drafts: Sequence[int] = (), vocab_size: int = V
) -> LawSegment:
    return LawSegment(compile_law(params, vocab_size), list(outputs), list(drafts))


def add_to_last(prefix: Sequence[int], logits: Tensor) -> Tensor:
    """A processor that reads the whole prefix and changes the logits it was given in place."""
    logits[len(prefix) % V] += 1.0 + 0.1 * sum(prefix)
    return logits


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 4]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.6, 1.8]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -0.4]),
    presence_penalty=st.sampled_from([0.0, -0.3, 1.1]),
    logit_bias=st.sampled_from([None, {1: 2.5, 3: -100.0}]),
    allowed_token_ids=st.sampled_from([None, [1, 2, 3, 4]]),
    bad_words=st.sampled_from([None, ["c"], ["bc", "bcb", "bb"]]),
    min_tokens=st.sampled_from([0, 2, 5]),
    stop_token_ids=st.sampled_from([None, [5]]),
    logits_processors=st.sampled_from([None, [add_to_last]]),
)
TOKENS = st.lists(st.integers(0, V - 1), max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(PARAMS, TOKENS, TOKENS), min_size=1, max_size=4), st.integers(0, 1000))
def test_every_row_of_a_mixed_batch_has_the_law_of_the_reference(requests: Any, seed: int) -> None:
    segments = [segment(*request) for request in requests]
    logits = random_logits(sum(part.num_rows for part in segments), seed=seed)
    before = logits.clone()
    targets = process(logits, segments, RANDOMNESS)
    assert torch.equal(logits, before)
    start = 0
    for (params, outputs, drafts), target in zip(requests, targets, strict=True):
        assert target.is_greedy == params.is_greedy
        for row in range(len(drafts) + 1):
            expected = reference_probs(logits[start + row].tolist(), params, outputs + drafts[:row])
            found = target.probs(row)
            assert found.tolist() == pytest.approx(expected, abs=1e-12)
            assert [target.prob(row, i) for i in range(V)] == found.tolist()
        start += len(drafts) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_probabilities_keep_the_dtype_of_the_logits(dtype: torch.dtype, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_p=0.9, logit_bias={1: 0.5})
    target = process(random_logits(1, dtype=dtype), [segment(params)], RANDOMNESS)[0]
    assert target.probs(0).dtype == dtype
    assert float(target.probs(0).sum()) == pytest.approx(1.0)


def test_greedy_takes_the_lowest_index_of_a_tie() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0, 3.0, 0.0]])
    target = process(logits, [segment(SamplingParams(temperature=0))], RANDOMNESS)[0]
    assert target.sample(0, KEY) == 1
    assert target.probs(0).tolist() == [0, 1, 0, 0, 0, 0]


def test_a_temperature_that_underflows_is_the_argmax() -> None:
    target = process(random_logits(1, dtype=torch.float32), [segment(SamplingParams(temperature=1e-300))], RANDOMNESS)[
        0
    ]
    assert float(target.probs(0).max()) == 1.0


def test_samples_are_drawn_from_p_by_the_randomness() -> None:
    target = process(random_logits(1), [segment(SamplingParams(top_k=2))], RANDOMNESS)[0]
    assert isinstance(target, SampledRows)
    keys = [DrawKey(0, i, Purpose.SAMPLE) for i in range(50)]
    drawn = [target.sample(0, key) for key in keys]
    assert drawn == [RANDOMNESS.categorical(target.probs(0), key) for key in keys]
    assert set(drawn) == set(target.probs(0).nonzero().flatten().tolist())


def fail(prefix: Sequence[int], logits: Tensor) -> Tensor:
    raise KeyError("no such state")


BROKEN = {
    "raises KeyError": ([fail], "logits processor fail raised KeyError"),
    "wrong shape": ([lambda ids, logits: logits[:-1]], r"returned shape \[5\]: return logits of shape \[6\]"),
    "no tensor": ([lambda ids, logits: None], "returned NoneType"),
    "NaN": ([lambda ids, logits: logits * math.nan], "returned NaN"),
    "nothing left": ([lambda ids, logits: logits - math.inf], "no token is left for output token 2"),
    "+inf": ([lambda ids, logits: logits + math.inf], "no finite maximum"),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_processor_fails_its_request_alone(fault: str, temperature: float) -> None:
    processors, message = BROKEN[fault]
    good = segment(SamplingParams(temperature=temperature, top_p=0.9), [1], [2])
    bad = segment(SamplingParams(temperature=temperature, logits_processors=processors), [1, 1])
    logits = random_logits(5)
    first, error, last = process(logits, [good, bad, good], RANDOMNESS)
    assert isinstance(error, RequestError)
    with pytest.raises(RequestError, match=message):
        raise error
    for target, rows in ((first, logits[:2]), (last, logits[3:])):
        alone = process(rows, [good], RANDOMNESS)[0]
        assert [target.probs(row).tolist() for row in (0, 1)] == [alone.probs(row).tolist() for row in (0, 1)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_model_logits_without_a_law_fail_their_request_alone(value: float, temperature: float) -> None:
    plain = segment(SamplingParams(temperature=temperature))
    logits = random_logits(2)
    logits[0, 3 if value != -math.inf else slice(None)] = value
    error, target = process(logits, [plain, plain], RANDOMNESS)
    assert isinstance(error, RequestError) and "no finite maximum" in str(error)
    assert float(target.probs(0).sum()) == pytest.approx(1.0)


def test_parameters_that_together_forbid_everything_are_an_error_that_says_so() -> None:
    params = SamplingParams(allowed_token_ids=[0, 5], stop_token_ids=[5], min_tokens=1)
    error = process(random_logits(1), [segment(params)], RANDOMNESS)[0]
    assert isinstance(error, RequestError) and "no token is left for output token 0" in str(error)


def refuse_token_3(prefix: Sequence[int], logits: Tensor) -> Tensor:
    if 3 in prefix:
        raise ValueError("3 cannot be continued")
    return logits


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_fails_after_a_draft_is_no_error_unless_the_draft_is_accepted(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, logits_processors=[refuse_token_3])
    drafts = [2, 3, 1]
    target = process(random_logits(4), [segment(params, [1], drafts)], RANDOMNESS)[0]
    assert isinstance(target, GreedyRows | SampledRows)
    assert 2 in target.lawless and not {0, 1} & target.lawless
    assert cut_verdict(Verdict.chain(0, 5), target, drafts) == Verdict.chain(0, 5)
    assert cut_verdict(Verdict.chain(1, 5), target, drafts) == Verdict.chain(1, 5)
    # Draft token 3 was accepted: it is emitted, as plain decoding would, and what follows is left to the next step...
    for num_accepted in (2, 3):
        assert cut_verdict(Verdict.chain(num_accepted, 5), target, drafts) == Verdict.chain(1, 3)
    # ... whose first row then fails.
    error = process(random_logits(1), [segment(params, [1, 2, 3])], RANDOMNESS)[0]
    assert isinstance(error, RequestError) and "3 cannot be continued" in str(error)


def test_processors_are_called_in_turn_with_the_row_prefix_and_a_copy() -> None:
    calls = []

    def record(prefix: Sequence[int], logits: Tensor) -> Tensor:
        calls.append(list(prefix))
        return logits.zero_()

    logits = random_logits(3)
    params = SamplingParams(logits_processors=[record, lambda prefix, logits: logits + torch.arange(V)])
    target = process(logits, [segment(params, [4, 5], [1, 2])], RANDOMNESS)[0]
    assert calls == [[4, 5], [4, 5, 1], [4, 5, 1, 2]]
    assert target.probs(2).tolist() == pytest.approx(torch.arange(V).double().softmax(0).tolist())


def test_plain_greedy_requests_cost_microseconds_each() -> None:
    law = compile_law(SamplingParams(temperature=0), V)
    segments = [LawSegment(law, [1], [2, 3]) for _ in range(256)]
    logits = random_logits(3 * 256)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        process(logits, segments, RANDOMNESS)
        best = min(best, time.perf_counter() - start)
    assert best / 256 < 50e-6
