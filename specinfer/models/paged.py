"""How does a transformers model come to read the paged cache?

Its attention modules call whatever function is registered under the name they were loaded with; ours finds the batch
and the cache among the keyword arguments of the call. Always true: an argument that changes the mathematics is either
honoured or refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from specinfer.errors import UnsupportedModelError
from specinfer.kernels.metadata import ForwardBatch
from specinfer.kernels.torch_ops import paged_attention, write_kv
from specinfer.protocols import KVLayerSpec

ATTENTION_NAME = "specinfer_paged"

_HARMLESS = {
    "position_ids",  # rotary embeddings are applied before attention
    "cache_position",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "dropout",
}


@dataclass(slots=True)
class PagedContext:
    """One forward's batch and cache, handed through the model to every attention layer."""

    batch: ForwardBatch
    kv_cache: Sequence[tuple[Tensor, Tensor]]
    cache_index: dict[int, int]
    """Position in `kv_cache` of each attention layer, by the model's layer_idx"""


@dataclass(slots=True)
class LayerProbe:
    """Takes a PagedContext's place in a first forward: what do the layers pass?"""

    specs: dict[int, KVLayerSpec] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)
    """The sliding window that each layer passes"""
    num_calls: int = 0


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: PagedContext | LayerProbe,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query, key, value: [1, heads, num_tokens, dim] -> [1, num_tokens, num_heads, value_dim]."""
    layer_idx: int = module.layer_idx  # type: ignore[assignment]
    if isinstance(paged, LayerProbe):
        _refuse_unknown(
            module, attention_mask, others | ({} if is_causal in {None, True} else {"is_causal": is_causal})
        )
        paged.num_calls += 1
        paged.windows[layer_idx] = sliding_window
        paged.specs[layer_idx] = KVLayerSpec(key.shape[1], key.shape[3], value.shape[3])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None
    batch = paged.batch
    k_cache, v_cache = paged.kv_cache[paged.cache_index[layer_idx]]
    write_kv(k_cache, v_cache, key[0].transpose(0, 1), value[0].transpose(0, 1), batch.slot_mapping)
    attended = paged_attention(
        query[0].transpose(0, 1),
        k_cache,
        v_cache,
        batch,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return attended[None], None


def _refuse_unknown(module: nn.Module, attention_mask: Tensor | None, others: dict[str, Any]) -> None:
    unknown = {name for name, value in others.items() if value is not None and name not in _HARMLESS}
    if attention_mask is not None:
        unknown.add("attention_mask")
    if unknown:
        raise UnsupportedModelError(
            f"{type(module).__name__} passes {', '.join(sorted(unknown))} to its attention, which the paged kernels do "
            f"not honour; this family cannot be served yet"
        )


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Masks follow from the batch's positions, so none is built."""


def register() -> None:
    """Make ATTENTION_NAME known to transformers; harmless to repeat."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    function: Callable[..., Any] = _attention
    AttentionInterface.register(ATTENTION_NAME, function)
    AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)
