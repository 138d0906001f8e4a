"""What did the target think while it read its own responses?

A head learns from hidden states of the target, which cost a whole forward to compute: they are computed once and kept
as float16 arrays. Always true: a folder of features is complete (its `index.json` is written last) and says from which
responses and for which hidden states it was made; full logits are never kept, they follow from the last state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.training.responses import Response
from specinfer.errors import ConfigError
from specinfer.kernels.rows import Stretch, flat_batch, new_cache
from specinfer.protocols import AFTER_FINAL_NORM, HiddenStateModel

INDEX = "index.json"
TOKENS_A_FORWARD = 1024


@dataclass(frozen=True, slots=True)
class Features:
    """The texts of many conversations, one after another, with what the target computed at each token."""

    points: tuple[int, ...]
    token_ids: NDArray[np.int64]
    """[num_tokens]"""
    states: NDArray[np.float16]
    """[num_tokens, len(points) * hidden_size]: the states of the points, side by side"""
    final: NDArray[np.float16]
    """[num_tokens, hidden_size]: what the head reads"""
    starts: NDArray[np.int64]
    """[num_conversations + 1]: where each conversation begins"""
    response_starts: NDArray[np.int64]
    """[num_conversations]: where each response begins"""
    is_greedy: NDArray[np.bool_]
    """[num_conversations]"""

    @property
    def num_conversations(self) -> int:
        return len(self.response_starts)

    @property
    def response_lens(self) -> NDArray[np.int64]:
        """[num_conversations]"""
        lens: NDArray[np.int64] = self.starts[1:] - self.response_starts
        return lens


def write_features(
    model: HiddenStateModel, responses: Sequence[Response], points: Sequence[int], folder: Path
) -> Iterator[int]:
    """Compute and keep the features; yields the number of conversations done."""
    folder.mkdir(parents=True, exist_ok=True)
    lengths = [len(r.prompt_token_ids) + len(r.token_ids) for r in responses]
    total, width = sum(lengths), len(points) * model.hidden_size
    states = np.lib.format.open_memmap(folder / "states.npy", mode="w+", dtype=np.float16, shape=(total, width))
    final = np.lib.format.open_memmap(
        folder / "final.npy", mode="w+", dtype=np.float16, shape=(total, model.hidden_size)
    )
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    for first, last in _groups(lengths):
        token_ids = [[*r.prompt_token_ids, *r.token_ids] for r in responses[first:last]]
        hidden = read_texts(model, token_ids, (*points, AFTER_FINAL_NORM))
        place = slice(starts[first], starts[last])
        states[place] = torch.cat([hidden[point] for point in points], dim=-1).half().numpy()
        final[place] = hidden[AFTER_FINAL_NORM].half().numpy()
        yield last
    index = {
        "points": list(points),
        "starts": starts.tolist(),
        "response_starts": [int(s) + len(r.prompt_token_ids) for s, r in zip(starts, responses, strict=False)],
        "is_greedy": [r.temperature == 0 for r in responses],
        "token_ids": [token for r in responses for token in (*r.prompt_token_ids, *r.token_ids)],
    }
    states.flush()
    final.flush()
    (folder / INDEX).write_text(json.dumps(index))


def read_features(folder: Path) -> Features:
    """What `write_features` kept; ConfigError for a folder that it did not finish."""
    if not (folder / INDEX).exists():
        raise ConfigError(f"{folder} holds no finished features: it has no {INDEX}")
    index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return Features(
        points=tuple(index["points"]),
        token_ids=np.array(index["token_ids"], dtype=np.int64),
        states=np.load(folder / "states.npy", mmap_mode="r"),
        final=np.load(folder / "final.npy", mmap_mode="r"),
        starts=np.array(index["starts"], dtype=np.int64),
        response_starts=np.array(index["response_starts"], dtype=np.int64),
        is_greedy=np.array(index["is_greedy"], dtype=bool),
    )


def _groups(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Stretches of conversations of up to TOKENS_A_FORWARD tokens together."""
    first = size = 0
    for index, length in enumerate(lengths):
        if size and size + length > TOKENS_A_FORWARD:
            yield first, index
            first, size = index, 0
        size += length
    yield first, len(lengths)


@torch.inference_mode()
def read_texts(
    model: HiddenStateModel, texts: Sequence[Sequence[int]], points: Sequence[int]
) -> dict[int, torch.Tensor]:
    """Hidden states of whole texts, [sum of lengths, hidden_size] a point, through a cache made for this once."""
    size = max(map(len, texts))
    stretches = [Stretch(np.array(text, dtype=np.int64), 0, [row]) for row, text in enumerate(texts)]
    batch = flat_batch(stretches, size, model.device, tuple(points))
    model.forward(batch, new_cache(model.kv_layers, size * len(texts), model.dtype, model.device))
    return batch.hidden
