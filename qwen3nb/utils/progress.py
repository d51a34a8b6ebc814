"""Progress bars: widgets in a notebook that is open in JupyterLab, text everywhere else.

On a terminal bars go to standard error. In a kernel this would look like an error, so they are
widgets, unless the notebook is run by a command, which shows the kernel's text on its terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

_TEXT = "QWEN3NB_TEXT_PROGRESS"

if TYPE_CHECKING or os.environ.get(_TEXT):
    from tqdm import tqdm
else:
    from tqdm.auto import tqdm

__all__ = ["text_progress", "tqdm"]


@contextmanager
def text_progress() -> Iterator[None]:
    """Let kernels that start inside the block show their progress as text."""
    before = os.environ.get(_TEXT)
    os.environ[_TEXT] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_TEXT]
        else:
            os.environ[_TEXT] = before
