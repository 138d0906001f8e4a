"""What does a head know before it is trained?

As much of the target as fits. Always true: the starting weights are a function of the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from experiments.training.responses import Response
from specinfer.models.eagle import EagleHead, EagleShape


def draft_vocabulary(responses: Sequence[Response], size: int, vocab_size: int) -> list[int]:
    """The target ids that the responses use most, ascending; the lowest unused ids fill it up."""
    used = np.concatenate([np.array(r.token_ids, dtype=np.int64) for r in responses])
    counts = np.bincount(used, minlength=vocab_size)
    chosen = np.argsort(-counts, kind="stable")[:size]
    return sorted(int(i) for i in chosen)


def eagle1_from_target(weights: Mapping[str, Tensor], shape: EagleShape) -> EagleHead:
    """A head whose `fc` passes the state on and whose layer is the target's last one, its input norm folded in.

    weights: the target's, in Llama's names.
    """
    head = EagleHead(shape)
    last = f"model.layers.{_num_layers(weights) - 1}."
    size = shape.hidden_size
    with torch.no_grad():
        head.fc.weight.normal_(std=0.02, generator=torch.Generator().manual_seed(0))
        head.fc.weight[:, -size:] = torch.eye(size)
        head.fc.bias.zero_()
        scale = weights[f"{last}input_layernorm.weight"] / weights["model.norm.weight"]
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(head.midlayer.self_attn, name).weight.copy_(weights[f"{last}self_attn.{name}.weight"] * scale)
        head.midlayer.self_attn.o_proj.weight.copy_(weights[f"{last}self_attn.o_proj.weight"])
        for name in ("gate_proj", "up_proj", "down_proj"):
            getattr(head.midlayer.mlp, name).weight.copy_(weights[f"{last}mlp.{name}.weight"])
        head.midlayer.post_attention_layernorm.weight.copy_(weights[f"{last}post_attention_layernorm.weight"])
    return head


def _num_layers(weights: Mapping[str, Tensor]) -> int:
    return 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("model.layers."))


def eagle3_from_target(weights: Mapping[str, Tensor], shape: EagleShape, vocabulary: Sequence[int]) -> EagleHead:
    """A head whose `fc` passes the highest state on and whose layer is the target's last one.

    weights: the target's, in Llama's names. The embedding's half of the attention input starts as the first layer's.
    """
    head = EagleHead(shape)
    last, first = f"model.layers.{_num_layers(weights) - 1}.", "model.layers.0."
    with torch.no_grad():
        head.fc.weight.zero_()
        head.fc.weight[:, -shape.state_size :] = torch.eye(shape.hidden_size, shape.state_size)
        attention = head.midlayer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            halves = [weights[f"{layer}self_attn.{name}.weight"].float() for layer in (first, last)]
            getattr(attention, name).weight.copy_(torch.cat(halves, dim=1) / 2**0.5)
        attention.o_proj.weight.copy_(weights[f"{last}self_attn.o_proj.weight"])
        for name in ("gate_proj", "up_proj", "down_proj"):
            getattr(head.midlayer.mlp, name).weight.copy_(weights[f"{last}mlp.{name}.weight"])
        head.midlayer.hidden_norm.weight.copy_(weights[f"{last}input_layernorm.weight"])
        head.midlayer.input_layernorm.weight.copy_(weights[f"{first}input_layernorm.weight"])
        head.midlayer.post_attention_layernorm.weight.copy_(weights[f"{last}post_attention_layernorm.weight"])
        head.norm.weight.copy_(weights["model.norm.weight"])
        table = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        head.lm_head.weight.copy_(table[list(vocabulary)])
        head.draft_to_target.copy_(torch.tensor(vocabulary))
    return head
