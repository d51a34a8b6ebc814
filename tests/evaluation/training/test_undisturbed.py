import random

import numpy as np
import torch

from qwen3nb.evaluation.training.evaluator import undisturbed


def draws():
    """What a training would draw next, from every generator."""
    numpy = np.random.rand(3).tolist()
    return random.random(), numpy, torch.rand(3).tolist()


def seed(value):
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def test_random_states_and_modes_are_as_before_whatever_the_block_does():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Sequential(torch.nn.Dropout()))
    model.train()
    model[1].eval()  # a frozen part
    seed(3)
    expected = draws()
    seed(3)
    with undisturbed(model):
        draws()
        seed(0)
        model.eval()
        model[1][0].train()
        assert not torch.is_grad_enabled()
    assert draws() == expected
    assert [each.training for each in model.modules()] == [True, True, False, False]
    assert torch.is_grad_enabled()


def test_they_are_restored_if_the_block_fails():
    model = torch.nn.Dropout()
    seed(3)
    expected = draws()
    seed(3)
    try:
        with undisturbed(model):
            model.eval()
            draws()
            raise RuntimeError("out of memory")
    except RuntimeError:
        assert draws() == expected
    assert model.training
