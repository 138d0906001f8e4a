"""Where did a text's last tokens occur before?

Compiled; imports numba, so import it where it is first needed. Always true: no state; one pass over the tokens.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

NOT_FOUND = -1


@njit("int64(int64[::1], int64, int64, boolean)", cache=True)  # type: ignore[untyped-decorator]
def find_continuation(token_ids: NDArray[Any], min_lookup: int, max_lookup: int, is_first: bool) -> int:
    """The index after the longest earlier match of the last tokens, or NOT_FOUND.

    A match is `min_lookup` to `max_lookup` tokens long and ends before the last token; of equally long ones the first
    or the most recent is taken. It may overlap the last tokens themselves.
    """
    last = token_ids.shape[0] - 1
    found, longest = NOT_FOUND, min_lookup - 1
    for step in range(last):
        end = step if is_first else last - 1 - step
        if end < longest:
            continue
        # Only a longer match than the best helps, so its oldest token is compared along with its newest; one branch
        # for both stays predictable where either is rare.
        if not (token_ids[end - longest] == token_ids[last - longest]) & (token_ids[end] == token_ids[last]):
            continue
        length, limit = 1, min(max_lookup, end + 1)
        while length < limit and token_ids[end - length] == token_ids[last - length]:
            length += 1
        if length > longest:
            found, longest = end + 1, length
            if longest == max_lookup:
                break
    return found
