"""Where does a forward read and write its KV?

Always true: the cache has one (K, V) pair a layer, all addressed by the same slots, and starts as zeros, so that a
padded read is finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specinfer.config import CacheConfig
from specinfer.errors import ConfigError
from specinfer.kernels.metadata import ForwardBatch
from specinfer.protocols import CausalModel, KVClaim, KVLayerSpec


def bytes_per_block(model: CausalModel, claims: Sequence[KVClaim], block_size: int) -> int:
    """Memory of one block over all layers, the drafters' among them."""
    num_bytes = _bytes_per_token(model.kv_layers, model.dtype)
    num_bytes += sum(_bytes_per_token(claim.specs, claim.dtype) for claim in claims)
    return num_bytes * block_size


def _bytes_per_token(specs: Sequence[KVLayerSpec], dtype: torch.dtype) -> int:
    return dtype.itemsize * sum(spec.num_kv_heads * (spec.key_dim + spec.value_dim) for spec in specs)


def num_kv_blocks(model: CausalModel, claims: Sequence[KVClaim], config: CacheConfig) -> int:
    """How many blocks the configuration gives; ConfigError when not even one fits."""
    if config.num_blocks is not None:
        return config.num_blocks
    size = bytes_per_block(model, claims, config.block_size)
    # More blocks than 4,096 full contexts could never be used at once.
    num_blocks = min(config.kv_memory_bytes // size, 4096 * -(-model.max_model_len // config.block_size))
    if num_blocks < 1:
        raise ConfigError(f"cache.kv_memory_bytes={config.kv_memory_bytes} holds no block of {size} bytes; raise it")
    return num_blocks


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory on a CPU only once they are touched: blocks that are never used cost nothing.

    `torch.zeros` writes its zeros; numpy asks the system for pages that are zero already.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


class Runner:
    """A model and the KV cache it runs on, drafters' layers included."""

    def __init__(
        self,
        model: CausalModel,
        config: CacheConfig,
        claims: Sequence[KVClaim] = (),
        kv_cache: list[tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        """Allocate the target's layers into `kv_cache` and each claim's into itself."""
        self.model = model
        self.num_blocks = num_kv_blocks(model, claims, config)
        self._num_slots = self.num_blocks * config.block_size
        self.kv_cache = [] if kv_cache is None else kv_cache
        self.kv_cache.extend(self._allocate(model.kv_layers, model.dtype))
        for claim in claims:
            claim.layers.extend(self._allocate(claim.specs, claim.dtype))

    def _allocate(self, specs: Sequence[KVLayerSpec], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        def zeros(spec: KVLayerSpec, dim: int) -> Tensor:
            return lazy_zeros((self._num_slots, spec.num_kv_heads, dim), dtype, self.model.device)

        return [(zeros(spec, spec.key_dim), zeros(spec, spec.value_dim)) for spec in specs]

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> Tensor:
        """Logits [num_logits_rows, vocab_size]."""
        return self.model.forward(batch, self.kv_cache)

    @torch.inference_mode()
    def move_kv(self, sources: Sequence[int], destinations: Sequence[int]) -> None:
        """Copy the target's K/V from slots to slots, all read before any is written."""
        source = torch.tensor(sources, device=self.model.device)
        destination = torch.tensor(destinations, device=self.model.device)
        for pair in self.kv_cache:
            for cache in pair:
                cache.index_copy_(0, destination, cache.index_select(0, source))
