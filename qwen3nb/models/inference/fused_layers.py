"""Fewer passes over the states of a model on a CPU, between its matrix products.

A linear layer in oneDNN applies the activation that follows it, and multiplies by the gate of a
gated feed-forward layer, while the result is still in a register. The root mean square of a norm
is computed in one pass in place of three. Results agree with transformers' up to rounding.

Only classes that are named here are replaced: an unknown one may use its parts in another way.

Shapes: H hidden size, I inner size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qwen3nb.models.inference.onednn_linear import Activation, PrepackedLinear, prepack

__all__ = ["fuse_layers"]

_INTERMEDIATES = ("BertIntermediate", "RobertaIntermediate", "XLMRobertaIntermediate")
_GATED = ("LlamaMLP", "Qwen2MLP", "Qwen3MLP")
_NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")
_ACTIVATIONS: dict[str, Activation] = {  # by transformers' names
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def fuse_layers(model: nn.Module, *, force: bool = False) -> bool:
    """Prepack ``model``, then replace layers that have a faster equivalent.

    Returns whether it was prepacked; otherwise nothing is replaced. Arguments and errors are those
    of `qwen3nb.models.inference.onednn_linear.prepack`.
    """
    if not prepack(model, force=force):
        return False
    for parent in list(model.modules()):
        _fuse_activation(parent, model)
        for name, child in list(parent.named_children()):
            if (fused := _equivalent(child)) is not None:
                setattr(parent, name, fused)
    return True


def _fuse_activation(layer: Any, model: Any) -> None:
    """Let the first half of a feed-forward layer apply its own activation."""
    if type(layer).__name__ not in _INTERMEDIATES:
        return
    activation = _ACTIVATIONS.get(str(model.config.hidden_act))
    if activation is not None and isinstance(layer.dense, PrepackedLinear):
        layer.dense.activation = activation
        layer.intermediate_act_fn = nn.Identity()


def _equivalent(layer: Any) -> nn.Module | None:
    """Return what replaces ``layer``, or None."""
    kind = type(layer).__name__
    if kind in _NORMS:
        return _RMSNorm(layer.weight, layer.variance_epsilon)
    if kind in _GATED and _ACTIVATIONS.get(str(layer.config.hidden_act)) == "silu":
        parts = layer.gate_proj, layer.up_proj, layer.down_proj
        if all(isinstance(each, PrepackedLinear) for each in parts):
            return _SwiGLU(*parts)
    return None


class _SwiGLU(nn.Module):
    """``down(silu(gate(x)) * up(x))`` with nothing between the products (Shazeer 2020)."""

    def __init__(self, gate: PrepackedLinear, up: PrepackedLinear, down: PrepackedLinear) -> None:
        super().__init__()
        gate.activation = "silu"
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, states: Tensor) -> Tensor:
        """Return states (..., H) of states (..., H)."""
        inner = self.up_proj(states, times=self.gate_proj(states))
        out: Tensor = self.down_proj(inner)
        return out


class _RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x²) + epsilon)``, the mean in float32 (Zhang and Sennrich 2019)."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = weight, epsilon

    def forward(self, states: Tensor) -> Tensor:
        """Return states (..., H) of states (..., H)."""
        lengths = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32)
        scale = (lengths * lengths).mul_(1 / states.shape[-1]).add_(self.epsilon).rsqrt_()
        out: Tensor = (states * scale).to(states.dtype).mul_(self.weight)
        return out
