"""Which transformers models can be served, and how is one run?

Any causal language model whose every layer's memory is plain attention through transformers' interface. Always true:
a model that got here gives, through the paged cache and in chunks, the logits of its own plain forward; one that does
not is refused by name when it is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from specinfer.errors import UnsupportedModelError
from specinfer.kernels.metadata import ForwardBatch
from specinfer.kernels.rows import Stretch, flat_batch, new_cache
from specinfer.models.inside import Inside, capture
from specinfer.models.packed_linear import pack_linears
from specinfer.models.paged import ATTENTION_NAME, LayerProbe, PagedContext, register
from specinfer.protocols import KVLayerSpec

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 2e-3, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Largest difference of log-probabilities that rounding explains in the self-check (some plain forwards round their
attention weights to float32 whatever the model's dtype)."""
_CHECK_LEN, _CHECK_CHUNK, _CHECK_BLOCK = 24, 15, 4


class TransformersModel:
    """protocols.CausalModel around a transformers model, which is switched to paged attention for good."""

    def __init__(
        self, hf_model: Any, *, name: str, max_model_len: int | None = None, pack_linear_weights: bool = True
    ) -> None:
        """Probe and check the model; UnsupportedModelError, by name, for one that would run wrongly.

        max_model_len: None for the configuration's max_position_embeddings.
        """
        register()
        self.name = name
        self._model = hf_model.eval()
        text_config = hf_model.config.get_text_config()
        _refuse_by_config(name, hf_model, text_config)
        self.vocab_size = int(hf_model.get_output_embeddings().weight.shape[0])
        own_len = max_model_len or getattr(text_config, "max_position_embeddings", None)
        if own_len is None:
            raise UnsupportedModelError(f"{name}: its configuration gives no context length; set max_model_len")
        self.max_model_len = int(own_len)
        _refuse_rope(name, text_config, self.max_model_len)
        self.dtype: torch.dtype = hf_model.dtype
        self.device: torch.device = hf_model.device
        plain_attention = "sdpa" if getattr(hf_model, "_supports_sdpa", False) else "eager"
        token_ids = torch.randint(self.vocab_size, (_CHECK_LEN,), generator=torch.Generator().manual_seed(0))
        token_ids = token_ids[: self.max_model_len].to(self.device)
        self._inside = Inside.of(hf_model, text_config.num_hidden_layers)
        self.num_layers = int(text_config.num_hidden_layers)
        with torch.inference_mode():
            hf_model.set_attn_implementation(plain_attention)
            expected = hf_model(input_ids=token_ids[None], use_cache=False).logits[0]
            hf_model.set_attn_implementation(ATTENTION_NAME)
            if pack_linear_weights:
                pack_linears(hf_model)
            self._specs = _probe(name, hf_model, token_ids[:1], text_config)
            self._cache_index = {layer_idx: i for i, layer_idx in enumerate(sorted(self._specs))}
            self._check(token_ids, expected)

    @property
    def kv_layers(self) -> Sequence[KVLayerSpec]:
        return [self._specs[layer_idx] for layer_idx in sorted(self._specs)]

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv_cache: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """One flattened sequence through the model; see protocols.CausalModel."""
        with capture(self.inside, batch) if batch.hidden_points else nullcontext():
            logits: Tensor = self._model(
                input_ids=batch.token_ids[None],
                position_ids=batch.positions[None],
                use_cache=False,
                logits_to_keep=batch.logits_rows,
                paged=PagedContext(batch, kv_cache, self._cache_index),
            ).logits[0]
        return logits if logits.dtype == torch.float64 else logits.float()

    @property
    def inside(self) -> Inside:
        """The parts that drafters use; UnsupportedModelError, by name, where the model hides them."""
        if self._inside is None:
            raise UnsupportedModelError(
                f"{self.name} ({type(self._model).__name__}) shows no list of layers with a norm behind it; drafters "
                f"that read hidden states cannot be used with it"
            )
        return self._inside

    @property
    def hidden_size(self) -> int:
        """Width of its states; UnsupportedModelError where it hides them, found out while a drafter binds."""
        assert self.inside
        return int(self.hf_config.hidden_size)

    @torch.inference_mode()
    def embed(self, token_ids: Tensor) -> Tensor:
        """Input embeddings; see protocols.HiddenStateModel."""
        embedded: Tensor = self._model.get_input_embeddings()(token_ids)
        return embedded

    @torch.inference_mode()
    def final_norm(self, hidden: Tensor) -> Tensor:
        normed: Tensor = self.inside.norm(hidden)
        return normed

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        return logits

    @property
    def hf_config(self) -> Any:
        """The configuration of its text model."""
        return self._model.config.get_text_config()

    def weights(self) -> dict[str, Tensor]:
        """Its parameters by transformers' names; those of packed linear layers are not among them."""
        return dict(self._model.state_dict())

    def prefix(self, num_layers: int) -> TransformersModel:
        """The first layers of this model, its norm and head: a view that shares every weight."""
        if not 1 <= num_layers <= self.num_layers:
            raise UnsupportedModelError(f"{self.name} has {self.num_layers} layers, a prefix of {num_layers} is none")
        part = copy.copy(self)
        part.name = f"{self.name}[:{num_layers}]"
        part._model = self.inside.shortened(self._model, num_layers)
        part._inside = Inside.of(part._model, num_layers)
        part.num_layers = num_layers
        part._specs = {layer_idx: spec for layer_idx, spec in self._specs.items() if layer_idx < num_layers}
        return part

    def _check(self, token_ids: Tensor, expected: Tensor) -> None:
        """Feed a short text in two chunks and compare every second position with the plain forward."""
        length = len(token_ids)
        num_blocks = -(-length // _CHECK_BLOCK)
        kv_cache = new_cache(self.kv_layers, num_blocks * _CHECK_BLOCK, self.dtype, self.device)
        table = list(reversed(range(num_blocks)))
        chunks = []
        for start, end in ((0, min(_CHECK_CHUNK, length)), (_CHECK_CHUNK, length)):
            if start < end:
                wanted = [place for place in range(end - start) if (start + place) % 2]
                chunk = Stretch(token_ids[start:end].cpu().numpy(), start, table, wanted)
                chunks.append(self.forward(flat_batch([chunk], _CHECK_BLOCK, self.device), kv_cache))
        odd = [position for position in range(length) if position % 2]
        found, own = torch.cat(chunks).log_softmax(-1), expected[odd].to(chunks[0].dtype).log_softmax(-1)
        gap = float((found - own).abs().max())
        if not gap <= _TOLERANCE[self.dtype]:
            raise UnsupportedModelError(
                f"{self.name} ({type(self._model).__name__}): paged log-probabilities differ from the model's own by "
                f"{gap:.3g}; its attention needs something that is not honoured, so it cannot be served"
            )


def _refuse_by_config(name: str, hf_model: Any, text_config: Any) -> None:
    """Refuse what the configuration already tells: state that is no attention cache, or attention of another shape."""
    family = f"{name} ({type(hf_model).__name__})"
    layer_types = set(getattr(text_config, "layer_types", None) or ())
    odd = sorted(layer_types - {"full_attention", "sliding_attention", "attention"})
    if getattr(hf_model, "_is_stateful", False) or any("linear" in kind or "mamba" in kind for kind in odd):
        raise UnsupportedModelError(
            f"{family} keeps recurrent state (layers: {', '.join(odd) or 'recurrent'}), which a rejected draft cannot "
            f"be taken out of; only attention models can be served"
        )
    if odd:
        raise UnsupportedModelError(f"{family} has layers of a kind that is not honoured: {', '.join(odd)}")
    if getattr(hf_model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{family} is an encoder-decoder; only causal language models can be served")
    if not getattr(hf_model, "_supports_attention_backend", False):
        raise UnsupportedModelError(f"{family} does not call transformers' attention interface; it cannot be paged")


def _refuse_rope(name: str, text_config: Any, max_model_len: int) -> None:
    """Refuse rotary scalings that look at the longest position of a forward: one request would change another."""
    found = getattr(text_config, "rope_parameters", None) or {}
    by_layer_type = [value for value in found.values() if isinstance(value, dict)]
    for parameters in by_layer_type or [found]:
        rope_type = parameters.get("rope_type")
        original = parameters.get("original_max_position_embeddings") or getattr(
            text_config, "original_max_position_embeddings", text_config.max_position_embeddings
        )
        if rope_type in {"longrope", "dynamic"} and max_model_len > original:
            raise UnsupportedModelError(
                f"{name} uses {rope_type} rotary scaling, which beyond {original} tokens depends on the longest row "
                f"of a batch; set max_model_len={original} or less"
            )


def _probe(name: str, hf_model: Any, token_ids: Tensor, text_config: Any) -> dict[int, KVLayerSpec]:
    """The cache shape of every layer, seen from inside the attention function, where windows are checked as well."""
    probe, num_layers = LayerProbe(), text_config.num_hidden_layers
    hf_model(input_ids=token_ids[None], position_ids=torch.zeros_like(token_ids)[None], use_cache=False, paged=probe)
    family = f"{name} ({type(hf_model).__name__})"
    if not len(probe.specs) == probe.num_calls == num_layers:
        raise UnsupportedModelError(
            f"{family}: {probe.num_calls} attention calls over {len(probe.specs)} of its {num_layers} layers; one "
            f"without a cache of its own cannot be served"
        )
    for layer_idx, window in probe.windows.items():
        wanted = _window(text_config, layer_idx)
        if window != wanted:  # some families build a window into their mask only, which is not built here
            raise UnsupportedModelError(
                f"{family}: layer {layer_idx} has a sliding window of {wanted} by its config but passes {window} "
                f"to its attention; it cannot be served"
            )
    return probe.specs


def _window(text_config: Any, layer_idx: int) -> int | None:
    """The sliding window that the configuration gives a layer."""
    window: int | None = getattr(text_config, "sliding_window", None)
    layer_types = getattr(text_config, "layer_types", None)
    if layer_types:
        return window if layer_types[layer_idx] == "sliding_attention" else None
    return window if getattr(text_config, "use_sliding_window", True) else None
