"""How does a user run a model with speculation?

    llm = LLM(EngineConfig(model="demo"), proposer="ngram")
    outputs = llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=64))

Always true: `generate` and `chat` return one output a prompt, in order; requests added with `add_request` keep running
beside them, and their outputs are never lost.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from specinfer import registry
from specinfer.config import EngineConfig
from specinfer.engine.delivery import Delivery, OutputStream
from specinfer.engine.engine import Engine
from specinfer.errors import RequestError
from specinfer.events import StepEvent
from specinfer.protocols import DraftController, LoadedModel, Proposer, Randomness, Verifier
from specinfer.structured.manager import GrammarManager
from specinfer.types import (
    ChatMessage,
    CompletionOutput,
    FinishReason,
    OutputKind,
    RequestOutput,
    RequestStats,
    SamplingParams,
)

Prompt = str | Sequence[int]
Conversation = Sequence[ChatMessage]


class LLM:
    """One target model with a proposer, a verifier and a controller.

    Each component is a short name (`ngram`), a path (`pkg.module:Class`) or an instance. `loaded_model` shares weights
    between several LLMs, `grammars` what was compiled for structured outputs. `randomness` replaces the counter-based
    source; tests enumerate outcomes with it.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        proposer: str | Proposer | None = None,
        verifier: str | Verifier = "rejection",
        controller: str | DraftController = "fixed",
        *,
        loaded_model: LoadedModel | None = None,
        grammars: GrammarManager | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        self.proposer: Proposer = registry.build("proposers", "none" if proposer is None else proposer)
        self.verifier: Verifier = registry.build("verifiers", verifier)
        self.controller: DraftController = registry.build("controllers", controller)
        self.loaded_model = loaded_model or _load(self.config)
        self.engine = Engine(
            self.config,
            self.loaded_model,
            self.proposer,
            self.verifier,
            self.controller,
            proposer_name=registry.name_of("proposers", self.proposer),
            load_model=lambda name: _load(
                dataclasses.replace(self.config, model=name, revision=None, max_model_len=None)
            ),
            grammars=grammars,
            randomness=randomness,
        )
        self._delivery = Delivery(self.engine)
        self._counter = itertools.count()

    # ---------------------------------------------------------------------------------------- whole batches

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str = "",
        return_errors: bool = False,
    ) -> list[RequestOutput]:
        """Complete one prompt or many.

        A prompt that cannot be served raises RequestError naming its index before anything runs; with
        `return_errors=True` it gets an output with `error` set instead, and the others go on.
        """
        batch = [prompts] if _is_single(prompts) else list(prompts)
        params = _params_list(sampling_params, len(batch))
        final = [dataclasses.replace(p, output_kind=OutputKind.FINAL_ONLY) for p in params]
        added = self._add_all(batch, final, cache_salt, return_errors)
        results = {output.request_id: output for output in OutputStream(self._delivery, _ids(added))}
        return [results[one] if isinstance(one, str) else one for one in added]

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str = "",
        return_errors: bool = False,
    ) -> list[RequestOutput]:
        """Answer one conversation or many, in the model's chat template."""
        is_single = bool(messages) and isinstance(messages[0], dict)
        conversations: Any = [messages] if is_single else messages
        prompts = [self.render_chat(conversation) for conversation in conversations]
        return self.generate(prompts, sampling_params, cache_salt=cache_salt, return_errors=return_errors)

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str = "",
    ) -> OutputStream:
        """Yield outputs as they grow, cumulative or deltas by `output_kind`; closing the iterator aborts the rest.

        A prompt that cannot be served raises RequestError here, before the first output.
        """
        batch = [prompts] if _is_single(prompts) else list(prompts)
        params = _params_list(sampling_params, len(batch))
        return OutputStream(self._delivery, _ids(self._add_all(batch, params, cache_salt, return_errors=False)))

    def _add_all(
        self, prompts: Sequence[Any], params: Sequence[SamplingParams], cache_salt: str, return_errors: bool
    ) -> list[str | RequestOutput]:
        """Queue every prompt: its request id, or its error output, in order; none is queued where this raises."""
        added: list[str | RequestOutput] = []
        try:
            for index, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
                request_id = self._next_id()
                try:
                    self.engine.add_request(request_id, prompt, one, cache_salt=cache_salt)
                    added.append(request_id)
                except RequestError as error:
                    if not return_errors:
                        raise RequestError(f"prompt {index}: {error}" if len(prompts) > 1 else str(error)) from None
                    added.append(_error_output(request_id, prompt, str(error)))
        except BaseException:
            for request_id in _ids(added):
                self.engine.abort(request_id)
            raise
        return added

    # ---------------------------------------------------------------------------------------- step by step

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        cache_salt: str = "",
    ) -> str:
        """Queue one request for `step`; its id."""
        request_id = self._next_id() if request_id is None else request_id
        self.engine.add_request(request_id, prompt, sampling_params or SamplingParams(), cache_salt=cache_salt)
        return request_id

    def step(self) -> list[RequestOutput]:
        """Run one engine step; the outputs of the requests that moved on, but for those that a stream reads."""
        self._delivery.advance()
        return self._delivery.take_unclaimed()

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now; its output so far, or None for an unknown id."""
        return self.engine.abort(request_id)

    @property
    def has_unfinished_requests(self) -> bool:
        return self.engine.has_unfinished_requests or bool(self._delivery.unclaimed)

    # ---------------------------------------------------------------------------------------------- records

    @property
    def events(self) -> list[StepEvent]:
        """Every step event since the last `take_events`."""
        return self.engine.events

    def take_events(self) -> list[StepEvent]:
        """Return the events and forget them."""
        events, self.engine.events = self.engine.events, []
        return events

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes."""
        self.engine.reset_prefix_cache()

    @property
    def grammars(self) -> GrammarManager:
        """Compiles and keeps the grammars of structured outputs."""
        return self.engine.forms.manager

    def render_chat(self, messages: Conversation) -> list[int]:
        """Token ids of a conversation up to the start of the answer."""
        return self.loaded_model.tokenizer.render_chat(messages)

    def describe(self) -> dict[str, Any]:
        """The whole configuration as plain data, for records."""
        parts = {
            "engine": self.config,
            "proposer": self.proposer,
            "verifier": self.verifier,
            "controller": self.controller,
        }
        return {name: registry.describe(part) for name, part in parts.items()}

    def _next_id(self) -> str:
        """The next number that is not in flight as an id given by hand."""
        return next(name for number in self._counter if (name := str(number)) not in self.engine.in_flight)


def _load(config: EngineConfig) -> LoadedModel:
    from specinfer.models.loading import load_model  # transformers takes seconds to import

    return load_model(config)


def _is_single(prompts: Any) -> bool:
    return isinstance(prompts, str) or (
        isinstance(prompts, Sequence) and bool(prompts) and isinstance(prompts[0], Integral)
    )


def _ids(added: Sequence[str | RequestOutput]) -> list[str]:
    return [one for one in added if isinstance(one, str)]


def _params_list(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise RequestError(f"{len(params)} SamplingParams for {count} prompts; give one, or one a prompt")
    return list(params)


def _error_output(request_id: str, prompt: Any, error: str) -> RequestOutput:
    return RequestOutput(
        request_id=request_id,
        prompt=prompt if isinstance(prompt, str) else None,
        prompt_token_ids=list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, str) else [],
        outputs=[CompletionOutput(0, "", [], finish_reason=FinishReason.ERROR)],
        finished=True,
        stats=RequestStats(),
        error=error,
    )
