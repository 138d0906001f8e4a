"""What should p be? The sampling parameters once more, one row and one token at a time, in plain Python floats.

Shares no code with the package, so that the two can be held against each other; and a tiny target whose logits are a
fixed function of the prefix, with the law of its output by that reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from specinfer.sampling.processing import RequestLaw
from specinfer.types import SamplingParams

EOS = 0
PROMPT = (1, 2, 1)
NEVER = -math.inf


class LetterTokenizer:
    """a = 0, b = 1, ...; a space is its own token, the last one, unless `skip_spaces`."""

    def __init__(self, vocab_size: int, *, skip_spaces: bool = True) -> None:
        self.vocab_size = vocab_size
        self.skip_spaces = skip_spaces

    def encode_plain(self, text: str) -> list[int]:
        ids = [self.vocab_size - 1 if letter == " " else ord(letter) - ord("a") for letter in text]
        return [i for letter, i in zip(text, ids, strict=True) if not (letter == " " and self.skip_spaces)]

    encode = encode_plain

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(ord("a") + token_id) for token_id in token_ids)

    def __len__(self) -> int:
        return self.vocab_size


def compile_law(params: SamplingParams, vocab_size: int, prompt: Sequence[int] = PROMPT) -> RequestLaw:
    return RequestLaw.compile(
        params,
        prompt_token_ids=prompt,
        tokenizer=LetterTokenizer(vocab_size),
        vocab_size=vocab_size,
        eos_token_ids={EOS},
    )


@lru_cache(maxsize=4096)
def tiny_logits(prefix: tuple[int, ...], vocab_size: int) -> Tensor:
    """float64 [vocab_size], fixed by the prefix."""
    return torch.from_numpy(np.random.default_rng([7, *prefix]).normal(0.0, 1.5, vocab_size))


@lru_cache(maxsize=4096)
def tiny_proposal(prefix: tuple[int, ...], vocab_size: int) -> Tensor:
    """q: float64 [vocab_size], fixed by the prefix, now and then without one of the tokens."""
    rng = np.random.default_rng([11, *prefix])
    weights = rng.dirichlet(np.ones(vocab_size))
    if rng.random() < 0.4:
        weights[rng.integers(vocab_size)] = 0.0
    return torch.from_numpy(weights / weights.sum())


def reference_probs(logits: Sequence[float], params: SamplingParams, outputs: Sequence[int]) -> list[float]:
    """p after every parameter but custom processors are called as they come; the prompt is PROMPT."""
    x = _edited([float(value) for value in logits], params, list(outputs))
    for processor in params.logits_processors or ():
        x = processor(list(outputs), torch.tensor(x, dtype=torch.float64)).tolist()
    if params.temperature == 0:
        return [1.0 if i == x.index(max(x)) else 0.0 for i in range(len(x))]
    return _truncated([value / params.temperature for value in x], params)


def _edited(x: list[float], params: SamplingParams, outputs: list[int]) -> list[float]:
    allowed = set(params.allowed_token_ids or range(len(x)))
    x = [value if i in allowed else NEVER for i, value in enumerate(x)]
    if len(outputs) < params.min_tokens:
        for i in {EOS, *(params.stop_token_ids or ())}:
            x[i] = NEVER
    for word in params.bad_words or ():
        ids = LetterTokenizer(len(x)).encode_plain(word)
        if len(ids) == 1 or outputs[-(len(ids) - 1) :] == ids[:-1]:
            x[ids[-1]] = NEVER
    for i, bias in (params.logit_bias or {}).items():
        x[i] += bias
    counts = Counter(outputs)
    for i in range(len(x)):
        if i in counts or i in PROMPT:
            x[i] = x[i] / params.repetition_penalty if x[i] > 0 else x[i] * params.repetition_penalty
        if i in counts:
            x[i] -= params.frequency_penalty * counts[i] + params.presence_penalty
    return x


def _truncated(x: list[float], params: SamplingParams) -> list[float]:
    p = _softmax(x)
    x = [value if p[i] >= params.min_p * max(p) else NEVER for i, value in enumerate(x)]
    if 0 < params.top_k < len(x):
        kth = sorted(x, reverse=True)[params.top_k - 1]
        x = [value if value >= kth else NEVER for value in x]
    p, mass, smallest = _softmax(x), 0.0, math.inf
    for prob in sorted(p, reverse=True):
        if mass < params.top_p:
            smallest = prob
        mass += prob
    return _softmax([value if p[i] >= smallest else NEVER for i, value in enumerate(x)])


def _softmax(x: Sequence[float]) -> list[float]:
    weights = [math.exp(value - max(x)) for value in x]
    return [weight / math.fsum(weights) for weight in weights]


def reference_output_law(params: SamplingParams, vocab_size: int, num_tokens: int) -> dict[tuple[int, ...], float]:
    """The law of the first `num_tokens` output tokens of the tiny target, by the product rule."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(num_tokens):
        longer: dict[tuple[int, ...], float] = {}
        for outputs, weight in law.items():
            probs = reference_probs(tiny_logits(PROMPT + outputs, vocab_size).tolist(), params, outputs)
            longer.update({(*outputs, i): weight * prob for i, prob in enumerate(probs) if prob > 0})
        law = longer
    return law
