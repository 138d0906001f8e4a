"""What would plain decoding emit, computed without an engine?

Always true: nothing here is shared with the engine but the model's law, so agreement is evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specinfer.testing.models import TinyModel


def greedy_continuation(model: TinyModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """The argmax of each position in turn, from the whole context."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(model.logits(tokens).argmax()))
    return tokens[len(prompt) :]


def oracle_script(model: TinyModel, *, wrong_every: int = 3) -> Callable[[list[int], int], list[int]]:
    """A script that drafts the greedy continuation, wrong at every `wrong_every`-th position of the sequence.

    Its drafts are accepted and rejected in turn, so no test over it is vacuous.
    """

    def script(tokens: list[int], length: int) -> list[int]:
        drafts: list[int] = []
        for _ in range(length):
            context = tokens + drafts
            best = int(model.logits(context).argmax())
            drafts.append((best + 1) % model.vocab_size if len(context) % wrong_every == 0 else best)
        return drafts

    return script


def echo_script(tokens: list[int], length: int) -> list[int] | None:
    """Draft what followed the last token where it stood before; fits any vocabulary, right now and then."""
    for start in range(len(tokens) - 2, -1, -1):
        if tokens[start] == tokens[-1]:
            return tokens[start + 1 : start + 1 + length]
    return None
