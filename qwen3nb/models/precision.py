"""The number formats a model can be kept in, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["DTYPES", "check_dtype", "torch_dtype"]

DTYPES = ("float32", "bfloat16", "float16")


def check_dtype(name: str) -> str:
    """``name``, if it is one of `DTYPES`.

    Raises:
        ValueError: it is not; the message lists the choices.
    """
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}; choose one of: {', '.join(DTYPES)}")
    return name


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype called ``name``.

    Raises:
        ValueError: as in `check_dtype`.
    """
    import torch

    dtype: torch.dtype = getattr(torch, check_dtype(name))
    return dtype
