"""Components that live outside the project's packages, as a user's would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, ProposerContext, Randomness, RequestView, Verdict, VerifyItem
from specinfer.types import Draft


@dataclass
class RepeatLast:
    """Drafts the last token again and again."""

    num_draft_tokens: int = 2

    def __post_init__(self) -> None:
        if self.num_draft_tokens < 0:
            raise ConfigError(f"num_draft_tokens must be at least 0, got {self.num_draft_tokens}")

    def bind(self, context: ProposerContext) -> None: ...

    def start(self, request: RequestView) -> None: ...

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [Draft([int(r.token_ids[-1])] * n) for r, n in zip(requests, num_draft_tokens, strict=True)]

    def stop(self, request_id: str) -> None: ...


@dataclass
class AcceptAll:
    """A verifier that is wrong on purpose: whatever was drafted stands."""

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(False, "everything")

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        return [Verdict.chain(len(item.draft.token_ids), 0) for item in items]


@dataclass
class FullDisk:
    """A tracker that always fails."""

    def __getattr__(self, name: str) -> Any:
        raise OSError("no space left")
