"""How is a transformers tokenizer used as the engine's?

Always true: `decode` changes nothing of the text (no clean-up of spaces), and chat templates run in transformers'
sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specinfer.errors import RequestError
from specinfer.types import ChatMessage


class TransformersTokenizer:
    """protocols.Tokenizer around a transformers tokenizer, which stays reachable as `hf_tokenizer`."""

    def __init__(self, hf_tokenizer: Any) -> None:
        self.hf_tokenizer = hf_tokenizer

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.hf_tokenizer.encode(text)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self.hf_tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self.hf_tokenizer.decode(
            token_ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text

    def render_chat(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> list[int]:
        if not self.hf_tokenizer.chat_template:
            raise RequestError("this model's tokenizer has no chat template; use generate with a prompt of your own")
        try:
            text = self.hf_tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except Exception as error:  # whatever a foreign template raises
            raise RequestError(f"the chat template refused these messages: {type(error).__name__}: {error}") from error
        return self.encode_plain(text)

    def token_strings(self) -> list[str]:
        strings: list[str] = self.hf_tokenizer.convert_ids_to_tokens(list(range(len(self))))
        return strings

    def token_bytes(self) -> list[bytes]:
        """As xgrammar reads the vocabulary: byte-level, byte-fallback and raw ones."""
        import xgrammar

        info = xgrammar.TokenizerInfo.from_huggingface(self.hf_tokenizer, vocab_size=len(self))
        texts: list[bytes] = list(info.decoded_vocab)
        special = set(self.hf_tokenizer.all_special_ids)
        special |= {i for i, token in self.hf_tokenizer.added_tokens_decoder.items() if token.special}
        return [b"" if i in special else text for i, text in enumerate(texts)]

    def __len__(self) -> int:
        return len(self.hf_tokenizer)
