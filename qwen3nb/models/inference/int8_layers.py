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
    most = min(_TOKENS, model[0].model.config.max_position_embeddings - 2)
    rows: Rows = model.tokenizer(texts, truncation=True, max_length=most)["input_ids"]
    return rows


def fix_layers(model: Any, rows: Rows, *, activation: Activation | None) -> None:
    """Replace the layers of a BERT in float32 by others in 8 bits, with the ranges in ``rows``.

    Nothing happens without rows, or with another ``activation`` than a GELU.
    """
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer).__name__ in _LAYERS
    ]
    if found and rows and activation in ("gelu", "gelu_tanh") and runs_in_int8():
        ranges = _ranges(model, rows)
        for parent, name, layer in found:
            setattr(parent, name, _Layer(layer, POST[activation], ranges))


@torch.inference_mode()
def _ranges(model: Any, rows: Rows) -> dict[nn.Module, Range]:
    """Return the range of each linear layer's input, the same whatever the number of threads."""
    found: dict[nn.Module, Range] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        low, high = (each(inputs[0].flatten(0, -2), 0) for each in (torch.amin, torch.amax))
        before = found.get(layer, (low, high))
        found[layer] = torch.minimum(low, before[0]), torch.maximum(high, before[1])

    linears = [each for each in model.modules() if type(each) is nn.Linear]
    hooks = [each.register_forward_pre_hook(note) for each in linears]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for row in rows:
            model(input_ids=torch.tensor([list(row)]))
    finally:
        torch.set_num_threads(threads)
        for hook in hooks:
            hook.remove()
    return found


class _Codes(nn.Module):
    """Turns states (T, H) into codes (T, H): ``(states - middles) / steps``, rounded."""

    def __init__(self, linears: Sequence[nn.Linear], low: Tensor, high: Tensor) -> None:
        """Cover states from ``low`` to ``high``, each (H,)."""
        super().__init__()
        weights = torch.cat([each.weight for each in linears]).abs().amax(0).clamp_min(_TINY)
        reach = ((high - low) / 2).clamp_min(_TINY)
        steps = reach**_SHARE / weights ** (1 - _SHARE)
        self.steps = steps * (reach / steps).max() / LARGEST
        zeros = ((low + high) / 2 / self.steps).round()
        self._middles, self._factor = zeros * self.steps, 1 / self.steps
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
        self._zero, self._after = zero, after

    def forward(  # type: ignore[override]
        self, codes: Tensor, *, onto: Tensor | None = None
    ) -> Tensor:
        """Return states or codes (T, O); with ``onto`` (T, O), add states to it."""
        given = codes, 1.0, self._zero, self._weight, self._scales, self._zeros
        if onto is None:
            out: Tensor = torch.ops.onednn.qlinear_pointwise(*given, self._added, *self._after)
            return out
        added = *self._after[:3], 1.0, 0, "sum", 1.0, *self._after[3:]
        torch.ops.onednn.qlinear_pointwise.binary(*given, onto, self._added, *added)
        return onto


class _Layer(nn.Module):
    """Attention and a feed-forward layer, each added to its input, which a norm follows."""

    def __init__(
        self, layer: Any, activation: tuple[str, str], ranges: dict[nn.Module, Range]
    ) -> None:
        super().__init__()
        own, first, second = layer.attention.self, layer.intermediate.dense, layer.output
        query, key, value, mixing = own.query, own.key, own.value, layer.attention.output
        self._size = own.attention_head_size
        self.codes = _Codes((query, key, value), *ranges[query])
        self.inner = _Codes([first], *ranges[first])
        # Values are in the units of the codes of their mixture, so that these need no scale, and
        # queries in powers of 2. A bias of keys would add the same to all scores of a query.
        low, high = ranges[mixing.dense]
        step = float(((high.max() - low.min()) / (2 * LARGEST)).clamp_min(_TINY))
        middle, scale = float((low.min() + high.max()) / 2), own.scaling / _LN2
        after: After = 1.0, 0, attention_dtype() or torch.float32, *_STATES[3:]
        self.projections = nn.ModuleList(
            [
                self.codes.absorbed(query.weight * scale, query.bias * scale, after),
                FixedLinear(key.weight * self.codes.steps, None, after=after),
                self.codes.absorbed(value.weight / step, (value.bias - middle) / step, after),
            ]
        )
        weight, bias = mixing.dense.weight, mixing.dense.bias
        self.out = FixedLinear(weight * step, bias + weight.sum(1) * middle)
        self.norms = nn.ModuleList([mixing.LayerNorm, second.LayerNorm])
        self.parts = nn.ModuleList()
        most = ranges[second.dense][1]
        order = most.argsort(descending=True, stable=True)
        count = max(16, len(most) // _OUTLIERS // 16 * 16)
        for channels, added in ((order[:count], second.dense.bias), (order[count:], None)):
            step = (float(most[channels].max()) * _MARGIN - _LEAST) / 255
            zero = round(-_LEAST / step)
            after = step, zero, torch.uint8, activation[0], [], activation[1]
            weight, bias = first.weight[channels], first.bias[channels]
            self.parts.append(self.inner.absorbed(weight, bias, after))
            weight = second.dense.weight[:, channels] * step
            self.parts.append(FixedLinear(weight, added, zero=zero))

    def forward(self, states: Tensor, *_: Any, packing: Any, **__: Any) -> Tensor:
        """Return states (1, T, H) of states (1, T, H)."""
        total = states[0]
        codes = self.codes(total)
        heads = (each(codes).unflatten(1, (-1, self._size)) for each in self.projections)
        mixed = packing.attend(*(e.transpose(0, 1)[None] for e in heads), scale=_LN2)
        codes = _rounded(mixed[0].flatten(1).float().add_(_WHOLE + OFFSET))
        total = self.norms[0](self.out(codes, onto=total))
        codes = self.inner(total)
        for first, second in zip(self.parts[::2], self.parts[1::2], strict=True):
            total = second(first(codes), onto=total)
        return self.norms[1](total).unsqueeze(0)
