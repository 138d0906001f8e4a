from typing import Any

import pytest
import torch

from specinfer.errors import RequestError
from specinfer.sampling.processing import RequestLaw
from specinfer.types import SamplingParams
from tests.sampling.reference_law import EOS, LetterTokenizer, compile_law


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias={8: 1.0}),
        SamplingParams(allowed_token_ids=[0, 8]),
        SamplingParams(stop_token_ids=[8]),
        SamplingParams(stop_token_ids=[-1]),
    ],
)
def test_an_id_outside_the_vocabulary_is_refused_with_its_value_and_the_range(params: SamplingParams) -> None:
    with pytest.raises(RequestError, match=r"token id (8|-1), outside the vocabulary of 8 tokens: give ids in 0\.\.7"):
        compile_law(params, vocab_size=8)


@pytest.mark.parametrize("bad", ["3", 1.0, True, None])
def test_an_id_that_is_no_integer_is_refused(bad: Any) -> None:
    with pytest.raises(RequestError, match="must hold token ids"):
        compile_law(SamplingParams(stop_token_ids=[bad]), vocab_size=8)


def test_a_bad_word_that_encodes_to_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="encodes to no token"):
        compile_law(SamplingParams(bad_words=[" "]), vocab_size=8)


def test_a_bad_word_is_compiled_bare_and_after_a_space() -> None:
    law = RequestLaw.compile(
        SamplingParams(bad_words=["ab", " ab", "c"]),
        prompt_token_ids=[0],
        tokenizer=LetterTokenizer(8, skip_spaces=False),
        vocab_size=8,
        eos_token_ids={EOS},
    )
    assert law.bad_words == ((0, 1), (7, 0, 1), (2,), (7, 2))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1, stop_token_ids=[2], seed=1),
        SamplingParams(min_tokens=2, ignore_eos=True),
    ],
)
def test_a_law_that_changes_no_logit_is_not_edited(params: SamplingParams) -> None:
    assert not compile_law(params, vocab_size=8).is_edited


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias={1: 1.0}),
        SamplingParams(allowed_token_ids=[1]),
        SamplingParams(bad_words=["a"]),
        SamplingParams(min_tokens=1),
        SamplingParams(repetition_penalty=1.1),
        SamplingParams(frequency_penalty=0.1),
        SamplingParams(presence_penalty=0.1),
        SamplingParams(logits_processors=[lambda ids, logits: logits]),
    ],
)
def test_a_law_that_changes_logits_is_edited(params: SamplingParams) -> None:
    assert compile_law(params, vocab_size=8).is_edited


def test_no_limit_on_top_k_however_it_is_spelled() -> None:
    assert [compile_law(SamplingParams(top_k=k), vocab_size=8).top_k for k in (-1, 0, 8, 50, 3)] == [0, 0, 0, 0, 3]


def test_ignore_eos_keeps_min_tokens_to_the_stop_ids() -> None:
    law = compile_law(SamplingParams(min_tokens=2, ignore_eos=True, stop_token_ids=[3]), vocab_size=8)
    assert torch.equal(law.ending_ids, torch.tensor([3]))
