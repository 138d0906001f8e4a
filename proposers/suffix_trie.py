"""Which texts are counted, and how much memory may that take?

Imports numba, so import it where it is first needed. Always true: what `RequestText` answers depends on the text alone,
not on the steps in which it came; `FinishedOutputs` stays within its bytes, and a salt sees its own outputs only.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proposers import suffix_numba as compiled

NODE_BYTES = 4 * compiled.NUM_COLUMNS + 6
"""With its one and a half slots of the table"""
_FIRST_CAPACITY = 256
_OUTPUTS_SHARE = 8

Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a match may be continued: see SuffixProposer."""

    factor: float
    offset: float
    min_ratio: float
    is_tree: bool


@dataclass(frozen=True, slots=True)
class Continuation:
    """What follows the best match; empty, with score 0, where nothing does."""

    token_ids: list[int]
    parents: list[int]
    score: float


class Trie:
    """Growing arrays for `suffix_numba`; every root is a trie of its own."""

    def __init__(self, depth: int, max_nodes: int = 2**31 - 1) -> None:
        self.depth = depth
        self.max_nodes = max_nodes
        self.header = np.array([0, compiled.NIL, 0], dtype=np.int64)
        self._allocate(min(_FIRST_CAPACITY, max_nodes))

    @property
    def num_nodes(self) -> int:
        return int(self.header[compiled.NUM_LIVE])

    @property
    def num_free(self) -> int:
        return self.max_nodes - self.num_nodes

    @property
    def nbytes(self) -> int:
        return self.nodes.nbytes + self.table.nbytes

    def reserve(self, num_nodes: int) -> None:
        """Make room for so many new nodes; there must be so many free ones."""
        wanted = self.num_nodes + num_nodes
        assert wanted <= self.max_nodes, f"{wanted} nodes where {self.max_nodes} are allowed"
        if wanted > len(self.nodes):
            old = self.nodes
            self._allocate(min(max(2 * len(old), wanted), self.max_nodes))
            self.nodes[: len(old)] = old
            compiled.fill_table(self.nodes, self.table, self.header)

    def new_root(self) -> int:
        self.reserve(1)
        return int(compiled.new_root(self.nodes, self.header))

    def active(self, root: int) -> NDArray[np.int32]:
        """The nodes of an empty text."""
        active = np.empty(self.depth + 1, dtype=np.int32)
        active[0] = root
        return active

    def append(self, active: NDArray[np.int32], num_before: int, tokens: Tokens) -> None:
        self.reserve(len(tokens) * self.depth)
        compiled.append(self.nodes, self.table, self.header, active, num_before, tokens)

    def continuation(self, active: NDArray[np.int32], num_matched: int, length: int, reach: Reach) -> Continuation:
        """The best one, of at most `length` tokens, behind the last `num_matched` tokens or fewer."""
        tokens, parents = np.empty(length, dtype=np.int64), np.empty(length, dtype=np.int64)
        num, score = compiled.continue_best(
            self.nodes,
            active,
            num_matched,
            reach.factor,
            reach.offset,
            reach.min_ratio,
            reach.is_tree,
            tokens,
            parents,
        )
        return Continuation(tokens[:num].tolist(), parents[:num].tolist(), score)

    def _allocate(self, capacity: int) -> None:
        self.nodes = np.empty((capacity, compiled.NUM_COLUMNS), dtype=np.int32)
        self.table = np.full(max(capacity * 3 // 2, 1), compiled.NIL, dtype=np.int32)


class RequestText:
    """The trie of one request's prompt and output; takes NODE_BYTES * depth bytes a token at most."""

    def __init__(self, depth: int) -> None:
        self.trie = Trie(depth)
        self._active = self.trie.active(self.trie.new_root())
        self._text = np.empty(0, dtype=np.int64)
        self._num_tokens = 0

    def follow(self, token_ids: Tokens) -> None:
        """Make this the text, whatever was before: take back what differs, count what is new."""
        text = self._text[: self._num_tokens]
        num_kept = min(len(text), len(token_ids))
        differs = text[:num_kept] != token_ids[:num_kept]
        if differs.any():
            num_kept = int(differs.argmax())
        if num_kept < len(text):
            compiled.retract(self.trie.nodes, self.trie.table, self.trie.header, self._active, text, num_kept)
        new = np.ascontiguousarray(token_ids[num_kept:])
        self.trie.append(self._active, num_kept, new)
        if len(token_ids) > len(self._text):
            self._text = np.concatenate([text[:num_kept], new, np.empty(len(token_ids), dtype=np.int64)])
        self._text[num_kept : len(token_ids)] = new
        self._num_tokens = len(token_ids)

    def continuation(self, length: int, reach: Reach) -> Continuation:
        """Of this text by itself. The last tokens' own occurrence counts among those of a match."""
        return self.trie.continuation(self._active, min(self._num_tokens, self.trie.depth - 1), length, reach)


class FinishedOutputs:
    """The tries of finished outputs, one a salt; the oldest outputs make room for new ones, whosesoever they are."""

    def __init__(self, depth: int, max_bytes: int) -> None:
        self.max_output_bytes = max_bytes // _OUTPUTS_SHARE
        self.trie = Trie(depth, (max_bytes - self.max_output_bytes) // NODE_BYTES)
        self.num_output_bytes = 0
        self._outputs: deque[tuple[str, Tokens]] = deque()
        self._roots: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        return self.trie.nbytes + self.num_output_bytes

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def add(self, salt: str, token_ids: Any) -> None:
        """Count one output, or as much of its end as there can be room for."""
        most = min((self.trie.max_nodes - 1) // self.trie.depth, self.max_output_bytes // 8)
        tokens = np.array(token_ids[max(len(token_ids) - most, 0) :], dtype=np.int64)
        num_bytes, num_nodes = _num_bytes(salt, tokens), 1 + len(tokens) * self.trie.depth
        if not len(tokens) or num_bytes > self.max_output_bytes:
            return
        while self.trie.num_free < num_nodes or self.num_output_bytes + num_bytes > self.max_output_bytes:
            self._evict()
        if salt not in self._roots:
            self._roots[salt] = self.trie.new_root()
        self.trie.append(self.trie.active(self._roots[salt]), 0, tokens)
        self._outputs.append((salt, tokens))
        self.num_output_bytes += num_bytes

    def continuation(self, salt: str, token_ids: Tokens, length: int, reach: Reach) -> Continuation:
        """Of the best match among the salt's outputs."""
        root = self._roots.get(salt)
        if root is None:
            return Continuation([], [], 0.0)
        active = self.trie.active(root)
        tail = np.ascontiguousarray(token_ids[-self.trie.depth :])
        num_matched = compiled.match(self.trie.nodes, self.trie.table, root, tail, active)
        return self.trie.continuation(active, num_matched, length, reach)

    def _evict(self) -> None:
        """Forget the oldest output, and its salt with the last one."""
        salt, tokens = self._outputs.popleft()
        trie, root = self.trie, self._roots[salt]
        compiled.remove(trie.nodes, trie.table, trie.header, root, trie.depth, tokens)
        if trie.nodes[root, compiled.FIRST_CHILD] == compiled.NIL:
            compiled.free_node(trie.nodes, trie.table, trie.header, root)
            del self._roots[salt]
        self.num_output_bytes -= _num_bytes(salt, tokens)


def _num_bytes(salt: str, tokens: Tokens) -> int:
    return sys.getsizeof(tokens) + sys.getsizeof(salt)
