"""Show expected errors as one message on the terminal, without a traceback.

Whatever a command prints passes `guarded_streams`: escape sequences in names and messages are shown
as text, and secrets are removed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from qwen3nb.utils.terminal import guarded_streams, traceback_here

__all__ = ["Program", "without_traceback"]


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
        from qwen3nb.book.build import BookError
        from qwen3nb.evaluation.run import EvaluationError
        from qwen3nb.execution.notebook import NotebookError

        expected = (BookError, EvaluationError, NotebookError)  # not subclasses of ValueError
        try:
            return command(*args, **kwargs)
        except (click.ClickException, BrokenPipeError):
            raise
        except OSError as error:
            raise click.ClickException(_about_file(error)) from None
        except (ValueError, ImportError, *expected) as error:
            raise click.ClickException(str(error)) from None

    return wrapped


def _about_file(error: OSError) -> str:
    """Return what the system said about which file, on one line."""
    files = [str(each) for each in (error.filename, error.filename2) if each is not None]
    if error.errno is None or not files:
        return str(error)
    return " ".join(f"{' -> '.join(files)}: {error.strerror}".splitlines())
