"""Packed linear layers give the plain products, and nothing else is touched."""

import copy

import pytest
import torch
from torch import nn

from specinfer.models.packed_linear import PackedLinear, pack_linears


class Scaled(nn.Linear):
    """A subclass that does more than the product."""


@pytest.mark.parametrize("shape", [(1, 24), (5, 24), (1, 17, 24), (0, 24)])
def test_the_products_are_those_of_float32(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 7, bias=False))
    packed = copy.deepcopy(plain)
    assert pack_linears(packed) == 2
    x = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(packed(x), plain(x), rtol=1e-5, atol=1e-5)


def test_only_plain_float32_linear_layers_are_packed() -> None:
    model = nn.ModuleDict({"wide": nn.Linear(8, 8).double(), "sub": Scaled(8, 8), "norm": nn.LayerNorm(8)})
    assert pack_linears(model) == 0
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


def test_a_tied_embedding_keeps_its_weight() -> None:
    embedding, head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "head": head})
    before = embedding.weight.detach().clone()
    assert pack_linears(model) == 1
    assert torch.equal(embedding.weight, before)
