"""Find, load and verify the records on disk.

Many records are verified on all cores, by processes that are started as commands rather than
forked: a kernel that verifies has threads and libraries that a fork would break, and a script needs
no ``if __name__ == "__main__"``. This module, run as a command, reads a list of files and writes a
line of JSON for each: what is wrong with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, cast

from qwen3nb import paths
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.records.verification import (
    Verifier,
    folder_problems,
    problems,
    removed_records,
    unchanged_record,
)
from qwen3nb.utils.files.turns import turn
from qwen3nb.utils.hardware import cores

# Seconds after which records are verified on all cores, if the rest would take this long on one.
_PATIENCE = 1.0
_START_UP = 3.0
_CHECKSUMS_ONLY = "--checksums"

# Settings by which one model gets several rows if its records differ in them, each with the
# value that an older record without the setting implies.
_USES: dict[str, Any] = {
    "pooling": None,
    "max_length": None,
    "dtype": None,
    "prompts": None,
    "prefix": "",
    "append_eos": False,
    "normalize": True,
}


def load_results(
    folder: Path | str | None = None, *, adapters: bool = True, whole: bool = True
) -> Results:
    """Return all records under ``folder``, sorted by model and task; empty without the folder.

    A record that cannot be read, or that was changed after it was written, is left out;
    `Results.unreadable` names it.

    Args:
        folder: by default `paths.results`.
        adapters: whether to include records of trained adapters, which are repeated runs of one
            training (``qwen3nb.evaluation.studies.lora_runs``) that no leaderboard lists.
        whole: whether to check the files beside each record, too, from which its scores are read
            when they are needed.
    """
    records, unreadable = [], {}
    for file in result_files(folder):
        try:
            result = unchanged_record(file, alone=not whole)
        except ResultError as error:
            unreadable[paths.shown(file)] = str(error)
            continue
        if adapters or "training" not in result.config:
            records.append(result)
    return Results(records, unreadable=unreadable)


def result_files(folder: Path | str | None = None) -> list[Path]:
    """Return the record files under ``folder``, sorted."""
    base = Path(folder) if folder else paths.results()
    return sorted(base.glob("*/seed_*/*.json"))


def load_failures(folder: Path | str | None = None) -> dict[str, str]:
    """Return the last line of each failed task's traceback, by model, seed and task."""
    base = Path(folder) if folder else paths.results()
    failures = {}
    for file in sorted(base.glob("*/seed_*/*.error.txt")):
        if not file.is_file():
            continue
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        name = file.name.removesuffix(".error.txt")
        failures[f"{file.parent.parent.name} {file.parent.name} {name}"] = (
            lines[-1] if lines else ""
        )
    return failures


def verify(records: Result | Iterable[Result] | Path | str | None = None) -> list[str]:
    """Check that the numbers of records follow from what they hold; return what does not.

    Args:
        records: one or several records, a record's file, or a folder of records; by default
            `paths.results`. Checksums, runs and MTEB's results are compared for files only.

    Returns:
        A line per problem; empty if all records are consistent.
    """
    if isinstance(records, Result):
        return problems(records)
    if records is None or isinstance(records, Path | str):
        file = Path(records) if records is not None else paths.results()
        wrong = verify_files([file]) if file.is_file() else verify_folder(file)
        return [f"{paths.shown(file)}: {line}" for file, lines in wrong.items() for line in lines]
    return [
        f"{each.model.label} on {each.task.key}: {line}"
        for each in records
        for line in problems(each)
    ]


def verify_folder(folder: Path, *, checksums_only: bool = False) -> dict[Path, list[str]]:
    """Return the problems of the records in a folder, of their list and of their summary."""
    files = [*result_files(folder), *removed_records(folder)]
    return verify_files(files, checksums_only=checksums_only) | folder_problems(folder)


def verify_files(files: Iterable[Path], *, checksums_only: bool = False) -> dict[Path, list[str]]:
    """Return the problems of each file that has any; see `qwen3nb.records.verification`."""
    with closing(check_files(list(files), checksums_only=checksums_only)) as checked:
        return {file: problems for file, problems in checked if problems}


def check_files(
    files: Sequence[Path], *, checksums_only: bool = False
) -> Generator[tuple[Path, list[str]]]:
    """Yield each record's file with what is wrong with it, in the order of ``files``.

    Many records are verified on all cores: once the first have shown that the rest would take
    longer than processes take to start.
    """
    with closing(_checks(files, checksums_only=checksums_only)) as checks:
        for file, wrong in zip(files, checks, strict=True):
            if wrong:
                with turn(file):  # it may have been replaced meanwhile
                    wrong = Verifier(checksums_only=checksums_only).check(file)
            yield file, wrong


def _checks(files: Sequence[Path], *, checksums_only: bool) -> Generator[list[str]]:
    verifier = Verifier(checksums_only=checksums_only)
    started = time.monotonic()
    for done, file in enumerate(files, start=1):
        yield verifier.check(file)
        spent = time.monotonic() - started
        left = spent / done * (len(files) - done)
        if spent > _PATIENCE and left > _START_UP and cores() > 1:
            rest = files[done:]
            yield from checks_of_processes(rest, checksums_only=checksums_only, processes=cores())
            return


def checks_of_processes(
    files: Sequence[Path], *, checksums_only: bool, processes: int
) -> Generator[list[str]]:
    """Yield what is found in each file, in their order; no process is left when it ends.

    Raises:
        ChildProcessError: a process ended early, such as one killed for lack of memory.
    """
    command = [sys.executable, "-m", "qwen3nb.records.store", *[_CHECKSUMS_ONLY] * checksums_only]
    pipe, workers = subprocess.PIPE, list[subprocess.Popen[str]]()
    try:
        for _ in range(min(processes, len(files))):
            # In a session of its own: Ctrl-C ends this process, which ends it.
            worker = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
            )
            workers.append(worker)
        for number, worker in enumerate(workers):
            own = [str(file) for file in files[number :: len(workers)]]
            with suppress(BrokenPipeError):
                cast(IO[str], worker.stdin).write(json.dumps(own) + "\n")
                cast(IO[str], worker.stdin).flush()
        for number, file in enumerate(files):
            worker = workers[number % len(workers)]
            answer = cast(IO[str], worker.stdout).readline()
            if not answer:
                raise ChildProcessError(
                    f"a process that verifies records ended with status {worker.wait()} before its "
                    f"answer on {file}; verify that by itself"
                )
            yield json.loads(answer)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            with suppress(BrokenPipeError):
                worker.communicate()


def _serve(*, checksums_only: bool) -> None:
    verifier = Verifier(checksums_only=checksums_only)
    for file in json.loads(sys.stdin.readline()):
        try:
            print(json.dumps(verifier.check(Path(file))), flush=True)
        except BrokenPipeError:  # the command was killed
            os._exit(1)


def latest(results: Iterable[Result]) -> list[Result]:
    """Return only the latest of records that differ in the model's content alone.

    A checkpoint that is overwritten is another model under the same label; its old
    records stay on disk, but not in the tables.
    """
    newest: dict[tuple[Any, ...], Result] = {}
    for result in results:
        key = (*model_use(result), result.task.key)
        if key not in newest or newest[key].finished <= result.finished:
            newest[key] = result
    return list(newest.values())


def model_use(result: Result) -> tuple[Any, ...]:
    """Return what the records of one model have in common, though its content be replaced."""
    settings = result.model.settings
    use = tuple(str(settings.get(name, before)) for name, before in _USES.items())
    return result.model.label, use, result.seed


if __name__ == "__main__":
    _serve(checksums_only=_CHECKSUMS_ONLY in sys.argv[1:])
