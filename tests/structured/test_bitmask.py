"""Tokens in, the same tokens out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specinfer.structured.bitmask import has_bit, members, popcounts, row_of

SETS = st.sets(st.integers(0, 95))


@given(SETS)
def test_a_row_holds_its_tokens_and_no_other(token_ids: set[int]) -> None:
    row = row_of(token_ids, 3)
    assert set(np.flatnonzero(members(row)).tolist()) == token_ids
    assert {i for i in range(96) if has_bit(row, i)} == token_ids
    assert popcounts(row[None]) == [len(token_ids)]
