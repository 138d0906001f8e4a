"""What does a target say, and to what, so that a drafter can learn it?

A drafter learns the target's own responses. Prompts come from a workload or are written by the target itself: its
chat template up to the start of the user's turn, continued (Magpie, Xu et al. 2024), some of the turns with a given
opening so that every kind of task occurs. Always true: a conversation's tokens depend on its number, the seed and the
settings only, so that an interrupted collection goes on where it stopped; each line of the file is a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.workloads import Workload
from specinfer.errors import ConfigError
from specinfer.llm import LLM
from specinfer.types import FinishReason, SamplingParams

OPENINGS: Sequence[str] = (
    "",
    "Summarize: ",
    "Translate German to English: ",
    "Who ",
    "When ",
    "How many ",
    "Write a short story about ",
    "Write a Python function that ",
    "Explain ",
    "Passage 1: ",
    "Read the following text and answer the question.\n",
    "Each day, ",
    "Imagine you are ",
    "List ",
    "Extract ",
)
"""How a self-written user turn begins; every second one is left free."""


@dataclass(frozen=True, slots=True)
class Response:
    """One conversation: prompt and answer as token ids."""

    index: int
    temperature: float
    prompt_token_ids: list[int]
    token_ids: list[int]


@dataclass(kw_only=True)
class ResponseSettings:
    """How responses are collected.

    temperatures: taken in turn by the conversations. chunk_size: conversations that are generated together, and lost
    together when interrupted.
    """

    num_conversations: int = 1500
    temperatures: Sequence[float] = (0.0, 0.7)
    max_prompt_tokens: int = 320
    max_response_tokens: int = 224
    chunk_size: int = 96
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_conversations", "max_prompt_tokens", "max_response_tokens", "chunk_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"responses.{name} must be at least 1, got {getattr(self, name)}")
        if not self.temperatures:
            raise ConfigError("responses.temperatures is empty: give at least one")


def read_responses(path: Path) -> list[Response]:
    """The conversations of a file, in order; none where it does not exist. A last line cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Response(**json.loads(line)) for line in lines if line.endswith("\n")]


def collect_responses(
    llm: LLM, settings: ResponseSettings, path: Path, workload: Workload | None = None
) -> Iterator[int]:
    """Append conversations to `path` until there are enough; yields how many there are after each chunk.

    workload: whose first turns are answered; None lets the target write its prompts.
    """
    known = read_responses(path)
    num_known, index = len(known), 1 + max((response.index for response in known), default=-1)
    path.parent.mkdir(parents=True, exist_ok=True)
    given = None if workload is None else _workload_prompts(llm, settings, workload)
    _drop_unfinished_line(path)
    with path.open("a", encoding="utf-8") as file:
        while num_known < settings.num_conversations:
            numbers = range(index, index + settings.chunk_size)
            prompts = _self_written(llm, settings, numbers) if given is None else _given(given, numbers)
            if not prompts:
                return
            for response in _answers(llm, settings, prompts):
                file.write(json.dumps(asdict(response)) + "\n")
                num_known += 1
            file.flush()
            index = numbers.stop
            yield num_known


def _drop_unfinished_line(path: Path) -> None:
    """Cut a line that an interruption left without its end, so that the next one begins a line of its own."""
    if path.exists():
        text = path.read_bytes()
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def _workload_prompts(llm: LLM, settings: ResponseSettings, workload: Workload) -> list[list[int]]:
    prompts = [llm.render_chat([{"role": "user", "content": c.turns[0]}]) for c in workload.load()]
    return [prompt for prompt in prompts if len(prompt) <= settings.max_prompt_tokens]


def _given(prompts: Sequence[list[int]], numbers: range) -> dict[int, list[int]]:
    return {number: prompts[number] for number in numbers if number < len(prompts)}


def _self_written(llm: LLM, settings: ResponseSettings, numbers: range) -> dict[int, list[int]]:
    """Prompts that the target wrote to their end, by number."""
    head, tail = _turn_frame(llm)
    openings = ["" if number % 2 else OPENINGS[number // 2 % len(OPENINGS)] for number in numbers]
    tokenizer = llm.loaded_model.tokenizer
    started = [[*head, *(tokenizer.encode_plain(opening.rstrip()) if opening else ())] for opening in openings]
    params = [
        SamplingParams(temperature=1.0, top_p=0.95, max_tokens=settings.max_prompt_tokens, seed=_seed(settings, n, 1))
        for n in numbers
    ]
    written: dict[int, list[int]] = {}
    for number, start, output in zip(numbers, started, llm.generate(started, params), strict=True):
        completion = output.outputs[0]
        body = [token for token in completion.token_ids if token not in llm.loaded_model.eos_token_ids]
        if completion.finish_reason is FinishReason.STOP and body:
            written[number] = [*start, *body, *tail]
    return written


def _turn_frame(llm: LLM) -> tuple[list[int], list[int]]:
    """What the chat template puts before and after a user's text, as token ids."""
    marker = llm.loaded_model.tokenizer.encode_plain("X")
    framed = llm.render_chat([{"role": "user", "content": "X"}])
    for start in range(len(framed) - len(marker), -1, -1):
        if framed[start : start + len(marker)] == marker:
            return framed[:start], framed[start + len(marker) :]
    raise ConfigError("the chat template does not carry the user's text through; give a workload")


def _answers(llm: LLM, settings: ResponseSettings, prompts: dict[int, list[int]]) -> list[Response]:
    temperatures = {n: settings.temperatures[n // 2 % len(settings.temperatures)] for n in prompts}
    params = [
        SamplingParams(temperature=temperatures[n], max_tokens=settings.max_response_tokens, seed=_seed(settings, n, 2))
        for n in prompts
    ]
    outputs = llm.generate(list(prompts.values()), params)
    return [
        Response(number, temperatures[number], list(prompt), list(output.outputs[0].token_ids))
        for (number, prompt), output in zip(prompts.items(), outputs, strict=True)
        if output.error is None and len(output.outputs[0].token_ids) > 1
    ]


def _seed(settings: ResponseSettings, number: int, use: int) -> int:
    return settings.seed * 1_000_003 + 2 * number + use
