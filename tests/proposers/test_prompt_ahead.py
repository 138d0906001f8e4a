from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proposers.prompt_ahead import PromptAheadProposer
from specinfer import LLM, SamplingParams
from specinfer.errors import ConfigError, RequestError
from specinfer.testing import ByteTokenizer, check, greedy_continuation, tiny_loaded_model

CONTEXT: Any = SimpleNamespace(vocab_size=100, tokenizer=ByteTokenizer(100))
PROMPT = [50, 51]


def request(output: Sequence[int], prediction: Any = None) -> Any:
    return SimpleNamespace(
        request_id="a",
        token_ids=np.array([*PROMPT, *output], dtype=np.int64),
        num_prompt_tokens=len(PROMPT),
        params=SamplingParams(prediction=prediction),
    )


def started(prediction: Any, **config: Any) -> PromptAheadProposer:
    proposer = PromptAheadProposer(**config)
    proposer.bind(CONTEXT)
    proposer.start(request([], prediction))
    return proposer


def draft(proposer: PromptAheadProposer, output: Sequence[int], length: int = 3) -> list[int] | None:
    found = proposer.propose([request(output)], [length])[0]
    return None if found is None else list(found.token_ids)


def test_the_prediction_is_drafted_from_its_beginning_and_along_the_output() -> None:
    proposer = started([1, 2, 3, 4, 5])
    assert draft(proposer, []) == [1, 2, 3]
    assert draft(proposer, [1]) == [2, 3, 4]
    assert draft(proposer, [1, 2, 3, 4]) == [5]
    assert draft(proposer, [1, 2, 3, 4, 5]) is None


def test_without_a_prediction_nothing_is_drafted() -> None:
    for prediction in (None, [], ""):
        assert draft(started(prediction), [1, 2]) is None


def test_a_prediction_in_text_is_tokenised_without_special_tokens() -> None:
    assert draft(started("bcd"), []) == [1, 2, 3]


@pytest.mark.parametrize("prediction", [[1, 100], [-1]])
def test_ids_outside_the_vocabulary_are_refused(prediction: Any) -> None:
    with pytest.raises(RequestError, match=r"outside the vocabulary 0\.\.99"):
        started(prediction)


@pytest.mark.parametrize(
    ("edit", "output", "expected"),
    [
        ("replaced", [1, 2, 90], None),
        ("replaced", [1, 2, 90, 4], [5, 6, 7]),
        ("inserted", [1, 2, 90, 91], None),
        ("inserted", [1, 2, 90, 91, 3], [4, 5, 6]),
        ("deleted", [1, 2, 5], [6, 7, 8]),
        ("repeated", [1, 2, 3, 4, 2], [3, 4, 5]),
    ],
)
def test_it_aligns_again_after_an_edit(edit: str, output: list[int], expected: Any) -> None:
    at_once, stepwise = started([1, 2, 3, 4, 5, 6, 7, 8]), started([1, 2, 3, 4, 5, 6, 7, 8])
    assert draft(at_once, output) == expected
    for end in range(len(output)):
        draft(stepwise, output[:end])
    assert draft(stepwise, output) == expected


def test_of_several_places_the_longest_ngram_wins_and_then_the_nearest() -> None:
    prediction = [1, 9, 20, 1, 2, 9, 21, 5, 9, 22, 3, 3]
    # After 1, the 2 diverges to behind [1, 2]; the 9 that follows is no divergence.
    assert draft(started(prediction), [1, 2]) == [9, 21, 5]
    # At the cursor 2, a 5 is found once; from there 9 goes on; then 3.
    assert draft(started(prediction), [1, 9, 5]) == [9, 22, 3]
    # 9 alone stands behind 2, 6 and 9; the cursor is at 1 + the wrong 8.
    assert draft(started(prediction), [1, 8, 9]) == [20, 1, 2]
    assert draft(started(prediction, min_lookup=2), [1, 8, 8, 5]) is None


def test_the_draft_is_a_function_of_the_tokens_whatever_was_asked_before() -> None:
    proposer = started([1, 2, 3, 4, 5, 6])
    assert draft(proposer, [1, 2, 3]) == [4, 5, 6]  # behind another's draft
    assert draft(proposer, [1, 5]) == [6]
    assert draft(proposer, [1, 2]) == [3, 4, 5]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=4))
def test_steps_taken_back_leave_no_trace(prediction: Any, outputs: Any) -> None:
    proposer = started(prediction)
    for output in outputs:
        assert draft(proposer, output) == draft(started(prediction), output)


def test_a_stopped_request_is_forgotten() -> None:
    proposer = started([1, 2, 3])
    proposer.stop("a")
    assert draft(proposer, [1]) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens"),
        ({"min_lookup": 0}, "min_lookup"),
        ({"min_lookup": 5}, "max_lookup=4 is less than min_lookup=5"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PromptAheadProposer(**config)


def test_it_keeps_the_protocol() -> None:
    check("proposers", PromptAheadProposer)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_prediction_speeds_the_output_up_and_does_not_change_it(temperature: float) -> None:
    loaded = tiny_loaded_model(vocab_size=16, order=3, max_model_len=128, sharpness=4.0)
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=40)
    plain = LLM(loaded_model=loaded).generate([1, 2, 3], params)[0].outputs[0].token_ids
    if not temperature:
        assert plain == greedy_continuation(loaded.model, [1, 2, 3], 40)  # type: ignore[arg-type]
    edited = [*plain[:10], 15, 15, *plain[10:20], *plain[23:]]
    llm = LLM(loaded_model=loaded, proposer=PromptAheadProposer())
    predicted = SamplingParams(temperature=temperature, seed=3, max_tokens=40, prediction=edited)
    output = llm.generate([1, 2, 3], predicted)[0]
    assert output.outputs[0].token_ids == plain and output.draft_error is None
    assert 20 < output.stats.num_accepted_tokens < output.stats.num_draft_tokens
