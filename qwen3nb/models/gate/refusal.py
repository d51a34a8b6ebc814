"""Turn what a library raises on a malformed folder into an error that names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.types import ModelFolderError, SpecError

__all__ = ["quiet", "refusing"]

_LONGEST = 300


@contextmanager
def refusing(file: Path, what: str) -> Iterator[None]:
    """Raise `ModelFolderError` for whatever is raised in the block.

    Args:
        file: the file or folder that is at fault.
        what: what could not be done, such as ``the tokenizer cannot be loaded``.

    Raises:
        ModelFolderError: anything was raised; errors of this package stay as they are.
    """
    try:
        yield
    except (SpecError, CheckpointError):
        raise
    except Exception as error:  # libraries raise bare Exceptions, too  # noqa: BLE001
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines)[:_LONGEST]
        raise ModelFolderError(f"{file}: {what} ({type(error).__name__}: {reason})") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers, whose loader reports what is reported here as an error."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
