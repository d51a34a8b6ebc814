"""Find, load and verify the records on disk."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records.record import Result, in_list, places
from qwen3nb.records.results import Results, from_oldest
from qwen3nb.records.side_files import ResultError
from qwen3nb.records.verification import (
    Verifier,
    folder_problems,
    problems,
    removed_records,
    unchanged_record,
)
from qwen3nb.utils.atomic_files import exclusive_lock, read_json, write_json
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.code_version import code_digest
from qwen3nb.utils.hardware import cores

# Remaining seconds on one core above which records are verified on all cores.
_PATIENCE = 1.0
_START_UP = 3.0
PROMPTS = "prompts"  # folder of the records of sets of prompts, in that of all records
_PART = 32  # records per batch of a process

# Settings in which records of one model may differ, each then with its own row, and the value
# implied by records without the setting.
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
        adapters: whether to include records of trained adapters, repeated runs of one training
            (``qwen3nb.evaluation.studies.lora_runs``), which leaderboards leave out.
        whole: whether to check the files next to each record, too.
    """
    found: dict[Path, Result] = {}
    unreadable = {}
    base = Path(folder) if folder else paths.results()
    for file in result_files(base):
        try:
            record = unchanged_record(file, alone=not whole)
            found[file] = record
        except ResultError as error:
            unreadable[paths.shown(file)] = str(error)
    results = Results(placed(found, base), unreadable=unreadable)
    return results if adapters else results.without_adapters


def placed(records: Mapping[Path, Result], folder: Path) -> list[Result]:
    """Return the records of ``folder``, by file, with their places; see `Result.place`."""
    listed = places(folder)
    return [
        replace(record, place=listed.get(in_list(file, record.checksum), 0))
        for file, record in records.items()
    ]


def result_files(folder: Path | str | None = None) -> list[Path]:
    """Return the record files under ``folder``, sorted."""
    base = Path(folder) if folder else paths.results()
    return sorted(base.glob("*/seed_*/*.json"))


def record_folders() -> list[Path]:
    """Return the folder of all records, and that of sets of prompts in it, if it has any."""
    prompts = paths.results() / PROMPTS
    return [paths.results(), *([prompts] if any(prompts.glob("*/seed_*/*.json")) else [])]


def load_failures(folder: Path | str | None = None) -> dict[str, str]:
    """Return the last line of each failed task's traceback, by model, seed and task."""
    base = Path(folder) if folder else paths.results()
    failures = {}
    for file in sorted(base.glob("*/seed_*/*.error.txt")):
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        name = file.name.removesuffix(".error.txt")
        failures[f"{file.parent.parent.name} {file.parent.name} {name}"] = text.split("\n")[-1]
    return failures


def verify(records: Result | Iterable[Result] | Path | str | None = None) -> list[str]:
    """Check that the numbers of records follow from their scores; return the problems.

    Args:
        records: one or several records, a record's file, or a folder of records; by default
            `paths.results`. Checksums, runs and MTEB's results are compared for files only.

    Returns:
        A line per problem; empty if all records are consistent.
    """
    if isinstance(records, Result):
        return problems(records)
    if records is None or isinstance(records, Path | str):
        wrong: dict[Path, list[str]] = {}
        for file in record_folders() if records is None else [Path(records)]:
            wrong |= verify_files([file]) if file.is_file() else verify_folder(file)
        return [f"{paths.shown(file)}: {line}" for file, lines in wrong.items() for line in lines]
    return [
        f"{each.model.label} on {each.task.key}: {line}"
        for each in records
        for line in problems(each)
    ]


def verify_folder(
    folder: Path, *, checksums_only: bool = False, fresh: bool = True
) -> dict[Path, list[str]]:
    """Return the problems of a folder's records, list and summary; see `check_files`."""
    files = [*result_files(folder), *removed_records(folder)]
    wrong = verify_files(files, checksums_only=checksums_only, fresh=fresh)
    return wrong | folder_problems(folder)


def verify_files(
    files: Iterable[Path], *, checksums_only: bool = False, fresh: bool = True
) -> dict[Path, list[str]]:
    """Return the problems of each file that has any; see `qwen3nb.records.verification`."""
    checks = check_files(list(files), checksums_only=checksums_only, fresh=fresh)
    with closing(checks) as checked:
        return {file: problems for file, problems in checked if problems}


def check_files(
    files: Sequence[Path], *, checksums_only: bool = False, fresh: bool = True
) -> Generator[tuple[Path, list[str]]]:
    """Yield each record's file with its problems, in the order of ``files``.

    Unless ``fresh``, records are left out that were found consistent before if no file that they
    are compared with has changed since (`Verifier.stamp`). All cores are used if the time per
    record shows that this outweighs starting processes.
    """
    verifier, code = Verifier(), "" if checksums_only else code_digest()
    stamps = {str(file): verifier.stamp(file) for file in files} if code else {}
    known = _consistent_before(code) if code else {}
    before = {} if fresh else known
    due = [
        each for each in files if not (now := stamps.get(str(each))) or before.get(str(each)) != now
    ]
    consistent = {file: known[file] for file in known.keys() - set(map(str, due))}
    try:
        with closing(_checks(due, checksums_only=checksums_only)) as checks:
            for file, wrong in zip(due, checks, strict=True):
                if wrong:
                    with exclusive_lock(file):  # it may have been replaced meanwhile
                        wrong = Verifier(checksums_only=checksums_only).check(file)
                if not wrong and stamps.get(str(file)):
                    consistent[str(file)] = stamps[str(file)]
                yield file, wrong
    finally:
        if code and consistent != known:
            with suppress(OSError):  # they are verified again
                write_json(_memory(), {"code": code, "records": consistent}, indent=None)


def _memory() -> Path:
    return paths.cache() / "verified.json"


def _consistent_before(code: str) -> dict[str, str]:
    """Return the stamps of records that this version of the package found consistent, by path."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # missing or damaged: verified again
        memory = read_json(_memory())
        return dict(memory["records"]) if memory["code"] == code else {}
    return {}


def _checks(files: Sequence[Path], *, checksums_only: bool) -> Generator[list[str]]:
    verifier = Verifier(checksums_only=checksums_only)
    started = time.monotonic()
    for done, file in enumerate(files, start=1):
        yield verifier.check(file)
        spent = time.monotonic() - started
        left = spent / done * (len(files) - done)
        if spent > _PATIENCE and left > _START_UP and cores() > 1:
            yield from _checks_of_processes(files[done:], checksums_only=checksums_only)
            return


def _checks_of_processes(files: Sequence[Path], *, checksums_only: bool) -> Iterator[list[str]]:
    """Yield the problems of each file, in order.

    Processes of joblib are not forked, which would break threads and libraries of a kernel, and a
    script needs no ``if __name__ == "__main__"``.
    """
    from joblib import Parallel, delayed

    parts = [list(files[start : start + _PART]) for start in range(0, len(files), _PART)]
    keep_exit_statuses()  # or a worker that died would not be missed
    run, started = Parallel(n_jobs=cores(), return_as="generator"), time.time_ns()
    for checked in run(delayed(_check_part)(each, checksums_only, started) for each in parts):
        yield from checked


def _check_part(files: Sequence[Path], checksums_only: bool, started: int) -> list[list[str]]:
    return list(map(_verifier(checksums_only, started).check, files))


@lru_cache(maxsize=1)  # a process reads the list of all records once
def _verifier(checksums_only: bool, started: int) -> Verifier:
    return Verifier(checksums_only=checksums_only)


def latest(results: Iterable[Result]) -> list[Result]:
    """Return only the latest of records that differ in the model's content alone.

    An overwritten checkpoint is another model with the same label; its old records stay on disk,
    but tables leave them out. The latest is the one that was written, or used again, last; see
    `qwen3nb.records.results.from_oldest`.
    """
    results = list(results)
    last = {_row(result): result for result in from_oldest(results)}
    return [last[row] for row in dict.fromkeys(map(_row, results))]


def _row(result: Result) -> tuple[Any, ...]:
    """Return a key shared by the records of which tables show one."""
    return (*model_use(result), result.task.key)


def model_use(result: Result) -> tuple[Any, ...]:
    """Return a key shared by the records of one model, even if its content is replaced."""
    settings = result.model.settings
    use = tuple(str(settings.get(name, before)) for name, before in _USES.items())
    return result.model.label, use, result.seed
