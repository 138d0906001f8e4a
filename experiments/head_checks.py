"""What can be said about a head's checkpoint without running it?

Always true: a fault is something that keeps the head from working as its checkpoint says; what is only unusual, and
may be meant, is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from specinfer.errors import SpecinferError
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_checkpoint import Checkpoint, EagleReading, build_head, check_target
from specinfer.models.eagle_weights import VocabularyMap
from specinfer.protocols import HiddenStateModel

LEAST_NORM = 0.02
"""A norm whose weights have a smaller mean than this is hardly a factor"""


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


def static_checks(checkpoint: Checkpoint, target: HiddenStateModel) -> tuple[list[Check], EagleHead | None]:
    """Every finding, and the head in one of its readings; None where it cannot be built in any."""
    head, fault = _build(checkpoint, target)
    fit = Check("shapes", Level.FAULT, fault) if fault else Check("shapes", Level.OK, f"fit the settings: {_kind(head)}")
    checks = [fit, *_statement(checkpoint, target), *_vocabulary(checkpoint, target)]
    if head is not None:
        checks += [*_positions(head, target), *_norms(head)]
    checks += _verifier(checkpoint, target)
    return checks, None if fault else head


def written(answers: dict[str, Any]) -> str:
    """Answers as they are given on a command line."""
    values = {name: str(getattr(value, "name", str(value).lower())) for name, value in answers.items()}
    return " ".join(f"reading.{name}={value}" for name, value in values.items())


def _kind(head: EagleHead | None) -> str:
    assert head is not None
    num_parameters = sum(parameter.numel() for parameter in head.parameters())
    name = "EAGLE-3" if head.shape.kind is EagleKind.EAGLE3 else "EAGLE-1 or EAGLE-2"
    return f"{name}, {num_parameters / 1e6:.1f} million parameters, {head.shape.draft_vocab_size} draft tokens"


def _build(checkpoint: Checkpoint, target: HiddenStateModel) -> tuple[EagleHead | None, str]:
    """The head, its open questions answered anyhow, and why it does not fit."""
    head = None
    try:
        first = {name: choices[0] for name, choices in checkpoint.choices(target).items()}
        stated = checkpoint.stated(target).answers
        head = build_head(checkpoint, target, EagleReading(**(first | stated)))
    except SpecinferError as error:
        try:
            head = build_head(checkpoint, target, EagleReading(**{**first, **stated, "vocabulary": first["vocabulary"]}))
        except (SpecinferError, KeyError, NameError):
            return None, str(error)
    check_target(head, target, str(checkpoint.folder))
    return head, ""


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
    around_zero = [
        name
        for name, weight in head.named_parameters()
        if "norm" in name and name.endswith("weight") and abs(float(weight.mean())) < LEAST_NORM
    ]
    if around_zero:
        which = ", ".join(around_zero)
        yield Check("norms", Level.NOTE, f"{which}: the weights lie around 0, as where 1 is added to them; none is here")
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
