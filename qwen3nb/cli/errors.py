"""Show expected errors as one message on the terminal, without a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.utils.files.file_errors import explained

if TYPE_CHECKING:
    from qwen3nb.records.results import Results

__all__ = ["readable_records", "without_traceback"]


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
        except OSError as error:
            raise click.ClickException(explained(error)) from None
        except (ValueError, ImportError, *expected) as error:
            raise click.ClickException(str(error)) from None

    return wrapped


def readable_records(folder: Path | None = None, *, adapters: bool = True) -> Results:
    """Return the records in a folder, as `load_results`; name those left out on the terminal."""
    from qwen3nb.records.store import load_results

    records = load_results(folder, adapters=adapters)
    for reason in records.unreadable.values():
        click.echo(f"left out: {reason}", err=True)
    return records
