"""Which tokens does each sampled row emit?

Always true: rows without drafts are sampled directly and never reach the verifier; a request whose law cannot be
formed, or on which the verifier fails, gets an error of its own and no other is touched.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from specinfer.engine.batch import LogitsSpan
from specinfer.engine.scheduler import ScheduledRow
from specinfer.errors import RequestError
from specinfer.protocols import FormRows, Purpose, Randomness, Verdict, Verifier, VerifyItem
from specinfer.sampling.processing import LawSegment, ProcessedRows, process
from specinfer.sampling.target import cut_verdict
from specinfer.types import Draft


@dataclass(slots=True)
class SampledRow:
    """A scheduled row that reached its last committed token, with its outcome."""

    row: ScheduledRow
    span: LogitsSpan
    draft_p: list[float]
    """p of each scheduled draft token."""
    accepted: tuple[int, ...] = ()
    """The draft nodes that the verifier accepted"""
    path: tuple[int, ...] = ()
    """Those that a token follows: all of them, up to one behind which there is no law, such as an end of a form"""
    token_ids: list[int] = field(default_factory=list)
    """The tokens of `path`, then the token after them; empty where there is an error."""
    distances: tuple[float, ...] = ()
    """As in Verdict"""
    choices: list[int] = field(default_factory=list)
    """The most likely token at each row, where they were asked for"""
    error: RequestError | None = None
    form: FormRows | None = None
    """What the request's form said of the rows"""
    legal_mass: Sequence[float] = ()
    """What the target's law gives to the tokens that the form allows, a value a row"""


def verify_rows(
    rows: Sequence[ScheduledRow],
    spans: Sequence[LogitsSpan],
    logits: Tensor,
    verifier: Verifier,
    randomness: Randomness,
    *,
    forms: Sequence[FormRows | RequestError | None] | None = None,
    wants_choices: bool = False,
) -> list[SampledRow]:
    """Form p at every sampled row and decide; in the order of `rows`.

    forms: what each row's request may say, where its output has a form. wants_choices: tell the most likely token at
    each row of a draft.
    """
    sampled = [(row, span) for row, span in zip(rows, spans, strict=True) if row.is_sampled]
    if not sampled:
        return []
    given = [form for row, form in zip(rows, forms or [None] * len(rows), strict=True) if row.is_sampled]
    segments = [
        LawSegment(
            row.request.law,
            row.request.output_token_ids,
            draft.token_ids,
            draft.parents,
            form.bitmask if isinstance(form, FormRows) else None,
        )
        for (row, _), form in zip(sampled, given, strict=True)
        for draft in (row.draft or _NO_DRAFT,)
    ]
    targets = process(_sampled_logits(logits, sampled), segments, randomness)
    results: list[SampledRow] = []
    drafted: list[tuple[SampledRow, VerifyItem, ProcessedRows]] = []
    for (row, span), form, segment, target in zip(sampled, given, segments, targets, strict=True):
        error = form if isinstance(form, RequestError) else target if isinstance(target, RequestError) else None
        if error is not None or isinstance(form, RequestError) or isinstance(target, RequestError):
            results.append(SampledRow(row, span, [0.0] * row.num_drafts, error=error))
            continue
        item = VerifyItem(target, row.draft or _NO_DRAFT, row.request.seed, row.request.num_output_tokens)
        draft_p = [target.prob(item.draft.parent(i) + 1, x) for i, x in enumerate(item.draft.token_ids)]
        results.append(SampledRow(row, span, draft_p, form=form, legal_mass=segment.legal_mass))
        if wants_choices and row.draft is not None:
            results[-1].choices = target.choices()
        if row.draft is None:
            results[-1].token_ids = [target.sample(0, item.key(0, Purpose.SAMPLE))]
        else:
            drafted.append((results[-1], item, target))
    verdicts = _verdicts([item for _, item, _ in drafted], verifier, randomness, logits.shape[1])
    for (result, item, target), verdict in zip(drafted, verdicts, strict=True):
        _apply(result, item.draft, target, verdict)
    return results


_NO_DRAFT = Draft(())


def _apply(result: SampledRow, draft: Draft, target: ProcessedRows, verdict: Verdict | RequestError) -> None:
    if isinstance(verdict, RequestError):
        result.error = verdict
        return
    result.accepted = verdict.path
    verdict = cut_verdict(verdict, target, draft.token_ids)
    result.path, result.distances = verdict.path, verdict.distances
    result.token_ids = [*(draft.token_ids[node] for node in verdict.path), verdict.token_id]


def _sampled_logits(logits: Tensor, sampled: Sequence[tuple[ScheduledRow, LogitsSpan]]) -> Tensor:
    """The logits rows of the sampled rows, adjacent; prompt-logprob rows lie between them only when asked for."""
    if sum(span.end - span.sampled_start for _, span in sampled) == len(logits):
        return logits
    keep = [index for _, span in sampled for index in range(span.sampled_start, span.end)]
    return logits[keep]


def _verdicts(
    items: Sequence[VerifyItem], verifier: Verifier, randomness: Randomness, vocab_size: int
) -> Sequence[Verdict | RequestError]:
    """The verifier's verdicts; one by one where the batch raises, so that only the culprit fails."""
    if not items:
        return []
    try:
        verdicts = verifier.verify(items, randomness)
        if len(verdicts) != len(items):
            raise RequestError(f"{len(verdicts)} verdicts for {len(items)} drafts")
        return [_checked(verdict, item, vocab_size) for verdict, item in zip(verdicts, items, strict=True)]
    except Exception as error:  # whatever a foreign verifier raises
        if len(items) == 1:
            name = type(verifier).__name__
            return [RequestError(f"{name} failed on this request: {type(error).__name__}: {error}")]
        return [_verdicts([item], verifier, randomness, vocab_size)[0] for item in items]


def _checked(verdict: Verdict, item: VerifyItem, vocab_size: int) -> Verdict:
    """The verdict in plain integers; RequestError where it cannot be carried out."""
    path, token_id = tuple(operator.index(node) for node in verdict.path), operator.index(verdict.token_id)
    num_drafts = len(item.draft.token_ids)
    for before, node in zip((-1, *path), path, strict=False):
        if not 0 <= node < num_drafts or item.draft.parent(node) != before:
            raise RequestError(f"the accepted path {list(path)} is no path of a draft of {num_drafts} tokens")
    if not 0 <= token_id < vocab_size:
        raise RequestError(f"token id {token_id} is outside the vocabulary 0..{vocab_size - 1}")
    return Verdict(path, token_id, tuple(float(d) for d in verdict.distances))
