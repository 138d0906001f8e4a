"""How are methods measured side by side?

Every method answers the same batch of requests before the next batch begins, and the order of the methods rotates, so
that machine drift hits all alike. Always true: all methods see identical prompts (the plain method's answers are the
history of later turns); every call starts with an empty prefix cache; a group of calls that was interrupted is dropped
whole, so that what is kept is paired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from experiments.composition import PLAIN
from experiments.validity import has_form
from experiments.workloads import Conversation
from specinfer.forms import StructuredOutputs
from specinfer.metrics import table, totals
from specinfer.types import ChatMessage, FinishReason, RequestOutput, SamplingParams

if TYPE_CHECKING:
    import polars as pl

    from specinfer.llm import LLM

Clock = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Answer:
    """One request, answered by one method once; times in seconds."""

    method: str
    repeat: int
    task: str
    question_id: str
    turn: int
    request_id: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: str | None
    seconds: float
    """Its part of the wall time of the call it was in, prefill included: shared as its steps' times are."""
    call_seconds: float
    """The wall time of that call."""
    first_token_s: float | None
    """From arrival to the first token."""
    error: str | None
    draft_error: str | None
    form: StructuredOutputs | None = None
    """What form it had to have"""
    grammar_backend: str | None = None
    compile_s: float | None = None
    is_valid: bool | None = None
    """Whether its text has the form, by validators of their own; None where it has none, or broke off"""
    is_canonical: bool | None = None
    """Whether its tokens are those that the tokenizer cuts its text into; None without a form"""
    equals_plain: bool | None = None
    """Whether its tokens are the plain method's; None where sampling is random, or where it left out a form."""

    @property
    def request(self) -> tuple[str, int]:
        """What was asked, whoever answered."""
        return self.question_id, self.turn


def batches_of(conversations: Sequence[Conversation], batch_size: int) -> list[list[Conversation]]:
    """Conversations sent together, at most `batch_size`, never of different tasks, so that a task's time is its own."""
    batches: list[list[Conversation]] = []
    for _, group in groupby(conversations, key=lambda c: c.task):
        same_task = list(group)
        batches += [same_task[i : i + batch_size] for i in range(0, len(same_task), batch_size)]
    return batches


@dataclass
class Comparison:
    """Measures `engines` by method name, plain decoding among them, and keeps the answers and the events.

    free: the methods that leave out the forms that requests ask for.
    """

    engines: Mapping[str, LLM]
    sampling: SamplingParams
    chat: bool = True
    free: frozenset[str] = frozenset()
    clock: Clock = time.perf_counter
    answers: list[Answer] = field(default_factory=list, init=False)
    events: list[pl.DataFrame] = field(default_factory=list, init=False)
    _num_groups: int = field(default=0, init=False, repr=False)
    _histories: dict[str, list[ChatMessage]] = field(default_factory=dict, init=False, repr=False)

    def warm_up(self, batches: Sequence[Sequence[Conversation]], num_batches: int) -> None:
        """Run each method on the first batches, at most 32 tokens a request, and keep nothing."""
        sampling = replace(self.sampling, max_tokens=min(self.sampling.max_tokens or 32, 32), min_tokens=0)
        for batch in batches[:num_batches]:
            prompts = [self._prompt([], conversation.turns[0]) for conversation in batch]
            for name, engine in self.engines.items():
                engine.generate(prompts, self._params(name, batch, sampling), return_errors=True)
                engine.take_events()

    def run(self, batches: Sequence[Sequence[Conversation]], repeats: int) -> Iterable[list[Answer]]:
        """Measure all, yielding the answers of a batch's turn once every method gave them."""
        for repeat in range(repeats):
            for batch in batches:
                for turn in range(max(len(c.turns) for c in batch)):
                    asked = [
                        c
                        for c in batch
                        if turn < len(c.turns) and len(self._histories.get(c.question_id, [])) >= 2 * turn
                    ]
                    if asked:
                        yield self._measure(asked, repeat, turn)

    def _measure(self, asked: Sequence[Conversation], repeat: int, turn: int) -> list[Answer]:
        """One turn of one batch by every method; kept only when all are done."""
        names = list(self.engines)
        start = self._num_groups % len(names)
        prompts = [self._prompt(self._history(c, turn), c.turns[turn]) for c in asked]
        answers: list[Answer] = []
        events: list[pl.DataFrame] = []
        for name in names[start:] + names[:start]:
            new, own_events = self._call(name, asked, prompts, repeat, turn)
            answers += new
            events.append(own_events)
        self._num_groups += 1
        self._remember(asked, turn, [a for a in answers if a.method == PLAIN])
        self.answers += answers
        self.events += events
        return answers

    def _call(
        self, name: str, asked: Sequence[Conversation], prompts: Sequence[Any], repeat: int, turn: int
    ) -> tuple[list[Answer], pl.DataFrame]:
        engine = self.engines[name]
        engine.reset_prefix_cache()
        engine.take_events()
        start = self.clock()
        outputs = engine.generate(prompts, self._params(name, asked, self.sampling), return_errors=True)
        wall = self.clock() - start
        labels = {
            output.request_id: {
                "method": name,
                "repeat": repeat,
                "task": conversation.task,
                "question_id": conversation.question_id,
                "turn": turn,
            }
            for conversation, output in zip(asked, outputs, strict=True)
        }
        events = table.label(table.from_events(engine.take_events()), labels)
        shares = _shares(events, outputs)
        answers = [
            _answer(labels[output.request_id], output, wall * shares[output.request_id], wall) for output in outputs
        ]
        if name not in self.free:
            for conversation, answer in zip(asked, answers, strict=True):
                if conversation.form is not None:
                    self._judge(answer, conversation.form)
        return answers, events

    def _judge(self, answer: Answer, form: StructuredOutputs) -> None:
        loaded = self.engines[PLAIN].loaded_model
        tokens = [token for token in answer.token_ids if token not in loaded.eos_token_ids]
        answer.form = form
        answer.is_valid = has_form(answer.text, form) if answer.finish_reason == FinishReason.STOP.value else None
        answer.is_canonical = loaded.tokenizer.encode_plain(answer.text) == tokens

    def _params(self, name: str, asked: Sequence[Conversation], sampling: SamplingParams) -> list[SamplingParams]:
        """Each request's parameters, with its form unless the method is free of forms."""
        return [
            sampling if c.form is None or name in self.free else replace(sampling, structured_outputs=c.form)
            for c in asked
        ]

    # ------------------------------------------------------------------------------------------------- turns

    def _history(self, conversation: Conversation, turn: int) -> list[ChatMessage]:
        return self._histories.get(conversation.question_id, [])[: 2 * turn]

    def _remember(self, asked: Sequence[Conversation], turn: int, answers: Sequence[Answer]) -> None:
        """Keep the plain method's first answer as history; after an error a conversation is not continued."""
        for conversation, answer in zip(asked, answers, strict=True):
            history = self._histories.setdefault(conversation.question_id, [])
            if len(history) == 2 * turn and answer.error is None:
                history += [
                    {"role": "user", "content": conversation.turns[turn]},
                    {"role": "assistant", "content": answer.text},
                ]

    def _prompt(self, history: Sequence[ChatMessage], turn: str) -> list[int] | str:
        messages = [*history, {"role": "user", "content": turn}]
        if self.chat:
            return self.engines[PLAIN].render_chat(messages)
        return "\n".join(str(message["content"]) for message in messages)


def _shares(events: pl.DataFrame, outputs: Sequence[RequestOutput]) -> dict[str, float]:
    """The part of a call's time that each request takes; sums to 1 over those that ran."""
    seconds = totals.shared_seconds(events)
    found = dict(zip(seconds["request_id"], seconds["seconds"], strict=True))
    whole = sum(found.values())
    return {o.request_id: found.get(o.request_id, 0.0) / whole if whole else 1.0 / len(outputs) for o in outputs}


def _answer(labels: Mapping[str, Any], output: RequestOutput, seconds: float, call_seconds: float) -> Answer:
    completion, stats = output.outputs[0], output.stats
    return Answer(
        **labels,
        request_id=output.request_id,
        prompt_token_ids=list(output.prompt_token_ids),
        token_ids=list(completion.token_ids),
        text=completion.text,
        finish_reason=None if completion.finish_reason is None else completion.finish_reason.value,
        seconds=seconds,
        call_seconds=call_seconds,
        first_token_s=None if stats.first_token_s is None else stats.first_token_s - stats.arrival_s,
        grammar_backend=stats.grammar_backend,
        compile_s=stats.compile_s,
        error=output.error,
        draft_error=output.draft_error,
    )
