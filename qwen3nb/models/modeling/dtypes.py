"""The dtypes that a model can run in, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called ``name``.

    Raises:
        ValueError: not one of `DTYPES`; lists the choices.
    """
    import torch

    dtype: torch.dtype = getattr(torch, one_of("dtype", name, DTYPES))
    return dtype
