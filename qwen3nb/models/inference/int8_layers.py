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
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qwen3nb.models.inference.int8_linear import (
    LARGEST,
    OFFSET,
    Int8Linear,
    attention_dtype,
    runs_in_int8,
)
from qwen3nb.models.inference.onednn_linear import POST, Activation

COMPUTATION = 3  # increase when vectors in 8 bits change: part of their identity
_LAYERS = ("BertLayer", "RobertaLayer", "XLMRobertaLayer")
_SHARE = 0.6  # of a channel's range that its weights absorb
_OUTLIERS = 48  # one in so many inner channels has the wider range
_MARGIN = 1.2  # of ranges behind a GELU
_LEAST = -0.17  # of a GELU
_TOKENS = 256  # of a text of this package
_LN2 = log(2)
_WHOLE = 1.5 * 2.0**23  # near it, numbers in float32 are whole, and their last bytes count
_TINY = 1e-6  # a channel of zeros has a range, too
Rows = Sequence[Sequence[int]]  # of tokens
# What becomes of a result: if codes, the step and zero of these; the dtype; activation, its
# options and algorithm
After = tuple[float, int, torch.dtype, str, list[Any], str]
_STATES: After = (1.0, 0, torch.float32, "none", [], "")
Range = tuple[Tensor, Tensor]  # the least and the largest state of each channel


def calibration_rows(model: Any) -> Rows:
    """Return the tokens, for a sentence-transformers ``model``, of what ranges are measured on."""
    texts = Path(__file__).with_name("int8_texts.txt").read_text(encoding="utf-8").splitlines()
    length = min(_TOKENS, model[0].model.config.max_position_embeddings - 2)
    rows: Rows = model.tokenizer(texts, truncation=True, max_length=length)["input_ids"]
    return rows


def fix_layers(model: Any, rows: Rows, *, activation: Activation | None) -> None:
    """Replace the layers of a BERT in float32 by others in 8 bits, with the ranges in ``rows``.

    Nothing happens without rows, or with another ``activation`` than a GELU.
    """
    if not rows or activation not in ("gelu", "gelu_tanh"):
        return
    layers = []
    for parent in model.modules():
        for name, layer in parent.named_children():
            if type(layer).__name__ in _LAYERS:
                layers.append((parent, name, layer))
    if not layers or not runs_in_int8():
        return
    ranges = _ranges(model, rows)
    for parent, name, layer in layers:
        setattr(parent, name, _Layer(layer, POST[activation], ranges))


@torch.inference_mode()
def _ranges(model: Any, rows: Rows) -> dict[nn.Module, Range]:
    """Return the range of each linear layer's input, the same whatever the number of threads."""
    ranges: dict[nn.Module, Range] = {}

    def widen(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        states = inputs[0].flatten(0, -2)
        low = torch.amin(states, 0)
        high = torch.amax(states, 0)
        if layer in ranges:
            lowest, highest = ranges[layer]
            low = torch.minimum(low, lowest)
            high = torch.maximum(high, highest)
        ranges[layer] = (low, high)

    hooks = []
    for module in model.modules():
        if type(module) is nn.Linear:
            hooks.append(module.register_forward_pre_hook(widen))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for row in rows:
            model(input_ids=torch.tensor([list(row)]))
    finally:
        torch.set_num_threads(threads)
        for hook in hooks:
            hook.remove()
    return ranges


class _Codes(nn.Module):
    """Turns states (T, H) into codes (T, H): ``(states - middles) / steps``, rounded."""

    def __init__(self, linears: Sequence[nn.Linear], low: Tensor, high: Tensor) -> None:
        """Cover states from ``low`` to ``high``, each (H,)."""
        super().__init__()
        stacked = torch.cat([linear.weight for linear in linears])
        weights = stacked.abs().amax(0).clamp_min(_TINY)
        reach = ((high - low) / 2).clamp_min(_TINY)
        steps = reach**_SHARE / weights ** (1 - _SHARE)
        self.steps = steps * (reach / steps).max() / LARGEST
        zeros = ((low + high) / 2 / self.steps).round()
        self._middles = zeros * self.steps
        self._factor = 1 / self.steps
        self._shift = _WHOLE + OFFSET - zeros

    def forward(self, states: Tensor) -> Tensor:
        return _rounded(torch.addcmul(self._shift, states, self._factor))

    def absorbed(self, weight: Tensor, bias: Tensor, after: After) -> FixedLinear:
        """Return a linear layer of ``weight`` (O, H) and ``bias`` (O,) for codes."""
        return FixedLinear(weight * self.steps, bias + weight @ self._middles, after=after)


def _rounded(raised: Tensor) -> Tensor:
    """Return the codes that numbers are, plus `_WHOLE`; their memory is overwritten."""
    return raised.clamp_(_WHOLE + 1, _WHOLE + 255).view(torch.int32).to(torch.uint8)


class FixedLinear(Int8Linear):
    """A linear layer of codes (T, I) less ``zero``, whose scale is part of the weight."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, *, zero: int = OFFSET, after: After = _STATES
    ) -> None:
        """Round ``weight`` (O, I); ``after`` is what becomes of a result."""
        super().__init__(weight, bias)
        self._zero = zero
        self._after = after

    def forward(  # type: ignore[override]
        self, codes: Tensor, *, onto: Tensor | None = None
    ) -> Tensor:
        """Return states or codes (T, O); with ``onto`` (T, O), add states to it."""
        operands = (codes, 1.0, self._zero, self._weight, self._scales, self._zeros)
        pointwise = torch.ops.onednn.qlinear_pointwise
        if onto is None:
            out: Tensor = pointwise(*operands, self._added, *self._after)
            return out
        scale, zero, dtype, *activation = self._after
        onto_sum = (scale, zero, dtype, 1.0, 0, "sum", 1.0, *activation)
        pointwise.binary(*operands, onto, self._added, *onto_sum)
        return onto


class _Layer(nn.Module):
    """Attention and a feed-forward layer, each added to its input, which a norm follows."""

    def __init__(
        self, layer: Any, activation: tuple[str, str], ranges: dict[nn.Module, Range]
    ) -> None:
        super().__init__()
        attention = layer.attention.self
        mixing = layer.attention.output
        inner = layer.intermediate.dense
        output = layer.output
        self._size = attention.attention_head_size
        projections = (attention.query, attention.key, attention.value)
        self.codes = _Codes(projections, *ranges[attention.query])
        self.inner = _Codes([inner], *ranges[inner])
        step, middle = _one_range(*ranges[mixing.dense])
        self.projections = self._projections(attention, step, middle)
        weight = mixing.dense.weight
        self.out = FixedLinear(weight * step, mixing.dense.bias + weight.sum(1) * middle)
        self.norms = nn.ModuleList([mixing.LayerNorm, output.LayerNorm])
        self.parts = nn.ModuleList()
        largest = ranges[output.dense][1]
        order = largest.argsort(descending=True, stable=True)
        count = max(16, len(largest) // _OUTLIERS // 16 * 16)
        self._add_part(inner, output.dense, largest, order[:count], activation, output.dense.bias)
        self._add_part(inner, output.dense, largest, order[count:], activation, None)

    def _projections(self, attention: Any, step: float, middle: float) -> nn.ModuleList:
        """Return what gives queries, keys and values from codes.

        Values are in the units of the codes of their mixture, so that these need no scale, and
        queries in powers of 2. A bias of keys would add the same to all scores of a query.
        """
        query, key, value = attention.query, attention.key, attention.value
        scale = attention.scaling / _LN2
        after: After = (1.0, 0, attention_dtype() or torch.float32, *_STATES[3:])
        return nn.ModuleList(
            [
                self.codes.absorbed(query.weight * scale, query.bias * scale, after),
                FixedLinear(key.weight * self.codes.steps, None, after=after),
                self.codes.absorbed(value.weight / step, (value.bias - middle) / step, after),
            ]
        )

    def _add_part(
        self,
        inner: nn.Linear,
        outer: nn.Linear,
        largest: Tensor,
        channels: Tensor,
        activation: tuple[str, str],
        bias: Tensor | None,
    ) -> None:
        """Add the two products of some inner channels, with the range of the largest of them."""
        step = (float(largest[channels].max()) * _MARGIN - _LEAST) / 255
        zero = round(-_LEAST / step)
        after: After = (step, zero, torch.uint8, activation[0], [], activation[1])
        self.parts.append(self.inner.absorbed(inner.weight[channels], inner.bias[channels], after))
        weight = outer.weight[:, channels] * step
        self.parts.append(FixedLinear(weight, bias, zero=zero))

    def forward(self, states: Tensor, *_: Any, packing: Any, **__: Any) -> Tensor:
        """Return states (1, T, H) of states (1, T, H)."""
        total = states[0]
        codes = self.codes(total)
        heads = []
        for projection in self.projections:
            projected = projection(codes).unflatten(1, (-1, self._size))
            heads.append(projected.transpose(0, 1)[None])
        mixed = packing.attend(*heads, scale=_LN2)
        codes = _rounded(mixed[0].flatten(1).float().add_(_WHOLE + OFFSET))
        total = self.norms[0](self.out(codes, onto=total))
        codes = self.inner(total)
        for first, second in zip(self.parts[::2], self.parts[1::2], strict=True):
            total = second(first(codes), onto=total)
        return self.norms[1](total).unsqueeze(0)


def _one_range(low: Tensor, high: Tensor) -> tuple[float, float]:
    """Return the step and the middle of codes for all channels together."""
    lowest, highest = low.min(), high.max()
    step = float(((highest - lowest) / (2 * LARGEST)).clamp_min(_TINY))
    return step, float((lowest + highest) / 2)
