"""How is a head written so that other engines read it?

Two layouts: `eagle` (EAGLE's own, which SpecForge, SGLang and vLLM read) and `speculators`. Always true: what is
written says everything that `eagle_checkpoint` would otherwise have to ask, and reads back as the same head. Two keys
are ours (`layer_id_convention`, `vocabulary_map`); other readers pass over them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specinfer.errors import ConfigError
from specinfer.models.eagle import EagleHead, EagleKind, EagleShape
from specinfer.models.eagle_checkpoint import LayerIds
from specinfer.models.eagle_weights import VocabularyMap

LAYOUTS = ("eagle", "speculators")


def write_head(
    head: EagleHead,
    folder: Path,
    *,
    layout: str = "eagle",
    dtype: torch.dtype = torch.float16,
    target: str = "",
    eos_token_ids: tuple[int, ...] = (),
) -> None:
    """Write `config.json` and `model.safetensors`. target: the name of the model that the head was trained for."""
    from safetensors.torch import save_file

    if layout not in LAYOUTS:
        raise ConfigError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(head, layout, dtype), str(folder / "model.safetensors"), metadata={"format": "pt"})
    layer = _layer_config(head.shape, dtype, eos_token_ids)
    own = _own_config(head.shape)
    config = layer | own if layout == "eagle" else _speculators_config(head.shape, layer, own, target)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _tensors(head: EagleHead, layout: str, dtype: torch.dtype) -> dict[str, Tensor]:
    is_third = head.shape.kind is EagleKind.EAGLE3
    prefix = "midlayer." if layout == "eagle" and is_third else "layers.0."
    tensors = {
        name.replace("midlayer.", prefix, 1): tensor.detach().to(dtype).contiguous().clone()
        for name, tensor in head.state_dict().items()
    }
    if is_third and head.shape.draft_vocab_size != head.shape.vocab_size:
        ids = head.draft_to_target.cpu()
        used = torch.zeros(head.shape.vocab_size, dtype=torch.bool)
        used[ids] = True
        tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": used}
    return tensors


def _layer_config(shape: EagleShape, dtype: torch.dtype, eos_token_ids: tuple[int, ...]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_positions,
        "vocab_size": shape.vocab_size,
        "attention_bias": shape.attention_bias,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    if eos_token_ids:
        config["eos_token_id"] = list(eos_token_ids) if len(eos_token_ids) > 1 else eos_token_ids[0]
    return config


def _own_config(shape: EagleShape) -> dict[str, Any]:
    if shape.kind is EagleKind.EAGLE1:
        return {"architectures": ["EagleLlamaForCausalLM"], "bias": shape.fc_bias}
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": shape.draft_vocab_size,
        "norm_before_residual": shape.norm_before_residual,
        "norm_before_fc": shape.norm_before_fc,
        "fc_norm": shape.fc_norm,
        "norm_output": shape.norm_output,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(shape.hidden_points), "use_aux_hidden_state": True},
        "layer_id_convention": LayerIds.INPUT_OF.value,
        "vocabulary_map": VocabularyMap.OFFSETS.value,
    }
    if shape.target_hidden_size is not None:
        config["target_hidden_size"] = shape.target_hidden_size
    return config


def _speculators_config(shape: EagleShape, layer: dict[str, Any], own: dict[str, Any], target: str) -> dict[str, Any]:
    is_third = shape.kind is EagleKind.EAGLE3
    algorithm = "eagle3" if is_third else "eagle"
    flat = {k: v for k, v in own.items() if k not in {"architectures", "eagle_config"}}
    if is_third:
        flat["eagle_aux_hidden_state_layer_ids"] = list(shape.hidden_points)
    return {
        **flat,
        "architectures": ["Eagle3Speculator" if is_third else "EagleSpeculator"],
        "speculators_model_type": algorithm,
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": target, "architectures": ["LlamaForCausalLM"]},
        },
    }
