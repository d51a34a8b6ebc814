"""Linear layers on a CPU, in the faster of two libraries.

PyTorch's ``F.linear`` in float32 calls MKL, which leaves a tenth to a half of an AMD processor
idle, depending on its generation. oneDNN, in the same wheel, does not. It also stores the weights
in the order in which it reads them, and applies an activation, or multiplies by another state,
while a result is still in a register: with 1,024 tokens a layer of 384 to 1,536 with GELU runs
1.8 times as fast on an Intel processor with AMX, where the product alone gains little. The result
is float32 either way and differs only in the last bits (about 3e-6 of a state). The processor
alone decides, so that every load on a machine computes the same: oneDNN with AVX-512 and on AMD,
MKL on others. Where machines of several kinds share a study, the environment variable
``QWEN3NB_LINEAR`` (``auto``, ``onednn`` or ``mkl``) makes the choice for all of them; ``onednn``
on a machine that cannot run it is an error. The choice is in every record, and in no identity.

In bfloat16, ``F.linear`` calls oneDNN too, but reorders the weights at each call; so the stored
order is used unless ``mkl`` is asked for.

oneDNN has no suitable public interface (PyTorch 2.13): `torch.utils.mkldnn` copies every
input and output and gains nothing, a 1 x 1 convolution reorders its weights at each call
and gains nothing, `torch.compile` takes tens of seconds to start. The operator that
`torch.compile` uses is therefore called directly, with a fallback: if it is missing or
refuses the shapes, nothing changes unless oneDNN was asked for by name.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qwen3nb.models.inference.onednn_memory import bound_products
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.hardware import processor, vendor

LINEAR = "QWEN3NB_LINEAR"  # the environment variable

_TOKENS = 512  # rows that weights are reordered for
_FASTER_VENDOR = "AuthenticAMD"  # on its processors, oneDNN is faster whatever they can do
_SMALL = (64, 64)  # inputs and outputs of the layer that shows whether oneDNN runs at all
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of states of size 1
Activation = Literal["none", "gelu", "gelu_tanh", "silu"]


class OneDnnActivation(NamedTuple):
    """oneDNN's name of an activation, and of its algorithm."""

    name: str
    algorithm: str


POST: dict[Activation, OneDnnActivation] = {
    "none": OneDnnActivation("none", ""),
    "gelu": OneDnnActivation("gelu", "none"),
    "gelu_tanh": OneDnnActivation("gelu", "tanh"),
    "silu": OneDnnActivation("swish", ""),
}
UNAVAILABLE = (AttributeError, NotImplementedError, RuntimeError, TypeError)


class PrepackedLinear(nn.Module):
    """A linear layer (T, I) to (T, O) with weights in oneDNN's order; no gradients.

    Attributes:
        activation: what is applied to the result.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Reorder ``weight`` (O, I); ``bias`` (O,) is kept as it is."""
        super().__init__()
        self.activation: Activation = "none"
        self.out_features, self.in_features = weight.shape
        with torch.inference_mode():
            dense = weight.detach().contiguous()
            self._weight = torch.ops.mkldnn._reorder_linear_weight(dense, _TOKENS)
        self._bias = None if bias is None else bias.detach()

    def forward(self, states: Tensor, *, times: Tensor | None = None) -> Tensor:
        """Return states (..., O) of states (..., I).

        ``times`` (..., O) is multiplied with the result, in place of an activation.
        """
        linear = torch.ops.mkldnn._linear_pointwise
        if times is not None:
            product: Tensor = linear.binary(states, times, self._weight, self._bias, "mul")
            return product
        name, algorithm = POST[self.activation]
        out: Tensor = linear(states, self._weight, self._bias, name, [], algorithm)
        return out


def linear_library() -> Literal["onednn", "mkl"]:
    """Return the library of matrix products in float32 on this machine's CPU.

    Raises:
        ValueError: ``QWEN3NB_LINEAR`` is not one of its choices, or names oneDNN and this
            machine cannot run it.
    """
    choice = _choice()
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    onednn_is_faster = has_avx512 or vendor() == _FASTER_VENDOR
    if choice == "mkl" or (choice == "auto" and not onednn_is_faster):
        return "mkl"
    if _usable([_SMALL]):  # a small layer shows whether oneDNN runs here at all
        return "onednn"
    if choice == "onednn":
        raise _cannot_run(_SMALL)
    return "mkl"


def _choice() -> str:
    return check_choice(LINEAR, os.environ.get(LINEAR) or "auto", ("auto", "onednn", "mkl"))


def _cannot_run(*shapes: tuple[int, int]) -> ValueError:
    layers = ", ".join(f"{inputs} x {outputs}" for inputs, outputs in shapes)
    return ValueError(
        f"{LINEAR}=onednn, but PyTorch {torch.__version__} on this machine ({processor()}) has no "
        f"oneDNN for layers of {layers}; set {LINEAR}=mkl, on every machine of the study"
    )


def prepack(model: nn.Module, *, force: bool = False) -> bool:
    """Replace the linear layers of ``model`` if `linear_library` says so; return whether it did.

    The weights move into the new layers, so memory does not grow. A model that is not on a CPU in
    float32 or bfloat16 is left unchanged. With ``force``, `linear_library` is not consulted.

    Raises:
        ValueError: ``QWEN3NB_LINEAR`` names oneDNN, and it cannot run these layers.
    """
    layers = _linear_layers(model)
    dtype = _dtype_on_cpu(model)
    if not layers or dtype not in _TOLERANCES:
        return False
    if not force and not _prefers_onednn(dtype):
        return False
    shapes = {(child.in_features, child.out_features) for _, _, child in layers}
    if not _usable(shapes, dtype):
        if _choice() == "onednn":  # the user insists, so another library is no way out
            raise _cannot_run(*sorted(shapes))
        return False
    for parent, name, child in layers:
        setattr(parent, name, PrepackedLinear(child.weight, child.bias))
    return True


def _linear_layers(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Return each linear layer of ``model``, after its parent and its name there."""
    layers = []
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                layers.append((parent, name, child))
    return layers


def _prefers_onednn(dtype: torch.dtype) -> bool:
    """Return whether linear layers should run in oneDNN, if it can run them."""
    if dtype == torch.float32:
        return linear_library() == "onednn"
    return _choice() != "mkl"


def _dtype_on_cpu(model: nn.Module) -> torch.dtype | None:
    """Return the dtype of all weights; None unless they are on a CPU and of one."""
    dtypes = set()
    for parameter in model.parameters():
        if parameter.device.type != "cpu":
            return None
        dtypes.add(parameter.dtype)
    return dtypes.pop() if len(dtypes) == 1 else None


@torch.inference_mode()
def _usable(shapes: Iterable[tuple[int, int]], dtype: torch.dtype = torch.float32) -> bool:
    """Return whether the operator exists and agrees with ``F.linear`` on layers (I, O)."""
    bound_products()  # before oneDNN prepares the first
    for inputs, outputs in shapes:
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        states = torch.randn(_TOKENS, inputs, generator=random).to(dtype)  # (T, I)
        weight = torch.randn(outputs, inputs, generator=random)
        weight = (weight * inputs**-0.5).to(dtype)  # so that results have size 1
        try:
            result = PrepackedLinear(weight, None)(states)
        except UNAVAILABLE:
            return False
        expected = F.linear(states, weight)
        if not torch.allclose(result, expected, atol=_TOLERANCES[dtype]):
            return False
    return True
