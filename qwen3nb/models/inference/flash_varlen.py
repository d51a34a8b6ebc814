"""FlashAttention over texts of different lengths in one call, on a GPU in 16 bits.

PyTorch's kernel is preferred, then that of the package flash-attn; without either, a GPU
runs padded batches, and says so.

Shapes: T tokens of all texts, N texts, D head size.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Kernel", "varlen_kernel"]

_MAX_HEAD = 256  # the largest head size of FlashAttention
_logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """A kernel that computes attention within each text."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        limits: Tensor,
        longest: int,
        *,
        scale: float | None,
        causal: bool,
    ) -> Tensor:
        """Return attention (T, heads, D).

        Args:
            query: (T, heads, D).
            key: (T, key heads, D).
            value: (T, key heads, D).
            limits: start of each text and end of the last: (N + 1), int32.
            longest: tokens of the longest text.
            scale: factor of the dot products; None for 1 / sqrt(D).
            causal: whether a token attends to earlier tokens only.
        """


def varlen_kernel(model: Any) -> Kernel | None:
    """Return the kernel for ``model``, or None if device, dtype or head size do not allow one."""
    if model.device.type != "cuda" or model.dtype == torch.float32:
        return None
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head > _MAX_HEAD:
        return None
    kernel = torch_kernel() or flash_kernel()
    if kernel is None:
        _logger.warning(
            "PyTorch %s has no attention over ragged texts that fits, and flash-attn is not "
            "installed: texts are padded, which is slower; install PyTorch 2.13 or newer",
            torch.__version__,
        )
    return kernel


def torch_kernel() -> Kernel | None:
    """Return PyTorch's kernel, if this release has it with the expected arguments."""
    try:
        attention = import_module("torch.nn.attention.varlen").varlen_attn
    except (ImportError, AttributeError):
        return None
    known = set(inspect.signature(attention).parameters)
    if not {"scale", "window_size", "enable_gqa"} <= known:
        return None
    # Keys in one piece: how many pieces there are would otherwise depend on the batch.
    whole = {"num_splits": 1} if "num_splits" in known else {}
    return _kernel(
        attention,
        lambda query, key, scale, causal: {
            "scale": scale,
            "window_size": (-1, 0) if causal else (-1, -1),
            "enable_gqa": query.shape[1] != key.shape[1],
            **whole,
        },
    )


def flash_kernel() -> Kernel | None:
    """Return the kernel of the package flash-attn, if it is installed."""
    try:
        attention = import_module("flash_attn").flash_attn_varlen_func
    except (ImportError, AttributeError):
        return None
    return _kernel(
        attention,
        lambda query, key, scale, causal: {"softmax_scale": scale, "causal": causal},
    )


def _kernel(
    attention: Any, options: Callable[[Tensor, Tensor, float | None, bool], dict[str, Any]]
) -> Kernel:
    """Wrap ``attention`` as a `Kernel`; ``options`` builds its keyword arguments."""

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
            **options(query, key, scale, causal),
        )
        return out

    return attend
