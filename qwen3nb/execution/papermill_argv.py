"""Complete papermill's command line for our notebooks: where they are, and an output path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qwen3nb import paths

__all__ = ["OPTIONS", "completed", "positionals"]

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


def positionals(arguments: Sequence[str]) -> list[int]:
    """Return the positions of the positional arguments among papermill's ``arguments``."""
    positions: list[int] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            return [*positions, *range(position + 1, len(arguments))]
        if argument in OPTIONS:
            position += OPTIONS[argument]
        elif argument == "-" or not argument.startswith("-"):
            positions.append(position)
        position += 1
    return positions


def completed(arguments: Sequence[str]) -> list[str]:
    """Return papermill's ``arguments``, completed for a notebook of this package.

    A name such as ``eval.ipynb`` or ``guide/caching.ipynb`` that is no file here is looked up in
    ``notebooks/``, so that a command works at the top of the study too; a missing output path
    is added.
    """
    arguments = list(arguments)
    given = positionals(arguments)
    if not given or {"--help", "-h", "--version"} & set(arguments):
        return arguments
    notebook = _located(arguments[given[0]])
    if notebook is None:
        return arguments
    arguments[given[0]] = str(notebook)
    if len(given) > 1 or "--help-notebook" in arguments:
        return arguments
    from qwen3nb.execution.notebook import partial_folder

    folder = partial_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return [*arguments, str(folder / f"{notebook.stem}-{os.getpid()}.ipynb")]


def _located(given: str) -> Path | None:
    """Return the path of a notebook in a study, as given or in its ``notebooks/``, or None."""
    notebook, short = Path(given), len(Path(given).parts) < 3
    if notebook.suffix == ".ipynb" and short and not notebook.is_file() and paths.find_root():
        notebook = paths.notebooks() / given
    folders = notebook.resolve().parents[1:3]  # of eval.ipynb, of guide/caching.ipynb
    ours = notebook.is_file() and any(map(paths.is_study, folders))
    return notebook if ours and notebook.suffix == ".ipynb" else None
