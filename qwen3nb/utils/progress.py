"""Progress bars: widgets in a notebook that is open in JupyterLab, text everywhere else.

Text goes to standard error; to a file or a pipe, one line every ten seconds. In a kernel, text on
standard error looks like an error, so bars are widgets, unless the notebook is run by a command,
which shows the kernel's text on its terminal.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

TEXT_PROGRESS = "QWEN3NB_TEXT_PROGRESS"  # in a kernel with bars as text: seconds between updates

if TYPE_CHECKING or os.environ.get(TEXT_PROGRESS):
    from tqdm import tqdm as _tqdm
else:
    from tqdm.auto import tqdm as _tqdm

_SECONDS_ON_SCREEN = 0.1
_SECONDS_IN_LOG = 10.0


class tqdm(_tqdm):  # noqa: N801 - the usual name
    """A bar of tqdm, updated rarely in logs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start a bar; see tqdm."""
        super().__init__(*args, **{"mininterval": seconds_between(), **options})


def seconds_between() -> float:
    """Return the seconds between two updates of a bar: many if the output is a log."""
    seconds = os.environ.get(TEXT_PROGRESS)
    if seconds:
        return float(seconds)
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        return _SECONDS_ON_SCREEN
    return _SECONDS_IN_LOG
