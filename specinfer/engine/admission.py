"""Can this request be served at all, and with which limits?

Always true: what is admitted can finish: its ids are in the vocabulary, its longest possible length fits the model's
context and the KV pool; everything else is refused here, with the offending value, before it can reach a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from specinfer.engine.request import Request
from specinfer.engine.text import CompletionText, StopRules
from specinfer.errors import RequestError
from specinfer.protocols import LoadedModel
from specinfer.sampling.law import RequestLaw, checked_ids
from specinfer.sampling.rng import request_seed
from specinfer.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Admission:
    """The engine's limits, applied to one request after another."""

    loaded: LoadedModel
    max_model_len: int
    num_kv_tokens: int
    """Tokens that the whole KV pool holds."""
    seed: int

    def prompt_token_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Encode and check a prompt; RequestError when it is empty, too long or outside the vocabulary."""
        if not isinstance(prompt, str | Sequence) or isinstance(prompt, bytes | bytearray):
            raise RequestError(f"a prompt is text or a list of token ids, got {type(prompt).__name__}")
        token_ids = self._encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not prompt or not token_ids:
            raise RequestError("the prompt is empty: give at least one character or token")
        token_ids = checked_ids("the prompt", token_ids, self.loaded.model.vocab_size)
        if len(token_ids) >= self.max_model_len:
            raise RequestError(
                f"the prompt has {len(token_ids)} tokens, but max_model_len={self.max_model_len} must hold it and at "
                f"least one token of output; shorten it or raise max_model_len"
            )
        return token_ids

    def _encode(self, prompt: str) -> list[int]:
        try:
            return self.loaded.tokenizer.encode(prompt)
        except Exception as error:  # a lone surrogate, or whatever else a tokenizer takes for no text
            raise RequestError(f"the prompt cannot be encoded: {type(error).__name__}: {error}") from None

    def max_output_tokens(self, num_prompt_tokens: int, params: SamplingParams) -> int:
        """The request's output limit; RequestError when even alone it would not fit the KV pool.

        The last output token is never fed back, so it needs no KV.
        """
        in_context = self.max_model_len - num_prompt_tokens
        in_pool = self.num_kv_tokens - num_prompt_tokens + 1
        wanted = in_context if params.max_tokens is None else min(params.max_tokens, in_context)
        if params.max_tokens is None:
            wanted = min(wanted, max(in_pool, 1))
        if in_pool < wanted:
            raise RequestError(
                f"the KV cache holds {self.num_kv_tokens} tokens, but {num_prompt_tokens} prompt tokens and {wanted} "
                f"of output need {num_prompt_tokens + wanted - 1}; lower max_tokens or raise cache.num_blocks or "
                f"cache.kv_memory_bytes"
            )
        return wanted

    def requests(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        arrival_index: int,
        cache_salt: str,
    ) -> list[Request]:
        """The n engine requests of a user's request."""
        loaded = self.loaded
        max_output = self.max_output_tokens(len(prompt_token_ids), params)
        law = RequestLaw.compile(
            params,
            prompt_token_ids=prompt_token_ids,
            tokenizer=loaded.tokenizer,
            vocab_size=loaded.model.vocab_size,
            eos_token_ids=loaded.eos_token_ids,
        )
        rules = StopRules.of(params, loaded.eos_token_ids, max_output)
        requests = []
        for index in range(params.n):
            # The prompt's logprobs are the same for all completions: the first one reports them.
            own = params if index == 0 else dataclasses.replace(params, prompt_logprobs=None)
            requests.append(
                Request(
                    request_id if params.n == 1 else f"{request_id}/{index}",
                    prompt_token_ids,
                    own,
                    arrival_index=arrival_index + index,
                    seed=request_seed(self.seed, params.seed, arrival_index, index),
                    max_output_tokens=max_output,
                    law=law,
                    text=CompletionText(own, rules, loaded.tokenizer, prompt_token_ids),
                    cache_salt=cache_salt,
                )
            )
        return requests
