"""What is the smallest model whose output proves that the engine fed it right?

TinyModel keeps the token ids themselves in the paged cache and derives each row's logits from the whole context it
reads back through the block table. Always true: a wrong slot, position, block or leftover draft changes its logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specinfer.kernels.metadata import ForwardBatch
from specinfer.protocols import KVLayerSpec, LoadedModel
from specinfer.types import ChatMessage

_MODULUS = 2_147_483_647


@dataclass
class TinyModel:
    """A deterministic pseudo-random causal law over a tiny vocabulary, float64.

    order: how many last tokens decide the logits (a short memory repeats itself, so that n-grams match; None for the
    whole context). sharpness: scale of the logits; larger is more predictable.
    """

    vocab_size: int = 32
    max_model_len: int = 512
    order: int | None = 3
    sharpness: float = 2.0
    seed: int = 0
    name: str = "tiny"
    dtype: torch.dtype = torch.float64
    kv_layers: Sequence[KVLayerSpec] = field(init=False, default=(KVLayerSpec(1, 2, 1),))
    device: torch.device = field(init=False, default_factory=lambda: torch.device("cpu"))
    num_forwards: int = field(init=False, default=0)
    num_tokens: int = field(init=False, default=0)
    """Tokens computed over all forwards."""

    def forward(self, batch: ForwardBatch, kv_cache: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Write (token, position) into the slots, read each row's context back, and hash it into logits."""
        self.num_forwards += 1
        self.num_tokens += batch.num_tokens
        assert int(batch.token_ids.min()) >= 0 and int(batch.token_ids.max()) < self.vocab_size
        assert int(batch.positions.max()) < self.max_model_len
        key, value = kv_cache[0]
        key[batch.slot_mapping, 0, 0] = batch.token_ids.to(self.dtype)
        key[batch.slot_mapping, 0, 1] = batch.positions.to(self.dtype)
        value[batch.slot_mapping, 0, 0] = 1.0
        wanted = set(batch.logits_rows.tolist())
        logits: dict[int, Tensor] = {}
        offset = 0
        trees = batch.trees or [None] * len(batch.query_lens)
        for query_len, context_len, table, tree in zip(
            batch.query_lens, batch.context_lens, batch.block_tables, trees, strict=True
        ):
            slots = [table[p // batch.block_size] * batch.block_size + p % batch.block_size for p in range(context_len)]
            tokens, positions = key[slots, 0, 0].long(), key[slots, 0, 1].long()
            for row in range(query_len):
                seen = list(range(context_len - query_len + row + 1))
                if tree is not None:
                    before = context_len - len(tree.positions)
                    seen = [*range(before), *(before + int(i) for i in tree.visible[row].nonzero())]
                assert positions[seen].tolist() == list(range(len(seen))), "the cache holds another position's token"
                if offset + row in wanted:
                    logits[offset + row] = self.logits(tokens[seen].tolist())
            offset += query_len
        return torch.stack([logits[row] for row in batch.logits_rows.tolist()]) if logits else torch.empty(0, 0)

    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """Logits [vocab_size] after a context: the law that every test holds the engine against."""
        state = self.seed + 17
        for token_id in token_ids if self.order is None else token_ids[-self.order :]:
            state = (state * 48_271 + token_id + 1) % _MODULUS
        generator = torch.Generator().manual_seed(state)
        return torch.randn(self.vocab_size, generator=generator, dtype=self.dtype) * self.sharpness


class ByteTokenizer:
    """Token id = byte value, then one id each for BOS and EOS where the vocabulary has room; text in UTF-8.

    With a vocabulary below 256, text maps to `byte % vocab_size` and ids decode as letters from `a` on.
    """

    def __init__(self, vocab_size: int = 258) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """Bytes of the text."""
        return self.encode_plain(text)

    def encode_plain(self, text: str) -> list[int]:
        """Bytes of the text; letters where the vocabulary is small."""
        if self.vocab_size >= 256:
            return list(text.encode())
        return [(byte - ord("a")) % self.vocab_size for byte in text.encode()]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of the bytes; ids above 255 are special."""
        if self.vocab_size < 256:
            return "".join(chr(ord("a") + token_id) for token_id in token_ids)
        parts = [bytes([i]) if i < 256 else b"" if skip_special_tokens else f"<{i}>".encode() for i in token_ids]
        return b"".join(parts).decode(errors="replace")

    def render_chat(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> list[int]:
        """`role: content` a line."""
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return self.encode_plain("".join(lines) + ("assistant: " if add_generation_prompt else ""))

    def token_strings(self) -> list[str]:
        """A name for each byte and each special id."""
        return [f"<{token_id}>" for token_id in range(self.vocab_size)]

    def token_bytes(self) -> list[bytes]:
        """A byte each, a letter where the vocabulary is small; nothing for special ids."""
        if self.vocab_size < 256:
            return [bytes([ord("a") + i]) for i in range(self.vocab_size)]
        return [bytes([i]) if i < 256 else b"" for i in range(self.vocab_size)]

    def __len__(self) -> int:
        return self.vocab_size


def tiny_loaded_model(eos_token_id: int | None = None, **fields: object) -> LoadedModel:
    """A TinyModel with a ByteTokenizer of its size; `fields` are TinyModel's."""
    model = TinyModel(**fields)  # type: ignore[arg-type]
    eos = frozenset() if eos_token_id is None else frozenset({eos_token_id})
    return LoadedModel(model, ByteTokenizer(model.vocab_size), eos)
