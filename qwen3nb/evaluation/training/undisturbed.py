"""Run something in the middle of a training that continues as if nothing had run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["undisturbed"]


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Compute without gradients, and restore what the block changes besides weights.

    That is the mode of each module (training or evaluation) and the random states of Python,
    NumPy and PyTorch, on the CPU and on the model's own GPU.
    """
    modes = [(module, module.training) for module in model.modules()]
    python, legacy = random.getstate(), np.random.get_state()
    devices = {each.device for each in model.parameters() if each.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices, device_type="cuda"), torch.no_grad():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        for module, training in modes:
            module.training = training
