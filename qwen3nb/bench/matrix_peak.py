"""The limit of an encoder's speed: the rate of its matrix products alone.

The work of encoding is counted in operations of matrix products; the peak is the rate at which
products of the same shapes and precision run on this machine. The share of the peak counts the work
that the result needs, so padding lowers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from qwen3nb.bench.harness import timed
from qwen3nb.models.inference.int8_linear import Codes, Int8Linear, to_codes
from qwen3nb.models.inference.onednn_linear import prepack
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.types import torch_dtype

# Rows, inputs, outputs: 2 · rows · inputs · outputs operations.
Shape: TypeAlias = tuple[int, int, int]
_REPEATS = 3  # of each product per sample; the best counts


def encoder_work(model: Any, lengths: Sequence[int]) -> float:
    """Return the 10⁹ operations of matrix products in one forward pass per text, without padding.

    A linear layer takes 2 · tokens · inputs · outputs (Kaplan et al. 2020, table 1); attention
    takes 4 · heads · head size for each pair of a token and one that it attends to, 2 for the
    scores and 2 for the weighted sum (as `torch.utils.flop_counter` counts them).
    """
    tokens = sum(lengths)
    weights = sum(layer.in_features * layer.out_features for layer in _linear_layers(model))
    linear_flop = 2 * tokens * weights  # a multiplication and an addition per weight
    config = model.config.get_text_config()
    heads = int(config.num_attention_heads)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    width = heads * int(head_size)
    layers = int(config.num_hidden_layers)
    # Per pair of tokens, two products: 2 · width for the scores, 2 · width for the sums.
    attention_flop = 4 * _attended_pairs(model, lengths) * width * layers
    return (linear_flop + attention_flop) / 1e9


def _attended_pairs(model: Any, lengths: Sequence[int]) -> int:
    """Return the pairs of a token and one that it attends to; earlier ones only if causal."""
    from qwen3nb.models.inference.packing import packing_of

    packing = packing_of(model)
    if packing is not None and packing.causal:
        return sum(length * (length + 1) // 2 for length in lengths)
    return sum(length**2 for length in lengths)


def _linear_layers(module: Any) -> list[Any]:
    """Linear layers that see every token: all but the pooler's."""
    layers = []
    for name, layer in module.named_modules():
        if not name.startswith("pooler") and hasattr(layer, "in_features"):
            layers.append(layer)
    return layers


def product_shapes(model: Any, call: Callable[[], object]) -> Counter[Shape]:
    """Run ``call`` and count the shapes of the products in ``model``'s linear layers."""
    shapes: Counter[Shape] = Counter()

    def count_shape(layer: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0].shape[:-1].numel()  # all tokens of all texts
        shapes[rows, layer.in_features, layer.out_features] += 1

    hooks = [layer.register_forward_pre_hook(count_shape) for layer in _linear_layers(model)]
    try:
        call()  # for the hooks, which see its products
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


@dataclass
class _Product:
    """The products of a layer, measured on one shape."""

    shape: Shape
    flop: int  # of all products of the layer
    states: Tensor | Codes
    layers: Sequence[nn.Module]  # one per library
    best_seconds: float = float("inf")

    @property
    def seconds(self) -> float:
        """Seconds of all products of the layer, at the best rate."""
        rows, inputs, outputs = self.shape
        return self.flop / (2 * rows * inputs * outputs) * self.best_seconds


class MatrixPeak:
    """Measures the rate of matrix products alone, in the faster of PyTorch's libraries."""

    def __init__(
        self, shapes: Mapping[Shape, int], *, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        """Prepare the products of the ``shapes``, by how often each occurs.

        Of the shapes of one layer, the one with the median row is measured.
        """
        self._device = torch.device(device)
        self._dtype = dtype
        # How often each layer, by its inputs and outputs, has so many rows.
        rows_of_layers: dict[tuple[int, int], Counter[int]] = {}
        for (rows, inputs, outputs), count in shapes.items():
            counts = rows_of_layers.setdefault((inputs, outputs), Counter())
            counts[rows] += count
        self._products = []
        for (inputs, outputs), counts in rows_of_layers.items():
            # Of all row counts of a layer, only the median is timed.
            shape = (_median_of_rows(counts), inputs, outputs)
            states, layers = self._states_and_layers(shape)
            flop = 2 * _sum_of_rows(counts) * inputs * outputs  # 2: multiply and add
            self._products.append(_Product(shape, flop, states, layers))

    def _states_and_layers(self, shape: Shape) -> tuple[Tensor | Codes, list[nn.Module]]:
        """Return an input and a layer per library; in 8 bits there is one."""
        rows, inputs, outputs = shape
        generator = torch.Generator().manual_seed(0)  # does not touch the global generator
        # Scaled so that outputs have variance 1, as inputs have.
        weight = torch.randn(outputs, inputs, generator=generator) * inputs**-0.5
        states = torch.randn(rows, inputs, generator=generator)
        if self._dtype == "int8":
            return to_codes(states), [Int8Linear(weight, None)]
        dtype = torch_dtype(self._dtype)
        weight = weight.to(self._device, dtype)
        layers = [_linear_layer(weight)]  # in PyTorch's default library
        in_onednn = _linear_layer(weight)
        if prepack(in_onednn, force=True):  # false where oneDNN cannot run it
            layers.append(in_onednn)
        return states.to(self._device, dtype), layers

    @torch.inference_mode()
    def sample(self) -> None:
        """Time each product a few times; the best time of all samples counts."""
        for product in self._products:
            for layer in product.layers:
                call = partial(layer, product.states)
                for _ in range(_REPEATS):
                    _, timing = timed(call, device=self._device)
                    product.best_seconds = min(product.best_seconds, timing.seconds)

    @property
    def gflops(self) -> float:
        """10⁹ operations per second, over all products by their part of the work."""
        flop = sum(product.flop for product in self._products)
        return flop / sum(product.seconds for product in self._products) / 1e9

    def share(self, gflop: float, seconds: float) -> float:
        """The share of the peak that ``gflop`` in ``seconds`` reach."""
        return gflop / seconds / self.gflops


def sample_all(peaks: Iterable[MatrixPeak]) -> None:
    """Sample each peak; after a round of methods, so that the same load is on both."""
    for peak in peaks:
        peak.sample()


def _sum_of_rows(counts: Mapping[int, int]) -> int:
    return sum(rows * count for rows, count in counts.items())


def _median_of_rows(counts: Mapping[int, int]) -> int:
    """Return the number of rows of the product that has the median row of all."""
    sizes = sorted(counts)
    rows_up_to = np.cumsum([size * counts[size] for size in sizes])
    half_of_rows = _sum_of_rows(counts) / 2
    return sizes[int(np.searchsorted(rows_up_to, half_of_rows))]


def _linear_layer(weight: Tensor) -> nn.Module:
    """Return a layer with this weight (outputs, inputs)."""
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return nn.Sequential(linear)


def encoder_limit(
    runner: Runner, rows: Sequence[Sequence[int]], *, dtype: str
) -> tuple[float, MatrixPeak]:
    """Return the work of encoding rows of tokens, and what measures the peak in their shapes."""
    model = runner.model
    shapes = product_shapes(model, lambda: runner.vectors(rows))
    peak = MatrixPeak(shapes, dtype=dtype, device=str(model.device))
    return encoder_work(model, [len(row) for row in rows]), peak
