import pytest
import torch

from specinfer.sampling.logprobs import raw_logprobs
from tests.sampling.reference_law import LetterTokenizer

TOKENIZER = LetterTokenizer(5)


def test_entries_hold_the_emitted_token_first_then_the_most_likely_with_their_ranks() -> None:
    logits = torch.tensor([[0.0, 4.0, 1.0, 3.0, 2.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    expected = logits.log_softmax(-1)
    first, second = raw_logprobs(logits, [2, 0], 2, TOKENIZER)
    assert list(first) == [2, 1, 3] and list(second) == [0, 1]
    assert [entry.rank for entry in first.values()] == [4, 1, 2]
    assert [entry.rank for entry in second.values()] == [1, 2]
    assert [entry.decoded_token for entry in first.values()] == ["c", "b", "d"]
    for row, entries in enumerate((first, second)):
        for token_id, entry in entries.items():
            assert entry.logprob == pytest.approx(float(expected[row, token_id]), abs=1e-6)


def test_no_top_tokens_leaves_the_emitted_one() -> None:
    entries = raw_logprobs(torch.tensor([[0.0, 1.0]], dtype=torch.float64), [0], 0, None)
    assert list(entries[0]) == [0]
    assert entries[0][0].rank == 2 and entries[0][0].decoded_token is None


def test_equally_likely_tokens_share_a_rank_and_come_by_id() -> None:
    entries = raw_logprobs(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), [4], 4, TOKENIZER)[0]
    assert list(entries) == [4, 1, 3, 2]
    assert [entry.rank for entry in entries.values()] == [3, 1, 1, 3]


def test_more_top_tokens_than_the_vocabulary_gives_all() -> None:
    assert len(raw_logprobs(torch.zeros(1, 5), [1], 64, TOKENIZER)[0]) == 5


def test_no_rows_give_no_entries() -> None:
    assert raw_logprobs(torch.zeros(0, 5), [], 2, TOKENIZER) == []
