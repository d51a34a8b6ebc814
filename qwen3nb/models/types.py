"""Vectors and errors that every kind of model shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.types import CheckpointError

Vectors = NDArray[np.float32]


class EncoderError(ValueError):
    """A text that cannot be encoded, or a vector that must not be used."""


class SpecError(ValueError):
    """A spec that names no usable model; the message lists what is available."""


class ModelFolderError(SpecError, CheckpointError):
    """A folder that is no usable model; names file and key or tensor, and says what to do."""
