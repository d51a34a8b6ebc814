"""FlashAttention over texts of different lengths in one call, on a GPU in 16 bits.

Without PyTorch's kernel, a GPU runs padded batches, and says so.

Shapes: T tokens of all texts, N texts, D head size.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

# Called with queries (T, heads, D), keys and values (T, key heads, D), the start of each text and
# the end of the last (N + 1, int32), the tokens of the longest text, and by name `scale` (None for
# 1 / sqrt(D)) and `causal`; returns attention (T, heads, D) within each text.
Kernel = Callable[..., Tensor]

_MAX_HEAD = 256  # the largest head size of FlashAttention
_OPTIONS = {"scale", "window_size", "enable_gqa", "num_splits"}
_logger = logging.getLogger(__name__)


def varlen_kernel(model: Any) -> Kernel | None:
    """Return the kernel for ``model``, or None if device, dtype or head size do not allow one."""
    if model.device.type != "cuda" or model.dtype == torch.float32:
        return None
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head > _MAX_HEAD:
        return None
    try:
        attention = import_module("torch.nn.attention.varlen").varlen_attn
        usable = set(inspect.signature(attention).parameters) >= _OPTIONS
    except (ImportError, AttributeError):
        usable = False
    if not usable:
        _logger.warning(
            "PyTorch %s has no attention over ragged texts that fits: texts are padded, which is "
            "slower",
            torch.__version__,
        )
        return None

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        limits: Tensor,
        longest: int,
        *,
        scale: float | None,
        causal: bool,
    ) -> Tensor:
        out: Tensor = attention(
            *(query, key, value, limits, limits, longest, longest),
            scale=scale,
            window_size=(-1, 0) if causal else (-1, -1),
            enable_gqa=query.shape[1] != key.shape[1],
            num_splits=1,  # keys in one piece: else how many depends on the batch
        )
        return out

    return attend
