"""The pool has the blocks that its memory allows, and takes that memory only when they are used."""

import pytest
import torch

from specinfer import LLM, CacheConfig, ConfigError, EngineConfig
from specinfer.engine.runner import bytes_per_block, lazy_zeros, num_kv_blocks
from specinfer.protocols import KVClaim, KVLayerSpec
from specinfer.testing.models import tiny_loaded_model

LOADED = tiny_loaded_model()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_lazy_zeros_are_zeros_of_their_shape_and_type(dtype: torch.dtype) -> None:
    zeros = lazy_zeros((3, 2, 5), dtype, torch.device("cpu"))
    assert zeros.dtype == dtype
    assert torch.equal(zeros, torch.zeros(3, 2, 5, dtype=dtype))
    zeros[1] = 1.0
    assert float(zeros.float().sum()) == 10.0


def test_blocks_follow_from_the_memory_unless_they_are_given() -> None:
    size = bytes_per_block(LOADED.model, [], 4)
    assert size == (2 + 1) * 8 * 4, "key of 2, value of 1, float64, four tokens"
    assert num_kv_blocks(LOADED.model, [], CacheConfig(block_size=4, kv_memory_bytes=10 * size + 1)) == 10
    assert num_kv_blocks(LOADED.model, [], CacheConfig(block_size=4, num_blocks=7)) == 7


def test_a_drafters_layers_take_part_of_the_memory() -> None:
    claim = KVClaim([KVLayerSpec(2, 4, 4)], torch.float32)
    size = bytes_per_block(LOADED.model, [claim], 4)
    assert size == (3 * 8 + 2 * 8 * 4) * 4
    assert num_kv_blocks(LOADED.model, [claim], CacheConfig(block_size=4, kv_memory_bytes=10 * size + 1)) == 10


def test_memory_for_no_block_is_refused_with_its_size() -> None:
    with pytest.raises(ConfigError, match=r"kv_memory_bytes=10 .*96 bytes"):
        LLM(EngineConfig(cache=CacheConfig(block_size=4, kv_memory_bytes=10)), loaded_model=LOADED)
