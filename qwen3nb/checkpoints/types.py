"""Shared types: the errors, and the position of a tensor in its file."""

import math
from dataclasses import dataclass
from pathlib import Path

FLOATS = {"F32": 4, "BF16": 2, "F16": 2}  # dtypes that weights may have, and their sizes in bytes
# Dtypes that have a mean; tensors of others are counters or indexes.
BYTES_PER_VALUE = {"F64": 8, **FLOATS}
# How models are merged; see `qwen3nb.checkpoints.merging`.
MERGE_METHODS = ("mean", "slerp", "ties", "dare")


class SpecError(ValueError):
    """A spec that names no usable model; the message lists what is available."""


class CheckpointError(SpecError):
    """An unusable folder of a model; the message says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class TensorEntry:
    """The position of a tensor in a file."""

    file: Path  # the weight file
    stored_name: str  # the name in the file, including any wrapper prefixes
    dtype: str  # the dtype in the notation of safetensors, such as ``F32`` or ``BF16``
    shape: tuple[int, ...]  # the shape
    start: int  # offset of the first byte in the file
    stop: int  # offset after the last byte

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.stop - self.start

    def check_float(self) -> None:
        """Refuse a dtype that is not in `FLOATS`."""
        if self.dtype not in FLOATS:
            raise self.error(f"has dtype {self.dtype}; expected one of {', '.join(FLOATS)}")

    def error(self, problem: str) -> CheckpointError:
        """Return the error for a ``problem`` of this tensor."""
        return CheckpointError(f"{self.file}: {self.stored_name} {problem}")

    def not_finite(self) -> CheckpointError:
        """Return the error for NaN or infinity."""
        return self.error(
            "contains NaN or infinity; the training diverged; use an earlier checkpoint"
        )

    def truncated(self) -> CheckpointError:
        """Return the error for a file that became shorter after it was opened."""
        return CheckpointError(
            f"{self.file}: shorter than when it was opened; it changed while it was being read"
        )
