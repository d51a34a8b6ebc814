"""PyTorch as it is where its wheel has no oneDNN; used before anything looks for it."""

import os
from types import SimpleNamespace

import torch


def remove_onednn():
    """Remove oneDNN's operators, and let PyTorch's others use another library."""
    torch.backends.mkldnn.set_flags(False)
    torch.ops.mkldnn = torch.ops.onednn = SimpleNamespace()
    os.environ["QWEN3NB_LINEAR"] = "mkl"  # for the programs that tests start
