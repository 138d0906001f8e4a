"""How do a request's parameters change its logits before the temperature?

In this order: allowed ids, min_tokens, bad words, logit bias, penalties, custom processors. Always true: row i follows
outputs + prefixes[i], the draft tokens before it, so speculation changes no parameter's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer.errors import RequestError
from specinfer.sampling.law import RequestLaw

NEVER = -float("inf")


def edit(
    rows: Tensor, law: RequestLaw, outputs: NDArray[np.int64], prefixes: Sequence[Sequence[int]]
) -> dict[int, RequestError]:
    """Edit `rows` [1 + num_draft_tokens, vocab_size] in place; the rows whose processor failed, and why."""
    if law.forbidden is not None:
        rows.masked_fill_(law.forbidden.to(rows.device), NEVER)
    num_guarded_rows = law.min_tokens - len(outputs)
    if num_guarded_rows > 0:
        guarded = torch.tensor([row for row, prefix in enumerate(prefixes) if len(prefix) < num_guarded_rows])
        rows[guarded[:, None].to(rows.device), law.ending_ids.to(rows.device)] = NEVER
    if law.bad_words:
        _forbid_bad_words(rows, law.bad_words, outputs, prefixes)
    if law.bias_ids is not None and law.bias is not None:
        rows[:, law.bias_ids.to(rows.device)] += law.bias.to(rows)
    if law.is_penalised:
        _penalise(rows, law, outputs, prefixes)
    return _call_processors(rows, law, outputs, prefixes) if law.logits_processors else {}


def _forbid_bad_words(
    rows: Tensor, bad_words: Sequence[tuple[int, ...]], outputs: NDArray[np.int64], prefixes: Sequence[Sequence[int]]
) -> None:
    """Forbid a word's last token wherever its other tokens have just been emitted."""
    longest = max(map(len, bad_words))
    tail = outputs[max(len(outputs) - longest + 1, 0) :].tolist()
    for row, drafts in enumerate(prefixes):
        prefix = (*tail, *drafts)
        for word in bad_words:
            start = len(prefix) - len(word) + 1
            if start >= 0 and prefix[start:] == word[:-1]:
                rows[row, word[-1]] = NEVER


def _penalise(rows: Tensor, law: RequestLaw, outputs: NDArray[np.int64], prefixes: Sequence[Sequence[int]]) -> None:
    """Repetition penalty (Keskar et al. 2019, section 4.1) over prompt and output, then frequency and presence.

    The latter two are OpenAI's, over the output alone. Only the logits of seen tokens are touched.
    """
    drafted = np.array([token_id for prefix in prefixes for token_id in prefix], dtype=np.int64)
    seen = np.unique(np.concatenate((law.prompt_ids, outputs, drafted)))
    if not len(seen):
        return
    counts = np.tile(np.bincount(np.searchsorted(seen, outputs), minlength=len(seen)), (len(prefixes), 1))
    rows_of_drafted = np.repeat(np.arange(len(prefixes)), [len(prefix) for prefix in prefixes])
    np.add.at(counts, (rows_of_drafted, np.searchsorted(seen, drafted)), 1)
    columns = torch.from_numpy(seen).to(rows.device)
    num_emitted = torch.from_numpy(counts).to(rows)  # [num_rows, num_seen]
    is_emitted = num_emitted > 0
    logits = rows[:, columns]
    if law.repetition_penalty != 1.0:
        in_prompt = torch.from_numpy(np.isin(seen, law.prompt_ids, assume_unique=True)).to(rows.device)
        penalised = torch.where(logits > 0, logits / law.repetition_penalty, logits * law.repetition_penalty)
        logits = torch.where(is_emitted | in_prompt, penalised, logits)
    if law.frequency_penalty or law.presence_penalty:
        logits = logits - law.frequency_penalty * num_emitted - law.presence_penalty * is_emitted.to(rows)
    rows[:, columns] = logits


def _call_processors(
    rows: Tensor, law: RequestLaw, outputs: NDArray[np.int64], prefixes: Sequence[Sequence[int]]
) -> dict[int, RequestError]:
    failures: dict[int, RequestError] = {}
    before = outputs.tolist()
    for row, prefix in enumerate(prefixes):
        failure = _process_row(rows, row, law, [*before, *prefix])
        if failure is not None:
            failures[row] = failure
    return failures


def _process_row(rows: Tensor, row: int, law: RequestLaw, token_ids: list[int]) -> RequestError | None:
    for processor in law.logits_processors:
        name = getattr(processor, "__name__", type(processor).__name__)
        try:
            logits = processor(token_ids.copy(), rows[row].clone())
        except Exception as error:  # whatever a user's function raises is that request's error alone
            return RequestError(f"logits processor {name} raised {type(error).__name__}: {error}")
        if not isinstance(logits, Tensor) or logits.shape != rows[row].shape:
            got = f"shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            wanted = list(rows[row].shape)
            return RequestError(f"logits processor {name} returned {got}: return logits of shape {wanted}")
        if bool(logits.isnan().any()):
            return RequestError(f"logits processor {name} returned NaN: use -inf to forbid a token")
        rows[row] = logits
    return None
