"""Where does every random choice come from?

Counter-based: a draw is a pure function of the engine's seed and its DrawKey. Always true: no state, so a seeded
request gives the same tokens whatever it is batched with, however it is chunked, preempted or resumed; draws with
different keys share no noise.
"""

from __future__ import annotations

from torch import Tensor

from specinfer.protocols import DrawKey
from specinfer.sampling.philox import WORD, Words, philox4x32, split64

# Third counter word of the hashes that derive a key or a seed: one value a use, so that no two uses share a counter.
_DRAW_KEY, _ARRIVAL_SEED, _COMPLETION_SEED = 1, 2, 3
_SEED_BITS = (1 << 63) - 1


def _hash64(key: int, value: int, use: int, extra: int = 0) -> int:
    low, high = split64(value)
    counter: Words = (low, high, use, extra)
    words = philox4x32(counter, split64(key))
    return words[0] | words[1] << 32


def request_seed(engine_seed: int, seed: int | None, arrival_index: int, completion_index: int) -> int:
    """The seed of one completion, in 0..2**63 - 1.

    An explicit `seed` gives itself to completion 0 and is independent of the arrival; without one the engine's seed
    and the arrival decide.
    """
    if seed is None:
        return _hash64(engine_seed, arrival_index, _ARRIVAL_SEED, completion_index) & _SEED_BITS
    return seed if completion_index == 0 else _hash64(seed, completion_index, _COMPLETION_SEED) & _SEED_BITS


class CounterRandomness:
    """Philox4x32-10 noise. Counter: (element, position, purpose, index); key: a hash of engine and request seed."""

    def __init__(self, seed: int) -> None:
        from specinfer.sampling import philox_numba  # compiled here, so that no request waits for it

        self.seed = seed
        self._kernels = philox_numba
        self._philox_key: tuple[int, tuple[int, int]] = (-1, (0, 0))

    def bernoulli(self, prob: float, key: DrawKey) -> bool:
        """Certain outcomes use no noise."""
        assert prob == prob, "the probability is NaN"  # noqa: PLR0124
        if prob >= 1.0 or prob <= 0.0:
            return prob >= 1.0
        return bool(self._kernels.uniform(*self._words(key)) < prob)

    def categorical(self, probs: Tensor, key: DrawKey) -> int:
        """The winner of an exponential race; equal scores (probability ~0) go to the lowest index."""
        winner = int(self._kernels.race(probs.detach().cpu().contiguous().numpy(), *self._words(key)))
        assert winner != self._kernels.NO_WEIGHT, "all weights are 0"
        assert winner >= 0, "a weight is negative or NaN"
        return winner

    def _words(self, key: DrawKey) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """The counter's words after the first, and the key's."""
        assert 0 <= key.position <= WORD and 0 <= key.index <= WORD, key
        request, philox_key = self._philox_key
        if request != key.request_seed:  # successive draws mostly belong to one request: remember its hash
            philox_key = split64(_hash64(self.seed, key.request_seed, _DRAW_KEY))
            self._philox_key = (key.request_seed, philox_key)
        return (key.position, int(key.purpose), key.index), philox_key
