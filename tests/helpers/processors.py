"""Processors unlike the one at hand: what they run is forced, or taken away, by a switch."""

import os
from types import SimpleNamespace

import pytest
import torch


def remove_onednn():
    """Leave PyTorch as it is where its wheel has no oneDNN: no operators, and other products."""
    torch.backends.mkldnn.set_flags(False)
    torch.ops.mkldnn = torch.ops.onednn = SimpleNamespace()
    os.environ["QWEN3NB_LINEAR"] = "mkl"  # for the programs that tests start


def has_onednn(dtype=torch.float32):
    """Whether linear layers in oneDNN can be forced here, whether or not they are faster."""
    from qwen3nb.models.inference.onednn_linear import _usable

    return _usable([(64, 64)], dtype)


needs_onednn = pytest.mark.skipif(not has_onednn(), reason="PyTorch has no oneDNN here")


def claim(monkeypatch, *, amx=None, vnni=None, capability=None):
    """Let PyTorch say that the processor has matrix units or products in 8 bits, or has none."""
    if amx is not None:
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    if vnni is not None:
        monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)
    if capability is not None:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
