"""A family's paged logits equal its own plain forward; a family that does not fit is refused by name."""

from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer import UnsupportedModelError
from specinfer.kernels.metadata import ForwardBatch
from specinfer.models.transformers_model import TransformersModel

VOCAB = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"sliding_window": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, **WINDOW},
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 8, **WINDOW},
    "mistral": WINDOW,
    "phi3": {},
    "gpt_neox": {},
    "olmo2": {},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, **EXPERTS},
    "gpt_oss": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, **WINDOW},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 32},
}
SEQUENCE_LENS = (37, 14, 23)
BLOCK = 4


def _hf_model(family: str, dtype: torch.dtype, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SIZES, **FAMILIES.get(family, {}), **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    model = model.to(dtype).eval()
    for parameter in model.parameters():  # larger than the initialisation, so that a wrong mask shows
        parameter.data.add_(torch.randn_like(parameter) * 0.15)
    return model


def _plain(model: Any, sequences: list[Tensor]) -> list[Tensor]:
    with torch.inference_mode():
        return [model(input_ids=sequence[None], use_cache=False).logits[0] for sequence in sequences]


@pytest.fixture
def softmax_in_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers' eager attention and routers round to float32 whatever the dtype, which would hide a difference."""
    softmax = torch.nn.functional.softmax

    def exact(scores: Tensor, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return softmax(scores, dim=dim, dtype=scores.dtype)

    monkeypatch.setattr(torch.nn.functional, "softmax", exact)


def _batch(rows: list[tuple[Tensor, int, int]], tables: list[list[int]]) -> ForwardBatch:
    """Rows of (sequence, start, end)."""
    slots, positions, tokens = [], [], []
    for (sequence, start, end), table in zip(rows, tables, strict=True):
        positions += range(start, end)
        slots += [table[p // BLOCK] * BLOCK + p % BLOCK for p in range(start, end)]
        tokens.append(sequence[start:end])
    return ForwardBatch(
        token_ids=torch.cat(tokens),
        positions=torch.tensor(positions),
        slot_mapping=torch.tensor(slots),
        logits_rows=torch.arange(len(slots)),
        query_lens=[end - start for _, start, end in rows],
        context_lens=[end for _, _, end in rows],
        block_tables=tables,
        block_size=BLOCK,
    )


STEPS = {
    "prefill": [(0, 1.0)],
    "chunked prefill": [(0, 0.3), (0.3, 0.8), (0.8, 1.0)],
    "decode": [(0, 0.6), *[(None, 1)] * 4],
    "draft window": [(0, 0.4), (None, 5), (None, 3)],
}


def _steps(name: str, length: int) -> list[tuple[int, int]]:
    """The (start, end) stretches of one sequence."""
    stretches, done = [], 0
    for start, end in STEPS[name]:
        stop = done + int(end) if start is None else round(length * end)
        assert done < stop <= length, "an empty stretch would test nothing"
        stretches.append((done, stop))
        done = stop
    return stretches


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["f32", "f64"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("softmax_in_own_precision")
def test_paged_logits_equal_the_plain_forward(family: str, dtype: torch.dtype, tolerance: float) -> None:
    hf_model = _hf_model(family, dtype)
    generator = torch.Generator().manual_seed(1)
    sequences = [torch.randint(3, VOCAB, (length,), generator=generator) for length in SEQUENCE_LENS]
    expected = _plain(hf_model, sequences)
    scale = max(float(logits.abs().max()) for logits in expected)
    model = TransformersModel(hf_model, name=family)
    counts = [-(-length // BLOCK) + 1 for length in SEQUENCE_LENS]
    for name in STEPS:
        order = torch.randperm(sum(counts), generator=generator).tolist()
        tables = [order[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(counts))]
        shape = sum(counts) * BLOCK
        kv_cache = [
            (
                torch.zeros(shape, spec.num_kv_heads, spec.key_dim, dtype=dtype),
                torch.zeros(shape, spec.num_kv_heads, spec.value_dim, dtype=dtype),
            )
            for spec in model.kv_layers
        ]
        for stretches in zip(*[_steps(name, length) for length in SEQUENCE_LENS], strict=True):
            rows = [(sequence, *stretch) for sequence, stretch in zip(sequences, stretches, strict=True)]
            found = model.forward(_batch(rows, tables), kv_cache)
            wanted = torch.cat([logits[start:end] for logits, (start, end) in zip(expected, stretches, strict=True)])
            assert float((found - wanted).abs().max()) <= tolerance * max(1.0, scale), name


def test_the_window_matters_in_these_tests() -> None:
    """Sequences are longer than the window, so a window that is ignored would show."""
    narrow, wide = (_hf_model("mistral", torch.float64, sliding_window=window) for window in (8, 64))
    sequence = torch.randint(3, VOCAB, (37,), generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(_plain(narrow, [sequence])[0], _plain(wide, [sequence])[0], atol=1e-3)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("mamba", {}, "recurrent"),
        ("jamba", {"num_experts": 2, "mamba_d_state": 4, "mamba_d_conv": 2}, "recurrent"),
        ("qwen3_next", {"num_experts": 4, **EXPERTS}, "recurrent"),
        ("llama4_text", {"num_local_experts": 2}, "chunked_attention"),
        ("bloom", {}, "attention interface"),
        ("phimoe", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}, "sliding window of 8"),
    ],
)
def test_a_family_that_does_not_fit_is_refused_by_name(family: str, changes: dict[str, Any], message: str) -> None:
    hf_model = _hf_model(family, torch.float32, **changes)
    with pytest.raises(UnsupportedModelError, match=f"(?s)mine.*{type(hf_model).__name__}.*{message}"):
        TransformersModel(hf_model, name="mine")


def test_an_argument_that_is_not_honoured_is_found_by_the_self_check() -> None:
    """A layer that scales its scores behind the interface's back gives other logits, and the model is refused."""
    hf_model = _hf_model("llama", torch.float32)
    hf_model.model.layers[1].self_attn.scaling = 3.0
    original = hf_model.set_attn_implementation

    def switch(name: str) -> None:
        original(name)
        hf_model.model.layers[1].self_attn.scaling = 3.0 if name == "sdpa" else 0.1

    hf_model.set_attn_implementation = switch
    with pytest.raises(UnsupportedModelError, match="differ"):
        TransformersModel(hf_model, name="mine")


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic"])
def test_rotary_scaling_that_depends_on_the_batch_is_refused_beyond_its_safe_length(rope_type: str) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if rope_type == "longrope" else {"factor": 2.0}
    rope = {"rope_type": rope_type, "rope_theta": 10000.0, "original_max_position_embeddings": 32, **factors}
    hf_model = _hf_model("llama", torch.float32, rope_parameters=rope)
    with pytest.raises(UnsupportedModelError, match="max_model_len=32 or less"):
        TransformersModel(hf_model, name="mine")
    assert TransformersModel(hf_model, name="mine", max_model_len=32).max_model_len == 32
