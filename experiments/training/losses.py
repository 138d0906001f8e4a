"""How far is a drafter's law from the target's, cheaply?

Always true: the value and the gradient are those of the formula; only the order of the work is chosen, so that a row's
logits are read once, while they are in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS_AT_ONCE = 64


class _SoftCrossEntropy(torch.autograd.Function):
    """Mean over rows of -sum_x law(x) log softmax(logits)(x), and how often the two agree on the likeliest x."""

    @staticmethod
    def forward(context: Any, logits: Tensor, label_logits: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        gradient = torch.empty_like(logits)
        total = torch.zeros((), device=logits.device)
        num_hits = torch.zeros((), dtype=torch.int64, device=logits.device)
        for start in range(0, len(logits), ROWS_AT_ONCE):
            stop = start + ROWS_AT_ONCE
            drafted, wanted = logits[start:stop].float(), label_logits[places[start:stop]].float()
            num_hits += (drafted.argmax(-1) == wanted.argmax(-1)).sum()
            logs, law = drafted.log_softmax(-1), wanted.softmax(-1)
            total -= (logs * law).sum()
            gradient[start:stop] = logs.exp_().sub_(law)
        context.save_for_backward(gradient)
        context.num_rows = max(len(logits), 1)
        return total / context.num_rows, num_hits

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (own,) = context.saved_tensors
        return own * (gradients[0] / context.num_rows).to(own.dtype), None, None


def soft_cross_entropy(logits: Tensor, label_logits: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of rows to the target's law, and the number of rows whose likeliest tokens agree.

    logits: [num_rows, num_tokens]; label_logits: [num_labels, num_tokens], the target's; places: the label of each
    row, int64 [num_rows]. No gradient flows to the labels.
    """
    mean, num_hits = _SoftCrossEntropy.apply(logits, label_logits, places)  # type: ignore[no-untyped-call]
    return mean, num_hits
