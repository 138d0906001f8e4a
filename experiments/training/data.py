"""What does every recipe learn from?

Always true: the held-out conversations are the last ones collected, and no recipe trains on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.training.features import Features
from experiments.training.responses import Response
from experiments.training.start import draft_vocabulary
from specinfer.models.transformers_model import TransformersModel
from specinfer.protocols import LoadedModel

ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """The tokens that losses are computed over."""

    token_ids: list[int]
    table: Tensor
    """[num_tokens, hidden_size]: the target's head at them"""
    covers: NDArray[np.bool_]
    """[tokens of all texts]: the target's choice is one of them"""


@dataclass
class TrainingData:
    """Responses, what the target computed on them, and the target's own weights."""

    loaded: LoadedModel
    responses: Sequence[Response]
    features: Features
    folder: Path
    num_held_out: int
    _chosen: dict[tuple[int, ...], ChosenTokens] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The target's parameters, by transformers' names."""
        assert isinstance(self.loaded.model, TransformersModel)
        return {name: tensor.float() for name, tensor in self.loaded.model.weights().items()}

    @property
    def embedding(self) -> Tensor:
        """[vocab_size, hidden_size]"""
        return self.weights["model.embed_tokens.weight"]

    @property
    def head(self) -> Tensor:
        """The target's map to the vocabulary, [vocab_size, hidden_size]."""
        return self.weights.get("lm_head.weight", self.embedding)

    @property
    def train(self) -> list[int]:
        """Numbers of the conversations to learn from."""
        return list(range(self.features.num_conversations - self.num_held_out))

    @property
    def held_out(self) -> list[int]:
        """Numbers of the held-out greedy ones: only these tell what the engine would accept."""
        numbers = range(self.features.num_conversations - self.num_held_out, self.features.num_conversations)
        return [n for n in numbers if self.features.is_greedy[n]]

    @cached_property
    def choices(self) -> NDArray[np.int64]:
        """The target's most likely next token at each token, [num_tokens]; computed once and kept."""
        path = self.folder / "argmax.npy"
        if not path.exists():
            found = np.empty(len(self.features.token_ids), dtype=np.int64)
            head = self.head.bfloat16()
            with torch.inference_mode():
                for start in range(0, len(found), ROWS_AT_ONCE):
                    rows = torch.from_numpy(np.array(self.features.final[start : start + ROWS_AT_ONCE])).bfloat16()
                    found[start : start + ROWS_AT_ONCE] = (rows @ head.T).argmax(-1).numpy()
            np.save(path, found)
        choices: NDArray[np.int64] = np.load(path)
        return choices

    def frequent(self, size: int) -> list[int]:
        """The `size` most frequent tokens of the responses, chosen once: a head trained on keeps its vocabulary."""
        size = min(size, len(self.embedding))
        path = self.folder / f"frequent_{size}.json"
        if not path.exists():
            path.write_text(
                json.dumps(draft_vocabulary([self.responses[n] for n in self.train], size, len(self.embedding)))
            )
        token_ids: list[int] = json.loads(path.read_text())
        return token_ids

    def at(self, token_ids: Sequence[int]) -> ChosenTokens:
        """What a loss over some tokens of the vocabulary needs."""
        key = tuple(token_ids)
        if key not in self._chosen:
            is_chosen = np.zeros(len(self.embedding), dtype=bool)
            is_chosen[list(key)] = True
            self._chosen[key] = ChosenTokens(list(key), self.head[list(key)], is_chosen[self.choices])
        return self._chosen[key]
