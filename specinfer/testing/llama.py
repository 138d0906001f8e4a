"""What is the smallest real transformer, and a head for it?

Random weights of a seed, float64, vocabularies small enough to enumerate. Always true: the same arguments give the same
weights.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from specinfer.models.eagle import EagleHead, EagleKind, EagleShape
from specinfer.protocols import AFTER_FINAL_NORM, LoadedModel
from specinfer.testing.models import ByteTokenizer


def tiny_llama(vocab_size: int = 8, *, num_layers: int = 4, max_model_len: int = 64, seed: int = 0) -> LoadedModel:
    """A Llama of width 16 with sharp predictions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from specinfer.models.transformers_model import TransformersModel

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_model_len,
        initializer_range=0.6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    hf_model = LlamaForCausalLM(config).double()
    torch.set_rng_state(generator_state)
    model = TransformersModel(hf_model, name=f"tiny-llama-{seed}")
    return LoadedModel(model, ByteTokenizer(vocab_size), frozenset())


def tiny_eagle_head(kind: EagleKind, vocab_size: int = 8, *, seed: int = 1, **options: Any) -> EagleHead:
    """A random head for `tiny_llama`; `options` are EagleShape's."""
    is_third = kind is EagleKind.EAGLE3
    shape = EagleShape(
        kind=kind,
        hidden_size=16,
        intermediate_size=24,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        vocab_size=vocab_size,
        draft_vocab_size=max(vocab_size - 1, 2) if is_third else vocab_size,
        max_positions=64,
        hidden_points=(2, 2, 1) if is_third else (AFTER_FINAL_NORM,),
        fc_bias=not is_third,
    )
    shape = dataclasses.replace(shape, **options)
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    head = EagleHead(shape).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    torch.set_rng_state(generator_state)
    if is_third:
        head.draft_to_target = torch.arange(vocab_size)[-shape.draft_vocab_size :]
    return head.requires_grad_(False)
