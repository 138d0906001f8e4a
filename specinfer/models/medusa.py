"""What do Medusa heads compute, and how are they kept?

Cai et al. 2024, section 2.1: head k reads the state behind the target's final norm and guesses the token k + 1 places
after the next one: residual blocks x + silu(W x + b), then a linear map to the vocabulary, the target's own where a
checkpoint has none. Always true: every tensor of a checkpoint is used, and has the shape that the settings say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specinfer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MedusaShape:
    """Settings of a set of heads. has_own_heads: each has a map to the vocabulary of its own."""

    hidden_size: int
    vocab_size: int
    num_heads: int
    num_blocks: int = 1
    has_own_heads: bool = False


class _Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + functional.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """K heads; parameter names are those of the public checkpoints (`head.block.linear.weight`, `head.last.weight`)."""

    def __init__(self, shape: MedusaShape) -> None:
        super().__init__()
        self.shape = shape
        for k in range(shape.num_heads):
            blocks: list[nn.Module] = [_Block(shape.hidden_size) for _ in range(shape.num_blocks)]
            if shape.has_own_heads:
                blocks.append(nn.Linear(shape.hidden_size, shape.vocab_size, bias=False))
            self.add_module(str(k), nn.Sequential(*blocks))

    def forward(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] -> [num_heads, n, hidden_size], or logits [..., vocab_size] with heads of their own."""
        return torch.stack([self.get_submodule(str(k))(hidden) for k in range(self.shape.num_heads)])


def read_medusa(folder: Path) -> MedusaHeads:
    """Heads from `config.json` and safetensors; ConfigError where they do not fit together."""
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not files:
        raise ConfigError(
            f"{str(folder)!r} holds no Medusa heads: it needs config.json and *.safetensors (pickled weights are "
            f"never read)"
        )
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= load_file(str(file))
    weights = {name.removeprefix("medusa_head."): tensor.float() for name, tensor in weights.items()}
    num_blocks, num_heads = int(config.get("medusa_num_layers", 1)), int(config["medusa_num_heads"])
    shape = MedusaShape(
        hidden_size=int(config["hidden_size"]),
        vocab_size=int(config["vocab_size"]),
        num_heads=num_heads,
        num_blocks=num_blocks,
        has_own_heads=f"0.{num_blocks}.weight" in weights,
    )
    heads = MedusaHeads(shape)
    wanted = {name: tensor.shape for name, tensor in heads.state_dict().items()}
    found = {name: tensor.shape for name, tensor in weights.items()}
    if wanted != found:
        odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise ConfigError(f"{folder} does not fit its settings: {', '.join(odd[:5])} missing, unused or misshapen")
    heads.load_state_dict(weights)
    return heads


def write_medusa(heads: MedusaHeads, folder: Path, *, dtype: torch.dtype = torch.float16, target: str = "") -> None:
    """Write `config.json` and `model.safetensors`, which `read_medusa` reads back."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in heads.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "medusa_num_heads": heads.shape.num_heads,
        "medusa_num_layers": heads.shape.num_blocks,
        "hidden_size": heads.shape.hidden_size,
        "vocab_size": heads.shape.vocab_size,
        "original_lm_head": not heads.shape.has_own_heads,
        "base_model_name_or_path": target,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
