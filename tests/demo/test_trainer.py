"""Linear layers of a training in the faster library."""

import pytest
import torch
from torch.nn import functional as F

from qwen3nb.demo import trainer
from qwen3nb.demo.trainer import faster_linear_layers
from qwen3nb.models.inference.onednn_linear import LINEAR, linear_library


@pytest.fixture
def onednn(monkeypatch):
    monkeypatch.setenv(LINEAR, "onednn")
    try:
        linear_library()
    except ValueError as error:
        pytest.skip(str(error))


def gradients(states, weights):
    """Loss and gradients of two layers, the second with a frozen weight."""
    states = states.clone().requires_grad_()
    first, second = (each.clone() for each in weights)
    first.requires_grad_()
    loss = F.linear(F.silu(F.linear(states, first, None)), second, None).square().mean()
    loss.backward()
    return loss.detach(), states.grad, first.grad, second.grad


@pytest.mark.parametrize("shape", [(7, 48), (3, 5, 48)])
def test_gradients_are_those_of_pytorch(onednn, monkeypatch, shape):
    random = torch.Generator().manual_seed(0)
    states = torch.randn(*shape, generator=random)
    weights = torch.randn(40, 48, generator=random), torch.randn(24, 40, generator=random)
    expected = gradients(states, weights)
    products = []
    product = trainer._product
    monkeypatch.setattr(trainer, "_product", lambda *args: products.append(1) or product(*args))
    with faster_linear_layers():
        ours = gradients(states, weights)
    # Two forward, two by the states, one by the weight that is trained.
    assert len(products) == 5
    for mine, theirs in zip(ours[:3], expected[:3], strict=True):
        # Sums of other order differ by the size of the terms, also where they cancel out.
        assert (mine - theirs).abs().max() <= 2e-6 * theirs.abs().max()
    assert ours[3] is None
    assert expected[3] is None
