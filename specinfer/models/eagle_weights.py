"""Which tensors does a head take from a checkpoint, and which tokens do its draft ids mean?

Always true: weights are read from safetensors only, never unpickled; every tensor is used and has the shape that the
settings say; a vocabulary map names each token once, all of them inside the target's vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import torch
from torch import Tensor, nn

from specinfer.errors import ConfigError
from specinfer.models.eagle import EagleHead


class VocabularyMap(Enum):
    """What `d2t` holds for a draft id: what is to be added to it, or the target's id itself."""

    OFFSETS = "offsets"
    ABSOLUTE = "absolute"


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's safetensors files, the layer's under `midlayer.` in every layout."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"the head folder {str(folder)!r} has no *.safetensors (pickled weights are never read); convert them"
        )
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(str(file))
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{str(file)!r} cannot be read as safetensors: {error}; fetch it again") from None
    prefix = "midlayer." if any(name.startswith("midlayer.") for name in weights) else "layers.0."
    return {
        "midlayer." + name.removeprefix(prefix) if name.startswith(prefix) else name: tensor
        for name, tensor in weights.items()
    }


def fill(head: EagleHead, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Copy the weights; ConfigError for a tensor that is missing, left over or of another shape."""
    if "embed_tokens.weight" in weights:
        head.embed_tokens = nn.Embedding(head.shape.vocab_size, head.shape.hidden_size)
    wanted = head.state_dict()
    faults = [
        f"{name} has the shape {list(weights[name].shape)} where {list(wanted[name].shape)} is wanted"
        for name in sorted(wanted.keys() & weights.keys())
        if weights[name].shape != wanted[name].shape
    ]
    faults += [f"{name} is missing" for name in sorted(wanted.keys() - weights.keys())]
    faults += [f"{name} is not used" for name in sorted(weights.keys() - wanted.keys())]
    if faults:
        raise ConfigError(f"{folder} does not fit its settings: {'; '.join(faults)}")
    head.load_state_dict({name: tensor.float() for name, tensor in weights.items()})


def mapped_ids(d2t: Tensor, meaning: VocabularyMap) -> Tensor:
    """The target's id of each draft id, int64 [draft_vocab_size]."""
    ids = d2t.long().flatten()
    return ids if meaning is VocabularyMap.ABSOLUTE else ids + torch.arange(len(ids))


def map_fault(ids: Tensor, vocab_size: int, draft_vocab_size: int, t2d: Tensor | None) -> str | None:
    """Why `ids` cannot be the target's ids of the draft vocabulary; None where they can."""
    if len(ids) != draft_vocab_size:
        return f"has {len(ids)} entries for {draft_vocab_size} draft tokens"
    if bool((ids < 0).any()) or bool((ids >= vocab_size).any()):
        return f"leaves the vocabulary of {vocab_size} tokens"
    if len(set(ids.tolist())) != len(ids):
        return "maps two draft tokens to one token"
    if t2d is not None and len(t2d) != vocab_size:
        return f"has a t2d of {len(t2d)} entries beside it, for {vocab_size} tokens"
    if t2d is not None and not torch.equal(t2d.bool().nonzero().flatten(), ids.sort().values):
        return "and t2d name different tokens; one of the two is wrong"
    return None
