"""What can be said about a head's checkpoint without running it?

Always true: a fault is something that keeps the head from working as its checkpoint says; what is only unusual, and
may be meant, is a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from specinfer.errors import SpecinferError
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_checkpoint import Checkpoint, EagleReading, build_head, check_target
from specinfer.models.eagle_weights import VocabularyMap
from specinfer.protocols import HiddenStateModel

LEAST_NORM = 0.1
"""Norms whose weights all have a smaller mean than this are hardly factors"""


class Level(Enum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    subject: str
    level: Level
    text: str


def static_checks(checkpoint: Checkpoint, target: HiddenStateModel) -> list[Check]:
    """Every finding."""
    head, fault = _build(checkpoint, target)
    checks = [Check("weights", Level.FAULT, fault) if head is None else Check("weights", Level.OK, _kind(head))]
    checks += [*_statement(checkpoint, target), *_vocabulary(checkpoint, target)]
    if head is not None:
        checks += [*_positions(head, target), *_norms(head)]
    return [*checks, *_verifier(checkpoint, target)]


def written(answers: Mapping[str, Any]) -> str:
    """Answers as they are given on a command line."""
    values = {name: str(getattr(value, "name", str(value).lower())) for name, value in answers.items()}
    return " ".join(f"reading.{name}={value}" for name, value in values.items())


def _kind(head: EagleHead) -> str:
    num_parameters = sum(parameter.numel() for parameter in head.parameters())
    name = "EAGLE-3" if head.shape.kind is EagleKind.EAGLE3 else "EAGLE-1 or EAGLE-2"
    size = f"{num_parameters / 1e6:.1f} million parameters, {head.shape.draft_vocab_size} draft tokens"
    return f"they fit the settings: {name}, {size}"


def all_readings(choices: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> list[EagleReading]:
    """Every combination of the choices, those in `fixed` as they are there."""
    values = [[fixed[name]] if name in fixed else list(given) for name, given in choices.items()]
    return [EagleReading(**dict(zip(choices, combination, strict=True))) for combination in product(*values)]


def _build(checkpoint: Checkpoint, target: HiddenStateModel) -> tuple[EagleHead | None, str]:
    """The head in the first reading that can be, or why there is none."""
    fault = ""
    for reading in all_readings(checkpoint.choices(target), {}):
        try:
            head = build_head(checkpoint, target, reading)
            check_target(head, target, str(checkpoint.folder))
        except SpecinferError as error:
            fault = fault or str(error)
        else:
            return head, ""
    return None, fault


def _statement(checkpoint: Checkpoint, target: HiddenStateModel) -> Iterator[Check]:
    stated, left = checkpoint.stated(target).answers, checkpoint.open_questions(target)
    said = written(stated) or "nothing is to be settled"
    yield Check("reading", Level.NOTE if left else Level.OK, f"stated: {said}")
    if left:
        yield Check("reading", Level.NOTE, f"open: {', '.join(left)}")
    if checkpoint.kind is EagleKind.EAGLE3 and checkpoint.named_layers is None:
        yield Check("reading", Level.NOTE, "it names no layers: what enters layers 2, L//2 and L-3 is taken")


def _vocabulary(checkpoint: Checkpoint, target: HiddenStateModel) -> Iterator[Check]:
    if "d2t" not in checkpoint.weights:
        return
    faults = {meaning: checkpoint.map_fault(meaning, target) for meaning in VocabularyMap}
    fitting = [meaning for meaning, fault in faults.items() if fault is None]
    if fitting == [VocabularyMap.OFFSETS]:
        beside = "as t2d says" if "t2d" in checkpoint.weights else "and no t2d confirms them"
        yield Check("vocabulary map", Level.OK, f"d2t holds offsets, {beside}")
    elif fitting == [VocabularyMap.ABSOLUTE]:
        why = f"read as offsets, d2t {faults[VocabularyMap.OFFSETS]}; give reading.vocabulary=ABSOLUTE"
        yield Check("vocabulary map", Level.FAULT, f"d2t holds the target's ids themselves: {why}")
    elif fitting:
        yield Check("vocabulary map", Level.NOTE, "d2t can hold offsets or the target's ids themselves")
    else:
        yield Check("vocabulary map", Level.FAULT, f"d2t {faults[VocabularyMap.OFFSETS]}")


def _positions(head: EagleHead, target: HiddenStateModel) -> Iterator[Check]:
    """Rotary base and length against the target's."""
    config = getattr(target, "hf_config", None)
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", getattr(config, "rope_theta", None))
    own = head.shape.rope_theta
    if theta is not None and float(theta) != own:
        yield Check("positions", Level.NOTE, f"rope_theta is {own:g}, the target's {float(theta):g}")
    elif theta is not None:
        yield Check("positions", Level.OK, f"rope_theta is the target's, {own:g}")
    if head.shape.max_positions < target.max_model_len:
        limit, length = head.shape.max_positions, target.max_model_len
        yield Check("positions", Level.NOTE, f"it drafts up to position {limit}, the target goes on to {length}")


def _norms(head: EagleHead) -> Iterator[Check]:
    shape = head.shape
    weights = [w for name, w in head.named_parameters() if "norm" in name and name.endswith("weight")]
    if all(abs(float(weight.detach().mean())) < LEAST_NORM for weight in weights):
        yield Check(
            "norms", Level.NOTE, "all weights lie around 0, as where a model adds 1 to them; none is added here"
        )
    extra = [name for name in ("norm_before_fc", "fc_norm") if getattr(shape, name)]
    if extra:
        yield Check("norms", Level.OK, f"the states are normed before fc ({', '.join(extra)})")


def _verifier(checkpoint: Checkpoint, target: HiddenStateModel) -> Iterator[Check]:
    """The target that a speculators checkpoint names."""
    named = ((checkpoint.config.get("speculators_config") or {}).get("verifier") or {}).get("name_or_path")
    if not named:
        return
    is_same = str(named).rstrip("/").split("/")[-1] == target.name.rstrip("/").split("/")[-1]
    text = f"it names {named} as its target" + ("" if is_same else f"; here it is {target.name}")
    yield Check("target", Level.OK if is_same else Level.NOTE, text)
