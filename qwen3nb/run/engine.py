"""The papermill side: `papermill eval.ipynb -p tier smoke` works as typed, and safely.

papermill imports every ``papermill.engine`` entry point before it reads its arguments.
This module uses the occasion for two things:

1. It becomes papermill's default engine. For a notebook of this package it checks the
   parameters before a kernel starts, keeps secrets out of the kernel, and publishes a
   page only of a run that came to its end. Any other notebook goes to papermill's own
   engine, untouched.
2. When papermill is started from the command line with one path only, and that path is
   a notebook of this package, it appends an output in ``results/partial``. papermill
   has no setting for a default output; without one it fails on a terminal, writes to
   the standard output in a script, and takes the source for the output when the
   standard input is a pipe.

Keep imports here light: a broken import breaks every papermill command in the
environment.
"""

from __future__ import annotations

import atexit
import copy
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from papermill import engines

__all__ = ["Engine", "clean", "with_output"]

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)
# papermill's options that take values; a test compares them with papermill's own.
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
    """papermill's positional arguments among ``arguments``."""
    found = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            found.extend(rest)
        elif argument in OPTIONS:
            for _ in range(OPTIONS[argument]):
                next(rest, None)
        elif argument == "-" or not argument.startswith("-"):
            found.append(argument)
    return found


def with_output(arguments: Sequence[str]) -> list[str]:
    """``arguments`` of papermill, with an output if one of our notebooks lacks one."""
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
    from qwen3nb.run.notebook import partial_folder

    folder = partial_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return [*arguments, str(folder / f"{notebook.stem}-{os.getpid()}.ipynb")]


class Engine(engines.NBClientEngine):  # type: ignore[misc]
    """papermill's engine, with checks before and a page after, for our notebooks."""

    @classmethod
    def execute_notebook(
        cls, nb: Any, kernel_name: str, output_path: str | None = None, **options: Any
    ) -> Any:
        """Run ``nb``; called by papermill after it has put the parameters in.

        Raises:
            ParameterError: refused before a kernel started.
        """
        from qwen3nb.run import notebook as notebooks

        if not notebooks.is_ours(nb):
            return super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
        source = Path(str(options.get("input_path")))
        given = {
            name: value
            for name, value in nb.metadata.papermill.get("parameters", {}).items()
            if not name.startswith("PAPERMILL_")
        }
        values = notebooks.check_parameters(notebooks.declared_parameters(nb), given)
        output = Path(output_path).resolve() if output_path else None
        _refuse_book(output)
        key = notebooks.run_key(_as_written(nb), values)
        with _without_secrets() as secrets:
            nb = super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
        failed = nb.metadata.papermill.get("exception")
        if not failed and output and output.parent == notebooks.partial_folder().resolve():
            page = notebooks.page_path(source, values)
            publish(nb, page, values=values, key=key, secrets=secrets)
            engines.logger.info("Page: %s", page)
            # papermill writes its output once more; nobody needs it beside the page.
            atexit.register(output.unlink, missing_ok=True)
        return nb


def _as_written(nb: Any) -> Any:
    """The notebook without the cell papermill put in: what its author wrote."""
    written = copy.deepcopy(nb)
    written.cells = [
        cell for cell in nb.cells if "injected-parameters" not in cell.metadata.get("tags", ())
    ]
    return written


def _refuse_book(output: Path | None) -> None:
    from qwen3nb import paths
    from qwen3nb.run.notebook import ParameterError

    if output and output.is_relative_to(paths.book().resolve()):
        raise ParameterError(
            f"{output} lies in the book, where only finished runs belong. Leave the output "
            "out: the page is then published when the run has come to its end"
        )


@contextmanager
def _without_secrets() -> Iterator[list[str]]:
    """Take tokens and passwords out of the environment that the kernel inherits.

    Yields their values, to be looked for in the output. Log in with `hf auth login`
    (a file) where a notebook needs the hub.
    """
    secrets = {name: value for name, value in os.environ.items() if _SECRET.search(name)}
    for name in secrets:
        del os.environ[name]
    try:
        yield [value for value in secrets.values() if len(value) >= 8]
    finally:
        os.environ.update(secrets)


def publish(
    nb: Any, page: Path, *, values: dict[str, Any], key: str, secrets: Sequence[str] = ()
) -> None:
    """Clean an executed notebook and put it into the book, in one step."""
    import nbformat

    from qwen3nb.files import write_text

    nb = clean(nb, title=_title(values))
    nb.metadata["qwen3nb"] = {
        **nb.metadata["qwen3nb"],
        "key": key,
        "parameters": values,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = nbformat.writes(nb)
    for secret in secrets:
        text = text.replace(json.dumps(secret)[1:-1], "[removed]")
    write_text(page, text + "\n")


def _title(values: dict[str, Any]) -> str | None:
    """``label · tier`` for a run on a checkpoint, else None."""
    if "checkpoint" not in values:
        return None
    from qwen3nb.models.source import find_source
    from qwen3nb.report.tables import markdown_text

    parts = [find_source(values["checkpoint"]).label, values.get("tier", "")]
    if values.get("pooling", "auto") != "auto":
        parts.append(values["pooling"])
    return " · ".join(markdown_text(str(part)) for part in parts if part)


def clean(nb: Any, *, title: str | None = None) -> Any:
    """A copy of an executed notebook that is fit for the book.

    Widgets and progress bars are dropped (they show a stale 0 %), parameters are hidden
    (the page's last table has them), and the heading says which run this is.
    """
    nb = copy.deepcopy(nb)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        if {"parameters", "injected-parameters"} & set(tags):
            cell.metadata["tags"] = sorted({*tags, "remove-cell"})
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_clean_output, cell.outputs) if output]
    first = next((cell for cell in nb.cells if cell.cell_type == "markdown"), None)
    if title and first is not None and first.source.startswith("# "):
        first.source = "\n".join([f"# {title}", *first.source.split("\n")[1:]])
    return nb


def _clean_output(output: Any) -> Any:
    if output.output_type == "stream" and output.name == "stderr":
        lines = re.split(r"\r|\n", output.text)
        kept = [line for line in lines if line.strip() and not re.search(r"\d+%\||\dit/s", line)]
        output.text = "\n".join(kept)
        return output if kept else None
    if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
        return None
    return output


if Path(sys.argv[0]).name in ("papermill", "papermill.exe") or sys.argv[0].endswith(
    os.path.join("papermill", "__main__.py")  # noqa: PTH118 - a piece of a path, not a path
):
    sys.argv[1:] = with_output(sys.argv[1:])
engines.papermill_engines.register(None, Engine)
