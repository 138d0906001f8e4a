"""Does every method give the plain method's tokens?

Under greedy sampling it must, up to ties of floating point. Always true: each answer that differs is reported with
the position, both tokens, the plain model's margin between its two most likely tokens there, and the rounding noise
measured on the tokens before it; none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.comparison import Answer
from experiments.composition import PLAIN
from specinfer.types import CompletionOutput, SamplingParams

if TYPE_CHECKING:
    from specinfer.llm import LLM


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer first departs from the plain one."""

    method: str
    repeat: int
    task: str
    question_id: str
    turn: int
    position: int
    """Index among the output tokens."""
    plain_token_id: int | None
    """None where the plain answer ends here."""
    token_id: int | None
    top2_margin: float | None
    """Log-probability of the plain model's most likely token here minus the second's, in nats, computed alone; None
    where it could not be computed."""
    noise: float | None
    """Largest difference, in nats, between the log-probabilities that the tokens before it get from the plain method
    alone and from this method in company; None where there was no such token."""

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains it: each of the two tokens may move by the noise."""
        return self.top2_margin is not None and self.noise is not None and self.top2_margin <= 2 * self.noise


def check_equality(
    answers: Sequence[Answer], engines: Mapping[str, LLM], sampling: SamplingParams, batch_size: int = 1
) -> list[Difference]:
    """Set `equals_plain` of every answer, and describe those that differ from plain decoding's first answer.

    Nothing is checked where sampling is random; an answer with an error counts as different only if plain has none.
    batch_size: how many requests ran together; the noise is measured in company of as many.
    """
    if not sampling.is_greedy:
        return []
    first: dict[tuple[str, int], Answer] = {}
    for answer in answers:
        if answer.method == PLAIN:
            first.setdefault(answer.request, answer)
    differences = []
    for answer in answers:
        reference = first[answer.request]
        if answer.form is not reference.form:
            continue
        answer.equals_plain = answer.token_ids == reference.token_ids
        if not answer.equals_plain:
            differences.append(_difference(answer, reference, engines, sampling, batch_size))
    return differences


def _difference(
    answer: Answer, reference: Answer, engines: Mapping[str, LLM], sampling: SamplingParams, batch_size: int
) -> Difference:
    ours, theirs = answer.token_ids, reference.token_ids
    common = min(len(ours), len(theirs))
    position = next((i for i in range(common) if ours[i] != theirs[i]), common)
    again = replace(
        sampling,
        max_tokens=position + 1,
        min_tokens=min(sampling.min_tokens, position + 1),
        logprobs=2,
        structured_outputs=answer.form,
    )
    alone = _rerun(engines[PLAIN], [reference.prompt_token_ids], again)
    in_company = _rerun(engines[answer.method], [reference.prompt_token_ids] * batch_size, again)
    gaps = [gap for completion in in_company for gap in _gaps(alone[0], completion, position)] if alone else []
    return Difference(
        method=answer.method,
        repeat=answer.repeat,
        task=answer.task,
        question_id=answer.question_id,
        turn=answer.turn,
        position=position,
        plain_token_id=theirs[position] if position < len(theirs) else None,
        token_id=ours[position] if position < len(ours) else None,
        top2_margin=_top2_margin(alone[0], position) if alone else None,
        noise=max(gaps, default=None),
    )


def _rerun(engine: LLM, prompts: list[list[int]], sampling: SamplingParams) -> list[CompletionOutput]:
    """The requests again, with log-probabilities; none where one of them fails."""
    engine.reset_prefix_cache()
    outputs = engine.generate(prompts, sampling, return_errors=True)
    engine.take_events()
    return [] if any(output.error is not None for output in outputs) else [output.outputs[0] for output in outputs]


def _gaps(alone: CompletionOutput, other: CompletionOutput, position: int) -> list[float]:
    """Differences of the log-probabilities of equal tokens before `position`, up to the first that differs."""
    gaps = []
    pairs = zip(alone.token_ids, other.token_ids, alone.logprobs or (), other.logprobs or (), strict=False)
    for token_id, other_id, ours, theirs in list(pairs)[:position]:
        if token_id != other_id:
            break
        gaps.append(abs(ours[token_id].logprob - theirs[token_id].logprob))
    return gaps


def _top2_margin(alone: CompletionOutput, position: int) -> float | None:
    if not alone.logprobs or position >= len(alone.logprobs):
        return None
    best = sorted((entry.logprob for entry in alone.logprobs[position].values()), reverse=True)
    return best[0] - best[1] if len(best) > 1 else None
