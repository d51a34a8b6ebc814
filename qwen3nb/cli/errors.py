"""Show expected errors as one message on the terminal, without a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

__all__ = ["without_traceback"]


def without_traceback(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``command`` so that errors users can act on become click's ``Error: …``.

    These are the errors that the package raises on purpose, and a missing optional library.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from qwen3nb.book.build import BookError
        from qwen3nb.evaluation.run import EvaluationError
        from qwen3nb.execution.notebook import NotebookError
        from qwen3nb.execution.subprocesses import Stopped, interrupted_by_signals

        expected = (BookError, EvaluationError, NotebookError)  # not subclasses of ValueError
        try:
            with interrupted_by_signals():
                return command(*args, **kwargs)
        except click.ClickException:
            raise
        except KeyboardInterrupt as interruption:
            message = "stopped. Repeat the command to resume; what was finished is kept"
            raise Stopped(message, interruption) from None
        except (ValueError, OSError, ImportError, *expected) as error:
            raise click.ClickException(str(error)) from None

    return wrapped
