"""How do a CPU's matrix products keep up with its memory?

A decode step multiplies a few rows by every weight. torch's default product for that shape reaches a fraction of the
memory's speed on some CPUs; oneDNN's, with weights in its own blocked layout, comes close to it. Always true: the
products are float32 throughout, only the order of summation differs; a module that is not a plain float32 linear layer
on a CPU is left as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """An nn.Linear whose weight lies in oneDNN's layout; the plain weight is given up."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features] -> [..., out_features]."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return y

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def pack_linears(model: nn.Module) -> int:
    """Replace every float32 nn.Linear on a CPU, in place; how many there were.

    A weight that others share (a head tied to the embedding) stays with them and costs a second copy.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return 0
    num_packed = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            # Exactly nn.Linear: a subclass may do more than the product.
            if type(child) is nn.Linear and child.weight.dtype == torch.float32 and child.weight.device.type == "cpu":
                setattr(parent, name, PackedLinear(child))
                num_packed += 1
    return num_packed
