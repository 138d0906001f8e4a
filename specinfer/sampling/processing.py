"""What is the target's law p at every row of a step?

Edits first, then temperature and truncation, over all requests at once. Always true: the caller's logits are not
modified; what is wrong with one request is that request's error and no other's; greedy requests that change no logit
cost one argmax over the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer.errors import GrammarError, RequestError
from specinfer.kernels.torch_ops import mask_logits
from specinfer.protocols import Randomness
from specinfer.sampling.edits import edit
from specinfer.sampling.law import RequestLaw
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.truncation import truncated_probs
from specinfer.types import prefixes

__all__ = ["LawSegment", "ProcessedRows", "RequestLaw", "process"]

ProcessedRows = GreedyRows | SampledRows


@dataclass(slots=True)
class LawSegment:
    """One request's stretch of the logits: 1 + num_draft_tokens rows, the first behind its outputs."""

    law: RequestLaw
    output_token_ids: Sequence[int] | NDArray[np.int64]
    draft_token_ids: Sequence[int] = ()
    parents: Sequence[int] | None = None
    """Of the draft's nodes, as in Draft"""
    bitmask: NDArray[np.int32] | None = None
    """[num_rows, num_words]: the tokens that the output's form allows; a row behind no legal path has none"""
    legal_mass: list[float] = field(default_factory=list, init=False)
    """Of each row, where there is a bitmask: what the target's law, at temperature 1, gives to the allowed tokens"""

    @property
    def num_rows(self) -> int:
        return len(self.draft_token_ids) + 1


@dataclass(slots=True)
class _Part:
    """A segment on its way through the stages."""

    index: int
    segment: LawSegment
    rows: Tensor
    failures: dict[int, RequestError] = field(default_factory=dict)
    """The rows without a law, and why"""


def process(
    logits: Tensor, segments: Sequence[LawSegment], randomness: Randomness
) -> list[ProcessedRows | RequestError]:
    """The law of each segment's rows, or why its first row has none.

    logits: [num_rows, vocab_size], float32 or float64, which p keeps; the segments' rows in order. A later row without
    a law is no error yet: `cut_verdict` keeps verdicts before it.
    """
    bounds = [0, *accumulate(segment.num_rows for segment in segments)]
    assert bounds[-1] == logits.shape[0], f"{bounds[-1]} rows asked for, {logits.shape[0]} given"
    greedy: list[_Part] = []
    sampled: list[_Part] = []
    is_edited = False
    for index, segment in enumerate(segments):
        rows = logits[bounds[index] : bounds[index + 1]]
        part = _Part(index, segment, rows)
        if segment.law.is_edited or segment.bitmask is not None:
            is_edited = True
            _edit(part)
        (greedy if segment.law.is_greedy else sampled).append(part)
    results: list[ProcessedRows | RequestError | None] = [None] * len(segments)
    for parts in (greedy, sampled):
        if parts:
            is_whole = len(parts) == len(segments) and not is_edited
            block = logits if is_whole else torch.cat([part.rows for part in parts])
            processed = _finish_greedy(block, parts) if parts is greedy else _finish_sampled(block, parts, randomness)
            for part, target in zip(parts, processed, strict=True):
                results[part.index] = part.failures.get(0, target)
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


def _edit(part: _Part) -> None:
    part.rows = part.rows.clone()
    segment = part.segment
    if segment.law.is_edited:
        _apply_parameters(part)
    if segment.bitmask is not None:  # last, so that nothing lifts it
        whole = part.rows.logsumexp(dim=-1)
        mask_logits(part.rows, torch.from_numpy(segment.bitmask))
        segment.legal_mass = (part.rows.logsumexp(dim=-1) - whole).exp().nan_to_num(0.0).clamp(max=1.0).tolist()


def _apply_parameters(part: _Part) -> None:
    segment = part.segment
    outputs = np.asarray(segment.output_token_ids, dtype=np.int64)
    draft = [int(token) for token in segment.draft_token_ids]
    part.failures |= edit(part.rows, segment.law, outputs, prefixes(draft, segment.parents))


def _finish_greedy(block: Tensor, parts: Sequence[_Part]) -> Sequence[ProcessedRows]:
    token_ids, maxima = _argmax(block)
    _find_lawless_rows(maxima, parts)
    finished: list[ProcessedRows] = []
    start = 0
    for part in parts:
        stop = start + part.segment.num_rows
        finished.append(GreedyRows(token_ids[start:stop], block[0], frozenset(part.failures)))
        start = stop
    return finished


def _argmax(block: Tensor) -> tuple[list[int], Tensor]:
    """The lowest index of each row's maximum, and the maxima [num_rows]; NaN counts as the maximum."""
    if block.device.type == "cpu":  # numpy's is several times faster than torch's there
        token_ids = torch.from_numpy(block.detach().numpy().argmax(axis=-1))
    else:
        token_ids = block.argmax(dim=-1)
    return token_ids.tolist(), block.gather(1, token_ids[:, None])[:, 0]


def _finish_sampled(block: Tensor, parts: Sequence[_Part], randomness: Randomness) -> Sequence[ProcessedRows]:
    maxima = block.amax(dim=-1)
    shifted = block - maxima[:, None]
    if _find_lawless_rows(maxima, parts):
        shifted[~maxima.isfinite()] = 0.0  # a stand-in, so that no NaN goes on
    laws = truncated_probs(shifted, [part.segment.law for part in parts for _ in range(part.segment.num_rows)])
    stretches = torch.split(laws, [part.segment.num_rows for part in parts])
    return [
        SampledRows(stretch, randomness, frozenset(part.failures))
        for stretch, part in zip(stretches, parts, strict=True)
    ]


def _find_lawless_rows(maxima: Tensor, parts: Sequence[_Part]) -> bool:
    """Record the rows without a finite maximum; whether there is any. maxima: [num_rows]."""
    is_lawless = ~maxima.isfinite()
    if not bool(is_lawless.any()):
        return False
    flags, values, start = is_lawless.tolist(), maxima.tolist(), 0
    for part in parts:
        stop = start + part.segment.num_rows
        for row, flag in enumerate(flags[start:stop]):
            if flag:
                part.failures.setdefault(row, _lawless_row_error(part.segment, row, values[start + row]))
        start = stop
    return True


def _lawless_row_error(segment: LawSegment, row: int, maximum: float) -> RequestError:
    position = len(segment.output_token_ids) + len(prefixes(segment.draft_token_ids, segment.parents)[row])
    if segment.bitmask is not None and maximum == -float("inf"):
        return _dead_end_error(segment, row, position)
    if segment.law.is_edited and maximum == -float("inf"):
        return RequestError(
            f"no token is left for output token {position}: allowed_token_ids, min_tokens, bad_words and "
            f"logits_processors together forbid every one; loosen one of them"
        )
    return RequestError(
        f"the logits for output token {position} hold no finite maximum (largest: {maximum}): the model or a logits "
        f"processor computed NaN or infinity; try dtype=float32"
    )


def _dead_end_error(segment: LawSegment, row: int, position: int) -> RequestError:
    assert segment.bitmask is not None
    if not segment.bitmask[row].any():
        return GrammarError(
            f"the grammar cannot go on at output token {position}: no token of the vocabulary continues the text"
        )
    return GrammarError(
        f"no token is left for output token {position}: the grammar and the request's other parameters (min_tokens, "
        f"allowed_token_ids, bad_words, logits_processors) together forbid every one; loosen one of them"
    )
