"""The papermill plug-in, which makes `papermill eval.ipynb -p tier smoke` work, safely.

papermill imports every ``papermill.engine`` entry point before it reads its arguments,
and this module does two things at that moment:

1. It becomes papermill's default engine. For a notebook of this package, it checks the parameters
   before a kernel starts, keeps secrets out of the kernel, and publishes the page of a finished run
   or a report of the failure. Other notebooks are passed to papermill's own engine.
2. When papermill is started from the command line with a notebook of this package, by its
   path or by its bare name from anywhere in the study, it fills in that path. If no
   output is given, it appends one in ``results/partial``. papermill has no setting for a
   default output; without one it fails on a terminal, writes to standard output in a
   script, and overwrites the source when standard input is a pipe.

Keep imports here light: a broken import breaks every papermill command in the
environment.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from papermill import engines
from papermill.clientwrap import PapermillNotebookClient
from papermill.parameterize import parameterize_notebook

from qwen3nb import paths
from qwen3nb.cluster.processes import guarded
from qwen3nb.utils.secrets import Secrets, known_secrets
from qwen3nb.utils.signals import heed_children
from qwen3nb.utils.terminal import uncoloured, visible, visible_progress

# papermill's options with the number of their values; a test checks them against papermill.
OPTIONS = {
    **dict.fromkeys(("-p", "--parameters", "-r", "--parameters_raw"), 2),
    **dict.fromkeys(
        """
        -f --parameters_file -y --parameters_yaml -b --parameters_base64 --engine -k --kernel
        -l --language --cwd --autosave-cell-every --stdout-file --stderr-file --log-level
        --start-timeout --start_timeout --execution-timeout
        """.split(),  # noqa: SIM905 - a list of words reads better as lines
        1,
    ),
}
# The kernel listens on this machine only: suppress the warning on unencrypted ports.
_QUIET = ("--IPKernelApp.log_level=ERROR",)
_log = logging.getLogger(__name__)


class _Client(PapermillNotebookClient):
    """papermill's client, which removes secrets and control characters from messages."""

    def __init__(self, *args: Any, secrets: Secrets, **options: Any) -> None:
        super().__init__(*args, **options)
        self._secrets = secrets

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Clean a message before it is stored, logged or printed."""
        content, kinds = self._secrets.removed(msg["content"])
        if kinds and msg["msg_type"] != "execute_input":
            _log.warning("removed from the output of cell %d: %s", cell_index, ", ".join(kinds))
        if msg["msg_type"] == "stream":
            content["text"] = visible_progress(uncoloured(content["text"]))
        elif msg["msg_type"] == "error":
            content["evalue"] = visible(content["evalue"])
            content["traceback"] = [visible(uncoloured(line)) for line in content["traceback"]]
        return super().process_message(msg, cell, cell_index)


class GuardedKernels(AsyncKernelManager):
    """Starts a kernel that ends with this process, including all of its descendants."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command of the kernel's guard, which removes the kernel's files."""
        command = super().format_kernel_cmd(extra_arguments)
        return guarded(command, remove=[Path(self.connection_file)], scratch=True)

    async def shutdown_kernel(  # type: ignore[override]
        self, now: bool = False, restart: bool = False
    ) -> None:
        """End the kernel; if the run was interrupted, without waiting for it."""
        if isinstance(sys.exception(), KeyboardInterrupt):
            await self._async_send_kernel_sigterm(restart=restart)
        await super().shutdown_kernel(now=now, restart=restart)


class Engine(engines.NBClientEngine):
    """papermill's engine; for our notebooks, checks parameters first and publishes a page."""

    @classmethod
    def execute_notebook(
        cls,
        nb: Any,
        kernel_name: str,
        output_path: str | None = None,
        page_name: str = "",
        **options: Any,
    ) -> Any:
        """Run ``nb``; papermill calls this after it has injected the parameters."""
        from qwen3nb.execution import notebook as notebooks
        from qwen3nb.execution.parameters import (
            ParameterError,
            check_baseline,
            check_parameters,
            complete,
            declared_parameters,
            is_python,
            one_pass,
            unread_text,
        )
        from qwen3nb.execution.publish import NotebookRun
        from qwen3nb.execution.study_paths import as_given_here
        from qwen3nb.utils.atomic_files import turn

        source = Path(str(options.get("input_path")))
        if not notebooks.is_ours(nb, source) or not is_python(nb):
            return super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
        heed_children()  # or the end of a kernel would look like a success
        given = {
            name: value
            for name, value in nb.metadata.papermill.get("parameters", {}).items()
            if not name.startswith("PAPERMILL_")
        }
        page, output = None, Path(output_path).resolve() if output_path else None
        complete(nb)
        declared = declared_parameters(nb)
        of_papermill = "injected-parameters"
        cells = [each for each in nb.cells if of_papermill not in each.metadata.get("tags", ())]
        with ExitStack() as stack:
            stack.enter_context(paths.within(paths.study_of(source)))
            if output and output.is_relative_to(paths.book().resolve()):
                raise ParameterError(
                    f"{output} is inside the book, which has only finished runs; give no output: "
                    "the page is published when the run finishes"
                )
            if not page_name:  # otherwise `run_notebook` has done so
                stack.enter_context(one_pass())
            values = check_parameters(declared, given)
            check_baseline(values, declared)
            if output and output.parent == notebooks.partial_folder().resolve():
                page = notebooks.page_path(source, values, name=page_name)
                if not page_name:
                    stack.enter_context(turn(output, what="runs"))
            if not page_name and (unread := unread_text(nb, declared)):
                print(unread, file=sys.stderr)
            key = notebooks.run_key({"cells": cells, "metadata": nb.metadata}, values)
            injected = {**given, **as_given_here({name: values[name] for name in given})}
            if taken := notebooks.model_taken(declared, given):
                if not page_name:  # otherwise already reported
                    print(taken, file=sys.stderr)
                injected["checkpoint"] = values["checkpoint"]
            if injected != given:
                nb = parameterize_notebook(nb, injected)
            run = NotebookRun(paths.notebook_name(source), values, page, output)
            options["kernel_manager_class"] = GuardedKernels
            options["extra_arguments"] = [*options.get("extra_arguments", ()), *_QUIET]
            options["environment"] = run.environment(nb)
            with run.watched(nb):
                nb = super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
            if nb.metadata.papermill.get("exception"):
                run.fail(nb)
            elif output and run.succeed(nb, key=key):
                engines.logger.info("Page: %s", page)
                # papermill writes its output again after this; the page replaces it.
                atexit.register(output.unlink, missing_ok=True)
        return nb

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """Execute the cells; for our notebooks, in a kernel with only this ``environment``."""
        if environment is None:
            return super().execute_managed_notebook(nb_man, kernel_name, **options)
        options.pop("input_path", None)
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=options.pop("execution_timeout", None),
            startup_timeout=options.pop("start_timeout", 60),
            log=engines.logger,
            secrets=known_secrets(),
            **options,
        )
        return client.execute(env=environment)


def _positionals(arguments: Sequence[str]) -> list[int]:
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

    A name such as ``eval.ipynb`` or ``guide/caching.ipynb`` that is not a file here is looked up in
    ``notebooks/``; a missing output path and, if the notebook names none, the Python kernel are
    added.
    """
    arguments = list(arguments)
    given = _positionals(arguments)
    if not given or {"--help", "-h", "--version"} & set(arguments):
        return arguments
    notebook = _located(arguments[given[0]])
    if notebook is None:
        return arguments
    arguments[given[0]] = str(notebook)
    arguments = [*_kernel(notebook), *arguments]  # the command line takes precedence
    if len(given) > 1 or "--help-notebook" in arguments:
        return arguments
    from qwen3nb.execution.notebook import partial_folder

    folder = partial_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return [*arguments, str(folder / f"{notebook.stem}-{os.getpid()}.ipynb")]


def _kernel(notebook: Path) -> list[str]:
    """Return options for Python's kernel and language if a notebook does not name them."""
    from qwen3nb.execution.parameters import complete

    try:
        content = json.loads(notebook.read_bytes())
        named = content["metadata"].get("kernelspec", {})
        complete(content)
    except (ValueError, LookupError, TypeError):  # not a notebook; papermill reports it
        return []
    options = {"name": "--kernel", "language": "--language"}
    kernel = content["metadata"]["kernelspec"]
    missing = [each for each in options if each not in named]
    return [part for each in missing for part in (options[each], kernel[each])]


def _located(given: str) -> Path | None:
    """Return the path of a notebook in a study, as given or in its ``notebooks/``, or None.

    Makes its study the current one.
    """
    notebook, short = Path(given), len(Path(given).parts) < 3
    if notebook.suffix == ".ipynb" and short and not notebook.is_file() and paths.find_root():
        notebook = paths.notebooks() / given
    study = paths.study_of(notebook) if notebook.is_file() else None
    if study is None or notebook.suffix != ".ipynb":
        return None
    if study != paths.find_root():
        os.environ.setdefault("QWEN3NB_HOME", str(study))
    return notebook


if Path(sys.argv[0]).name in ("papermill", "papermill.exe") or sys.argv[0].endswith(
    os.path.join("papermill", "__main__.py")  # noqa: PTH118 - a piece of a path, not a path
):
    sys.argv[1:] = completed(sys.argv[1:])
engines.papermill_engines.register(None, Engine)
