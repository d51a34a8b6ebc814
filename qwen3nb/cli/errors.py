"""Show expected errors as one message on the terminal, without a traceback."""

from __future__ import annotations

import functools
import sys
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

    These are the errors that the package raises on purpose, those of files, and a missing optional
    library. A pipe that its reader has closed is left to click, which ends in silence.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from qwen3nb.execution.subprocesses import Stopped, interrupted_by_signals

        try:
            with interrupted_by_signals():
                return command(*args, **kwargs)
        except click.UsageError as error:
            error.ctx = error.ctx or click.get_current_context(silent=True)
            raise
        except (click.ClickException, BrokenPipeError):
            raise
        except KeyboardInterrupt as interruption:
            message = "stopped. Repeat the command to resume; what was finished is kept"
            raise Stopped(message, interruption) from None
        except OSError as error:
            raise click.ClickException(" ".join(explained(error).splitlines())) from None
        except Exception as error:
            if isinstance(error, (ValueError, ImportError, *_other_errors())):
                raise click.ClickException(str(error)) from None
            raise

    return wrapped


def _other_errors() -> tuple[type[Exception], ...]:
    """Return the expected errors that are no ValueError, of the modules that have been loaded.

    An error comes from a loaded module; to load them all would take a command seconds to start.
    """
    homes = {
        "qwen3nb.book.build": "BookError",
        "qwen3nb.evaluation.run": "EvaluationError",
        "qwen3nb.execution.notebook": "NotebookError",
    }
    return tuple(
        getattr(sys.modules[module], name)
        for module, name in homes.items()
        if module in sys.modules
    )


def readable_records(folder: Path | None = None, *, adapters: bool = True) -> Results:
    """Return the records in a folder, as `load_results`; name those left out on the terminal."""
    from qwen3nb.records.store import load_results

    records = load_results(folder, adapters=adapters)
    for reason in records.unreadable.values():
        click.echo(f"left out: {reason}", err=True)
    return records
