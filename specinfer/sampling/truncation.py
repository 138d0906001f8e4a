"""Which tokens stay, and with what probability, after temperature, min_p, top-k and top-p?

Vectorised over rows with each row's own parameters. Always true: each stage sees what the one before left, a token as
likely as the last one kept is kept too (so ties never depend on a sort), and the most likely token always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specinfer.sampling.law import RequestLaw

NEVER = -float("inf")
TOP_P_WINDOW, TOP_P_GROWTH = 512, 8
"""How many of the most likely tokens top-p sorts at first, and by how much more where the nucleus is wider."""


def truncated_probs(shifted: Tensor, laws: Sequence[RequestLaw]) -> Tensor:
    """p [num_rows, vocab_size] in the dtype of `shifted`, the logits less their row's maximum, which is overwritten.

    laws: one a row, none greedy.
    """
    tiny = torch.finfo(shifted.dtype).tiny  # a temperature that underflows would divide 0 by 0
    shifted /= _column(shifted, [max(law.temperature, tiny) for law in laws])
    if any(law.min_p for law in laws):
        shifted.masked_fill_(shifted < _column(shifted, [law.min_p for law in laws]).log(), NEVER)
    rows = [row for row, law in enumerate(laws) if law.top_k]
    if rows:
        _keep(shifted, rows, _top_k_threshold(_select(shifted, rows), [laws[row].top_k for row in rows]))
    rows = [row for row, law in enumerate(laws) if law.top_p < 1]
    if rows:
        window = max(laws[row].top_k or TOP_P_WINDOW for row in rows)
        top_p = _column(shifted, [laws[row].top_p for row in rows])
        _keep(shifted, rows, _top_p_threshold(_select(shifted, rows), top_p, min(window, shifted.shape[1])))
    return torch.softmax(shifted, dim=-1)


def _column(like: Tensor, values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _select(logits: Tensor, rows: Sequence[int]) -> Tensor:
    return logits if len(rows) == len(logits) else logits[rows]


def _keep(logits: Tensor, rows: Sequence[int], threshold: Tensor) -> None:
    """Forbid, in place, what is below `threshold` [len(rows), 1] in `rows`."""
    limits = torch.full_like(logits[:, :1], NEVER)
    limits[rows] = threshold
    logits.masked_fill_(logits < limits, NEVER)


def _top_k_threshold(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """The k-th largest logit of each row, [num_rows, 1]."""
    largest = logits.topk(max(top_k), dim=-1).values
    return largest.gather(1, torch.tensor(top_k, device=logits.device)[:, None] - 1)


def _top_p_threshold(logits: Tensor, top_p: Tensor, window: int) -> Tensor:
    """The smallest logit of each row's nucleus (Holtzman et al. 2020, equation 2), [num_rows, 1].

    A token is in the nucleus iff the mass of the tokens before it is below top_p.
    """
    largest = logits.topk(window, dim=-1).values  # [num_rows, window], descending
    mass = (largest - logits.logsumexp(dim=-1, keepdim=True)).exp().cumsum(dim=-1)
    num_kept = 1 + (mass[:, :-1] < top_p).sum(dim=-1, keepdim=True)
    threshold = largest.gather(1, num_kept - 1)
    is_short = mass[:, -1] < top_p[:, 0]  # the nucleus may reach beyond the window
    if window < logits.shape[1] and bool(is_short.any()):
        wider = min(window * TOP_P_GROWTH, logits.shape[1])
        threshold[is_short] = _top_p_threshold(logits[is_short], top_p[is_short], wider)
    return threshold
