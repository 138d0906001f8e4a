"""Which head does a checkpoint hold, read exactly?

Three public layouts of EAGLE heads: EAGLE's own and SpecForge's (`midlayer.*`, EAGLE-1 `layers.0.*`), and the
speculators' (`layers.0.*`, the layer's settings nested). Always true: nothing is guessed. What a checkpoint leaves open
(which convention its layer ids follow, whether the residual is normed) is refused with the choices named, and settled
by an EagleReading; every tensor is used, and has the shape that the settings say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specinfer.errors import ConfigError, UnsupportedModelError
from specinfer.models.eagle import EagleHead, EagleKind, EagleShape
from specinfer.protocols import AFTER_FINAL_NORM, CausalModel, HiddenStateModel

SHIPPED = Path(__file__).parent / "shipped"


class LayerIds(Enum):
    """What the layer ids in a configuration name."""

    INPUT_OF = "input_of"
    OUTPUT_OF = "output_of"


@dataclass(frozen=True, kw_only=True)
class EagleReading:
    """Answers to what a checkpoint may leave open; None where it must say so itself."""

    layer_ids: LayerIds | None = None
    norm_before_residual: bool | None = None
    norm_output: bool | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's files, and how they are to be read."""

    folder: Path
    config: Mapping[str, Any]
    weights: dict[str, Tensor]
    layout: str
    """`eagle` or `speculators`"""
    kind: EagleKind

    def open_questions(self, num_layers: int) -> dict[str, list[Any]]:
        """What it leaves open, with the choices; empty where it can be read."""
        if self.kind is EagleKind.EAGLE1:
            return {}
        questions: dict[str, list[Any]] = {}
        if self.named_layers is not None and layer_id_convention(self.named_layers, num_layers) is None:
            questions["layer_ids"] = [LayerIds.INPUT_OF, LayerIds.OUTPUT_OF]
        if "norm_before_residual" not in self.config:
            questions["norm_before_residual"] = [False, True]
        return questions

    @property
    def named_layers(self) -> list[int] | None:
        """The layer ids that the configuration gives, as they stand there."""
        nested = self.config.get("eagle_config") or {}
        found = nested.get("eagle_aux_hidden_state_layer_ids", self.config.get("eagle_aux_hidden_state_layer_ids"))
        return None if found is None else [int(i) for i in found]


def layer_id_convention(ids: list[int], num_layers: int) -> LayerIds | None:
    """The convention under which `ids` are EAGLE-3's usual layers, {2, L//2, L-3} entered; None where it is neither."""
    usual = [2, num_layers // 2, num_layers - 3]
    if ids == usual:
        return LayerIds.INPUT_OF
    return LayerIds.OUTPUT_OF if ids == [i - 1 for i in usual] else None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's configuration and weights; ConfigError where it is no EAGLE checkpoint."""
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the head folder {str(folder)!r} has no config.json; give a folder with an EAGLE checkpoint")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"the head folder {str(folder)!r} has no *.safetensors (pickled weights are never read); convert them"
        )
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= load_file(str(file))
    config = json.loads((folder / "config.json").read_text())
    layout = "speculators" if "transformer_layer_config" in config else "eagle"
    fc = weights.get("fc.weight")
    if fc is None:
        raise ConfigError(f"{folder} is no EAGLE head: it has no fc.weight; it holds {', '.join(sorted(weights)[:5])}")
    prefix = "midlayer." if any(name.startswith("midlayer.") for name in weights) else "layers.0."
    weights = {
        name.replace(prefix, "midlayer.", 1) if name.startswith(prefix) else name: t for name, t in weights.items()
    }
    kind = EagleKind.EAGLE3 if "midlayer.hidden_norm.weight" in weights else EagleKind.EAGLE1
    return Checkpoint(folder, config, weights, layout, kind)


def head_shape(checkpoint: Checkpoint, target: HiddenStateModel, reading: EagleReading) -> EagleShape:
    """Everything the checkpoint says, completed by `reading`; ConfigError for what stays open."""
    open_ = {
        name: choices
        for name, choices in checkpoint.open_questions(target.num_layers).items()
        if getattr(reading, name) is None
    }
    if open_:
        listed = "; ".join(
            f"reading.{name} is one of {', '.join(str(getattr(c, 'name', c)) for c in choices)}"
            for name, choices in open_.items()
        )
        raise ConfigError(
            f"{checkpoint.folder} does not say how it is to be read: {listed}. Give them, or let "
            f"`python -m experiments.doctor head={checkpoint.folder}` rank the readings"
        )
    config = checkpoint.config
    layer: Mapping[str, Any] = config.get("transformer_layer_config") or config
    num_heads, hidden_size = int(layer["num_attention_heads"]), int(layer["hidden_size"])
    is_third = checkpoint.kind is EagleKind.EAGLE3
    vocab_size = int(layer.get("vocab_size", target.vocab_size))
    rope = layer.get("rope_parameters") or layer.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise UnsupportedModelError(f"{checkpoint.folder}: rotary scaling {rope_type!r} is not supported in a head")
    return EagleShape(
        kind=checkpoint.kind,
        hidden_size=hidden_size,
        intermediate_size=int(layer["intermediate_size"]),
        num_heads=num_heads,
        num_kv_heads=int(layer.get("num_key_value_heads") or num_heads),
        head_dim=int(layer.get("head_dim") or hidden_size // num_heads),
        vocab_size=vocab_size,
        draft_vocab_size=int(config.get("draft_vocab_size") or vocab_size),
        rms_norm_eps=float(layer.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta", layer.get("rope_theta", 10000.0))),
        max_positions=int(layer.get("max_position_embeddings", 2048)),
        target_hidden_size=config.get("target_hidden_size"),
        hidden_points=_points(checkpoint, target.num_layers, reading) if is_third else (AFTER_FINAL_NORM,),
        fc_bias="fc.bias" in checkpoint.weights,
        attention_bias="midlayer.self_attn.q_proj.bias" in checkpoint.weights,
        norm_before_residual=is_third and _setting(checkpoint, reading, "norm_before_residual"),
        norm_before_fc="input_norm.weight" in checkpoint.weights,
        fc_norm=any(name.startswith("fc_norm.") for name in checkpoint.weights),
        norm_output=is_third and _setting(checkpoint, reading, "norm_output"),
    )


def _setting(checkpoint: Checkpoint, reading: EagleReading, name: str) -> bool:
    given = getattr(reading, name)
    return bool(checkpoint.config.get(name, False) if given is None else given)


def _points(checkpoint: Checkpoint, num_layers: int, reading: EagleReading) -> tuple[int, ...]:
    ids = checkpoint.named_layers
    if ids is None:
        return (2, num_layers // 2, num_layers - 3)
    convention = reading.layer_ids or layer_id_convention(ids, num_layers)
    points = tuple(i + 1 if convention is LayerIds.OUTPUT_OF else i for i in ids)
    if any(not 0 <= point <= num_layers for point in points):
        raise ConfigError(f"{checkpoint.folder} reads layers {ids}, but the target has {num_layers}")
    return points


def load_head(
    source: str | EagleHead, target: CausalModel, reading: EagleReading
) -> tuple[EagleHead, HiddenStateModel]:
    """The head in the target's precision, with the target as a model that shows its inside."""
    if not isinstance(target, HiddenStateModel):
        raise UnsupportedModelError(f"{target.name} shows no hidden states; an EAGLE head needs them")
    if isinstance(source, EagleHead):
        head = source
    else:
        checkpoint = read_checkpoint(SHIPPED / "eagle3-demo" if source == "demo" else Path(source).expanduser())
        head = build_head(checkpoint, target, reading)
    _check_target(head, target, str(source) if isinstance(source, str) else "the head")
    return head.to(target.device, target.dtype).eval().requires_grad_(False), target


def build_head(checkpoint: Checkpoint, target: HiddenStateModel, reading: EagleReading) -> EagleHead:
    """A head with the checkpoint's weights; ConfigError for a tensor that is missing, left over or of another shape."""
    shape = head_shape(checkpoint, target, reading)
    head = EagleHead(shape)
    weights = dict(checkpoint.weights)
    draft_to_target = weights.pop("d2t", None)
    weights.pop("t2d", None)
    embedding = weights.pop("embed_tokens.weight", None)
    if embedding is not None:
        head.embed_tokens = nn.Embedding(*embedding.shape)
        weights["embed_tokens.weight"] = embedding
    wanted = head.state_dict()
    wrong = [
        f"{name} {list(weights[name].shape)} where {list(wanted[name].shape)} is wanted"
        for name in wanted.keys() & weights.keys()
        if weights[name].shape != wanted[name].shape
    ]
    missing, extra = sorted(wanted.keys() - weights.keys()), sorted(weights.keys() - wanted.keys())
    if wrong or missing or extra:
        raise ConfigError(
            f"{checkpoint.folder} does not fit its settings: "
            + "; ".join([*wrong, *(f"{n} is missing" for n in missing), *(f"{n} is not used" for n in extra)])
        )
    head.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    if shape.kind is EagleKind.EAGLE3:
        _map_vocabulary(head, draft_to_target, checkpoint)
    return head


def _map_vocabulary(head: EagleHead, offsets: Tensor | None, checkpoint: Checkpoint) -> None:
    """Target id = draft id + d2t[draft id]; checked against t2d."""
    shape = head.shape
    if offsets is None:
        if shape.draft_vocab_size != shape.vocab_size:
            raise ConfigError(f"{checkpoint.folder} has {shape.draft_vocab_size} draft tokens but no d2t map to them")
        return
    ids = torch.arange(shape.draft_vocab_size) + offsets.long()
    if len(offsets) != shape.draft_vocab_size or bool((ids < 0).any()) or bool((ids >= shape.vocab_size).any()):
        raise ConfigError(f"{checkpoint.folder}: d2t leaves the vocabulary of {shape.vocab_size} tokens")
    if len(set(ids.tolist())) != len(ids):
        raise ConfigError(f"{checkpoint.folder}: d2t maps two draft tokens to one token; it must hold offsets")
    known = checkpoint.weights.get("t2d")
    if known is not None and not torch.equal(known.bool().nonzero().flatten(), ids.sort().values):
        raise ConfigError(f"{checkpoint.folder}: d2t and t2d name different tokens; one of the two is wrong")
    head.draft_to_target = ids


def _check_target(head: EagleHead, target: HiddenStateModel, name: str) -> None:
    shape = head.shape
    if shape.state_size != target.hidden_size:
        raise ConfigError(f"{name} reads states of {shape.state_size} numbers, {target.name} has {target.hidden_size}")
    if shape.vocab_size != target.vocab_size:
        raise ConfigError(f"{name} is for {shape.vocab_size} tokens, {target.name} has {target.vocab_size}")
    if head.embed_tokens is None and shape.hidden_size != target.hidden_size:
        raise ConfigError(f"{name} has no embeddings of its own, and {target.name}'s have another width")
