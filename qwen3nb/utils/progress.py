"""Progress bars: widgets in a notebook that is open in JupyterLab, text everywhere else.

Text goes to standard error; to a file or a pipe, one short line every ten seconds. In a kernel,
text on standard error looks like an error, so bars are widgets, unless the notebook is run by a
command, which shows the kernel's text on its terminal.

A terminal has one bar: what takes long within a task, such as encoding its documents, is shown in
the line of the tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

TEXT_PROGRESS = "QWEN3NB_TEXT_PROGRESS"  # in a kernel with bars as text: seconds between updates

if TYPE_CHECKING or os.environ.get(TEXT_PROGRESS):
    from tqdm import tqdm as _tqdm
else:
    from tqdm.auto import tqdm as _tqdm

SO_FAR = "so far: "  # begins a line on what a run has found while it goes on
_USUAL_COLUMNS = 80
_SECONDS_ON_SCREEN = 0.1
_SECONDS_IN_LOG = 10.0
# Pages and terminals know bars by these forms, see `publish` and `terminal`.
_LOG_LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}]{postfix}"
_TASK_LINE = "{desc}: |{bar:8}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
_BESIDE_NAMES = 44  # columns of a line of tasks besides the names of model and task


class tqdm(_tqdm):  # noqa: N801 - the usual name
    """A bar of tqdm: short lines in a log; within a task, a part of the bar of tasks."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start a bar; see tqdm."""
        self.bar_of_tasks = TaskBar.current
        if self.bar_of_tasks is not None:
            options["leave"] = False
        options.setdefault("mininterval", seconds_between())
        if is_log():
            options.setdefault("file", _LogLines(sys.stderr))
            options["bar_format"] = _LOG_LINE
        super().__init__(*args, **options)

    def display(self, *args: Any, **options: Any) -> Any:
        """Show the bar, or how far it is in the line of the tasks."""
        if self.bar_of_tasks is None:
            return super().display(*args, **options)
        step = ""
        is_open = not (args or options.get("msg") == "")
        if is_open and self.n:
            # Without a known end, what it does, such as "searching" of "bm25: searching".
            step = self.desc.removesuffix(": ").rpartition(": ")[2]
            if self.total:
                step = f"{self.n / self.total:.0%}"
        self.bar_of_tasks.show_step(step)
        return True


class TaskBar(tqdm):
    """The bar of a run, which names the task at hand and how far it is.

    Attributes:
        current: the bar on the screen; None without one, and where bars are widgets.
    """

    current: TaskBar | None = None

    def __init__(
        self, jobs: Sequence[Any], *, label: str, names: Sequence[str], **options: Any
    ) -> None:
        """Start a bar over the jobs of a model; a long label leaves room for the names of tasks."""
        self.task = ""
        if is_text():
            options["bar_format"] = _TASK_LINE
            longest_name = max(map(len, names), default=0)
            if len(label) + longest_name + _BESIDE_NAMES > _columns():
                label = ""
        super().__init__(jobs, desc=label, **options)
        if is_text() and not self.disable and TaskBar.current is None:
            TaskBar.current = self

    def begin(self, task: str) -> None:
        """Show the name of the task at hand; in a log, with the next line."""
        self.task = task
        self.set_postfix_str(task, refresh=not is_log())

    def show_step(self, step: str) -> None:
        """Show a step of the task at hand, such as ``34%``; an empty one ends it."""
        text = ": ".join(filter(None, [self.task, step]))
        self.set_postfix_str(text, refresh=bool(step) or not is_log())

    def close(self) -> None:
        """End the bar."""
        if TaskBar.current is self:
            TaskBar.current = None
        if not self.disable:
            self.set_postfix_str("", refresh=False)
        super().close()


class _LogLines:
    """A stream that gets the states of a bar as lines, without moves of the cursor."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def write(self, text: str) -> int:
        line = text.strip("\r\n ")
        is_new = bool(line) and line != self._last and not line.startswith("\x1b")
        if is_new:
            self._last = line
            self._stream.write(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal: a bar may be for terminals alone."""
        return self._stream.isatty()


def _columns() -> int:
    """Return the width of the terminal that bars are shown on."""
    try:
        return os.get_terminal_size(2).columns  # of standard error
    except OSError:
        return _USUAL_COLUMNS


def is_log() -> bool:
    """Return whether bars are lines of a log."""
    return is_text() and seconds_between() == _SECONDS_IN_LOG


def is_text() -> bool:
    """Return whether bars are text rather than widgets."""
    return bool(os.environ.get(TEXT_PROGRESS)) or "ipykernel" not in sys.modules


def seconds_between() -> float:
    """Return the seconds between two updates of a bar: many if the output is a log."""
    seconds = os.environ.get(TEXT_PROGRESS)
    if seconds:
        return float(seconds)
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        return _SECONDS_ON_SCREEN
    return _SECONDS_IN_LOG
