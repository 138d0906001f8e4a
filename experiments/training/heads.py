"""How are Medusa heads and a distilled draft model trained?

Two more recipes: heads that guess a place each from the last state, and a small model cut out of the target that learns
the target's law on the target's own responses. Always true: as in `recipes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.training.data import TrainingData
from experiments.training.losses import soft_cross_entropy
from experiments.training.recipes import Loss
from proposers.draft_model import DraftModelProposer
from proposers.medusa import MedusaProposer
from specinfer.errors import ConfigError
from specinfer.models.medusa import MedusaHeads, MedusaShape, write_medusa


@dataclass(kw_only=True)
class MedusaRecipe:
    """Medusa-1 with the target's own head. decay: weight of a head over the one before (0.8 in the paper)."""

    name: str = field(default="medusa", init=False)
    num_heads: int = 3
    num_blocks: int = 1
    decay: float = 0.8
    num_entropy_tokens: int = 8192

    dense: Sequence[str] = field(default=(), init=False, repr=False, compare=False)

    def module(self, data: TrainingData) -> MedusaHeads:
        vocab_size, hidden_size = data.embedding.shape
        return MedusaHeads(
            MedusaShape(
                hidden_size=hidden_size,
                vocab_size=vocab_size,
                num_heads=self.num_heads,
                num_blocks=self.num_blocks,
            )
        )

    def loss(self, module: MedusaHeads, data: TrainingData, numbers: Sequence[int], step: int) -> Loss:
        tokens = data.at(data.frequent(self.num_entropy_tokens))
        place = np.full(len(data.embedding), -1)
        place[tokens.token_ids] = np.arange(len(tokens.token_ids))
        total, figures = torch.zeros(()), {}
        states, followers = _places(data, numbers, self.num_heads)
        outputs = module(states)
        for k, output in enumerate(outputs):
            labels = torch.from_numpy(place[followers[k]])
            counts = (labels >= 0) & torch.from_numpy(followers[k] >= 0)
            logits = (output[counts] @ tokens.table.T).float()
            total = total + self.decay**k * functional.cross_entropy(logits, labels[counts])
            figures[f"hit_{k}"] = float((logits.argmax(-1) == labels[counts]).float().mean())
        return total, figures

    @torch.inference_mode()
    def accepted(
        self, module: MedusaHeads, data: TrainingData, numbers: Sequence[int], num_steps: int
    ) -> list[list[int]]:
        lengths = []
        for number in numbers:
            states, followers = _places(data, [number], self.num_heads)
            stands = np.ones(len(states), dtype=bool)
            found = np.zeros(len(states), dtype=np.int64)
            for k, output in enumerate(module(states)[:num_steps]):
                stands &= (output @ data.head.T).argmax(-1).numpy() == followers[k]
                found += stands
            lengths.append([int(length) for length in found])
        return lengths

    def export(self, module: MedusaHeads, data: TrainingData, folder: Path) -> None:
        write_medusa(module, folder, target=data.loaded.model.name)

    def proposer(self, folder: Path, num_draft_tokens: int) -> MedusaProposer:
        return MedusaProposer(heads=str(folder), num_draft_tokens=num_draft_tokens)


def _places(data: TrainingData, numbers: Sequence[int], num_heads: int) -> tuple[Tensor, np.ndarray]:
    """States that the engine drafts from, [n, hidden_size], and the token each head should say, [num_heads, n].

    A follower is -1 behind the response's end.
    """
    features = data.features
    states, followers = [], []
    for number in numbers:
        end = features.starts[number + 1]
        first = max(int(features.response_starts[number]) - 1, int(features.starts[number]))
        places = np.arange(first, end - 2)
        states.append(torch.from_numpy(np.array(features.final[first : end - 2], dtype=np.float32)))
        ahead = places + 2 + np.arange(num_heads)[:, None]
        followers.append(np.where(ahead < end, features.token_ids[np.minimum(ahead, end - 1)], -1))
    return torch.cat(states), np.concatenate(followers, axis=1)


@dataclass(kw_only=True)
class DraftModelRecipe:
    """A model of some of the target's layers, distilled. layers: which of the target's it starts from."""

    name: str = field(default="draft_model", init=False)
    layers: Sequence[int] = (0, 1, 28, 29)
    num_entropy_tokens: int = 8192

    dense: Sequence[str] = field(default=("model.embed_tokens", "lm_head"), init=False, repr=False, compare=False)

    def module(self, data: TrainingData) -> nn.Module:
        import copy

        from transformers import AutoModelForCausalLM

        config = copy.deepcopy(data.loaded.model.hf_config)  # type: ignore[attr-defined]
        if any(not 0 <= i < config.num_hidden_layers for i in self.layers):
            raise ConfigError(f"recipe.layers={list(self.layers)}: the target has {config.num_hidden_layers} layers")
        config.num_hidden_layers = len(self.layers)
        model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
        kept = {name: tensor for name, tensor in data.weights.items() if ".layers." not in name}
        for place, layer in enumerate(self.layers):
            prefix = f"model.layers.{layer}."
            kept |= {
                f"model.layers.{place}.{name.removeprefix(prefix)}": tensor
                for name, tensor in data.weights.items()
                if name.startswith(prefix)
            }
        model.load_state_dict(kept)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("embed_tokens" not in name and "lm_head" not in name)
        return model

    def loss(self, module: Any, data: TrainingData, numbers: Sequence[int], step: int) -> Loss:
        tokens = data.at(data.frequent(self.num_entropy_tokens))
        drafted, wanted = [], []
        for number in numbers:
            first, last = _response(data, number)
            hidden = _hidden(module, data, number)
            counts = torch.from_numpy(tokens.covers[first:last])
            drafted.append(hidden[first - data.features.starts[number] : last - data.features.starts[number]][counts])
            wanted.append(torch.from_numpy(np.array(data.features.final[first:last], dtype=np.float32))[counts])
        labels = torch.cat(wanted) @ tokens.table.T
        logits = torch.cat(drafted) @ tokens.table.T
        value, num_hits = soft_cross_entropy(logits, labels, torch.arange(len(labels)))
        return value, {"hit_0": float(num_hits) / max(len(labels), 1)}

    @torch.inference_mode()
    def accepted(self, module: Any, data: TrainingData, numbers: Sequence[int], num_steps: int) -> list[list[int]]:
        """The model reads the text itself, so that its guess at every place tells how far it follows."""
        lengths = []
        for number in numbers:
            first, last = _response(data, number)
            start = data.features.starts[number]
            guesses = (_hidden(module, data, number)[first - start : last - start] @ data.head.T).argmax(-1).numpy()
            is_right = guesses == data.features.token_ids[first + 1 : last + 1]
            found, run = [], 0
            for right in is_right[::-1]:
                run = min(run + 1, num_steps) if right else 0
                found.append(run)
            lengths.append(found[::-1][1:])
        return lengths

    def export(self, module: Any, data: TrainingData, folder: Path) -> None:
        module.half().save_pretrained(str(folder))
        data.loaded.tokenizer.hf_tokenizer.save_pretrained(str(folder))  # type: ignore[attr-defined]
        module.float()

    def proposer(self, folder: Path, num_draft_tokens: int) -> DraftModelProposer:
        return DraftModelProposer(model=str(folder), num_draft_tokens=num_draft_tokens)


def _response(data: TrainingData, number: int) -> tuple[int, int]:
    """The places that predict a token of a response."""
    return int(data.features.response_starts[number]) - 1, int(data.features.starts[number + 1]) - 1


def _hidden(module: Any, data: TrainingData, number: int) -> Tensor:
    """What the module's head would read on a whole conversation, [length, hidden_size]."""
    start, end = int(data.features.starts[number]), int(data.features.starts[number + 1])
    token_ids = torch.from_numpy(data.features.token_ids[start:end].copy())
    hidden: Tensor = module.model(input_ids=token_ids[None], use_cache=False).last_hidden_state[0]
    return hidden
