"""The tolerance of `helpers.tolerances`: wider than rounding, far narrower than a mistake."""

import numpy as np
import pytest
import torch
from helpers.tolerances import assert_close, tolerance


def states(depth, width, dtype, *, scale=1.0, order=None):
    """States after residual layers of random products, whose terms are added in an order."""
    random = torch.Generator().manual_seed(0)
    out = torch.randn(16, width, generator=random, dtype=torch.float64).to(dtype) * scale
    for _ in range(depth):
        weight = torch.randn(width, width, generator=random, dtype=torch.float64) / width**0.5
        terms = torch.arange(width) if order is None else torch.randperm(width)
        inner = out[:, terms] @ weight.to(dtype)[terms]
        out = (out + torch.nn.functional.gelu(inner)).to(dtype)
        out = scale * torch.nn.functional.layer_norm(out, (width,))
    return out


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize(("depth", "width"), [(2, 32), (6, 384), (28, 256)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_rounding_is_within_and_a_wrong_weight_is_not(name, depth, width, scale):
    dtype = getattr(torch, name)
    exact = states(depth, width, torch.float64, scale=scale)
    rounded = states(depth, width, dtype, scale=scale)
    shape = {"depth": depth, "width": width, "dtype": name}
    if name == "float32":  # the weights of the exact ones are not rounded to 16 bits
        assert_close(rounded, exact, **shape)
    assert_close(states(depth, width, dtype, scale=scale, order="other"), rounded, **shape)
    wrong = rounded.clone()
    wrong[3] = rounded[3] * (1 + 2 * tolerance(**shape))
    with pytest.raises(AssertionError, match=r"1 of 16 rows .* first row \[3\]"):
        assert_close(wrong.double(), rounded.double(), **shape)
    assert tolerance(**shape) < (1e-4 if name == "float32" else 0.1)


def test_a_row_of_zeros_and_what_is_no_number():
    assert_close(np.zeros((2, 3)), np.zeros((2, 3)))
    for wrong in (1e-9, np.nan):
        with pytest.raises(AssertionError):
            assert_close(np.full((2, 3), wrong), np.zeros((2, 3)))
