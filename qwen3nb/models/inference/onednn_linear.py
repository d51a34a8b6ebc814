"""Linear layers in float32 on a CPU, in the faster of two libraries.

PyTorch's ``F.linear`` calls MKL, which leaves a tenth to a half of an AMD processor idle,
depending on its generation. oneDNN, in the same wheel, does not, and can store the weights
in the order in which it reads them. The result is float32 either way and differs only in
the last bits (about 3e-6 of a state). The processor alone decides, so that every load on a
machine computes the same: oneDNN on AMD, MKL on others, where little is gained.

oneDNN has no suitable public interface (PyTorch 2.13): `torch.utils.mkldnn` copies every
input and output and gains nothing, a 1 x 1 convolution reorders its weights at each call
and gains nothing, `torch.compile` takes tens of seconds to start. The operator that
`torch.compile` uses is therefore called directly, with a fallback: if it is missing or
refuses the shapes, nothing changes.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qwen3nb.utils.hardware import vendor

__all__ = ["PrepackedLinear", "prepack"]

_TOKENS = 512  # rows that weights are reordered for
_FASTER = "AuthenticAMD"  # vendor of the processors on which oneDNN is faster
_UNAVAILABLE = (AttributeError, NotImplementedError, RuntimeError, TypeError)


class PrepackedLinear(nn.Module):
    """A linear layer (T, I) to (T, O) with weights in oneDNN's order; no gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Reorder ``weight`` (O, I); ``bias`` (O,) is kept as it is."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        with torch.inference_mode():
            dense = weight.detach().contiguous()
            self._weight = torch.ops.mkldnn._reorder_linear_weight(dense, _TOKENS)
        self._bias = None if bias is None else bias.detach()

    def forward(self, states: Tensor) -> Tensor:
        """Return states (..., O) of states (..., I)."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self._weight, self._bias, "none", [], ""
        )
        return out


def prepack(model: nn.Module, *, force: bool = False) -> bool:
    """Replace the linear layers of ``model`` on an AMD processor; return whether it was done.

    The weights move into the new layers, so memory does not grow.

    Args:
        model: on a CPU in float32; any other model is left unchanged.
        force: replace on any processor, if the operator exists.
    """
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        return False
    if not layers or not (force or vendor() == _FASTER):
        return False
    if not _usable({(child.in_features, child.out_features) for _, _, child in layers}):
        return False
    for parent, name, child in layers:
        setattr(parent, name, PrepackedLinear(child.weight, child.bias))
    return True


@torch.inference_mode()
def _usable(shapes: Iterable[tuple[int, int]]) -> bool:
    """Return whether the operator exists and agrees with ``F.linear`` on layers (I, O)."""
    for inputs, outputs in shapes:
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        states = torch.randn(_TOKENS, inputs, generator=random)
        weight = torch.randn(outputs, inputs, generator=random) * inputs**-0.5
        try:
            packed = PrepackedLinear(weight, None)(states)
        except _UNAVAILABLE:
            return False
        if not torch.allclose(packed, F.linear(states, weight), atol=1e-4):
            return False
    return True
