"""Do two tokenizers mean the same by their ids?

Vocabularies are compared token string by token string. Always true: ids are used as they are only where every string
is equal, rows of padding aside; another vocabulary is refused, naming the first difference, or mapped through the
tokens that both have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proposers.growth import Vocabulary
from specinfer.errors import ConfigError
from specinfer.protocols import Tokenizer


@dataclass(frozen=True, slots=True)
class VocabularyMap:
    """How a drafter with a tokenizer of its own reads the target's ids, and what it may say."""

    spoken: Tensor | None
    """int64 [num_shared]: the draft ids that the target knows; None for all"""
    vocabulary: Vocabulary
    read: Tensor | None = None
    """int64 [target vocab_size]: the draft id that each target id is read as; None where they are equal"""

    def read_ids(self, token_ids: Tensor) -> Tensor:
        """Target ids as the drafter's."""
        return token_ids if self.read is None else self.read[token_ids]

    def spoken_logits(self, logits: Tensor) -> Tensor:
        """The logits of the tokens that may be drafted."""
        return logits if self.spoken is None else logits[..., self.spoken]


def first_difference(target: list[str], draft: list[str]) -> str | None:
    """Words for the first id whose strings differ; None where one vocabulary begins with the other."""
    for token_id, (own, other) in enumerate(zip(target, draft, strict=False)):
        if own != other:
            return f"id {token_id} is {own!r} in the target and {other!r} in the drafter"
    return None


def same_vocabulary(
    target: Tokenizer, draft: Tokenizer, *, vocab_size: int, draft_vocab_size: int, device: torch.device
) -> VocabularyMap:
    """A map where the strings agree; ConfigError naming the first that differ.

    Where one has more tokens, the drafter says only what both have, and reads the others as its last one.
    """
    own, other = target.token_strings(), draft.token_strings()
    difference = first_difference(own, other)
    if difference is not None:
        raise ConfigError(
            f"the drafter's vocabulary is another one: {difference}. Give a drafter with the target's tokenizer, or "
            f"set share_vocabulary=false to draft through the tokens that both have"
        )
    num_shared = min(len(own), len(other))
    spoken = None if draft_vocab_size == num_shared else torch.arange(num_shared, device=device)
    read = torch.arange(vocab_size, device=device).clamp(max=draft_vocab_size - 1)
    to_target = None if spoken is None else spoken
    return VocabularyMap(spoken, Vocabulary(vocab_size, to_target), None if vocab_size <= draft_vocab_size else read)


def shared_vocabulary(target: Tokenizer, draft: Tokenizer, *, vocab_size: int, device: torch.device) -> VocabularyMap:
    """A map through the tokens that both have (Timor et al. 2025, token-level intersection).

    The drafter's law is restricted to them. A target token that it lacks is read as the first token of its own for the
    same text.
    """
    own, other = target.token_strings(), draft.token_strings()
    by_string = {string: token_id for token_id, string in enumerate(other)}
    pairs = [(by_string[string], token_id) for token_id, string in enumerate(own) if string in by_string]
    if not pairs:
        raise ConfigError("the drafter's vocabulary shares no token with the target's; give another drafter")
    read = torch.zeros(vocab_size, dtype=torch.int64, device=device)
    for token_id, string in enumerate(own):
        known = by_string.get(string)
        if known is None:
            spelled = draft.encode_plain(target.decode([token_id], skip_special_tokens=False))
            known = spelled[0] if spelled else 0
        read[token_id] = known
    spoken, to_target = (torch.tensor(column, device=device) for column in zip(*pairs, strict=True))
    return VocabularyMap(spoken, Vocabulary(vocab_size, to_target), read)
