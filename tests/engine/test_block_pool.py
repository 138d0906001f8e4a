"""Blocks are owned, blank or evictable, and a published one can be found until it is evicted."""

import numpy as np
import pytest

from specinfer.engine.block_pool import BlockPool, hash_block, hash_salt


def _hashes(tokens: list[int], block_size: int, salt: str = "") -> list[bytes]:
    parent, found = hash_salt(salt), []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hash_block(parent, np.array(tokens[start : start + block_size], dtype=np.int64))
        found.append(parent)
    return found


def _published(pool: BlockPool, hashes: list[bytes]) -> list[int]:
    blocks = pool.allocate(len(hashes))
    assert blocks is not None
    for block, block_hash in zip(blocks, hashes, strict=True):
        pool.publish(block, block_hash)
    return blocks


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(4, 2)
    assert pool.allocate(5) is None
    assert pool.num_free == 4
    assert pool.allocate(4) == [0, 1, 2, 3]
    assert pool.allocate(1) is None


def test_a_table_grows_contiguously_while_its_neighbour_is_blank() -> None:
    pool = BlockPool(8, 2)
    first = pool.allocate(2)
    second = pool.allocate(1, after=5)
    assert (first, second) == ([0, 1], [6])
    assert pool.allocate(2, after=1) == [2, 3]


def test_a_published_prefix_is_found_up_to_its_first_difference() -> None:
    pool = BlockPool(8, 2)
    blocks = _published(pool, _hashes([1, 2, 3, 4, 5, 6], 2))
    assert pool.match(_hashes([1, 2, 3, 4, 9, 9], 2)) == blocks[:2]
    assert pool.match(_hashes([9, 2, 3, 4], 2)) == []


def test_equal_tokens_after_different_prefixes_are_different_blocks() -> None:
    first, second = _hashes([1, 1, 7, 7], 2), _hashes([2, 2, 7, 7], 2)
    assert first[1] != second[1]


def test_salts_never_share_blocks() -> None:
    pool = BlockPool(8, 2)
    _published(pool, _hashes([1, 2, 3, 4], 2, salt="a"))
    assert pool.match(_hashes([1, 2, 3, 4], 2, salt="b")) == []


def test_a_freed_published_block_is_reused_until_evicted_least_recently_freed_first() -> None:
    pool = BlockPool(4, 2)
    old, new = _hashes([1, 1, 1, 1], 2), _hashes([2, 2, 2, 2], 2)
    old_blocks, new_blocks = _published(pool, old), _published(pool, new)
    pool.free(old_blocks)
    pool.free(new_blocks)
    assert pool.allocate(1) == [old_blocks[1]], "the tail of the oldest chain goes first"
    assert pool.match(old) == old_blocks[:1]
    assert pool.match(new) == new_blocks


def test_a_shared_block_survives_the_first_of_its_owners() -> None:
    pool = BlockPool(4, 2)
    blocks = _published(pool, _hashes([1, 2], 2))
    pool.share(blocks)
    pool.free(blocks)
    pool.check_integrity([blocks])
    pool.free(blocks)
    pool.check_integrity([])


def test_freeing_twice_is_an_assertion() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.free(blocks)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free(blocks)


def test_integrity_check_sees_a_leak_and_a_foreign_table() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.allocate(2)
    assert blocks is not None
    pool.check_integrity([blocks])
    with pytest.raises(AssertionError):
        pool.check_integrity([])
    with pytest.raises(AssertionError):
        pool.check_integrity([blocks, blocks])


def test_reset_forgets_prefixes_and_keeps_owners() -> None:
    pool = BlockPool(4, 2)
    hashes = _hashes([1, 2, 3, 4], 2)
    blocks = _published(pool, hashes)
    pool.free(blocks[1:])
    pool.reset_prefix_cache()
    assert pool.match(hashes) == []
    pool.check_integrity([blocks[:1]])
