"""The matrix peak: the limit of a machine for encoding and exact search.

It is the rate at which the same matrix products run alone, in the same shapes and precision, with
the same threads, measured in turn with what it is compared to, so that other work on the machine
slows both. The share of the peak counts the work that the result needs, so padding lowers it.

Shapes of a product: (rows, inputs, outputs), 2 · rows · inputs · outputs operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qwen3nb.bench.harness import timed
from qwen3nb.models.inference.onednn_linear import prepack
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.types import torch_dtype

Shape = tuple[int, int, int]
_REPEATS = 3  # of each product per sample; the best counts


def encoder_work(model: Any, lengths: Sequence[int]) -> float:
    """Return the 10⁹ operations of matrix products in one forward pass per text, without padding.

    A linear layer takes 2 · tokens · inputs · outputs (Kaplan et al. 2020, table 1); attention
    takes 4 · heads · head size for each pair of a token and one that it attends to, 2 for the
    scores and 2 for the weighted sum (as `torch.utils.flop_counter` counts them).
    """
    from qwen3nb.models.inference.packing import packing_of

    config, packing = model.config.get_text_config(), packing_of(model)
    causal = packing is not None and packing.causal  # a token attends to earlier ones only
    pairs = sum(each * (each + 1) // 2 if causal else each**2 for each in lengths)
    weights = sum(each.in_features * each.out_features for each in _linear_layers(model))
    heads = int(config.num_attention_heads)
    width = heads * int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    attention = 4 * pairs * width * int(config.num_hidden_layers)
    return (2 * sum(lengths) * weights + attention) / 1e9


def _linear_layers(module: Any) -> list[Any]:
    """Linear layers that see every token: all but the pooler's."""
    every = (each for name, each in module.named_modules() if not name.startswith("pooler"))
    return [each for each in every if hasattr(each, "in_features")]


def product_shapes(model: Any, call: Callable[[], object]) -> Counter[Shape]:
    """Run ``call`` and count the shapes of the products in ``model``'s linear layers."""
    shapes: Counter[Shape] = Counter()

    def note(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0].numel() // layer.in_features
        shapes[rows, layer.in_features, layer.out_features] += 1

    hooks = [layer.register_forward_pre_hook(note) for layer in _linear_layers(model)]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


class MatrixPeak:
    """Measures the rate of matrix products alone, in the faster of PyTorch's libraries."""

    def __init__(
        self, shapes: Mapping[Shape, int], *, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        """Prepare the products of the ``shapes``, by how often each occurs.

        Of the shapes of one layer, the one with the median row is measured.
        """
        self._device, kind = torch.device(device), torch_dtype(dtype)
        self._products: list[tuple[Shape, int, Tensor, list[nn.Module]]] = []
        layers: dict[tuple[int, int], Counter[int]] = {}
        for (size, inputs, outputs), count in shapes.items():
            layers.setdefault((inputs, outputs), Counter())[size] += count
        for (inputs, outputs), counts in layers.items():
            sizes = sorted(counts)
            rows = np.cumsum([size * counts[size] for size in sizes])
            shape = (sizes[int(np.searchsorted(rows, rows[-1] / 2))], inputs, outputs)
            flop = 2 * int(rows[-1]) * inputs * outputs
            self._products.append((shape, flop, *self._layers(shape, kind)))
        self._best = {shape: float("inf") for shape, *_ in self._products}

    def _layers(self, shape: Shape, dtype: torch.dtype) -> tuple[Tensor, list[nn.Module]]:
        """Return an input and a layer per library."""
        rows, inputs, outputs = shape
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        layers: list[nn.Module] = []
        weight = torch.randn(outputs, inputs, generator=random) * inputs**-0.5
        for fast in (False, True):
            linear = nn.Linear(inputs, outputs, bias=False, device="meta")
            linear.weight = nn.Parameter(weight.to(self._device, dtype), requires_grad=False)
            layer = nn.Sequential(linear)
            if not fast or prepack(layer, force=True):
                layers.append(layer)
        states = torch.randn(rows, inputs, generator=random)
        return states.to(self._device, dtype), layers

    @torch.inference_mode()
    def sample(self) -> None:
        """Time each product a few times; the best time of all samples counts."""
        for shape, _, states, layers in self._products:
            for layer in layers:
                times = [self._seconds(layer, states) for _ in range(_REPEATS)]
                self._best[shape] = min(self._best[shape], *times)

    def _seconds(self, layer: nn.Module, states: Tensor) -> float:
        return timed(partial(layer, states), device=self._device)[1].seconds

    @property
    def gflops(self) -> float:
        """10⁹ operations per second, over all products by their part of the work."""
        seconds = 0.0
        for (rows, inputs, outputs), flop, *_ in self._products:
            seconds += flop / (2 * rows * inputs * outputs) * self._best[rows, inputs, outputs]
        return sum(flop for _, flop, *_ in self._products) / seconds / 1e9

    def share(self, gflop: float, seconds: float) -> float:
        """The share of the peak that ``gflop`` in ``seconds`` reach."""
        return gflop / seconds / self.gflops


def encoder_limit(
    runner: Runner, rows: Sequence[Sequence[int]], *, dtype: str
) -> tuple[float, MatrixPeak]:
    """Return the work of encoding rows of tokens, and what measures the peak in their shapes."""
    model = runner.model
    shapes = product_shapes(model, lambda: runner.vectors(rows))
    peak = MatrixPeak(shapes, dtype=dtype, device=str(model.device))
    return encoder_work(model, list(map(len, rows))), peak
