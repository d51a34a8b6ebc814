"""Check the weights of a loaded model, and keep them as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qwen3nb.models.types import ModelFolderError

__all__ = ["check_finite", "own_weights"]


def own_weights(model: Any) -> None:
    """Copy the weights of a torch ``model`` that are parts of a mapped file into memory.

    Written to that file later, other numbers would become weights of this model.
    """
    for weight in (*model.parameters(), *model.buffers()):
        if not weight.untyped_storage().resizable():  # torch does not own its memory
            weight.data = weight.data.clone()


def check_finite(model: Any, folder: Path) -> None:
    """Refuse a loaded torch ``model`` with a weight that is NaN or infinite.

    Each weight is summed, which costs a small part of loading it: a sum that is finite has only
    finite terms. Sums that are not are looked at more closely, because finite weights may be
    too large to be summed.

    Raises:
        ModelFolderError: names the tensor.
    """
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.sum().isfinite():
            continue
        if not weight.isfinite().all():
            raise ModelFolderError(
                f"{folder}: {name} contains NaN or infinity as {str(weight.dtype)[6:]}; expected "
                "finite weights. Use an earlier checkpoint, or float32 if the weights are larger "
                "than float16 can hold"
            )
