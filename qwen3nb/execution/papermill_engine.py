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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill import engines
from papermill.clientwrap import PapermillNotebookClient
from papermill.parameterize import parameterize_notebook

from qwen3nb import paths
from qwen3nb.cluster.processes import guarded_command
from qwen3nb.execution.kernel_watch import KernelWatch, StalledKernelError
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.secrets import FRESH, Secrets, known_secrets
from qwen3nb.utils.terminal import uncoloured, visible, visible_progress

if TYPE_CHECKING:
    from qwen3nb.execution.parameters import FoundDefault
    from qwen3nb.execution.publish import NotebookRun
    from qwen3nb.execution.study_paths import NewValues

_PAPERMILLS_START = 60  # seconds that papermill waits for a kernel, unless it is told otherwise
# On a busy machine with few cores, a kernel may take minutes to start. One that died is noticed at
# once.
_SLOWEST_START = 300
_MOST_STARTS = 3  # of a kernel that dies at once
_DIED = "Kernel died before replying"  # as jupyter_client says it
# papermill's options with the number of their values; a test checks them against papermill.
VALUES_PER_OPTION = {
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
    """papermill's client, which removes secrets and control characters from messages.

    It also notices a kernel that does nothing; see `qwen3nb.execution.kernel_watch`.
    """

    def __init__(
        self, *args: object, secrets: Secrets, watch: KernelWatch, **options: object
    ) -> None:
        super().__init__(*args, **options)
        self._secrets = secrets
        self._watch = watch
        self._stalled = ""  # how, if the kernel did nothing

    def execute(self, **options: Any) -> Any:
        """Run all cells.

        Raises:
            StalledKernelError: the kernel did nothing for minutes; it was ended.
        """
        try:
            return super().execute(**options)
        except DeadKernelError:
            if self._stalled:
                raise StalledKernelError(self._stalled) from None
            raise

    async def _async_check_alive(self) -> None:
        """Raise DeadKernelError for a kernel that is dead, or does nothing.

        nbclient calls this every second while a cell runs, and while it waits for a reply.
        """
        await super()._async_check_alive()
        provisioner = getattr(self.km, "provisioner", None)
        if not self._watch.has_stalled(getattr(provisioner, "pid", None)):
            return
        minutes = self._watch.idle_seconds / 60
        self._stalled = (
            f"the kernel did nothing for {minutes:.0f} minutes, although a cell had not ended"
        )
        raise DeadKernelError(self._stalled)

    @contextmanager
    def setup_kernel(self, **options: Any) -> Iterator[None]:
        """Start a kernel for the block; one that dies before its first answer is started again.

        Kernels that start at the same time may be given the same port.
        """
        with ExitStack() as kernel:
            for starts_left in reversed(range(_MOST_STARTS)):
                try:
                    kernel.enter_context(super().setup_kernel(**options))
                    break
                except RuntimeError as error:
                    if starts_left == 0 or _DIED not in str(error):
                        raise
                    _log.warning("%s; another one is started", error)
            yield

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Clean a message before it is stored, logged or printed."""
        self._watch.note_message()
        content = msg["content"]
        # Colours within a secret would hide it.
        if msg["msg_type"] == "stream":
            content["text"] = visible_progress(uncoloured(content["text"]))
        elif msg["msg_type"] == "error":
            content["evalue"] = visible(content["evalue"])
            content["traceback"] = [visible(uncoloured(line)) for line in content["traceback"]]
        content, kinds = self._secrets.clean(content)
        # "execute_input" only repeats the cell's code.
        if kinds and msg["msg_type"] != "execute_input":
            _log.warning("removed from the output of cell %d: %s", cell_index, ", ".join(kinds))
        return super().process_message(msg, cell, cell_index)


class GuardedKernels(AsyncKernelManager):
    """Starts a kernel that ends with this process, including all of its descendants."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command of the kernel's guard, which removes the kernel's files."""
        command = super().format_kernel_cmd(extra_arguments)
        return guarded_command(command, remove=[Path(self.connection_file)], scratch=True)

    async def shutdown_kernel(  # type: ignore[override]
        self, now: bool = False, restart: bool = False
    ) -> None:
        """End the kernel; if the run was interrupted, without waiting for it."""
        error = sys.exception()
        if error is None and not now:
            await self._end_idle_kernel(restart=restart)
            return
        if isinstance(error, KeyboardInterrupt):
            await self._async_send_kernel_sigterm(restart=restart)
        await super().shutdown_kernel(now=now, restart=restart)

    async def _end_idle_kernel(self, *, restart: bool) -> None:
        """Ask a kernel to end that has run its last cell.

        jupyter_client also interrupts it first. It then logs an error, on a run that succeeded.
        """
        self.shutting_down = True
        self.stop_restarter()
        await self.request_shutdown(restart=restart)
        await self.finish_shutdown(restart=restart)
        await self.cleanup_resources(restart=restart)


def _texts(value: object) -> Sequence[str]:
    """Return an option that papermill passes on as a list of texts; empty without it."""
    if isinstance(value, list | tuple):
        return value
    return ()


@dataclass(frozen=True)
class _Run:
    """A run of a notebook of this package: its parameters are checked, its page is named."""

    page_run: NotebookRun
    output: Path | None  # where papermill writes the executed notebook
    key: str  # digest of everything that the page depends on
    given: NewValues  # parameters that papermill has injected
    found: Mapping[str, FoundDefault]  # what stands for a model or training that is not named

    @classmethod
    def prepared(
        cls, nb: Any, source: Path, output: Path | None, *, page_name: str, stack: ExitStack
    ) -> _Run:
        """Check the parameters, and lock the page until the stack is closed.

        ``page_name`` is given by `run_notebook`, which has then done both, and printed remarks.

        Raises:
            ParameterError: invalid parameters, or an output inside the book.
        """
        from qwen3nb.execution import notebook as notebooks
        from qwen3nb.execution import parameters
        from qwen3nb.execution.publish import NotebookRun
        from qwen3nb.utils.atomic_files import exclusive_lock

        is_checked = bool(page_name)
        if not is_checked:
            stack.enter_context(parameters.cached_calls())
        given_values = _given_parameters(nb)
        parameters.add_missing_metadata(nb)
        declared = parameters.declared_parameters(nb)
        if output and output.is_relative_to(paths.book().resolve()):
            raise parameters.ParameterError(
                f"{output} is inside the book, which has only finished runs; give no output: "
                "the page is published when the run finishes"
            )
        values = parameters.check_parameters(declared, given_values)
        parameters.check_baseline(values, declared)
        page = None
        if output and output.parent == notebooks.partial_folder().resolve():
            page = notebooks.page_path(source, values, name=page_name)
            if not is_checked:
                stack.enter_context(exclusive_lock(output, purpose="runs"))
        found = parameters.found_defaults(declared, given_values)
        if not is_checked:
            sentences = [default.sentence for default in found.values()]
            _print_remarks(parameters.unread_text(nb, declared), *sentences)
        return cls(
            page_run=NotebookRun(paths.notebook_name(source), values, page, output),
            output=output,
            key=notebooks.run_key(_without_injected_cell(nb), values),
            given=given_values,
            found=found,
        )

    def with_resolved_parameters(self, nb: Any) -> Any:
        """Return the notebook with paths as seen from here, and with what stands for defaults."""
        from qwen3nb.execution.study_paths import relative_to_working_directory

        values = self.page_run.values
        # Those given, but checked: folders relative to the study, for example.
        checked = {name: values[name] for name in (*self.given, *self.found)}
        injected = relative_to_working_directory(checked)
        if injected == self.given:
            return nb
        # Replaces the cell that papermill has injected.
        return parameterize_notebook(nb, injected)

    def publish(self, nb: Any) -> None:
        """Publish the executed notebook as a page, or a report of its failure."""
        if nb.metadata.papermill.get("exception"):
            self.page_run.fail(nb)
        elif self.output and self.page_run.succeed(nb, key=self.key):
            engines.logger.info("Page: %s", self.page_run.page)
            # papermill writes its output again after this; the page replaces it.
            atexit.register(self.output.unlink, missing_ok=True)


def _print_remarks(*remarks: str) -> None:
    for remark in remarks:
        if remark:
            print(remark, file=sys.stderr)


def _given_parameters(nb: Any) -> dict[str, Any]:
    """Return the parameters that papermill has injected, without its own."""
    values = {}
    for name, value in nb.metadata.papermill.get("parameters", {}).items():
        if not name.startswith("PAPERMILL_"):
            values[name] = value
    return values


def _without_injected_cell(nb: Any) -> dict[str, Any]:
    """Return a notebook as it was before papermill injected the parameters."""
    cells = []
    for cell in nb.cells:
        if "injected-parameters" not in cell.metadata.get("tags", ()):
            cells.append(cell)
    return {"cells": cells, "metadata": nb.metadata}


class Engine(engines.NBClientEngine):
    """papermill's engine; for our notebooks, checks parameters first and publishes a page."""

    @classmethod
    def execute_notebook(
        cls,
        nb: Any,
        kernel_name: str,
        output_path: str | None = None,
        page_name: str = "",
        fresh: bool = False,
        **options: object,
    ) -> Any:
        """Run ``nb``; papermill calls this after it has injected the parameters.

        `run_notebook` gives the last two; with ``fresh``, evaluations reuse no records.
        """
        from qwen3nb.execution.notebook import is_ours
        from qwen3nb.execution.parameters import is_python
        from qwen3nb.execution.publish import without_secrets

        source = Path(str(options.get("input_path")))
        if not is_ours(nb, source) or not is_python(nb):  # then papermill does it alone
            return super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
        keep_exit_statuses()  # or the end of a kernel would look like a success
        output = None
        if output_path:
            output = Path(output_path).resolve()
        with ExitStack() as stack:
            stack.enter_context(paths.within(paths.study_of(source)))
            run = _Run.prepared(nb, source, output, page_name=page_name, stack=stack)
            nb = run.with_resolved_parameters(nb)
            options["kernel_manager_class"] = GuardedKernels
            options["extra_arguments"] = [*_texts(options.get("extra_arguments")), *_QUIET]
            environment = run.page_run.environment(nb)
            if fresh:
                environment[FRESH] = "1"
            options["environment"] = environment
            with run.page_run.watched(nb):
                nb = super().execute_notebook(nb, kernel_name, output_path=output_path, **options)
            nb, _ = without_secrets(nb)  # those that came in parts
            run.publish(nb)
        return nb

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        environment: dict[str, str] | None = None,
        **options: object,
    ) -> Any:
        """Execute the cells; for our notebooks, in a kernel with only this ``environment``."""
        if environment is None:  # the notebook is not ours
            return super().execute_managed_notebook(nb_man, kernel_name, **options)
        options.pop("input_path", None)  # only for `execute_notebook`
        # The left names are those of nbclient, the right ones those of papermill.
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=options.pop("execution_timeout", None),
            startup_timeout=_start_timeout(options.pop("start_timeout", _PAPERMILLS_START)),
            log=engines.logger,
            secrets=known_secrets(),
            watch=KernelWatch(),
            **options,
        )
        return client.execute(env=environment)


def _start_timeout(seconds: object) -> object:
    """Return how long to wait for a kernel: longer than papermill, whose default is given."""
    if seconds == _PAPERMILLS_START:
        return _SLOWEST_START
    return seconds


def _positionals(arguments: Sequence[str]) -> list[int]:
    """Return the positions of the positional arguments among papermill's ``arguments``."""
    positions: list[int] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":  # all that follow are positional
            following = range(position + 1, len(arguments))
            return [*positions, *following]
        if argument in VALUES_PER_OPTION:
            number_of_values = VALUES_PER_OPTION[argument]
            position += number_of_values
        elif argument == "-" or not argument.startswith("-"):  # "-" is standard input
            positions.append(position)
        position += 1
    return positions


def completed(arguments: Sequence[str]) -> list[str]:
    """Return papermill's ``arguments``, completed for a notebook of this package.

    A name such as ``eval.ipynb`` or ``guide/caching.ipynb`` that is not a file here is looked up in
    ``notebooks/``; a missing output path and, if the notebook names none, the Python kernel are
    added.
    """
    positions = _positionals(arguments)
    runs_nothing = not {"--help", "-h", "--version"}.isdisjoint(arguments)
    if not positions or runs_nothing:
        return list(arguments)
    # The positional arguments are the notebook and, after it, the output.
    place_of_notebook = positions[0]
    notebook = _notebook_in_study(arguments[place_of_notebook])
    if notebook is None:
        return list(arguments)
    completed_arguments = list(arguments)
    completed_arguments[place_of_notebook] = str(notebook)
    # What the command line says of the kernel comes later, and takes precedence.
    completed_arguments = [*_kernel_options(notebook), *completed_arguments]
    has_output = len(positions) > 1
    if has_output or "--help-notebook" in arguments:
        return completed_arguments
    from qwen3nb.execution.notebook import partial_folder

    output = partial_folder() / f"{notebook.stem}-{os.getpid()}.ipynb"
    output.parent.mkdir(parents=True, exist_ok=True)
    return [*completed_arguments, str(output)]


def _kernel_options(notebook: Path) -> list[str]:
    """Return options for Python's kernel and language if a notebook does not name them."""
    from qwen3nb.execution.parameters import add_missing_metadata

    try:
        content = json.loads(notebook.read_bytes())
        named_fields = set(content["metadata"].get("kernelspec", {}))
        # Fills in the kernel and language of Python where there are none.
        add_missing_metadata(content)
    except (ValueError, LookupError, TypeError):  # not a notebook; papermill reports it
        return []
    kernel = content["metadata"]["kernelspec"]
    options = []
    if "name" not in named_fields:
        options += ["--kernel", kernel["name"]]
    if "language" not in named_fields:
        options += ["--language", kernel["language"]]
    return options


def _notebook_in_study(argument: str) -> Path | None:
    """Return the path of a notebook in a study, as given or in its ``notebooks/``, or None.

    Makes its study the current one.
    """
    notebook = Path(argument)
    if notebook.suffix != ".ipynb":
        return None
    may_be_name = len(notebook.parts) < 3  # such as eval.ipynb or guide/caching.ipynb
    if may_be_name and not notebook.is_file() and paths.find_root():
        notebook = paths.notebooks() / argument
    if not notebook.is_file():
        return None
    study = paths.study_of(notebook)
    if study is None:
        return None
    if study != paths.find_root():
        # From here on, pages and records are those of the notebook's study.
        os.environ.setdefault("QWEN3NB_HOME", str(study))
    return notebook


if Path(sys.argv[0]).name in ("papermill", "papermill.exe") or sys.argv[0].endswith(
    os.path.join("papermill", "__main__.py")  # noqa: PTH118 - a piece of a path, not a path
):
    sys.argv[1:] = completed(sys.argv[1:])
engines.papermill_engines.register(None, Engine)
