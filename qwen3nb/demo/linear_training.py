"""Linear layers of a training on a CPU, in the library that encoding uses there.

PyTorch's products in float32 call MKL, which leaves half of an AMD processor idle with layers as
narrow as the demo's (`qwen3nb.models.inference.onednn_linear`); they are two thirds of a step. Here
forward and backward go through oneDNN where `linear_library` says so. The gradients are those of
``F.linear`` but for the last bits.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from qwen3nb.models.inference.onednn_linear import linear_library

__all__ = ["faster_linear_layers"]


def faster_linear_layers() -> AbstractContextManager[object]:
    """Within it, ``F.linear`` without a bias runs, and differentiates, in the faster library."""
    return _InOneDNN() if linear_library() == "onednn" else nullcontext()


class _InOneDNN(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function is F.linear and not kwargs and len(args) == 3 and args[2] is None:
            return _Linear.apply(*args[:2])
        return function(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """States (..., I) times weight (O, I) transposed: (..., O)."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _product(states, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        of_states, of_weight = ctx.needs_input_grad
        rows = gradient.flatten(0, -2), states.flatten(0, -2)
        return (
            _product(gradient, weight.T) if of_states else None,
            _product(rows[1].T, rows[0].T).T.contiguous() if of_weight else None,
        )


def _product(states: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")
    return out
