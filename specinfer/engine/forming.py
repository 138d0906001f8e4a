"""Which requests wait for their grammar, and how does a compiled one become a request's constraint?

Compilation runs beside the step loop. Always true: a request is scheduled only when its constraint stands; one whose
grammar fails ends with an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from specinfer.config import StructuredConfig
from specinfer.engine.request import Request, Status
from specinfer.errors import GrammarError, RequestError
from specinfer.protocols import GrammarKind, LoadedModel, TokenTable
from specinfer.structured.constraint import Constraint
from specinfer.structured.manager import GrammarManager, PendingGrammar, wait_any
from specinfer.structured.reasoning import Reasoning
from specinfer.types import SamplingParams


def token_table(loaded: LoadedModel) -> TokenTable:
    """The vocabulary as wide as the model's logits; ends and padding add nothing to a text."""
    texts = loaded.tokenizer.token_bytes()
    texts += [b""] * (loaded.model.vocab_size - len(texts))
    return TokenTable([b"" if i in loaded.eos_token_ids else t for i, t in enumerate(texts)], loaded.eos_token_ids)


@dataclass
class FormQueue:
    """The requests of one engine whose grammars are being compiled."""

    config: StructuredConfig
    loaded: LoadedModel
    shared: GrammarManager | None = None
    """One that several engines with the same vocabulary share"""
    waiting: list[tuple[Request, PendingGrammar]] = field(default_factory=list, init=False)

    @cached_property
    def manager(self) -> GrammarManager:
        """The shared one, or one made for the first request that needs it."""
        return self.shared or GrammarManager(self.config, lambda: self._tokens)

    @cached_property
    def _tokens(self) -> TokenTable:
        return token_table(self.loaded)

    def submit(self, params: SamplingParams) -> PendingGrammar | None:
        """Have a request's grammar compiled, if it has a form; RequestError for what is seen to be wrong at once."""
        return None if params.structured_outputs is None else self.manager.submit(params.structured_outputs)

    def add(self, request: Request, pending: PendingGrammar) -> None:
        """Let a request wait."""
        request.status = Status.COMPILING
        self.waiting.append((request, pending))

    def remove(self, request: Request) -> None:
        """Let it wait no longer."""
        self.waiting = [item for item in self.waiting if item[0] is not request]

    def take_ready(
        self, start: Callable[[Request], None], fail: Callable[[Request, RequestError], None], *, is_idle: bool
    ) -> None:
        """Start the requests whose constraint stands, and fail those whose grammar did.

        is_idle: there is nothing else to do, so sleep until one is ready.
        """
        if is_idle and self.waiting:
            wait_any([pending for _, pending in self.waiting])
        ready = [item for item in self.waiting if item[1].done]
        for request, pending in ready:
            self.remove(request)
            try:
                request.constraint = self._constraint(request.params, pending)
            except GrammarError as error:
                fail(request, error)
            except Exception as error:  # whatever a foreign backend raises
                fail(request, GrammarError(f"grammar backend {pending.backend}: {type(error).__name__}: {error}"))
            else:
                start(request)

    def _constraint(self, params: SamplingParams, pending: PendingGrammar) -> Constraint:
        wanted = params.structured_outputs
        assert wanted is not None
        reasoning = None
        if wanted.reasoning_end is not None:
            marker = wanted.reasoning_end
            ids = tuple(self.loaded.tokenizer.encode_plain(marker))
            reasoning = Reasoning(marker.encode(), ids, self._tokens)
        return Constraint(
            pending.result().matcher(),
            self._tokens,
            sorted(self.loaded.eos_token_ids.union(params.stop_token_ids or ())),
            reasoning,
            is_json=pending.spec.kind is GrammarKind.JSON_SCHEMA,
            is_closed=wanted.choice is not None,
            backend=pending.backend,
            compile_s=pending.compile_s,
            warnings=pending.warnings,
        )

    def close(self) -> None:
        """End the compilations of a manager of its own."""
        if "manager" in self.__dict__ and self.shared is None:
            self.manager.close()
