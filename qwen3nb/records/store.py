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
from qwen3nb.records.stopped_early import why_left_out
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

# Seconds spent, and still to come, above which records are verified on all cores.
_SECONDS_ON_ONE_CORE = 1.0
_SECONDS_TO_START = 3.0  # processes
PROMPTS = "prompts"  # folder of the records of sets of prompts, in that of all records
_RECORDS_AT_ONCE = 32  # records per batch of a process

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
    """Return all records under ``folder``, sorted by model and task; empty if there are none yet.

    A record that cannot be read, that was changed after it was written, or that is of a run that
    stopped when it was certain, is left out; `Results.unreadable` names it.

    Args:
        folder: by default `paths.results`.
        adapters: whether to include records of trained adapters, repeated runs of one training
            (``qwen3nb.evaluation.studies.lora_runs``), which leaderboards leave out.
        whole: whether to check the files next to each record, too.

    Raises:
        FileNotFoundError: a ``folder`` is given, and there is none.
    """
    if folder and not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder of records; q.load_results() reads those of this study"
        )
    return records_under(folder, adapters=adapters, whole=whole)


def records_under(
    folder: Path | str | None = None, *, adapters: bool = True, whole: bool = True
) -> Results:
    """Return all records as `load_results`; none if the folder is still to be made."""
    records: dict[Path, Result] = {}
    unreadable = {}
    facts: dict[str, Any] = {}
    base = Path(folder) if folder else paths.results()
    for file in result_files(base):
        try:
            # Whole records are compared with the files next to them, too.
            record = unchanged_record(file, alone=not whole)
        except ResultError as error:
            unreadable[paths.shown(file)] = str(error)
            continue
        reason = why_left_out(record)
        if reason:
            unreadable[paths.shown(file)] = reason
        else:
            records[file] = _sharing(record, facts)
    results = Results(placed(records, base), unreadable=unreadable)
    if not adapters:
        return results.without_adapters
    return results


def _sharing(record: Result, facts: dict[str, Any]) -> Result:
    """Return a record with the earlier object where another record has the same model, or the like.

    The records of a model on 60 tasks have one model and one environment, in 60 copies.
    """
    names = ("model", "environment", "data", "options", "search")
    equal_facts = {}
    for name in names:
        fact = getattr(record, name)
        equal_facts[name] = facts.setdefault(repr(fact), fact)
    return replace(record, **equal_facts)


def placed(records: Mapping[Path, Result], folder: Path) -> list[Result]:
    """Return the records of ``folder``, by file, with their places; see `Result.place`."""
    place_by_entry = places(folder)
    return [
        replace(record, place=place_by_entry.get(in_list(file, record.checksum), 0))
        for file, record in records.items()
    ]


def result_files(folder: Path | str | None = None) -> list[Path]:
    """Return the record files under ``folder``, sorted; no label begins with a dot."""
    base = Path(folder) if folder else paths.results()
    return sorted(base.glob("[!.]*/seed_*/*.json"))


def record_folders(folder: Path | None = None) -> list[Path]:
    """Return the folder of all records, and that of sets of prompts in it, if it has or had any.

    Args:
        folder: of all records; by default `paths.results`.
    """
    base = folder or paths.results()
    folders = [base]
    prompts = base / PROMPTS
    if result_files(prompts) or removed_records(prompts):
        folders.append(prompts)
    return folders


def load_failures(folder: Path | str | None = None) -> dict[str, str]:
    """Return the last line of each failed task's traceback, by model, seed and task."""
    base = Path(folder) if folder else paths.results()
    failures = {}
    for file in sorted(base.glob("*/seed_*/*.error.txt")):
        if not file.is_file():
            continue
        traceback = file.read_text(encoding="utf-8", errors="replace").strip()
        *_, last_line = traceback.split("\n")
        model, seed = file.parent.parent.name, file.parent.name
        task = file.name.removesuffix(".error.txt")
        failures[f"{model} {seed} {task}"] = last_line
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
    if records is None:
        return _problem_lines(record_folders())
    if isinstance(records, Path | str):
        place = Path(records)
        return _problem_lines(record_folders(place) if place.is_dir() else [place])
    lines: list[str] = []
    for record in records:
        name = f"{record.model.label} on {record.task.key}"
        lines += [f"{name}: {problem}" for problem in problems(record)]
    return lines


def _problem_lines(places: Iterable[Path]) -> list[str]:
    """Return a line per problem of records or folders of records."""
    problems_by_file: dict[Path, list[str]] = {}
    for place in places:
        if place.is_file():
            problems_by_file |= verify_files([place])
        else:
            problems_by_file |= verify_folder(place)
    lines: list[str] = []
    for file, problems_of_file in problems_by_file.items():
        lines += [f"{paths.shown(file)}: {problem}" for problem in problems_of_file]
    return lines


def verify_folder(
    folder: Path, *, checksums_only: bool = False, fresh: bool = True
) -> dict[Path, list[str]]:
    """Return the problems of a folder's records, list and summary; see `check_files`."""
    files = [*result_files(folder), *removed_records(folder)]
    problems_by_file = verify_files(files, checksums_only=checksums_only, fresh=fresh)
    return problems_by_file | folder_problems(folder)


def verify_files(
    files: Iterable[Path], *, checksums_only: bool = False, fresh: bool = True
) -> dict[Path, list[str]]:
    """Return the problems of each file that has any; see `qwen3nb.records.verification`."""
    checks = check_files(list(files), checksums_only=checksums_only, fresh=fresh)
    with closing(checks) as checked:
        return {file: problems_of_file for file, problems_of_file in checked if problems_of_file}


def check_files(
    files: Sequence[Path], *, checksums_only: bool = False, fresh: bool = True
) -> Generator[tuple[Path, list[str]]]:
    """Yield each record's file with its problems, in the order of ``files``.

    Unless ``fresh``, records are left out that were found consistent before if no file that they
    are compared with has changed since (`Verifier.stamp`). All cores are used if the time per
    record shows that this outweighs starting processes.
    """
    # Only a whole check is remembered: with stamps by file, for this version of the code.
    code = ""
    stamps: dict[str, str] = {}
    if not checksums_only:
        code, verifier = code_digest(), Verifier()
        stamps = {str(file): verifier.stamp(file) for file in files}
    remembered = _consistent_before(code)
    files_to_check = list(files)
    if not fresh:
        files_to_check = [
            file for file in files if not _is_unchanged(str(file), stamps, remembered)
        ]
    # What is checked now counts as consistent only if it passes.
    names_to_check = {str(file) for file in files_to_check}
    consistent = {name: stamp for name, stamp in remembered.items() if name not in names_to_check}
    try:
        with closing(_checks(files_to_check, checksums_only=checksums_only)) as checks:
            for file, problems_of_file in zip(files_to_check, checks, strict=True):
                if problems_of_file:
                    with exclusive_lock(file):  # it may have been replaced meanwhile
                        problems_of_file = Verifier(checksums_only=checksums_only).check(file)
                stamp = stamps.get(str(file))
                if stamp and not problems_of_file:
                    consistent[str(file)] = stamp
                yield file, problems_of_file
    finally:
        if code and consistent != remembered:
            with suppress(OSError):  # they are verified again
                write_json(_memory(), {"code": code, "records": consistent}, indent=None)


def _is_unchanged(name: str, stamps: Mapping[str, str], remembered: Mapping[str, str]) -> bool:
    """Return whether a record has the stamp with which it was consistent before."""
    stamp = stamps.get(name)
    return bool(stamp) and remembered.get(name) == stamp


def _memory() -> Path:
    return paths.cache() / "verified.json"


def _consistent_before(code: str) -> dict[str, str]:
    """Return the stamps of records that this version of the package found consistent, by path."""
    if not code:
        return {}
    with suppress(OSError, ValueError, KeyError, TypeError):  # missing or damaged: verified again
        memory = read_json(_memory())
        if memory["code"] == code:
            return dict(memory["records"])
    return {}


def _checks(files: Sequence[Path], *, checksums_only: bool) -> Generator[list[str]]:
    verifier = Verifier(checksums_only=checksums_only)
    started = time.monotonic()
    for number_checked, file in enumerate(files, start=1):
        yield verifier.check(file)
        seconds_spent = time.monotonic() - started
        # If each of the others takes as long as those so far.
        seconds_left = seconds_spent / number_checked * (len(files) - number_checked)
        is_slow = seconds_spent > _SECONDS_ON_ONE_CORE and seconds_left > _SECONDS_TO_START
        if is_slow and cores() > 1:
            yield from _checks_of_processes(files[number_checked:], checksums_only=checksums_only)
            return


def _checks_of_processes(files: Sequence[Path], *, checksums_only: bool) -> Iterator[list[str]]:
    """Yield the problems of each file, in order.

    Processes of joblib are not forked, which would break threads and libraries of a kernel, and a
    script needs no ``if __name__ == "__main__"``.
    """
    from joblib import Parallel, delayed

    starts = range(0, len(files), _RECORDS_AT_ONCE)
    batches = [list(files[start : start + _RECORDS_AT_ONCE]) for start in starts]
    keep_exit_statuses()  # or a worker that died would not be missed
    run_in_processes = Parallel(n_jobs=cores(), return_as="generator")
    # A process uses one verifier for all batches of a call, which the time identifies.
    started = time.time_ns()
    jobs = (delayed(_check_batch)(batch, checksums_only, started) for batch in batches)
    for checked in run_in_processes(jobs):
        yield from checked


def _check_batch(files: Sequence[Path], checksums_only: bool, started: int) -> list[list[str]]:
    verifier = _verifier(checksums_only, started)
    return [verifier.check(file) for file in files]


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
    last_by_row = {_row(result): result for result in from_oldest(results)}
    rows_in_order = dict.fromkeys(_row(result) for result in results)
    return [last_by_row[row] for row in rows_in_order]


def _row(result: Result) -> tuple[Any, ...]:
    """Return a key shared by the records of which tables show one."""
    return (*model_use(result), result.task.key)


def model_use(result: Result) -> tuple[Any, ...]:
    """Return a key shared by the records of one model, even if its content is replaced."""
    settings = result.model.settings
    use = tuple(str(settings.get(name, before)) for name, before in _USES.items())
    return result.model.label, use, result.seed
