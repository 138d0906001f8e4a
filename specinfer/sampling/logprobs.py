"""How likely were the emitted tokens, and the ones beside them, under the raw target?

Always true: log-probabilities are those of the model's own logits, before every sampling parameter, whatever was
drafted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specinfer.protocols import Tokenizer
from specinfer.types import Logprob, LogprobsByToken


def raw_logprobs(
    logits: Tensor, token_ids: Sequence[int], num_top: int, tokenizer: Tokenizer | None
) -> list[LogprobsByToken]:
    """One entry a row: `token_ids[row]` first, then the `num_top` most likely tokens, equals by id.

    logits: [num_rows, vocab_size], raw. A rank is 1 + the number of strictly more likely tokens, so equals share it.
    tokenizer: None leaves `decoded_token` empty.
    """
    if not token_ids:
        return []
    log_z = logits.logsumexp(dim=-1, keepdim=True)
    chosen = logits.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = 1 + (logits > chosen).sum(dim=-1)
    top = logits.topk(min(num_top, logits.shape[1]), dim=-1)
    decoded = _decode({*token_ids, *top.indices.flatten().tolist()}, tokenizer)
    emitted = zip(token_ids, (chosen - log_z)[:, 0].tolist(), ranks.tolist(), strict=True)
    likeliest = zip((top.values - log_z).tolist(), top.indices.tolist(), strict=True)
    return [
        _entry(first, list(zip(*others, strict=True)), decoded)
        for first, others in zip(emitted, likeliest, strict=True)
    ]


def _decode(token_ids: set[int], tokenizer: Tokenizer | None) -> dict[int, str]:
    if tokenizer is None:
        return {}
    return {token_id: tokenizer.decode([token_id], skip_special_tokens=False) for token_id in token_ids}


def _entry(first: tuple[int, float, int], top: Sequence[tuple[float, int]], decoded: dict[int, str]) -> LogprobsByToken:
    token_id, logprob, rank = first
    entry = {token_id: Logprob(logprob, rank, decoded.get(token_id))}
    for top_logprob, top_id in sorted(top, key=lambda pair: (-pair[0], pair[1])):
        top_rank = 1 + sum(other > top_logprob for other, _ in top)
        entry.setdefault(top_id, Logprob(top_logprob, top_rank, decoded.get(top_id)))
    return entry
