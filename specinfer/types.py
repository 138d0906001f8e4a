"""What does a user ask for, and what comes back?

Plain data only: no behaviour beyond validation. Always true: an instance that exists is valid in itself; what
depends on a model (vocabulary, context length) is checked when the request reaches an engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torch import Tensor

from specinfer.errors import RequestError
from specinfer.forms import StructuredOutputs

MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 64

LogitsProcessor = Callable[[Sequence[int], Tensor], Tensor]
"""(output token ids so far, drafts of the row included; logits [vocab_size]) -> logits [vocab_size]."""


class OutputKind(Enum):
    """What `step` reports of a request: all so far, only what is new, or only the end."""

    CUMULATIVE = "cumulative"
    DELTA = "delta"
    FINAL_ONLY = "final_only"


class FinishReason(Enum):
    """Why a completion ended; the values are those of the OpenAI API, plus `abort` and `error`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


def _check_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name} must be a number, got {value!r}")
    too_low = value <= low if open_low else value < low
    if math.isnan(value) or too_low or value > high:
        raise RequestError(f"{name} must be in {'(' if open_low else '['}{low}, {high}], got {value!r}")


def _check_count(name: str, value: int | None, low: int, high: int | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        raise RequestError(
            f"{name} must be {f'in {low}..{high}' if high is not None else f'at least {low}'}, got {value}"
        )


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is sampled and when it stops; fields and defaults as in vLLM.

    `temperature=0` is greedy. `top_k=0` and `top_k=-1` both mean no limit. `max_tokens=None` means up to the model's
    context. A smaller `priority` runs earlier (under the priority policy). `num_draft_tokens` overrides the
    controller's draft length for this request; 0 makes it a plain one. `prediction` is text or token ids that the
    output may follow, for the proposer `prompt_ahead`; it never changes the output. `structured_outputs` is the form
    that the output must have (a mapping of its fields will do); its end ends the output, under `ignore_eos` too.
    `logprobs=k` reports the raw target's log-probabilities of the emitted token and of the k most likely ones.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    min_tokens: int = 0
    max_tokens: int | None = 16
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    priority: int = 0
    num_draft_tokens: int | None = None
    prediction: str | Sequence[int] | None = None
    logits_processors: Sequence[LogitsProcessor] | None = None
    structured_outputs: StructuredOutputs | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    output_kind: OutputKind = OutputKind.CUMULATIVE

    def __post_init__(self) -> None:
        """Raise RequestError for the first value out of its range."""
        _check_count("n", self.n, 1, 1024)
        _check_range("temperature", self.temperature, 0.0, 100.0)
        _check_range("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_count("top_k", self.top_k, -1)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_range("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        _check_count("max_tokens", self.max_tokens, 1)
        _check_count("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        _check_count("seed", self.seed, 0, 2**63 - 1)
        _check_count("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _check_count("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        _check_count("priority", self.priority, -(2**31), 2**31)
        _check_count("num_draft_tokens", self.num_draft_tokens, 0, 512)
        self._check_lists()

    def _check_lists(self) -> None:
        if len(self.stop_strings) > MAX_STOP_STRINGS:
            raise RequestError(f"at most {MAX_STOP_STRINGS} stop strings, got {len(self.stop_strings)}")
        if any(not isinstance(text, str) or not text for text in self.stop_strings):
            raise RequestError(f"stop strings must be non-empty strings, got {self.stop!r}")
        if self.stop_strings and not self.detokenize:
            raise RequestError("stop strings need detokenize=True")
        if self.allowed_token_ids is not None and not len(self.allowed_token_ids):
            raise RequestError("allowed_token_ids is empty: nothing could be sampled; give None for no restriction")
        if isinstance(self.bad_words, str):
            raise RequestError(f"bad_words must be a list of strings, got the string {self.bad_words!r}")
        if not isinstance(self.output_kind, OutputKind):
            raise RequestError(f"output_kind must be an OutputKind, got {self.output_kind!r}")
        form: object = self.structured_outputs
        if isinstance(form, Mapping):
            object.__setattr__(self, "structured_outputs", StructuredOutputs.of(form))
        elif form is not None and not isinstance(form, StructuredOutputs):
            raise RequestError(f"structured_outputs must be a StructuredOutputs or its fields, got {form!r}")
        for word in self.bad_words or ():
            if not isinstance(word, str) or not word:
                raise RequestError(f"bad_words must be non-empty strings, got {word!r}")
        for token_id, bias in (self.logit_bias or {}).items():
            _check_range(f"logit_bias[{token_id}]", bias, -100.0, 100.0)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def ends_at_eos(self) -> bool:
        """Whether EOS ends the output; where a form is asked for it always does, since nothing can follow."""
        return not self.ignore_eos or self.structured_outputs is not None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple, whichever way it was given."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


@dataclass(slots=True)
class Draft:
    """A guess at a request's next tokens: a chain, or a tree of them.

    parents: None for a chain; else the node that each one follows, -1 for the last committed token. A parent comes
    before its children, and siblings are judged in order. probs: [num_draft_tokens, vocab_size], row i the law q that
    token i was really drawn from, given the siblings before it; None when the draft is deterministic, so that q is
    one-hot. provenance: who proposed each token (combinators), or None.
    """

    token_ids: Sequence[int]
    probs: Tensor | None = None
    provenance: Sequence[str] | None = None
    parents: Sequence[int] | None = None

    def truncate(self, num_tokens: int) -> Draft:
        """The first `num_tokens` tokens. Exact for any q as long as the length does not depend on the cut tokens."""
        return Draft(
            self.token_ids[:num_tokens],
            None if self.probs is None else self.probs[:num_tokens],
            None if self.provenance is None else self.provenance[:num_tokens],
            None if self.parents is None else self.parents[:num_tokens],
        )

    def parent(self, node: int) -> int:
        """The node before `node`, -1 for the last committed token."""
        return node - 1 if self.parents is None else self.parents[node]

    def children(self) -> list[list[int]]:
        """The nodes behind each row, in order: entry 0 behind the committed tokens, entry i + 1 behind node i."""
        found: list[list[int]] = [[] for _ in range(len(self.token_ids) + 1)]
        for node in range(len(self.token_ids)):
            found[self.parent(node) + 1].append(node)
        return found

    def depths(self) -> list[int]:
        """Of each node, 0 for the first after the committed tokens."""
        depths: list[int] = []
        for node in range(len(self.token_ids)):
            parent = self.parent(node)
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    def prefixes(self) -> list[list[int]]:
        """The draft tokens before each row's law: entry 0 empty, entry i + 1 the tokens down to node i."""
        return prefixes(self.token_ids, self.parents)


def prefixes(token_ids: Sequence[int], parents: Sequence[int] | None) -> list[list[int]]:
    """See Draft.prefixes."""
    found: list[list[int]] = [[]]
    for node, token_id in enumerate(token_ids):
        found.append([*found[node if parents is None else parents[node] + 1], token_id])
    return found


@dataclass(slots=True)
class Logprob:
    """The raw target's log-probability of one token; `rank` is 1 for the most likely."""

    logprob: float
    rank: int
    decoded_token: str | None = None


LogprobsByToken = dict[int, Logprob]
"""One position: the emitted token first, then the most likely ones."""


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's `n` completions; text, ids and logprobs are always cut at the same token."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[LogprobsByToken] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token id or the stop string that ended it; None for EOS and length."""

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestStats:
    """Counts and times of one request, `n` completions together; times in seconds."""

    num_cached_tokens: int = 0
    """Prompt tokens whose KV came from the prefix cache when the request was first admitted."""
    num_preemptions: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_draft_errors: int = 0
    grammar_backend: str | None = None
    """What enforces the form of the output, None for a free one."""
    compile_s: float | None = None
    """How long its grammar took to compile: 0 for one that was there already."""
    arrival_s: float = 0.0
    first_token_s: float | None = None
    finished_s: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """What an engine reports of a request, complete or so far."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[LogprobsByToken | None] | None = None
    """One entry a prompt token; the first is None, since nothing precedes it."""
    stats: RequestStats = field(default_factory=RequestStats)
    error: str | None = None
    """Why the request failed (finish_reason `error`); the completions hold what was emitted before."""
    draft_error: str | None = None
    """Why its drafter was switched off for this request; the output law is unaffected."""
    warnings: list[str] = field(default_factory=list)
    """What its form asks for and is not enforced (AuditPolicy.WARN)."""


ChatMessage = dict[str, Any]
"""`{"role": ..., "content": ...}`, as chat templates take it."""
