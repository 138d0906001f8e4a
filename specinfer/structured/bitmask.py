"""How is a set of tokens kept in bits?

Bit i % 32 of word i // 32 is token i, as all grammar backends have it. Always true: bits beyond the vocabulary are 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from specinfer.protocols import Bitmask


def row_of(token_ids: Iterable[int], num_words: int) -> Bitmask:
    """A row [num_words] with these tokens."""
    row = np.zeros(num_words, dtype=np.uint32)
    for token_id in token_ids:
        row[token_id // 32] |= np.uint32(1 << token_id % 32)
    return row.view(np.int32)


def has_bit(row: Bitmask, token_id: int) -> bool:
    """Whether a row [num_words] holds a token."""
    return bool(row[token_id // 32] >> (token_id % 32) & 1)


def members(row: Bitmask) -> NDArray[np.bool_]:
    """[32 * num_words]: whether each token is in a row [num_words]."""
    return np.unpackbits(row.view(np.uint8), bitorder="little").astype(bool)


def popcounts(bitmask: Bitmask) -> list[int]:
    """How many tokens each row [num_rows, num_words] holds."""
    counts: list[int] = np.bitwise_count(bitmask.view(np.uint32)).sum(axis=1, dtype=np.int64).tolist()
    return counts
