"""What does the engine know of one completion in flight?

Always true: `token_ids` is prompt plus committed output and only grows; K/V exists in `block_ids` for the first
`num_computed_tokens` of them; `draft` continues `token_ids` and is no part of it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specinfer.engine.block_pool import hash_block, hash_salt
from specinfer.types import Draft, SamplingParams

if TYPE_CHECKING:
    from specinfer.engine.text import CompletionText
    from specinfer.sampling.processing import RequestLaw
    from specinfer.structured.constraint import Constraint
    from specinfer.structured.drafts import DraftCensus


class Status(Enum):
    """Where a request is: its grammar being compiled, in the queue (new or preempted), holding KV, or done."""

    COMPILING = "compiling"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """One completion; a user's request with n > 1 is n of them."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        arrival_index: int,
        seed: int,
        max_output_tokens: int,
        law: RequestLaw,
        text: CompletionText,
        cache_salt: str = "",
    ) -> None:
        self.request_id = request_id
        self.params = params
        self.arrival_index = arrival_index
        self.seed = seed
        self.max_output_tokens = max_output_tokens
        self.law = law
        self.text = text
        self.num_prompt_tokens = len(prompt_token_ids)

        self.status = Status.WAITING
        self.error: str | None = None

        self._tokens: NDArray[np.int64] = np.array(prompt_token_ids, dtype=np.int64)
        self.num_tokens = self.num_prompt_tokens
        self.num_computed_tokens = 0
        self.block_ids: list[int] = []
        self._block_hashes: list[bytes] = []
        self.cache_salt = cache_salt
        self._salt = hash_salt(cache_salt)

        self.priority = params.priority  # lowered by ageing while it waits
        self.queued_step = 0
        self.num_cached_tokens: int | None = None  # None until first admitted
        self.num_preemptions = 0

        self.constraint: Constraint | None = None
        """The form of its output; it stays through a preemption, as the output does"""
        self.draft: Draft | None = None
        self.draft_census: DraftCensus | None = None
        """What the form said of `draft` before it was fitted"""
        self.draft_error: str | None = None
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0

    @property
    def token_ids(self) -> NDArray[np.int64]:
        return self._tokens[: self.num_tokens]

    @property
    def output_token_ids(self) -> NDArray[np.int64]:
        return self._tokens[self.num_prompt_tokens : self.num_tokens]

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Committed tokens without K/V: the prompt's rest, or the one just emitted; never 0 while in flight."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def num_draft_pending(self) -> int:
        return len(self.draft.token_ids) if self.draft is not None else 0

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

    def append(self, token_ids: list[int]) -> None:
        """Commit output tokens."""
        end = self.num_tokens + len(token_ids)
        if end > len(self._tokens):
            grown = np.empty(max(2 * len(self._tokens), end), dtype=np.int64)
            grown[: self.num_tokens] = self.token_ids
            self._tokens = grown
        self._tokens[self.num_tokens : end] = token_ids
        self.num_tokens = end

    def block_hashes(self, num_blocks: int, block_size: int, lookahead: int = 0) -> list[bytes]:
        """Chained hashes of the first `num_blocks` blocks, which must be full of committed tokens.

        lookahead: so many tokens behind each block are hashed with it.
        """
        assert num_blocks * block_size + (lookahead if num_blocks else 0) <= self.num_tokens
        for index in range(len(self._block_hashes), num_blocks):
            parent = self._block_hashes[-1] if index else self._salt
            tokens = self._tokens[index * block_size : (index + 1) * block_size + lookahead]
            self._block_hashes.append(hash_block(parent, tokens))
        return self._block_hashes[:num_blocks]
