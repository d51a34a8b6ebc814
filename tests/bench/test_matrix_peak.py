"""Operations are counted as by hand; the peak is that of the products."""

import pytest
from helpers.tiny_models import PACKED

from qwen3nb.bench.matrix_peak import (
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
