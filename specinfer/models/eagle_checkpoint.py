"""Which head does a checkpoint hold, read exactly?

Three public layouts of EAGLE heads: EAGLE's own and SpecForge's (`midlayer.*`, EAGLE-1 `layers.0.*`), and the
speculators' (`layers.0.*`, the layer's settings nested). Always true: nothing is guessed. What a checkpoint leaves open
(which convention its layer ids follow, whether the residual is normed) is refused with the choices named, and settled
by an EagleReading; an answer to a question that the checkpoint does not raise is refused as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from torch import Tensor

from specinfer.errors import ConfigError, UnsupportedModelError
from specinfer.models.eagle import EagleHead, EagleKind, EagleShape, usual_points
from specinfer.models.eagle_weights import VocabularyMap, fill, map_fault, mapped_ids, read_tensors
from specinfer.protocols import AFTER_FINAL_NORM, CausalModel, HiddenStateModel

SHIPPED = Path(__file__).parent / "shipped"
_ONLY_IN_EAGLE3 = {"midlayer.hidden_norm.weight", "norm.weight", "d2t"}


class LayerIds(Enum):
    """What the layer ids in a configuration name."""

    INPUT_OF = "input_of"
    OUTPUT_OF = "output_of"


@dataclass(frozen=True, kw_only=True)
class EagleReading:
    """Answers to what a checkpoint may leave open; None where it must say so itself.

    vocabulary: what its `d2t` holds.
    """

    layer_ids: LayerIds | None = None
    norm_before_residual: bool | None = None
    norm_output: bool | None = None
    vocabulary: VocabularyMap | None = None

    @property
    def answers(self) -> dict[str, Any]:
        """Those that are given."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's files, and how they are to be read."""

    folder: Path
    config: Mapping[str, Any]
    weights: dict[str, Tensor]
    layout: str
    """`eagle` or `speculators`"""
    kind: EagleKind

    @property
    def layer_config(self) -> Mapping[str, Any]:
        """The settings of the decoder layer."""
        nested: Mapping[str, Any] | None = self.config.get("transformer_layer_config")
        return nested or self.config

    @property
    def named_layers(self) -> list[int] | None:
        """The layer ids that the configuration gives, as they stand there."""
        nested = self.config.get("eagle_config") or {}
        found = nested.get("eagle_aux_hidden_state_layer_ids", self.config.get("eagle_aux_hidden_state_layer_ids"))
        return None if found is None else [int(i) for i in found]

    def choices(self, target: HiddenStateModel) -> dict[str, list[Any]]:
        """Every question that it raises, with the answers that can be given, stated or not."""
        if self.kind is EagleKind.EAGLE1:
            return {}
        questions: dict[str, list[Any]] = {"norm_before_residual": [False, True], "norm_output": [False, True]}
        if self.named_layers is not None:
            questions["layer_ids"] = list(LayerIds)
        if "d2t" in self.weights:
            questions["vocabulary"] = self.fitting_maps(target) or [VocabularyMap.OFFSETS]
        return questions

    def stated(self, target: HiddenStateModel) -> EagleReading:
        """Its own answers; None where it gives none. By the format, `norm_output` is false and `d2t` holds offsets."""
        questions = self.choices(target)
        is_clear = questions.get("vocabulary") != list(VocabularyMap)
        ids, config = self.named_layers, self.config
        named = None if ids is None else layer_id_convention(ids, target.num_layers)
        answers: dict[str, Any] = {
            "layer_ids": self._enum("layer_id_convention", LayerIds) or named,
            "norm_before_residual": config.get("norm_before_residual"),
            "norm_output": bool(config.get("norm_output", False)),
            "vocabulary": self._enum("vocabulary_map", VocabularyMap) or (VocabularyMap.OFFSETS if is_clear else None),
        }
        return EagleReading(**{name: answers[name] for name in questions})

    def open_questions(self, target: HiddenStateModel) -> dict[str, list[Any]]:
        """What it leaves open, with the choices; empty where it can be read."""
        stated = self.stated(target).answers
        return {name: choices for name, choices in self.choices(target).items() if name not in stated}

    def fitting_maps(self, target: HiddenStateModel) -> list[VocabularyMap]:
        """What `d2t` can hold, judging by the vocabulary and by `t2d`."""
        return [meaning for meaning in VocabularyMap if self.map_fault(meaning, target) is None]

    def map_fault(self, meaning: VocabularyMap, target: HiddenStateModel) -> str | None:
        """Why `d2t` cannot mean that; None where it can."""
        size = int(self.layer_config.get("vocab_size", target.vocab_size))
        ids = mapped_ids(self.weights["d2t"], meaning)
        return map_fault(ids, size, int(self.config.get("draft_vocab_size") or size), self.weights.get("t2d"))

    def _enum(self, key: str, kind: type[Enum]) -> Any:
        """Our own export's answer."""
        value = self.config.get(key)
        if value is not None and value not in {member.value for member in kind}:
            raise ConfigError(f"{self.folder}: {key} is {value!r}, not one of {', '.join(m.value for m in kind)}")
        return None if value is None else kind(value)


def layer_id_convention(ids: list[int], num_layers: int) -> LayerIds | None:
    """The convention under which `ids` are EAGLE-3's usual layers, {2, L//2, L-3} entered; None where it is neither."""
    usual = list(usual_points(num_layers))
    if ids == usual:
        return LayerIds.INPUT_OF
    return LayerIds.OUTPUT_OF if ids == [i - 1 for i in usual] else None


def head_folder(source: str) -> Path:
    """The folder of a head's name: `demo` or a path."""
    return SHIPPED / "eagle3-demo" if source == "demo" else Path(source).expanduser()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's configuration and weights; ConfigError where it is no EAGLE checkpoint."""
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the head folder {str(folder)!r} has no config.json; give a folder with an EAGLE checkpoint")
    weights = read_tensors(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{str(folder / 'config.json')!r} is no JSON: {error}") from None
    if "fc.weight" not in weights:
        raise ConfigError(f"{folder} is no EAGLE head: it has no fc.weight; it holds {', '.join(sorted(weights)[:5])}")
    layout = "speculators" if "transformer_layer_config" in config else "eagle"
    kind = EagleKind.EAGLE3 if _ONLY_IN_EAGLE3 & weights.keys() else EagleKind.EAGLE1
    return Checkpoint(folder, config, weights, layout, kind)


def settled(checkpoint: Checkpoint, target: HiddenStateModel, reading: EagleReading) -> EagleReading:
    """What the checkpoint says, completed and overruled by `reading`; ConfigError for what stays open."""
    choices, stated = checkpoint.choices(target), checkpoint.stated(target).answers
    idle = [name for name in reading.answers if name not in choices]
    if idle:
        raise ConfigError(f"reading.{idle[0]} settles nothing in {checkpoint.folder}, which has no such choice")
    answers = stated | reading.answers
    left = "; ".join(
        f"reading.{name} is one of {', '.join(str(getattr(value, 'name', value)) for value in values)}"
        for name, values in choices.items()
        if name not in answers
    )
    if left:
        raise ConfigError(
            f"{checkpoint.folder} does not say how it is to be read: {left}. Give them, or let "
            f"`python -m experiments.doctor head={checkpoint.folder}` rank the readings"
        )
    return EagleReading(**answers)


def head_shape(checkpoint: Checkpoint, target: HiddenStateModel, reading: EagleReading) -> EagleShape:
    """Everything the checkpoint says, completed by `reading`; ConfigError for what stays open."""
    reading = settled(checkpoint, target, reading)
    config, layer, weights = checkpoint.config, checkpoint.layer_config, checkpoint.weights
    missing = [name for name in ("hidden_size", "intermediate_size", "num_attention_heads") if name not in layer]
    if missing:
        raise ConfigError(f"{checkpoint.folder}/config.json does not give {', '.join(missing)}")
    num_heads, hidden_size = int(layer["num_attention_heads"]), int(layer["hidden_size"])
    vocab_size = int(layer.get("vocab_size", target.vocab_size))
    is_third = checkpoint.kind is EagleKind.EAGLE3
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
        rope_theta=_rope_theta(checkpoint),
        max_positions=int(layer.get("max_position_embeddings", 2048)),
        target_hidden_size=config.get("target_hidden_size"),
        hidden_points=_points(checkpoint, target.num_layers, reading) if is_third else (AFTER_FINAL_NORM,),
        fc_bias="fc.bias" in weights,
        attention_bias="midlayer.self_attn.q_proj.bias" in weights,
        norm_before_residual=bool(reading.norm_before_residual),
        norm_before_fc=bool(config.get("norm_before_fc", "input_norm.weight" in weights)),
        fc_norm=bool(config.get("fc_norm", any(name.startswith("fc_norm.") for name in weights))),
        norm_output=bool(reading.norm_output),
    )


def _rope_theta(checkpoint: Checkpoint) -> float:
    layer = checkpoint.layer_config
    rope = layer.get("rope_parameters") or layer.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise UnsupportedModelError(f"{checkpoint.folder}: rotary scaling {rope_type!r} is not supported in a head")
    return float(rope.get("rope_theta", layer.get("rope_theta", 10000.0)))


def _points(checkpoint: Checkpoint, num_layers: int, reading: EagleReading) -> tuple[int, ...]:
    ids = checkpoint.named_layers
    if ids is None:
        return usual_points(num_layers)
    points = tuple(i + 1 if reading.layer_ids is LayerIds.OUTPUT_OF else i for i in ids)
    if any(not 0 <= point <= num_layers for point in points):
        raise ConfigError(f"{checkpoint.folder} reads layers {ids}, but the target has {num_layers}")
    return points


def load_head(
    source: str | EagleHead, target: CausalModel, reading: EagleReading
) -> tuple[EagleHead, HiddenStateModel]:
    """The head in the target's precision, with the target as a model that shows its inside."""
    if not isinstance(target, HiddenStateModel):
        raise UnsupportedModelError(f"{target.name} shows no hidden states; an EAGLE head needs them")
    head = (
        source if isinstance(source, EagleHead) else build_head(read_checkpoint(head_folder(source)), target, reading)
    )
    check_target(head, target, source if isinstance(source, str) else "the head")
    return head.to(target.device, target.dtype).eval().requires_grad_(False), target


def build_head(checkpoint: Checkpoint, target: HiddenStateModel, reading: EagleReading) -> EagleHead:
    """A head with the checkpoint's weights; ConfigError for tensors or a vocabulary map that do not fit."""
    reading = settled(checkpoint, target, reading)
    head = EagleHead(head_shape(checkpoint, target, reading))
    maps = {"d2t", "t2d"} if "d2t" in checkpoint.weights else set()
    fill(head, {name: t for name, t in checkpoint.weights.items() if name not in maps}, checkpoint.folder)
    shape = head.shape
    if reading.vocabulary is not None:
        fault = checkpoint.map_fault(reading.vocabulary, target)
        if fault is not None:
            others = [f"; with reading.vocabulary={m.name} it fits" for m in checkpoint.fitting_maps(target)]
            raise ConfigError(f"{checkpoint.folder}: d2t, read as {reading.vocabulary.value}, {fault}{''.join(others)}")
        head.draft_to_target = mapped_ids(checkpoint.weights["d2t"], reading.vocabulary)
    elif shape.draft_vocab_size != shape.vocab_size:
        raise ConfigError(f"{checkpoint.folder} has {shape.draft_vocab_size} draft tokens but no d2t map to them")
    return head


def check_target(head: EagleHead, target: HiddenStateModel, name: str) -> None:
    """Raise ConfigError, by `name`, for a head whose sizes belong to another target."""
    shape = head.shape
    if shape.state_size != target.hidden_size:
        raise ConfigError(f"{name} reads states of {shape.state_size} numbers, {target.name} has {target.hidden_size}")
    if shape.vocab_size != target.vocab_size:
        raise ConfigError(f"{name} is for {shape.vocab_size} tokens, {target.name} has {target.vocab_size}")
    if head.embed_tokens is None and shape.hidden_size != target.hidden_size:
        raise ConfigError(f"{name} has no embeddings of its own, and {target.name}'s have another width")
