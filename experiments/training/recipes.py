"""Which drafters can be trained, and what does each need?

A recipe makes a module from the target, gives a loss on some conversations, counts what the engine would accept, and
writes the public layout. Always true: the same recipe, data, seed and step give the same loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.training.data import TrainingData
from experiments.training.eagle import accepted_lengths, feature_loss, soft_loss, text_batch, unroll
from experiments.training.start import eagle1_from_target, eagle3_from_target
from proposers.eagle import EagleProposer
from specinfer.errors import ConfigError
from specinfer.models.eagle import EagleHead, EagleKind, EagleShape, usual_points
from specinfer.models.eagle_checkpoint import EagleReading, load_head
from specinfer.models.eagle_export import write_head
from specinfer.protocols import AFTER_FINAL_NORM, Proposer

Loss = tuple[Tensor, dict[str, float]]


class Recipe(Protocol):
    """How one kind of drafter is trained."""

    name: str
    dense: Sequence[str]
    """Name prefixes of matrices that are tables of rows, for the optimiser"""

    def module(self, data: TrainingData) -> nn.Module:
        """The untrained module."""
        ...

    def loss(self, module: Any, data: TrainingData, numbers: Sequence[int], step: int) -> Loss:
        """The loss on some conversations, and figures."""
        ...

    def accepted(self, module: Any, data: TrainingData, numbers: Sequence[int], num_steps: int) -> list[list[int]]:
        """Accepted lengths from each place of some greedy responses on."""
        ...

    def export(self, module: Any, data: TrainingData, folder: Path) -> None:
        """Write the public layout."""
        ...

    def proposer(self, folder: Path, num_draft_tokens: int) -> Proposer:
        """What drafts with an export."""
        ...


def _shape(data: TrainingData, kind: EagleKind, draft_vocab_size: int) -> EagleShape:
    config = data.loaded.model.hf_config  # type: ignore[attr-defined]
    rope = getattr(config, "rope_parameters", None) or {}
    is_third = kind is EagleKind.EAGLE3
    return EagleShape(
        kind=kind,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        vocab_size=len(data.embedding),
        draft_vocab_size=draft_vocab_size,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=float(rope.get("rope_theta", 10000.0)),
        max_positions=config.max_position_embeddings,
        hidden_points=usual_points(config.num_hidden_layers) if is_third else (AFTER_FINAL_NORM,),
        fc_bias=not is_third,
    )


@dataclass(kw_only=True)
class Eagle3Recipe:
    """EAGLE-3 with training-time test.

    num_steps: how far it is unrolled at most. unroll_every: only every so many steps; the others train the first place
    alone, which costs a third and matters most. decay: weight of a step over the one before. dropout: of the target's
    states while training; little data is soon known by heart. start: a head to go on from, by folder or name, with its
    vocabulary; None for one made of the target. on_prompts: what the target thinks while it reads is learnt as well as
    what it says, which multiplies the data when prompts are long.
    """

    name: str = field(default="eagle3", init=False)
    draft_vocab_size: int = 8192
    num_steps: int = 3
    unroll_every: int = 1
    dropout: float = 0.1
    decay: float = 0.8
    start: str | None = None
    on_prompts: bool = False
    layout: str = "eagle"

    dense: Sequence[str] = field(default=("lm_head",), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("num_steps", "unroll_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"recipe.{name} must be at least 1, got {getattr(self, name)}")

    def module(self, data: TrainingData) -> EagleHead:
        if self.start is not None:
            head, _ = load_head(self.start, data.loaded.model, EagleReading())
            return head.train().requires_grad_(True)
        token_ids = data.frequent(self.draft_vocab_size)
        return eagle3_from_target(data.weights, _shape(data, EagleKind.EAGLE3, len(token_ids)), token_ids)

    def loss(self, module: EagleHead, data: TrainingData, numbers: Sequence[int], step: int) -> Loss:
        tokens = data.at(module.draft_to_target.tolist())
        num_steps = self.num_steps if step % self.unroll_every == 0 else 1
        batch = text_batch(
            data.features,
            numbers,
            num_steps,
            _device(module),
            is_covered=tokens.covers,
            on_prompts=self.on_prompts,
        )
        torch.manual_seed(step)
        functional.dropout(batch.states, self.dropout, inplace=True)
        outputs = unroll(module, data.embedding, batch, num_steps)
        value, hits = soft_loss(outputs, module.draft_logits, tokens.table, batch, self.decay)
        return value, {f"hit_{i}": hit for i, hit in enumerate(hits)}

    @torch.inference_mode()
    def accepted(
        self, module: EagleHead, data: TrainingData, numbers: Sequence[int], num_steps: int
    ) -> list[list[int]]:
        batch = text_batch(data.features, numbers, num_steps, _device(module))
        outputs = unroll(module, data.embedding, batch, num_steps)
        return accepted_lengths(outputs, lambda out: module.draft_to_target[module.draft_logits(out).argmax(-1)], batch)

    def export(self, module: EagleHead, data: TrainingData, folder: Path) -> None:
        eos = tuple(sorted(data.loaded.eos_token_ids))
        write_head(module, folder, layout=self.layout, target=data.loaded.model.name, eos_token_ids=eos)

    def proposer(self, folder: Path, num_draft_tokens: int) -> EagleProposer:
        return EagleProposer(head=str(folder), num_draft_tokens=num_draft_tokens)


@dataclass(kw_only=True)
class Eagle1Recipe:
    """EAGLE-1 and EAGLE-2: regression on the next state, and a little cross-entropy.

    noise: half the width of the uniform noise on the states (0.2 in the paper).
    """

    name: str = field(default="eagle1", init=False)
    entropy_weight: float = 0.1
    noise: float = 0.2
    num_entropy_tokens: int = 8192
    layout: str = "eagle"

    dense: Sequence[str] = field(default=(), init=False, repr=False, compare=False)

    def module(self, data: TrainingData) -> EagleHead:
        return eagle1_from_target(data.weights, _shape(data, EagleKind.EAGLE1, len(data.embedding)))

    def loss(self, module: EagleHead, data: TrainingData, numbers: Sequence[int], step: int) -> Loss:
        tokens = data.at(data.frequent(self.num_entropy_tokens))
        batch = text_batch(data.features, numbers, 1, _device(module), is_covered=tokens.covers, reads_final=True)
        generator = torch.Generator().manual_seed(step)
        batch.states.add_((torch.rand(batch.states.shape, generator=generator) * 2 - 1) * self.noise)
        outputs = unroll(module, data.embedding, batch, 1)
        entropy, hits = soft_loss(outputs, lambda out: out @ tokens.table.T, tokens.table, batch, 1.0)
        regression = feature_loss(outputs[0], batch)
        return regression + self.entropy_weight * entropy, {"regression": float(regression.detach()), "hit_0": hits[0]}

    @torch.inference_mode()
    def accepted(
        self, module: EagleHead, data: TrainingData, numbers: Sequence[int], num_steps: int
    ) -> list[list[int]]:
        batch = text_batch(data.features, numbers, num_steps, _device(module), reads_final=True)
        outputs = unroll(module, data.embedding, batch, num_steps)
        return accepted_lengths(outputs, lambda out: (out @ data.head.T).argmax(-1), batch)

    def export(self, module: EagleHead, data: TrainingData, folder: Path) -> None:
        write_head(module, folder, layout=self.layout, target=data.loaded.model.name)

    def proposer(self, folder: Path, num_draft_tokens: int) -> EagleProposer:
        return EagleProposer(head=str(folder), num_draft_tokens=num_draft_tokens)


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
