"""What does a user get back, and when?

A user's request with n completions is a group of engine requests. Always true: a group is reported at most once a
step; deltas joined give exactly the cumulative output.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specinfer.engine.request import Request
from specinfer.types import CompletionOutput, OutputKind, RequestOutput, RequestStats


@dataclass(slots=True)
class RequestGroup:
    """One user request: its completions, and how much of them was reported."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    requests: list[Request]
    arrival_s: float
    output_kind: OutputKind
    first_token_s: float | None = None
    finished_s: float | None = None
    _num_reported: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return all(request.is_finished for request in self.requests)

    def output(self) -> RequestOutput | None:
        """The report of this step, in the kind the user asked for; None when there is none to make."""
        finished = self.is_finished
        if self.output_kind is OutputKind.FINAL_ONLY and not finished:
            return None
        requests = self.requests
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=[self._completion(index, request) for index, request in enumerate(requests)],
            finished=finished,
            prompt_logprobs=requests[0].text.prompt_logprobs,
            stats=self._stats(),
            error=next((request.error for request in requests if request.error is not None), None),
            draft_error=next((request.draft_error for request in requests if request.draft_error is not None), None),
            warnings=[] if requests[0].constraint is None else list(requests[0].constraint.warnings),
        )

    def _completion(self, index: int, request: Request) -> CompletionOutput:
        text, token_ids = request.text.stable_text, request.output_token_ids.tolist()
        logprobs = request.text.logprobs
        if self.output_kind is OutputKind.DELTA:
            num_chars, num_tokens = self._num_reported.get(index, (0, 0))
            self._num_reported[index] = len(text), len(token_ids)
            text, token_ids = text[num_chars:], token_ids[num_tokens:]
            logprobs = None if logprobs is None else logprobs[num_tokens:]
        return CompletionOutput(
            index=index,
            text=text,
            token_ids=token_ids,
            cumulative_logprob=None if logprobs is None else request.text.cumulative_logprob,
            logprobs=None if logprobs is None else list(logprobs),
            finish_reason=request.text.finish_reason,
            stop_reason=request.text.stop_reason,
        )

    def _stats(self) -> RequestStats:
        form = self.requests[0].constraint
        return RequestStats(
            num_cached_tokens=self.requests[0].num_cached_tokens or 0,
            num_preemptions=sum(request.num_preemptions for request in self.requests),
            num_draft_tokens=sum(request.num_draft_tokens for request in self.requests),
            num_accepted_tokens=sum(request.num_accepted_tokens for request in self.requests),
            num_draft_errors=sum(request.draft_error is not None for request in self.requests),
            grammar_backend=None if form is None else form.backend,
            compile_s=None if form is None else form.compile_s,
            arrival_s=self.arrival_s,
            first_token_s=self.first_token_s,
            finished_s=self.finished_s,
        )
