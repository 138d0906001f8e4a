"""Two vocabularies are compared string by string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from proposers.vocabularies import same_vocabulary, shared_vocabulary
from specinfer.errors import ConfigError
from specinfer.testing import ByteTokenizer

CPU = torch.device("cpu")


@dataclass
class Words(ByteTokenizer):
    """A tokenizer whose tokens are the given words."""

    words: tuple[str, ...] = ()

    def token_strings(self) -> list[str]:
        return list(self.words)

    def encode_plain(self, text: str) -> list[int]:
        return [self.words.index(letter) for letter in text if letter in self.words]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(self.words[i] for i in token_ids)


TARGET = Words(words=("a", "b", "c", "ab"))


def test_padding_rows_alone_pass() -> None:
    found = same_vocabulary(TARGET, TARGET, vocab_size=6, draft_vocab_size=8, device=CPU)
    logits = torch.arange(8.0)
    assert found.spoken_logits(logits).tolist() == [0, 1, 2, 3], "padding is never drafted"
    law = found.vocabulary.widen(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert len(law) == 6 and law[3] == pytest.approx(0.4)


def test_a_smaller_table_reads_what_it_lacks_as_its_last_row() -> None:
    found = same_vocabulary(TARGET, TARGET, vocab_size=8, draft_vocab_size=4, device=CPU)
    assert found.read_ids(torch.tensor([0, 3, 7])).tolist() == [0, 3, 3]


def test_one_swapped_token_is_refused_by_name() -> None:
    swapped = Words(words=("a", "c", "b", "ab"))
    with pytest.raises(ConfigError, match=r"id 1 is 'b' in the target and 'c' in the drafter.*share_vocabulary=false"):
        same_vocabulary(TARGET, swapped, vocab_size=4, draft_vocab_size=4, device=CPU)


def test_the_intersection_maps_what_both_have_and_spells_the_rest() -> None:
    other = Words(words=("z", "b", "a"))
    found = shared_vocabulary(TARGET, other, vocab_size=5, device=CPU)
    assert found.read_ids(torch.tensor([0, 1, 3])).tolist() == [2, 1, 2], "'ab' is read as 'a'"
    spoken = found.spoken_logits(torch.tensor([10.0, 11.0, 12.0]))
    assert dict(zip([found.vocabulary.target_id(i) for i in range(2)], spoken.tolist(), strict=True)) == {0: 12, 1: 11}
    assert float(found.vocabulary.widen(torch.tensor([0.25, 0.75])).sum()) == 1.0


def test_vocabularies_without_a_common_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="shares no token"):
        shared_vocabulary(TARGET, Words(words=("x", "y")), vocab_size=4, device=CPU)
