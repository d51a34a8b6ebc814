import pytest
import torch

from qwen3nb.models.gate.weights import check_finite
from qwen3nb.models.types import ModelFolderError


def linear(*numbers, dtype=torch.float32):
    layer = torch.nn.Linear(len(numbers), 1, bias=False, dtype=dtype)
    layer.weight.data[0] = torch.tensor(numbers)
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_named(dtype, tmp_path):
    check_finite(linear(1.0, -2.0, dtype=dtype), tmp_path)
    for number in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ModelFolderError, match="weight contains NaN or infinity"):
            check_finite(linear(1.0, number, 2.0, dtype=dtype), tmp_path)


def test_large_weights_are_finite_although_their_sum_is_not(tmp_path):
    check_finite(linear(3e38, 3e38), tmp_path)
    check_finite(linear(6e4, 6e4, dtype=torch.float16), tmp_path)


def test_opposite_infinities_do_not_cancel(tmp_path):
    with pytest.raises(ModelFolderError):
        check_finite(linear(float("inf"), float("-inf")), tmp_path)
