"""Linear layers in 8 bits on a CPU with VNNI, about four times as fast as in float32.

A weight is stored as a code from -127 to 127 times a scale per output. A state is coded when it
arrives: as a code times a scale plus the middle of its token's range, which fits states with an
outlier on one side, as behind a GELU or in a channel of BERT, better than a range around zero
does. So there is nothing to calibrate, an outlier costs precision in its own token only, and no
token depends on its neighbours. Sums of products of codes are integers, exact in any order;
everything around them (bias, activation, norms, embeddings) stays in float32, and attention too,
unless the processor multiplies in bfloat16. Layers of BERT have fixed ranges instead
(`qwen3nb.models.inference.int8_layers`).

PyTorch's public products of 8 bits are slower or scale a whole tensor (`torch._int_mm`,
`torch.ao.quantization`); so oneDNN's operator, which `torch.compile` uses, is called directly, as
in `qwen3nb.models.inference.onednn_linear`. It takes unsigned states, hence an offset of 128.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qwen3nb.models.inference.onednn_linear import UNAVAILABLE, Activation, PrepackedLinear
from qwen3nb.models.types import SpecError
from qwen3nb.utils.hardware import processor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LARGEST = 127  # of a code
OFFSET = 128  # of a state's code
_TINY = 1e-30  # a token of zeros has a scale, too


class Output(NamedTuple):
    """What oneDNN makes of the result of a product."""

    step: float  # of its codes
    zero: int  # the code of zero
    dtype: torch.dtype  # uint8 for codes
    activation: str
    options: list[float]  # of the activation
    algorithm: str


OUTPUT_OF_STATES = Output(1.0, 0, torch.float32, "none", [], "")


class Codes(NamedTuple):
    """States in 8 bits: ``(codes - 128) * scales + middles``."""

    codes: Tensor  # (..., I), uint8
    scales: Tensor  # (..., 1), float32
    middles: Tensor  # (..., 1), float32

    @property
    def shape(self) -> torch.Size:
        """The shape of the states."""
        return self.codes.shape


def to_codes(states: Tensor) -> Codes:
    """Return ``states`` (..., I) in 8 bits, each token in its own range."""
    lowest = states.amin(-1, keepdim=True)
    highest = states.amax(-1, keepdim=True)
    middles = (lowest + highest).div_(2)
    half_ranges = (highest - lowest).div_(2).clamp_min_(_TINY)
    signed_codes = (states - middles).mul_(LARGEST / half_ranges).round_().to(torch.int8)
    unsigned_codes = signed_codes.view(torch.uint8).add_(OFFSET)  # -127 becomes 1
    return Codes(unsigned_codes, half_ranges.div_(LARGEST), middles)


class Int8Linear(PrepackedLinear):
    """A linear layer (T, I) to (T, O) with weights in 8 bits, in oneDNN's order; no gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Round ``weight`` (O, I); ``bias`` (O,) stays in float32."""
        nn.Module.__init__(self)  # not PrepackedLinear's, which keeps the weight in float32
        self.activation: Activation = "none"
        self.out_features, self.in_features = weight.shape
        with torch.inference_mode():
            # One range per output: its largest weight becomes the code 127.
            largest = weight.abs().amax(1, keepdim=True).clamp_min_(_TINY)  # (O, 1)
            codes = (weight * (LARGEST / largest)).round_().to(torch.int8)
            self._weight = torch.ops.onednn.qlinear_prepack(codes, None)
            self._scales = largest.div_(LARGEST).flatten()
            self._zero_points = torch.zeros(len(codes), dtype=torch.int32)  # the code 0 means 0
            self._weight_sums = codes.sum(1).mul(self._scales)  # the result of a state of ones
            if bias is None:
                bias = torch.zeros_like(self._weight_sums)
            self._added = bias.detach()

    def forward(self, states: Tensor | Codes, *, times: Tensor | None = None) -> Tensor:
        """Return states (..., O) of states (..., I), in 8 bits or not.

        ``times`` (..., O) is multiplied with the result, in place of an activation.
        """
        if not isinstance(states, Codes):
            states = to_codes(states)
        product = torch.ops.onednn.qlinear_pointwise(
            *(states.codes, 1.0, OFFSET),  # a step of 1: each token's own scale follows below
            *(self._weight, self._scales, self._zero_points),
            None,  # the bias, which is added below
            *OUTPUT_OF_STATES,
        )
        # states @ weight = scales * product + middles * (ones @ weight), plus the bias
        out = torch.addcmul(self._added, states.middles, self._weight_sums)
        out.addcmul_(product, states.scales)
        if times is not None:
            return out.mul_(times)
        if self.activation == "silu":
            return F.silu(out, inplace=True)
        if self.activation != "none":
            approximation = "tanh" if self.activation == "gelu_tanh" else "none"
            torch.ops.aten.gelu_(out, approximate=approximation)
        return out


def quantize(model: PreTrainedModel) -> None:
    """Replace the linear layers of ``model``, which is in float32.

    Raises:
        SpecError: this machine cannot run them.
    """
    if model.device.type != "cpu" or not runs_in_int8():
        raise SpecError(no_int8(model))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Int8Linear(child.weight, child.bias))


def no_int8(model: PreTrainedModel) -> str:
    """Return why ``model``, which does not run in 8 bits, does not."""
    if model.device.type != "cpu":
        return f"int8 is for CPUs, not {model.device}: choose device 'cpu', or bfloat16 there"
    if not runs_in_int8():
        return (
            "int8 needs a CPU with VNNI, and oneDNN's products in 8 bits; not found here "
            f"({processor()}, PyTorch {torch.__version__}): choose float32 or bfloat16"
        )
    return (
        f"int8 is for models that run packed (BERT, RoBERTa, Llama, Qwen2 and Qwen3, without "
        f"sliding windows), not {type(model).__name__}: choose float32 or bfloat16"
    )


def attention_dtype() -> torch.dtype | None:
    """Return bfloat16 if this processor multiplies in it, else None for float32.

    Its rounding is a tenth of that of the linear layers.
    """
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else None


def share_codes(layer: nn.Module) -> None:
    """Let the linear layers that ``layer`` calls on its input round it once, not each."""
    if any(isinstance(child, Int8Linear) for child in layer.children()):
        layer.register_forward_pre_hook(_encode_input)


def _encode_input(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (to_codes(args[0]), *args[1:])


@cache
@torch.inference_mode()
def runs_in_int8() -> bool:
    """Return whether the processor has VNNI, and the operator exists and is exact."""
    if not torch.cpu._is_vnni_supported():  # instructions for products in 8 bits
        return False
    random = torch.Generator().manual_seed(0)  # does not touch the global generator
    # 32 tokens with 64 inputs each, and 48 outputs.
    states = torch.randint(-LARGEST, LARGEST + 1, (32, 64), generator=random).float()
    weight = torch.randint(-LARGEST, LARGEST + 1, (48, 64), generator=random).float()
    # Whole numbers that span the range of codes are their own codes, so the result is exact.
    states[:, 0] = LARGEST
    states[:, 1] = -LARGEST
    weight[:, 0] = LARGEST
    try:
        result = Int8Linear(weight, None)(states)
    except UNAVAILABLE:
        return False
    return torch.equal(result, states @ weight.T)
