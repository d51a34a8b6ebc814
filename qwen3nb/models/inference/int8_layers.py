"""Layers of BERT in 8 bits, with ranges that are measured once, on texts of this package.

With fixed ranges, a linear layer in oneDNN returns what the next operation needs: queries, keys and
values in the dtype of attention, codes behind a GELU, or the sum with the residual. Between the
products only attention, norms and one rounding of their results are left. The input of a product is
shifted and scaled per channel, which its weights and bias absorb (Xiao et al. 2023, SmoothQuant);
that of attention's output has one range. Behind a GELU a scale per channel is not possible, so the
few channels with the largest states form a product of their own.

The texts are in ``int8_texts.txt``; other texts need not stay in their ranges, but few states leave
them, and those are cut.

Shapes: T tokens, H hidden size, I inner size, h heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from qwen3nb.models.inference.int8_linear import (
    LARGEST,
    OFFSET,
    OUTPUT_OF_STATES,
    Int8Linear,
    Output,
    attention_dtype,
    runs_in_int8,
)
from qwen3nb.models.inference.onednn_linear import POST, Activation, OneDnnActivation

if TYPE_CHECKING:
    from qwen3nb.models.inference.packing import PackedLayout

COMPUTATION = 3  # increase when vectors in 8 bits change: part of their identity
_BERT_LAYERS = ("BertLayer", "RobertaLayer", "XLMRobertaLayer")
_SHARE_OF_WEIGHTS = 0.6  # of a channel's range that its weights absorb
_CHANNELS_PER_OUTLIER = 48  # one in so many inner channels has the wider range
_MARGIN = 1.2  # of ranges behind a GELU
_LEAST_OF_GELU = -0.17  # rounded down
_TOKENS = 256  # of a text of this package
_LN2 = log(2)
_ROUNDING_SHIFT = 1.5 * 2.0**23  # near it, numbers in float32 are whole, and their last bytes count
_TINY = 1e-6  # a channel of zeros has a range, too
Rows = Sequence[Sequence[int]]  # of tokens


class Range(NamedTuple):
    """The least and the largest state of each channel, (H,) each."""

    lowest: Tensor
    highest: Tensor


def calibration_rows(model: Any) -> Rows:
    """Return the tokens, for a sentence-transformers ``model``, of what ranges are measured on."""
    texts = Path(__file__).with_name("int8_texts.txt").read_text(encoding="utf-8").splitlines()
    length = min(_TOKENS, model[0].model.config.max_position_embeddings - 2)
    rows: Rows = model.tokenizer(texts, truncation=True, max_length=length)["input_ids"]
    return rows


def fix_layers(model: nn.Module, rows: Rows, *, activation: Activation | None) -> None:
    """Replace the layers of a BERT in float32 by others in 8 bits, with the ranges in ``rows``.

    Nothing happens without rows, or with another ``activation`` than a GELU.
    """
    if not rows or activation not in ("gelu", "gelu_tanh"):
        return
    bert_layers = []
    for parent in model.modules():
        for name, layer in parent.named_children():
            if type(layer).__name__ in _BERT_LAYERS:
                bert_layers.append((parent, name, layer))
    if not bert_layers or not runs_in_int8():
        return
    ranges = _input_ranges(model, rows)
    for parent, name, layer in bert_layers:
        setattr(parent, name, _Int8Layer(layer, POST[activation], ranges))


@torch.inference_mode()
def _input_ranges(model: nn.Module, rows: Rows) -> dict[nn.Module, Range]:
    """Return the range of each linear layer's input, the same whatever the number of threads."""
    ranges: dict[nn.Module, Range] = {}

    def widen_range(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        states = inputs[0].flatten(0, -2)  # of all tokens, (T, H)
        lowest = torch.amin(states, 0)  # of each channel, (H,)
        highest = torch.amax(states, 0)
        if layer in ranges:
            lowest = torch.minimum(lowest, ranges[layer].lowest)
            highest = torch.maximum(highest, ranges[layer].highest)
        ranges[layer] = Range(lowest, highest)

    hooks = []
    for module in model.modules():
        if type(module) is nn.Linear:
            hooks.append(module.register_forward_pre_hook(widen_range))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more would add in another order, and shift the ranges a little
    try:
        for row in rows:
            model(input_ids=torch.tensor([list(row)]))
    finally:
        torch.set_num_threads(threads)
        for hook in hooks:
            hook.remove()
    return ranges


class _Coder(nn.Module):
    """Turns states (T, H) into codes (T, H): ``(states - middles) / steps``, rounded.

    Attributes:
        steps: how far apart the states of neighbouring codes are, per channel (H,).
    """

    def __init__(self, linears: Sequence[nn.Linear], states: Range) -> None:
        """Cover ``states``, the input of all ``linears``."""
        super().__init__()
        weights = torch.cat([linear.weight for linear in linears])  # (outputs of all, H)
        largest_weights = weights.abs().amax(0).clamp_min(_TINY)  # of each channel, (H,)
        half_ranges = ((states.highest - states.lowest) / 2).clamp_min(_TINY)
        # SmoothQuant: a channel's range is shared out between its states and its weights.
        relative_steps = half_ranges**_SHARE_OF_WEIGHTS / largest_weights ** (1 - _SHARE_OF_WEIGHTS)
        # The channel that needs most steps gets 127 on either side of its middle.
        most_steps = (half_ranges / relative_steps).max()
        self.steps = relative_steps * most_steps / LARGEST
        middles = (states.lowest + states.highest) / 2
        whole_middles = (middles / self.steps).round()
        self._middles = whole_middles * self.steps
        # A code is state * factor + shift: `_ROUNDING_SHIFT` is so large that float32 rounds
        # the sum to a whole number, whose last byte is the code.
        self._factor = 1 / self.steps
        self._shift = _ROUNDING_SHIFT + OFFSET - whole_middles

    def forward(self, states: Tensor) -> Tensor:
        return _rounded(torch.addcmul(self._shift, states, self._factor))

    def linear(self, weight: Tensor, bias: Tensor, output: Output) -> FixedLinear:
        """Return a layer that takes codes, and gives what ``weight`` (O, H) gives of states.

        Steps and middles of the codes become part of the weight and of ``bias`` (O,).
        """
        return FixedLinear(weight * self.steps, bias + weight @ self._middles, output=output)


def _rounded(raised: Tensor) -> Tensor:
    """Return the codes that numbers are, plus `_ROUNDING_SHIFT`; their memory is overwritten."""
    return (
        raised.clamp_(_ROUNDING_SHIFT + 1, _ROUNDING_SHIFT + 255).view(torch.int32).to(torch.uint8)
    )


class FixedLinear(Int8Linear):
    """A linear layer of codes (T, I) less ``zero``, whose scale is part of the weight."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        zero: int = OFFSET,
        output: Output = OUTPUT_OF_STATES,
    ) -> None:
        """Round ``weight`` (O, I); ``output`` is what becomes of a result."""
        super().__init__(weight, bias)
        self._zero = zero
        self._output = output

    def forward(  # type: ignore[override]
        self, codes: Tensor, *, add_to: Tensor | None = None
    ) -> Tensor:
        """Return states or codes (T, O); with ``add_to`` (T, O), add states to it."""
        states = (codes, 1.0, self._zero)  # a step of 1: the weight contains the true one
        weights = (self._weight, self._scales, self._zero_points)
        multiply = torch.ops.onednn.qlinear_pointwise
        if add_to is None:
            result: Tensor = multiply(*states, *weights, self._added, *self._output)
            return result
        output = self._output
        multiply.binary(
            *states,
            *weights,
            add_to,
            self._added,
            *(output.step, output.zero, output.dtype),
            *(1.0, 0, "sum", 1.0),  # step and zero of what is added to, and its share
            *(output.activation, output.options, output.algorithm),
        )
        return add_to


class _Int8Layer(nn.Module):
    """Attention and a feed-forward layer, each added to its input, which a norm follows."""

    def __init__(
        self, layer: Any, activation: OneDnnActivation, ranges: dict[nn.Module, Range]
    ) -> None:
        super().__init__()
        attention = layer.attention.self
        mixing = layer.attention.output
        inner = layer.intermediate.dense
        outer = layer.output.dense
        self._head_size = attention.attention_head_size
        self.attention_coder = _Coder(
            (attention.query, attention.key, attention.value), ranges[attention.query]
        )
        # A state is step * code + middle; the weight takes the step, and the bias the middle.
        step, middle = _step_and_middle(ranges[mixing.dense])
        self.projections = self._projections(attention, step, middle)
        mixing_weight = mixing.dense.weight
        mixing_bias = mixing.dense.bias + mixing_weight.sum(1) * middle
        self.mixing = FixedLinear(mixing_weight * step, mixing_bias)
        self.attention_norm = mixing.LayerNorm
        self.inner_coder = _Coder([inner], ranges[inner])
        self.inner_parts = nn.ModuleList()
        self.outer_parts = nn.ModuleList()
        self._add_feed_forward(inner, outer, ranges[outer].highest, activation)
        self.output_norm = layer.output.LayerNorm

    def _add_feed_forward(
        self, inner: nn.Linear, outer: nn.Linear, highest: Tensor, activation: OneDnnActivation
    ) -> None:
        """Add products for the inner channels with the highest states, and for the others."""
        widest_first = highest.argsort(descending=True, stable=True)
        count = len(highest) // _CHANNELS_PER_OUTLIER
        count = max(16, count // 16 * 16)  # what oneDNN multiplies at once
        outliers, other_channels = widest_first[:count], widest_first[count:]
        add_part = partial(self._add_part, inner, outer, highest=highest, activation=activation)
        add_part(outliers, bias=outer.bias)
        add_part(other_channels, bias=None)

    def _projections(self, attention: Any, step: float, middle: float) -> nn.ModuleList:
        """Return what gives queries, keys and values from codes.

        Values are in the units of the codes of their mixture, so that these need no scale, and
        queries in powers of 2. A bias of keys would add the same to all scores of a query.
        """
        query, key, value = attention.query, attention.key, attention.value
        coder = self.attention_coder
        output = OUTPUT_OF_STATES._replace(dtype=attention_dtype() or torch.float32)
        # Scores are exponents of 2: e ** score is 2 ** (score / ln 2).
        scale = attention.scaling / _LN2
        queries = coder.linear(query.weight * scale, query.bias * scale, output)
        # A bias of keys would add the same to all scores of a query: softmax ignores that.
        keys = FixedLinear(key.weight * coder.steps, None, output=output)
        # Values are in the units of the codes of their mixture.
        values = coder.linear(value.weight / step, (value.bias - middle) / step, output)
        return nn.ModuleList([queries, keys, values])

    def _add_part(
        self,
        inner: nn.Linear,
        outer: nn.Linear,
        channels: Tensor,
        *,
        highest: Tensor,
        activation: OneDnnActivation,
        bias: Tensor | None,
    ) -> None:
        """Add the two products of some inner channels, with the range of the highest of them."""
        # The codes 0 to 255 run from a GELU's least value to above the highest one measured.
        end_of_range = float(highest[channels].max()) * _MARGIN
        step = (end_of_range - _LEAST_OF_GELU) / 255
        zero = round(-_LEAST_OF_GELU / step)
        output = Output(step, zero, torch.uint8, activation.name, [], activation.algorithm)
        inner_part = self.inner_coder.linear(inner.weight[channels], inner.bias[channels], output)
        self.inner_parts.append(inner_part)
        # The second product takes these codes, so their step goes into its weight.
        outer_weight = outer.weight[:, channels] * step
        self.outer_parts.append(FixedLinear(outer_weight, bias, zero=zero))

    def forward(self, states: Tensor, *_: object, packing: PackedLayout, **__: object) -> Tensor:
        """Return states (1, T, H) of states (1, T, H)."""
        residual = states[0]  # (T, H)
        codes = self.attention_coder(residual)
        heads = []
        for projection in self.projections:
            projected = projection(codes).unflatten(1, (-1, self._head_size))  # (T, h, D)
            heads.append(projected.transpose(0, 1)[None])  # (1, h, T, D)
        query, key, value = heads
        # The weights of queries were divided by ln 2, those of values by the step of the codes.
        attended = packing.attend(query, key, value, scale=_LN2)[0].flatten(1)
        # So they are numbers of steps, and become codes by rounding.
        attended_codes = _rounded(attended.float().add_(_ROUNDING_SHIFT + OFFSET))
        residual = self.attention_norm(self.mixing(attended_codes, add_to=residual))
        codes = self.inner_coder(residual)
        for inner, outer in zip(self.inner_parts, self.outer_parts, strict=True):
            residual = outer(inner(codes), add_to=residual)
        return self.output_norm(residual).unsqueeze(0)


def _step_and_middle(states: Range) -> tuple[float, float]:
    """Return the step and the middle of codes for all channels together."""
    lowest, highest = states.lowest.min(), states.highest.max()
    step = float(((highest - lowest) / (2 * LARGEST)).clamp_min(_TINY))
    middle = float((lowest + highest) / 2)
    return step, middle
