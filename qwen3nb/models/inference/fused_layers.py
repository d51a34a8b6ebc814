"""Fewer passes over the states of a model on a CPU, between its matrix products.

A linear layer in oneDNN applies the activation that follows it, and multiplies by the gate of a
gated feed-forward layer, while the result is still in a register. The root mean square of a norm
is computed in one pass in place of three; rotary positions take three in place of six, without
copies; a residual is added in place. Results agree with transformers' up to rounding.

Only classes that are named here are replaced: an unknown one may use its parts in another way.

Shapes: N texts, T tokens, H hidden size, I inner size, h heads, D head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from qwen3nb.models.inference.int8_layers import Rows, fix_layers
from qwen3nb.models.inference.int8_linear import quantize, share_codes
from qwen3nb.models.inference.onednn_linear import Activation, PrepackedLinear, prepack

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_INTERMEDIATES = ("BertIntermediate", "RobertaIntermediate", "XLMRobertaIntermediate")
_GATED_LAYERS = ("LlamaMLP", "Qwen2MLP", "Qwen3MLP")
_ATTENTIONS = ("LlamaAttention", "Qwen2Attention", "Qwen3Attention")
_DECODERS = ("LlamaDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
_NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")
_SHARING_AN_INPUT = (  # linear layers on one input
    *("BertSelfAttention", "RobertaSelfAttention", "XLMRobertaSelfAttention"),
    *("_RotaryAttention", "_SwiGLU"),
)
_ACTIVATIONS: dict[str, Activation] = {  # by transformers' names
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def fuse_layers(
    model: PreTrainedModel, *, force: bool = False, int8: bool = False, examples: Rows = ()
) -> bool:
    """Prepack ``model``, then replace layers that have a faster equivalent; ``int8`` in 8 bits.

    If there are ``examples``, layers of BERT have ranges measured on them, not those of each token.
    Returns whether it was prepacked; otherwise nothing is replaced. Arguments and errors are those
    of `qwen3nb.models.inference.onednn_linear.prepack`, and of
    `qwen3nb.models.inference.int8_linear.quantize`.
    """
    activation = _ACTIVATIONS.get(str(model.config.hidden_act))
    if int8:
        fix_layers(model, examples, activation=activation)
        quantize(model)
    elif not prepack(model, force=force):
        return False
    for parent in list(model.modules()):  # a list, as modules are replaced on the way
        _fuse_activation(parent, activation)
        for name, child in list(parent.named_children()):
            faster_layer = _faster_equivalent(child)
            if faster_layer is not None:
                setattr(parent, name, faster_layer)
    # Layers that feed one input to several products, such as queries, keys and values.
    for layer in model.modules():
        if type(layer).__name__ in _SHARING_AN_INPUT:
            share_codes(layer)
    return True


def _fuse_activation(layer: Any, activation: Activation | None) -> None:
    """Let the first half of a feed-forward layer apply its own activation."""
    if type(layer).__name__ not in _INTERMEDIATES or activation is None:
        return
    if isinstance(layer.dense, PrepackedLinear):
        layer.dense.activation = activation
        layer.intermediate_act_fn = nn.Identity()


def _faster_equivalent(layer: Any) -> nn.Module | None:
    """Return a layer that does the same in less time; None if there is none."""
    class_name = type(layer).__name__
    if class_name in _NORMS:
        return _RMSNorm(layer.weight, layer.variance_epsilon)
    if class_name in _DECODERS:
        return _DecoderLayer(layer)
    if class_name in _ATTENTIONS:
        # Sliding windows, and attention of an unknown name, stay with transformers' own layer.
        has_window = getattr(layer, "sliding_window", None) is not None
        is_registered = layer.config._attn_implementation in ALL_ATTENTION_FUNCTIONS
        if is_registered and not has_window:
            return _RotaryAttention(layer)
        return None
    if class_name in _GATED_LAYERS and _ACTIVATIONS.get(str(layer.config.hidden_act)) == "silu":
        linears = (layer.gate_proj, layer.up_proj, layer.down_proj)
        if all(isinstance(linear, PrepackedLinear) for linear in linears):
            return _SwiGLU(*linears)
    return None


class _Successor(nn.Module):
    """Has the parts of ``layer``, also those that are replaced later, and another forward."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.__dict__.update(layer.__dict__)


class _DecoderLayer(_Successor):
    """Attention and a feed-forward layer, each added to what it was computed from."""

    input_layernorm: Any
    self_attn: Any
    post_attention_layernorm: Any
    mlp: Any

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """Return states (N, T, H) of states (N, T, H)."""
        mixed: Tensor = self.self_attn(self.input_layernorm(hidden_states), **kwargs)[0]
        mixed += hidden_states
        out: Tensor = self.mlp(self.post_attention_layernorm(mixed))
        out += mixed
        return out


class _RotaryAttention(_Successor):
    """Attention by transformers' interface, with rotary positions by `rotated`."""

    config: PretrainedConfig
    layer_idx: int
    head_dim: int
    scaling: float
    o_proj: Any

    def forward(
        self,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Return states (N, T, H) of normed states (N, T, H), and weights if there are any."""
        # (N, h, T, D) each; rotary positions turn queries and keys alone.
        query = rotated(heads_of(self, "q", hidden_states), *position_embeddings)
        key = rotated(heads_of(self, "k", hidden_states), *position_embeddings)
        value = heads_of(self, "v", hidden_states)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        out, weights = attend(
            self, query, key, value, attention_mask, scaling=self.scaling, **kwargs
        )
        return self.o_proj(out.flatten(2)), weights


def heads_of(attention: Any, part: str, states: Tensor) -> Tensor:
    """Return the ``part`` ``q``, ``k`` or ``v`` of normed ``states`` (N, T, H), as (N, h, T, D)."""
    projected = getattr(attention, f"{part}_proj")(states)
    heads: Tensor = projected.unflatten(-1, (-1, attention.head_dim))
    norm = getattr(attention, f"{part}_norm", None)
    if norm is not None:
        heads = norm(heads)
    return heads.transpose(1, 2)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries or keys (N, h, T, D), rotated by position (Su et al. 2021).

    The two halves of D share the angles, whose cosines and sines are (N or 1, T, D).
    """
    half = heads.shape[-1] // 2
    cos, sin = cos.unsqueeze(1), sin[..., :half].unsqueeze(1)
    out = heads * cos
    out[..., :half].addcmul_(heads[..., half:], sin, value=-1)
    out[..., half:].addcmul_(heads[..., :half], sin)
    return out


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
