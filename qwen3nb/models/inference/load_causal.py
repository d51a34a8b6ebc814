"""Load a causal language model with its output matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from qwen3nb.checkpoints.checkpoint import open_checkpoint
from qwen3nb.models.gate.finite_weights import check_finite, own_weights
from qwen3nb.models.gate.refusal import refusing
from qwen3nb.models.inference.prefix_cache import check_causal
from qwen3nb.models.sources.lora import load_merged
from qwen3nb.models.sources.source import Source


def load_causal(source: Source, dtype: torch.dtype) -> Any:
    """Load a causal language model with its output matrix, and its adapter merged in.

    Raises:
        SpecError: not a causal language model, or weights that are not finite.
    """
    folder = (source.base or source).folder
    assert folder is not None  # noqa: S101 - causal models have one
    if source.kind != "adapter":
        return _causal_model(folder, dtype)
    return load_merged(source, _causal_model(folder, torch.float32)).to(dtype)


def _causal_model(folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    check_causal(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    opened = open_checkpoint(folder)
    safe = opened.files[0].suffix == ".safetensors"
    with refusing(folder, "cannot be loaded"):
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=safe, trust_remote_code=False
        )
    own_weights(model)
    check_finite(model, folder)
    return model
