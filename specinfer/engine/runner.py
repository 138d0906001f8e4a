"""Where does a forward read and write its KV?

Always true: the cache has one (K, V) pair a layer, all addressed by the same slots, and starts as zeros, so that a
padded read is finite.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from specinfer.config import CacheConfig
from specinfer.errors import ConfigError
from specinfer.kernels.metadata import ForwardBatch
from specinfer.protocols import CausalModel


def bytes_per_block(model: CausalModel, block_size: int) -> int:
    """Memory of one block over all layers."""
    per_token = sum(spec.num_kv_heads * (spec.key_dim + spec.value_dim) for spec in model.kv_layers)
    return per_token * block_size * model.dtype.itemsize


def num_kv_blocks(model: CausalModel, config: CacheConfig) -> int:
    """How many blocks the configuration gives; ConfigError when not even one fits."""
    if config.num_blocks is not None:
        return config.num_blocks
    size = bytes_per_block(model, config.block_size)
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
    """A model and the KV cache it runs on."""

    def __init__(self, model: CausalModel, config: CacheConfig) -> None:
        self.model = model
        self.num_blocks = num_kv_blocks(model, config)
        num_slots = self.num_blocks * config.block_size
        self.kv_cache: list[tuple[Tensor, Tensor]] = []
        for spec in model.kv_layers:
            shapes = ((num_slots, spec.num_kv_heads, dim) for dim in (spec.key_dim, spec.value_dim))
            key, value = (lazy_zeros(shape, model.dtype, model.device) for shape in shapes)
            self.kv_cache.append((key, value))

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> Tensor:
        """Logits [num_logits_rows, vocab_size]."""
        return self.model.forward(batch, self.kv_cache)
