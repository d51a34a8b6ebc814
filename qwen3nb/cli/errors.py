"""Errors we raise on purpose, told in a line and without a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

__all__ = ["plainly"]


def plainly(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` whose errors of ours, or for want of an optional library, are told in a line."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from qwen3nb.book.build import BookError
        from qwen3nb.evaluation.run import EvaluationError
        from qwen3nb.execution.notebook import NotebookError

        ours = (BookError, EvaluationError, NotebookError)  # those that are no ValueError

        try:
            return command(*args, **kwargs)
        except click.ClickException:
            raise
        except (ValueError, OSError, ImportError, *ours) as error:
            raise click.ClickException(str(error)) from None

    return wrapped
