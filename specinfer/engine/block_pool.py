"""Which KV block belongs to whom, and what may be reused?

A block's life: free and blank -> owned (ref count > 0) -> perhaps published under the hash of its tokens and of all
before them -> free but still matchable -> owned again by a request with the same prefix, or evicted, oldest first.
Always true (`check_integrity`): every block is owned, blank or evictable, exactly one of the three; its ref count is
the number of block tables it stands in; a published hash names one block.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def hash_salt(salt: str) -> bytes:
    """The root of a chain of block hashes; different salts never share blocks."""
    return hashlib.blake2b(salt.encode(), digest_size=16).digest()


def hash_block(parent: bytes, token_ids: NDArray[np.int64]) -> bytes:
    """The chained content hash of a full block; `parent` is the hash before it, `hash_salt` for the first."""
    return hashlib.blake2b(token_ids.tobytes(), key=parent, digest_size=16).digest()


class BlockPool:
    """Hands out block ids; holds no tensors."""

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._ref_counts = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._published: dict[bytes, int] = {}
        self._blank = set(range(num_blocks))
        self._blank_heap = list(range(num_blocks))  # lowest id first; stale entries are skipped
        self._evictable: OrderedDict[int, None] = OrderedDict()  # least recently freed first

    @property
    def num_free(self) -> int:
        return len(self._blank) + len(self._evictable)

    def allocate(self, num_blocks: int, after: int | None = None) -> list[int] | None:
        """Take blocks, ref count 1 each; None, taking nothing, when there are too few.

        after: the last block of the same table; its neighbour is preferred, since a contiguous table is read without
        a copy.
        """
        if num_blocks > self.num_free:
            return None
        taken: list[int] = []
        for _ in range(num_blocks):
            block_id = self._take(after)
            taken.append(block_id)
            after = block_id
        return taken

    def _take(self, after: int | None) -> int:
        if after is not None and after + 1 in self._blank:
            block_id = after + 1
            self._blank.remove(block_id)
        elif self._blank:
            block_id = heapq.heappop(self._blank_heap)
            while block_id not in self._blank:
                block_id = heapq.heappop(self._blank_heap)
            self._blank.remove(block_id)
        else:
            block_id, _ = self._evictable.popitem(last=False)
            self._forget_hash(block_id)
        assert self._ref_counts[block_id] == 0
        self._ref_counts[block_id] = 1
        return block_id

    def match(self, hashes: Iterable[bytes]) -> list[int]:
        """The longest run of published blocks for a chain of hashes; ownership does not change."""
        found: list[int] = []
        for block_hash in hashes:
            block_id = self._published.get(block_hash)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def share(self, block_ids: Sequence[int]) -> None:
        """Add an owner to published blocks."""
        for block_id in block_ids:
            assert self._hashes[block_id] is not None, "only a published block can be shared"
            if self._ref_counts[block_id] == 0:
                del self._evictable[block_id]
            self._ref_counts[block_id] += 1

    def free(self, block_ids: Sequence[int]) -> None:
        """Drop one owner of each block of a table; its tail becomes evictable before its head."""
        for block_id in reversed(block_ids):
            assert self._ref_counts[block_id] > 0, f"block {block_id} was freed twice"
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                if self._hashes[block_id] is None:
                    self._add_blank(block_id)
                else:
                    self._evictable[block_id] = None

    def publish(self, block_id: int, block_hash: bytes) -> None:
        """Make a full block findable. Its tokens must be committed and its K/V written.

        A second block with the same content stays private.
        """
        if self.enable_prefix_caching and block_hash not in self._published:
            assert self._ref_counts[block_id] > 0 and self._hashes[block_id] is None
            self._hashes[block_id] = block_hash
            self._published[block_hash] = block_id

    def reset_prefix_cache(self) -> None:
        """Forget every published block; owned ones stay owned."""
        for block_id in list(self._published.values()):
            self._forget_hash(block_id)
        for block_id in self._evictable:
            self._add_blank(block_id)
        self._evictable.clear()

    def _add_blank(self, block_id: int) -> None:
        self._blank.add(block_id)
        heapq.heappush(self._blank_heap, block_id)

    def _forget_hash(self, block_id: int) -> None:
        block_hash = self._hashes[block_id]
        assert block_hash is not None
        del self._published[block_hash]
        self._hashes[block_id] = None

    def check_integrity(self, block_tables: Iterable[Sequence[int]]) -> None:
        """Assert the module's invariants against every live block table."""
        owners = Counter(block_id for table in block_tables for block_id in table)
        assert owners == Counter({b: n for b, n in enumerate(self._ref_counts) if n}), "ref counts differ from tables"
        evictable, blank = set(self._evictable), self._blank
        assert evictable.isdisjoint(blank) and evictable.isdisjoint(owners) and blank.isdisjoint(owners)
        assert len(evictable) + len(blank) + len(owners) == self.num_blocks, "a block leaked"
        assert blank <= set(self._blank_heap), "a blank block cannot be found again"
        assert all(self._hashes[b] is not None for b in evictable) and all(self._hashes[b] is None for b in blank)
        assert {h: b for b, h in enumerate(self._hashes) if h is not None} == self._published
