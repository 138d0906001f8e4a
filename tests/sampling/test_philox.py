from typing import Any

import numpy as np
import pytest

from specinfer.sampling import philox_numba
from specinfer.sampling.philox import philox4x32, split64

# Known answers of the Random123 distribution (philox4x32, 10 rounds): counter, key, words.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_both_forms_give_the_known_answers(counter: Any, key: Any, words: Any) -> None:
    assert philox4x32(counter, key) == words
    assert philox_numba.philox_words(counter[0], counter[1:], key) == words


def test_compiled_form_equals_the_plain_one_on_random_counters() -> None:
    for row in np.random.default_rng(0).integers(0, 2**32, (200, 6)).tolist():
        assert philox_numba.philox_words(row[0], tuple(row[1:4]), tuple(row[4:])) == philox4x32(
            tuple(row[:4]), tuple(row[4:])
        )


def test_split64_gives_low_then_high_and_wraps() -> None:
    assert split64(0x1_0000_0002) == (2, 1)
    assert split64(2**64 + 5) == (5, 0)
