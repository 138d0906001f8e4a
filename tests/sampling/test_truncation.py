from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer.sampling.truncation import TOP_P_GROWTH, TOP_P_WINDOW, truncated_probs
from specinfer.types import SamplingParams
from tests.sampling.reference_law import compile_law


def probs_of(logits: Tensor, params: Any) -> Tensor:
    law = compile_law(params, logits.shape[1])
    return truncated_probs(logits - logits.amax(-1, keepdim=True), [law] * len(logits))


def kept(probs: Tensor) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in probs]


def test_a_tie_with_the_kth_token_is_kept_whatever_its_index() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 2.0, 0.0], [2.0, 1.0, 2.0, 3.0, 0.0]])
    assert kept(probs_of(logits, SamplingParams(top_k=2))) == [[1, 2, 3], [0, 2, 3]]


def test_a_tie_with_the_last_token_of_the_nucleus_is_kept() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1]], dtype=torch.float64).log()
    assert kept(probs_of(logits, SamplingParams(top_p=0.6))) == [[0, 1, 2]]


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]], dtype=torch.float64).log()
    assert kept(probs_of(logits, SamplingParams(top_p=0.4))) == [[1]]
    assert kept(probs_of(logits, SamplingParams(top_p=0.7))) == [[1, 3]]
    assert kept(probs_of(logits, SamplingParams(top_p=0.8))) == [[1, 2, 3]]


@pytest.mark.parametrize("params", [{"top_p": 1e-300}, {"min_p": 1.0}, {"top_k": 1}])
def test_the_most_likely_token_always_stays(params: Any) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    assert kept(probs_of(logits.clone(), SamplingParams(**params))) == [[int(i)] for i in logits.argmax(-1)]


def test_top_p_looks_at_what_top_k_left() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    # After top_k=2 the masses are 4/7 and 3/7; the first alone reaches 0.5, not 0.4 of the whole.
    assert kept(probs_of(logits, SamplingParams(top_k=2, top_p=0.5))) == [[0]]
    assert kept(probs_of(logits, SamplingParams(top_p=0.5))) == [[0, 1]]


def test_a_nucleus_wider_than_the_window_equals_that_of_a_full_sort() -> None:
    vocab_size, top_p = 2 * TOP_P_GROWTH * TOP_P_WINDOW, 0.95
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(2, vocab_size, generator=generator, dtype=torch.float64) * 0.1
    middling = torch.randn(1, vocab_size, generator=generator, dtype=torch.float64) * 3
    peaked = torch.randn(1, vocab_size, generator=generator, dtype=torch.float64) * 8
    logits = torch.cat([flat, middling, peaked])
    p = logits.softmax(-1)
    order = p.argsort(dim=-1, descending=True)
    mass_before = p.gather(1, order).cumsum(-1) - p.gather(1, order)
    expected = [sorted(order[row][mass_before[row] < top_p].tolist()) for row in range(4)]
    assert len(expected[0]) > TOP_P_GROWTH * TOP_P_WINDOW > len(expected[2]) > TOP_P_WINDOW > len(expected[3])
    assert kept(probs_of(logits, SamplingParams(top_p=top_p))) == expected


def test_each_row_has_its_own_parameters() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).repeat(4, 1)
    params = [
        SamplingParams(temperature=0.5),
        SamplingParams(top_k=1),
        SamplingParams(top_k=3, top_p=0.7),
        SamplingParams(min_p=0.3),
    ]
    probs = truncated_probs(logits - 3.0, [compile_law(each, 4) for each in params])
    assert kept(probs) == [[0, 1, 2, 3], [0], [0, 1], [0, 1]]
    assert torch.allclose(probs[0], (logits[0] / 0.5).softmax(0))
