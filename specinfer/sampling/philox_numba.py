"""How is a token drawn from 50,000 weights in a fraction of a millisecond?

The compiled counterpart of `philox.py`, and the exponential race on top of it. Imports numba: import it where a draw
is first needed, never at module level. Always true: element i's noise depends on the key and on i alone, not on the
weights, so that weights that differ by rounding noise draw the same token but for near ties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from specinfer.sampling.philox import MULTIPLIERS, NUM_ROUNDS, WEYL, WORD

# 64-bit unsigned throughout: numba turns unsigned mixed with signed into float.
_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_MASK, _HALF, _ZERO = np.uint64(WORD), np.uint64(32), np.uint64(0)
_LOW_WORDS = np.uint64(1 << 31)  # the counter's top bit selects the words that refine an element's noise
_ROUNDS = NUM_ROUNDS
_CHUNK = 64  # counters a pass: long enough for SIMD, short enough to skip stretches without weight
_UNIT = 2.0**-32

NO_WEIGHT, BAD_WEIGHT = -1, -2


@njit(inline="always")  # type: ignore[untyped-decorator]
def _philox(element: Any, place: Any, key: Any) -> Any:
    c0, (c1, c2, c3), (k0, k1) = element, place, key
    for _ in range(_ROUNDS):
        product0, product1 = _M0 * c0, _M1 * c2
        c0, c1 = (product1 >> _HALF) ^ c1 ^ k0, product1 & _MASK
        c2, c3 = (product0 >> _HALF) ^ c3 ^ k1, product0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@njit("UniTuple(uint64, 4)(uint64, UniTuple(uint64, 3), UniTuple(uint64, 2))", cache=True)  # type: ignore[untyped-decorator]
def philox_words(element: Any, place: Any, key: Any) -> Any:
    """The four words of the counter (element, *place)."""
    return _philox(element, place, key)


@njit("float64(UniTuple(uint64, 3), UniTuple(uint64, 2))", cache=True)  # type: ignore[untyped-decorator]
def uniform(place: Any, key: Any) -> Any:
    """53 random bits as a number in [0, 1)."""
    high, low, _, _ = _philox(_ZERO, place, key)
    bits = (high << np.uint64(21)) | (low >> np.uint64(11))
    return float(np.int64(bits)) * 2.0**-53


@njit(  # type: ignore[untyped-decorator]
    [
        "int64(float32[::1], UniTuple(uint64, 3), UniTuple(uint64, 2))",
        "int64(float64[::1], UniTuple(uint64, 3), UniTuple(uint64, 2))",
    ],
    cache=True,
)
def race(weights: NDArray[Any], place: Any, key: Any) -> int:
    """The winner of the race argmax(w_i / E_i), E_i exponential with mean 1: drawn with probability w_i / sum(w).

    E = -log(1 - v), v uniform in (0, 1) with 52 bits. As E >= v, an element whose v is too large for its weight needs
    neither the logarithm nor the lower 20 bits of v. weights: [n].
    place: the counter's other three words. NO_WEIGHT when all are 0, BAD_WEIGHT for one that is
    negative or NaN.
    """
    num_weights = weights.shape[0]
    words = np.empty((4, _CHUNK), np.uint64)
    best, winner = 0.0, NO_WEIGHT
    for start in range(0, num_weights, 4 * _CHUNK):
        stop = min(start + 4 * _CHUNK, num_weights)
        is_empty = True
        for i in range(start, stop):
            is_empty &= weights[i] == 0.0
        if is_empty:
            continue
        first = np.uint64(start // 4)
        for j in range(_CHUNK):
            words[0, j], words[1, j], words[2, j], words[3, j] = _philox(first + np.uint64(j), place, key)
        for i in range(start, stop):
            weight = float(weights[i])
            if not weight >= 0.0:
                return BAD_WEIGHT
            high = words[i & 3, (i - start) >> 2]
            if weight > best * (float(np.int64(high)) * _UNIT):
                low = _philox(np.uint64(i >> 2) | _LOW_WORDS, place, key)[i & 3]
                bits = (high << np.uint64(20)) | (low >> np.uint64(12))
                score = weight / -math.log1p(-(float(np.int64(bits)) + 0.5) * 2.0**-52)
                if score > best:
                    best, winner = score, i
    return winner
