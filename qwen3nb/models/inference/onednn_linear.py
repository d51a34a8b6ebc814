"""Linear layers in float32 on a CPU, in the faster of two libraries.

PyTorch's ``F.linear`` calls MKL, which leaves a tenth to a half of an AMD processor idle,
depending on its generation. oneDNN, in the same wheel, does not, and can store the weights
in the order in which it reads them. The result is float32 either way and differs only in
the last bits (about 3e-6 of a state).

oneDNN has no suitable public interface (PyTorch 2.13): `torch.utils.mkldnn` copies every
input and output and gains nothing, a 1 x 1 convolution reorders its weights at each call
and gains nothing, `torch.compile` takes tens of seconds to start. The operator that
`torch.compile` uses is therefore called directly, with a fallback: if it is missing,
refuses the shapes, or is not faster on this machine, nothing changes.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["PrepackedLinear", "prepack", "speedup"]

_TOKENS = 512  # rows that weights are reordered for and timed with
_REPEATS = 7
_WORTH = 1.05  # a smaller speed-up may be noise, and is not worth a private operator
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
    """Replace the linear layers of ``model`` if that is faster; return whether it was done.

    The weights move into the new layers, so memory does not grow.

    Args:
        model: on a CPU in float32; any other model is left unchanged.
        force: replace without timing, if the operator exists.
    """
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        return False
    shapes = Counter((child.in_features, child.out_features) for _, _, child in layers)
    gain = speedup(shapes)
    if gain is None or (not force and gain < _WORTH):
        return False
    for parent, name, child in layers:
        setattr(parent, name, PrepackedLinear(child.weight, child.bias))
    return True


@torch.inference_mode()
def speedup(shapes: Counter[tuple[int, int]]) -> float | None:
    """Return the speed-up of oneDNN over ``F.linear`` on layers (I, O), weighted by count.

    Compares the shortest of several runs, which other work on the machine disturbs least.
    Returns None without layers or without the operator.
    """
    ours = theirs = 0.0
    for (inputs, outputs), count in shapes.items():
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        states = torch.randn(_TOKENS, inputs, generator=random)
        weight = torch.randn(outputs, inputs, generator=random) * inputs**-0.5
        plain = partial(F.linear, states, weight)
        try:
            packed = partial(PrepackedLinear(weight, None), states)
            same = torch.allclose(packed(), plain(), atol=1e-4)
        except _UNAVAILABLE:
            return None
        if not same:
            return None
        their, our = _shortest(plain, packed)
        theirs += count * their
        ours += count * our
    return theirs / ours if ours else None


def _shortest(*calls: Callable[[], Any]) -> list[float]:
    """Return the shortest time of each call in seconds; the calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(_REPEATS):
        for index, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[index] = min(best[index], time.perf_counter() - started)
    return best
