"""Where are a transformers model's layers, and what flows between them?

Always true: a captured state is what the next module really read in that forward; nothing is captured that was not
asked for, and no hook stays behind.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from specinfer.kernels.metadata import ForwardBatch
from specinfer.protocols import AFTER_FINAL_NORM

_NORM_NAMES = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "final_norm")


@dataclass(frozen=True, slots=True)
class Inside:
    """The decoder's list of layers and the norm behind it."""

    decoder: nn.Module
    layers_name: str
    layers: nn.ModuleList
    norm: nn.Module

    @staticmethod
    def of(hf_model: Any, num_layers: int) -> Inside | None:
        """Found by shape and the usual names; None where there is no such place."""
        decoder = hf_model.get_decoder() if hasattr(hf_model, "get_decoder") else hf_model.base_model
        lists = [
            (name, child)
            for name, child in decoder.named_children()
            if isinstance(child, nn.ModuleList) and len(child) == num_layers
        ]
        norm = next((found for name in _NORM_NAMES if (found := getattr(decoder, name, None)) is not None), None)
        if len(lists) != 1 or norm is None:
            return None
        return Inside(decoder, lists[0][0], lists[0][1], norm)

    def shortened(self, hf_model: Any, num_layers: int) -> Any:
        """A copy of the model's shell with the first layers only; every module inside is the same object."""
        decoder = copy.copy(self.decoder)
        decoder._modules = dict(self.decoder._modules)
        decoder._modules[self.layers_name] = nn.ModuleList(list(self.layers)[:num_layers])
        shell = copy.copy(hf_model)
        shell._modules = {n: decoder if child is self.decoder else child for n, child in hf_model._modules.items()}
        shell.config = copy.copy(hf_model.config)
        shell.config.num_hidden_layers = num_layers
        decoder.config = shell.config
        return shell


@contextmanager
def capture(inside: Inside, batch: ForwardBatch) -> Iterator[None]:
    """Fill `batch.hidden` during one forward."""
    hooks = [_hook(inside, point, batch.hidden) for point in batch.hidden_points]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hook(inside: Inside, point: int, found: dict[int, Tensor]) -> Any:
    def before(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        state = arguments[0] if arguments else options["hidden_states"]
        found[point] = state[0]

    def after(module: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        found[point] = result[0]

    if point == AFTER_FINAL_NORM:
        return inside.norm.register_forward_hook(after)
    assert 0 <= point <= len(inside.layers), f"there is no hidden state {point}"
    module = inside.norm if point == len(inside.layers) else inside.layers[point]
    return module.register_forward_pre_hook(before, with_kwargs=True)
