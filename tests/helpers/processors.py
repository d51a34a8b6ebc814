"""Processors unlike the one at hand: what they run is forced by a switch."""

import pytest
import torch


def has_onednn(dtype=torch.float32):
    """Whether linear layers in oneDNN can be forced here, whether or not they are faster."""
    from qwen3nb.models.inference.onednn_linear import _usable

    return _usable([(64, 64)], dtype)


needs_onednn = pytest.mark.skipif(not has_onednn(), reason="PyTorch has no oneDNN here")
