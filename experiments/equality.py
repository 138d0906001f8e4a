"""Does every method give the plain method's tokens?

Under greedy sampling it must, up to ties of floating point. Always true: each answer that differs is reported with
the position, both tokens and the plain model's margin between its two most likely tokens there; none is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.comparison import Answer
from experiments.composition import PLAIN
from specinfer.types import SamplingParams

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
    """Log-probability of the plain model's most likely token here minus the second's, computed alone; None where it
    could not be computed."""


def check_equality(answers: Sequence[Answer], plain: LLM, sampling: SamplingParams) -> list[Difference]:
    """Set `equals_plain` of every answer, and describe those that differ from plain decoding's first answer.

    Nothing is checked where sampling is random; an answer with an error counts as different only if plain has none.
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
        answer.equals_plain = answer.token_ids == reference.token_ids
        if not answer.equals_plain:
            differences.append(_difference(answer, reference, plain, sampling))
    return differences


def _difference(answer: Answer, reference: Answer, plain: LLM, sampling: SamplingParams) -> Difference:
    ours, theirs = answer.token_ids, reference.token_ids
    common = min(len(ours), len(theirs))
    position = next((i for i in range(common) if ours[i] != theirs[i]), common)
    return Difference(
        method=answer.method,
        repeat=answer.repeat,
        task=answer.task,
        question_id=answer.question_id,
        turn=answer.turn,
        position=position,
        plain_token_id=theirs[position] if position < len(theirs) else None,
        token_id=ours[position] if position < len(ours) else None,
        top2_margin=_top2_margin(plain, [*reference.prompt_token_ids, *theirs[:position]], sampling),
    )


def _top2_margin(plain: LLM, token_ids: list[int], sampling: SamplingParams) -> float | None:
    """The raw model's margin after `token_ids`, in nats."""
    one = replace(sampling, max_tokens=1, min_tokens=0, logprobs=2, prompt_logprobs=None)
    plain.reset_prefix_cache()
    output = plain.generate([token_ids], one, return_errors=True)[0]
    plain.take_events()
    logprobs = output.outputs[0].logprobs
    if output.error is not None or not logprobs:
        return None
    best = sorted((entry.logprob for entry in logprobs[0].values() if entry.rank <= 2), reverse=True)
    return best[0] - best[1] if len(best) > 1 else None
