"""Progress bars: widgets in a notebook that is open in JupyterLab, text everywhere else.

On a terminal bars go to standard error, and to a file or a pipe a line every ten seconds. In a
kernel this would look like an error, so they are widgets, unless the notebook is run by a command,
which shows the kernel's text on its terminal.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

TEXT = "QWEN3NB_TEXT_PROGRESS"  # of a kernel whose bars are text: seconds between two updates

if TYPE_CHECKING or os.environ.get(TEXT):
    from tqdm import tqdm as _tqdm
else:
    from tqdm.auto import tqdm as _tqdm

_SHOWN, _KEPT = 0.1, 10.0


class tqdm(_tqdm):  # noqa: N801 - the name that everybody knows
    """A bar of tqdm that fills no log."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start a bar; see tqdm."""
        super().__init__(*args, **{"mininterval": seconds_between(), **options})


def seconds_between() -> float:
    """Return the seconds between two updates of a bar, which are many where nobody looks on."""
    if given := os.environ.get(TEXT):
        return float(given)
    return _SHOWN if sys.stderr.isatty() or "ipykernel" in sys.modules else _KEPT
