"""Vectors and errors that every kind of model shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def refusing(file: object, what: str) -> Iterator[None]:
    """Translate what a library raises in the block into a `ModelFolderError` in one line.

    It names the ``file`` or folder at fault and ``what`` could not be done, such as ``the
    tokenizer cannot be loaded``. Errors of this package stay as they are.
    """
    try:
        yield
    except (SpecError, CheckpointError):
        raise
    except Exception as error:  # libraries raise bare Exceptions, too  # noqa: BLE001
        reason = " ".join(str(error).split())[:300]
        raise ModelFolderError(f"{file}: {what} ({type(error).__name__}: {reason})") from None
