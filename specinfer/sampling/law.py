"""What law does one request ask for, once its parameters meet a model's vocabulary?

Compiled at admission, so that a step pays only for what the request uses. Always true: a law that exists names only
token ids of its vocabulary; it holds no state, so one law serves every step, row and preemption.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer.errors import RequestError
from specinfer.protocols import Tokenizer
from specinfer.types import LogitsProcessor, SamplingParams


@dataclass(frozen=True, slots=True, eq=False)
class RequestLaw:
    """The sampling parameters of one request as tensors; tensors live on the CPU."""

    temperature: float
    top_k: int
    """0 where there is no limit."""
    top_p: float
    min_p: float
    forbidden: Tensor | None
    """bool [vocab_size]: True for what `allowed_token_ids` leaves out."""
    min_tokens: int
    ending_ids: Tensor
    """int64 [n]: the tokens that would end the request, forbidden before `min_tokens` outputs."""
    bad_words: tuple[tuple[int, ...], ...]
    bias_ids: Tensor | None
    bias: Tensor | None
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    prompt_ids: NDArray[np.int64]
    """The prompt's distinct ids, sorted; empty where no penalty reads them."""
    logits_processors: tuple[LogitsProcessor, ...]
    is_greedy: bool
    is_edited: bool
    """Some logits change before the temperature; a law that is not edited needs no copy of its rows."""

    @staticmethod
    def compile(
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        tokenizer: Tokenizer,
        vocab_size: int,
        eos_token_ids: Collection[int],
    ) -> RequestLaw:
        """Check `params` against the vocabulary, or raise RequestError.

        `ignore_eos` keeps EOS from ending a request, so `min_tokens` does not forbid it then.
        """
        stop_ids = checked_ids("stop_token_ids", params.stop_token_ids or (), vocab_size)
        allowed = checked_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
        bias_ids = checked_ids("logit_bias", params.logit_bias or (), vocab_size)
        ending = set(stop_ids).union(eos_token_ids) if params.ends_at_eos else set(stop_ids)
        min_tokens = params.min_tokens if ending else 0
        bad_words = _encode_bad_words(params.bad_words or (), tokenizer)
        penalties = (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
        processors = tuple(params.logits_processors or ())
        reads_prompt = params.repetition_penalty != 1.0
        return RequestLaw(
            temperature=float(params.temperature),
            top_k=params.top_k if 0 < params.top_k < vocab_size else 0,
            top_p=float(params.top_p),
            min_p=float(params.min_p),
            forbidden=_forbidden(allowed, vocab_size) if allowed else None,
            min_tokens=min_tokens,
            ending_ids=torch.tensor(sorted(ending), dtype=torch.int64),
            bad_words=bad_words,
            bias_ids=torch.tensor(bias_ids, dtype=torch.int64) if bias_ids else None,
            bias=torch.tensor(list((params.logit_bias or {}).values()), dtype=torch.float64) if bias_ids else None,
            repetition_penalty=float(params.repetition_penalty),
            frequency_penalty=float(params.frequency_penalty),
            presence_penalty=float(params.presence_penalty),
            prompt_ids=np.unique(np.asarray(prompt_token_ids if reads_prompt else (), dtype=np.int64)),
            logits_processors=processors,
            is_greedy=params.is_greedy,
            is_edited=bool(
                allowed or min_tokens or bad_words or bias_ids or processors or penalties != (1.0, 0.0, 0.0)
            ),
        )

    @property
    def is_penalised(self) -> bool:
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)


def checked_ids(name: str, token_ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids as plain integers; RequestError, naming `name`, for one that is no integer of the vocabulary."""
    checked: list[int] = []
    for token_id in token_ids:
        try:
            index = operator.index(token_id)
        except TypeError:
            index = None
        if index is None or isinstance(token_id, bool):
            raise RequestError(f"{name} must hold token ids (integers), got {token_id!r}")
        if not 0 <= index < vocab_size:
            raise RequestError(
                f"{name} holds token id {token_id}, outside the vocabulary of {vocab_size} tokens: "
                f"give ids in 0..{vocab_size - 1}"
            )
        checked.append(index)
    return checked


def _forbidden(allowed: list[int], vocab_size: int) -> Tensor:
    mask = torch.ones(vocab_size, dtype=torch.bool)
    mask[allowed] = False
    return mask


def _encode_bad_words(words: Iterable[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it is spelled at the start of a text and after a space, since tokenizers tell the two apart."""
    encoded: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip() or word
        spellings = [tuple(tokenizer.encode_plain(text)) for text in (bare, f" {bare}")]
        if not all(spellings):
            raise RequestError(f"bad word {word!r} encodes to no token: leave it out")
        encoded.update(dict.fromkeys(spellings))
    return tuple(encoded)
