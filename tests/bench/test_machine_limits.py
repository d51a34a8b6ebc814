"""Operations are counted as by hand; the peak is that of the products."""

import pytest
import torch
from helpers.tiny_models import PACKED
from torch import nn

from qwen3nb.bench.machine_limits import (
    MatrixPeak,
    encoder_work,
    product_shapes,
)

LENGTHS = [7, 7, 3, 1]  # 18 tokens


def tiny(name, **changes):
    kind, config, shape = PACKED[name]
    return kind(config(**{**shape, **changes})).eval()


@pytest.mark.parametrize(
    ("name", "weights", "width", "pairs"),
    [  # two layers, 32 wide, 48 inside; of Qwen3, 4 heads of 16, 2 of them for keys
        ("bert", 4 * 32 * 32 + 2 * 32 * 48, 32, 49 + 49 + 9 + 1),
        ("qwen3 causal", 32 * 64 + 2 * 32 * 32 + 64 * 32 + 3 * 32 * 48, 64, 28 + 28 + 6 + 1),
    ],
)
def test_the_work_by_hand(name, weights, width, pairs):
    linear, attention = 2 * 18 * 2 * weights, 4 * width * 2 * pairs
    assert encoder_work(tiny(name), LENGTHS) == pytest.approx((linear + attention) / 1e9)


def test_shapes_are_those_that_the_layers_see():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    shapes = product_shapes(model, lambda: [model(torch.ones(2, 3, 4)), model(torch.ones(5, 4))])
    assert shapes == {(6, 4, 8): 1, (6, 8, 2): 1, (5, 4, 8): 1, (5, 8, 2): 1}
    model(torch.ones(1, 4))  # the hooks are gone
    assert sum(shapes.values()) == 4


def test_the_peak_weighs_products_by_their_work(monkeypatch):
    peak = MatrixPeak({(10, 4, 8): 3, (12, 4, 8): 1, (5, 8, 2): 2}, dtype="float16")
    times = {(10, 4, 8): iter([3.0, 2.0, *[9.0] * 9]), (5, 8, 2): iter([1.0] * 12)}

    def seconds(layer, states):
        (linear,) = layer
        return next(times[len(states), linear.in_features, linear.out_features])

    monkeypatch.setattr(peak, "_seconds", seconds)
    peak.sample()
    peak.sample()
    # The 42 rows of the first layer at 10 rows in 2 s, the 10 of the second at 5 rows in 1 s.
    flop = 2 * (42 * 32 + 10 * 16)
    assert peak.gflops == pytest.approx(flop / (42 / 10 * 2 + 10 / 5) / 1e9)
    assert peak.share(flop / 1e9, 2 * (42 / 10 * 2 + 10 / 5)) == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_peak_is_measured_in_the_precision_of_the_model(dtype):
    before = torch.random.get_rng_state()
    peak = MatrixPeak({(16, 64, 64): 1}, dtype=dtype)
    peak.sample()
    assert peak.gflops > 0
    _, _, states, layers = peak._products[0]
    assert str(states.dtype) == f"torch.{dtype}"
    results = [layer(states).float() for layer in layers]
    assert all(torch.allclose(each, results[0], atol=1e-4) for each in results)
    assert torch.equal(torch.random.get_rng_state(), before)
