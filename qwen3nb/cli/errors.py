"""Show expected errors as one message on the terminal, without a traceback.

Whatever a command prints passes `guarded_streams`: escape sequences in names and messages are shown
as text, and secrets are removed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.utils.files.file_errors import explained
from qwen3nb.utils.terminal import guarded_streams, traceback_here

if TYPE_CHECKING:
    from qwen3nb.records.results import Results

__all__ = ["Program", "readable_records", "without_traceback"]

# Expected errors that are no ValueError. Their modules load slowly, so commands do not import them.
_OTHERS = (
    ("qwen3nb.book.build", "BookError"),
    ("qwen3nb.evaluation.run", "EvaluationError"),
    ("qwen3nb.execution.notebook", "NotebookError"),
)


class Program(click.Group):
    """The top of the command line, with guarded output."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, with output and error messages guarded."""
        with guarded_streams():
            return super().main(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; as a program of its own, a traceback at its end is guarded, too."""
        if args or kwargs:
            return self.main(*args, **kwargs)
        with guarded_streams(), traceback_here():
            return self.main()


def without_traceback(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``command`` so that errors users can act on become click's ``Error: …``.

    These are the errors that the package raises on purpose, those of files, and a missing optional
    library. A pipe that its reader has closed is left to click, which ends in silence.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from qwen3nb.execution.subprocesses import Stopped, interrupted_by_signals

        try:
            with interrupted_by_signals():
                return command(*args, **kwargs)
        except (click.ClickException, BrokenPipeError):
            raise
        except KeyboardInterrupt as interruption:
            message = "stopped. Repeat the command to resume; what was finished is kept"
            raise Stopped(message, interruption) from None
        except OSError as error:
            raise click.ClickException(" ".join(explained(error).splitlines())) from None
        except Exception as error:
            if not isinstance(error, (ValueError, ImportError, *_loaded_errors())):
                raise
            raise click.ClickException(str(error)) from None

    return wrapped


def _loaded_errors() -> tuple[type[Exception], ...]:
    """The errors of `_OTHERS`; one whose module is not loaded cannot have been raised."""
    return tuple(getattr(sys.modules[home], name) for home, name in _OTHERS if home in sys.modules)


def readable_records(folder: Path | None = None, *, adapters: bool = True) -> Results:
    """Return the records in a folder, as `load_results`; name those left out on the terminal."""
    from qwen3nb.records.store import load_results

    records = load_results(folder, adapters=adapters)
    for reason in records.unreadable.values():
        click.echo(f"left out: {reason}", err=True)
    return records
