"""Operations are counted as by hand; the peak is that of the products."""

import pytest
from helpers.tiny_models import PACKED

from qwen3nb.bench.machine_limits import (
    MatrixPeak,
    encoder_work,
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
