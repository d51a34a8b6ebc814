"""Add an output path to papermill's command line if one of our notebooks lacks it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["OPTIONS", "positionals", "with_output"]

# papermill's options with the number of their values; a test checks them against papermill.
OPTIONS = {
    **dict.fromkeys(("-p", "--parameters", "-r", "--parameters_raw"), 2),
    **dict.fromkeys(
        (
            "-f",
            "--parameters_file",
            "-y",
            "--parameters_yaml",
            "-b",
            "--parameters_base64",
            "--engine",
            "--autosave-cell-every",
            "-k",
            "--kernel",
            "-l",
            "--language",
            "--cwd",
            "--stdout-file",
            "--stderr-file",
            "--log-level",
            "--start-timeout",
            "--start_timeout",
            "--execution-timeout",
        ),
        1,
    ),
}
_NO_RUN = {"--help-notebook", "--help", "-h", "--version"}


def positionals(arguments: Sequence[str]) -> list[str]:
    """Return the positional arguments among papermill's ``arguments``."""
    given: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            given.extend(rest)
        elif argument in OPTIONS:
            for _ in range(OPTIONS[argument]):
                next(rest, None)
        elif argument == "-" or not argument.startswith("-"):
            given.append(argument)
    return given


def with_output(arguments: Sequence[str]) -> list[str]:
    """Return papermill's ``arguments``, with an output path if one of our notebooks lacks it."""
    arguments = list(arguments)
    paths_given = positionals(arguments)
    if len(paths_given) != 1 or _NO_RUN & set(arguments):
        return arguments
    notebook = Path(paths_given[0])
    if notebook.suffix != ".ipynb" or not notebook.is_file():
        return arguments
    from qwen3nb import paths

    if not paths.is_checkout(notebook.resolve().parent.parent):
        return arguments
    from qwen3nb.execution.notebook import partial_folder

    folder = partial_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return [*arguments, str(folder / f"{notebook.stem}-{os.getpid()}.ipynb")]
