"""Progress bars: widgets in a notebook that is open in JupyterLab, text everywhere else.

On a terminal bars go to standard error. In a kernel this would look like an error, so they are
widgets, unless the notebook is run by a command, which shows the kernel's text on its terminal.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

TEXT = "QWEN3NB_TEXT_PROGRESS"  # variable of a kernel whose progress is to be text

if TYPE_CHECKING or os.environ.get(TEXT):
    from tqdm import tqdm
else:
    from tqdm.auto import tqdm

__all__ = ["TEXT", "tqdm"]
