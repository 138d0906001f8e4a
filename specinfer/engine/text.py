"""What text do a completion's tokens make, and at which token does it end?

Always true: text, token ids and logprobs are cut at the same token; text that is reported never has to be taken back
(an incomplete character, or what may be the start of a stop string, is held until it is decided).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specinfer.protocols import Tokenizer
from specinfer.types import FinishReason, LogprobsByToken, SamplingParams

REPLACEMENT = "\ufffd"


class IncrementalDecoder:
    """Turns a growing list of ids into growing text, safe for characters spread over several tokens.

    A window of a few ids is decoded before and after each append; its first ids give the decoder the context that
    decides about leading spaces (the prompt's last ids for the first token).
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._window = list(prompt_token_ids[-5:])
        self._num_read = len(self._window)
        self._num_given: int | None = None  # characters of the decoded window that `text` holds, None until needed
        self.text = ""

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special_tokens)

    def append(self, token_id: int) -> None:
        """Add a token; the text grows as soon as its characters are whole."""
        if self._num_given is None:
            self._num_given = len(self._decode(self._window))
        self._window.append(token_id)
        decoded = self._decode(self._window)
        whole = decoded.rstrip(REPLACEMENT)
        if len(whole) > self._num_given:
            self.text += whole[self._num_given :]
            self._num_given = len(whole)
            if whole == decoded:
                self._window = self._window[self._num_read :]
                self._num_read = len(self._window)
                self._num_given = None

    def flush(self) -> None:
        """Give out what is held back, as U+FFFD where it is no character."""
        if self._num_given is not None:
            self.text += self._decode(self._window)[self._num_given :]
            self._num_given = None


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a completion; a row of tokens is walked one by one against it."""

    eos_token_ids: frozenset[int]
    stop_token_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    min_tokens: int
    max_tokens: int
    include_stop_string: bool

    @classmethod
    def of(cls, params: SamplingParams, eos_token_ids: frozenset[int], max_tokens: int) -> StopRules:
        """The rules of one request; max_tokens is the request's own, limited by the model's context."""
        return cls(
            eos_token_ids if params.ends_at_eos else frozenset(),
            frozenset(params.stop_token_ids or ()),
            params.stop_strings,
            params.min_tokens,
            max_tokens,
            params.include_stop_str_in_output,
        )


class CompletionText:
    """One completion's tokens as a user sees them: text, logprobs and the end."""

    def __init__(
        self, params: SamplingParams, rules: StopRules, tokenizer: Tokenizer, prompt_token_ids: Sequence[int]
    ) -> None:
        self._rules = rules
        self._num_tokens = 0
        self._decoder = (
            IncrementalDecoder(tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens)
            if params.detokenize
            else None
        )
        self._cut: int | None = None  # length of the text before a stop string
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.logprobs: list[LogprobsByToken] | None = None if params.logprobs is None else []
        self.cumulative_logprob = 0.0
        self.prompt_logprobs: list[LogprobsByToken | None] | None = None if params.prompt_logprobs is None else [None]

    @property
    def num_prompt_logprobs(self) -> int:
        """Prompt tokens whose logprobs are known; they survive a preemption."""
        return len(self.prompt_logprobs or ())

    @property
    def text(self) -> str:
        """All text so far, cut at the stop string."""
        text = self._decoder.text if self._decoder else ""
        return text if self._cut is None else text[: self._cut]

    @property
    def stable_text(self) -> str:
        """Text that no later token can take back: without the tail that may begin a stop string."""
        if self.finish_reason is not None or not self._rules.stop_strings:
            return self.text
        held = max(map(len, self._rules.stop_strings)) - 1
        return self.text[: max(0, len(self.text) - held)]

    def walk(self, token_ids: Sequence[int]) -> int:
        """Take tokens one by one until one ends the completion; how many were taken, the ending one included."""
        for index, token_id in enumerate(token_ids):
            self._take(token_id)
            if self.finish_reason is not None:
                return index + 1
        return len(token_ids)

    def _take(self, token_id: int) -> None:
        rules = self._rules
        self._num_tokens += 1
        is_eos = token_id in rules.eos_token_ids
        before = len(self._decoder.text) if self._decoder else 0
        # A stop token's own text is no part of the completion.
        if self._decoder and not is_eos and token_id not in rules.stop_token_ids:
            self._decoder.append(token_id)
        if self._num_tokens >= rules.min_tokens:
            if is_eos:
                self._end(FinishReason.STOP)
            elif token_id in rules.stop_token_ids:
                self._end(FinishReason.STOP, token_id)
            elif rules.stop_strings:
                self._check_stop_strings(before)
        if self.finish_reason is None and self._num_tokens >= rules.max_tokens:
            self._end(FinishReason.LENGTH)

    def _check_stop_strings(self, before: int) -> None:
        """End at the earliest stop string that this token completed."""
        assert self._decoder is not None
        text = self._decoder.text
        found = [
            (start, stop)
            for stop in self._rules.stop_strings
            if (start := text.find(stop, max(0, before - len(stop) + 1))) >= 0
        ]
        if found:
            start, stop = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            self._cut = start + (len(stop) if self._rules.include_stop_string else 0)
            self._end(FinishReason.STOP, stop)

    def _end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        if self._decoder and self._cut is None:
            self._decoder.flush()
        self.finish_reason = reason
        self.stop_reason = stop_reason

    def abandon(self, reason: FinishReason) -> None:
        """End from outside: an abort or an error."""
        if self.finish_reason is None:
            self._end(reason)

    def add_logprobs(self, logprobs: Sequence[LogprobsByToken], token_ids: Sequence[int]) -> None:
        """Record one entry an emitted token."""
        assert self.logprobs is not None and len(logprobs) == len(token_ids)
        self.logprobs.extend(logprobs)
        self.cumulative_logprob += sum(
            entry[token_id].logprob for entry, token_id in zip(logprobs, token_ids, strict=True)
        )
