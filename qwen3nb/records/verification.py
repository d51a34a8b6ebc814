"""Verify that the numbers of records follow from their scores and the files next to them.

A record is compared with its checksum, the list of all records ever written in its folder, its
per-query scores, settings and runs, and MTEB's own result; the summary of a folder with its
records; and all of them with what the cache knows of them. The help of ``qwen3nb verify`` lists
changes that need a key to be detected.
"""

import importlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.metrics.aggregate import PARALLEL, REPORTED, Aggregate, aggregate_samples
from qwen3nb.metrics.fusion_weights import (
    FOLDS,
    best_row,
    equal_weights,
    folds_of_queries,
    rows_for_folds,
    weight_grid,
)
from qwen3nb.records.kept_runs import rescored_problems, run_problems
from qwen3nb.records.known_records import KnownDigests
from qwen3nb.records.record import (
    CHECKSUMS,
    Result,
    TaskInfo,
    check_file,
    is_copy_in_one_file,
    is_of_first_release,
    read_record,
)
from qwen3nb.records.side_files import (
    STEM,
    ResultError,
    StoredScores,
    StoredTop,
    files_in,
    first_stage_file,
    named_files,
)
from qwen3nb.records.stopped_early import why_left_out
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.journal import TICK, Journal
from qwen3nb.utils.schema import shortened

SUMMARY, SUMMARY_SCHEMA = "all_results.json", "qwen3nb.all-results/3"
_ROUNDING = 1e-9  # tolerance between two computations of a number
_SUM_ROUNDING = 1e-6  # tolerance of a query between its score and the sums of a fusion
_TOLERANCE = 1e-5  # MTEB rounds some of its scores to five digits
_CHANGED = "its content is not that of its checksum: it was changed after it was written"
_OTHERWISE_KNOWN = (
    "another content of the same run, time, model and task was written or verified here before: "
    "it was changed since, or is a copy under another label or seed"
)
# In the list of a folder, such as ``demo-1a2b3c4d/seed_0/SciFact.json <checksum>``; the oldest
# records have no checksum.
_ENTRY = re.compile(rf"{STEM}/seed_-?[0-9]+/{STEM}\.json ([0-9a-f]{{64}})?")
_IDENTITY = 40  # digits of a model's identity in the name of MTEB's folder
_META = "model_meta.json"
_AGAIN = "remove it, and the next evaluation writes it again"


class Verifier:
    """Verifies records, and computes shared digests once. The files must not change meanwhile."""

    def __init__(self, *, checksums_only: bool = False) -> None:
        """Create a verifier; ``checksums_only`` limits it to checksums and digests."""
        self._checksums_only = checksums_only
        self._digest = cache(sha256_file)  # of runs, which records may share
        self._listed = cache(listed_records)
        self._known = KnownDigests()
        self._mteb_folders = cache(lambda base: list(base.glob("*/*")))  # a model, its identity
        self._mteb_file = cache(_check_mteb_file)

    def check(self, file: Path) -> list[str]:
        """Return the problems of the record in ``file``; an unreadable file is one."""
        listed_checksums = self._listed_checksums(file)
        # True in the list: it was written completely.
        if not os.path.lexists(file) and any(listed_checksums.values()):
            remedy = f"if that was meant, delete its lines in {CHECKSUMS}"
            return [f"it was removed after it was written; {remedy}"]
        try:
            result, raw = read_record(file)
            problems_of_record = list(self._problems(file, result, raw, listed_checksums))
        except (OSError, ValueError, KeyError) as error:
            return [str(error).removeprefix(f"{file}: ")]
        # The copy in a book is of the same occasion, and in another form.
        is_copy = is_copy_in_one_file(raw) and not self._has_list(file)
        if result.occasion and not is_copy:
            if self._known.contradict(result.occasion, result.checksum):
                problems_of_record.append(_OTHERWISE_KNOWN)
            if not problems_of_record and not self._checksums_only:
                self._known.add(result.occasion, result.checksum)
        return problems_of_record

    def _listed_checksums(self, file: Path) -> dict[str, bool]:
        """Return the checksums of a record in the list of its folder; see `listed_records`."""
        base = _base_of(file)
        name = file.absolute().relative_to(base).as_posix()
        return self._listed(base).get(name, {})

    def _has_list(self, file: Path) -> bool:
        """Return whether the folder of a record lists any."""
        return bool(self._listed(_base_of(file)))

    def _problems(
        self, file: Path, result: Result, raw: Mapping[str, Any], listed: Mapping[str, bool]
    ) -> Iterator[str]:
        has_list = self._has_list(file)
        if not _has_own_checksum(raw):
            yield _CHANGED
        elif listed and result.checksum not in listed:
            yield f"{CHECKSUMS} does not list it as it is: it was changed after it was written"
        # Without a list, the record or its folder may have been copied here alone.
        elif has_list and not listed and not is_of_first_release(raw):
            yield (
                f"{CHECKSUMS} does not list it: another program wrote it, or it was copied here; "
                "append its lines of the list that it comes from"
            )
        if _is_link(file):
            yield "it is a link, and records are files: remove it, or copy the record with its list"
        problems_of_tables = side_file_problems(result)
        yield from problems_of_tables
        # Nothing can be recomputed from tables that are missing or changed.
        if not problems_of_tables and not self._checksums_only:
            yield from problems(result)
            yield from fitted_problems(result)
            yield from _location_problems(file, result)
            problems_of_runs = list(run_problems(file, result, digest=self._digest))
            yield from problems_of_runs
            if not problems_of_runs:
                yield from rescored_problems(file, result)
            yield from self._mteb_problems(file, result)
            if has_list:
                yield from self._missing_mteb_file(file, result)
        if not result.model.settings:
            yield "it has no settings, from which the model's identity follows"

    def stamp(self, file: Path) -> str:
        """Return a digest of the times and sizes of all that a record is compared with.

        Empty if a file is missing, a link, or has only just changed.
        """
        if _is_link(file):
            return ""
        try:
            check_file(file)
            stats = [compared.stat() for compared in self._compared_files(file)]
            listed_checksums = self._listed_checksums(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""
        last_change = max(stat.st_ctime_ns for stat in stats)
        if time.time_ns() - last_change <= TICK:  # the next change may have the same time
            return ""
        # Unlike the time of the last write, ctime cannot be set by a program.
        stamps = [(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
        return sha256_json([stamps, listed_checksums])

    def _compared_files(self, file: Path) -> Iterator[Path]:
        """Yield a record's file and those that it is compared with."""
        raw = read_json(file)
        # Of ``<base>/<label>-<identity>/seed_<n>/<task>.json``.
        base = file.absolute().parents[2]
        yield file
        yield from named_files(file, raw)
        first_run = files_in(raw).get("first_run")
        if first_run:
            # It is shared by rerankers, so it is not next to the record.
            yield first_stage_file(base, first_run["name"])
        identity = raw["model"]["identity"][:_IDENTITY]
        for folder in self._mteb_folders(base / "mteb" / "results"):
            if folder.name.startswith(identity):
                for name in (f"{raw['task']['name']}.json", _META, CHECKSUMS):
                    if (folder / name).exists():
                        yield folder / name

    def _mteb_problems(self, file: Path, result: Result) -> Iterator[str]:
        """Yield the problems of MTEB's results for the record in ``file``.

        Records of a part of a task are not compared, because MTEB's file may be of another part.
        """
        if result.task.mteb is None or result.task.selection:
            return
        for folder in self._mteb_folders(file.parent.parent.parent / "mteb" / "results"):
            # MTEB's folder is named by the model's identity.
            if not folder.name.startswith(result.model.identity[:_IDENTITY]):
                continue
            file_of_mteb = self._mteb_file(folder / f"{result.task.name}.json")
            meta = self._mteb_file(folder / _META)
            for checked in (file_of_mteb, meta):
                if checked.problem:
                    yield checked.problem
            if file_of_mteb.digest and not file_of_mteb.problem:
                yield from _mteb_differences(file_of_mteb, result)

    def _missing_mteb_file(self, file: Path, result: Result) -> Iterator[str]:
        """Yield a problem if the record in ``file`` names a result of MTEB and none is there."""
        mteb = result.task.mteb
        if mteb is None or not mteb.file or result.task.selection:
            return
        name = f"{result.task.name}.json"
        for folder in self._mteb_folders(file.parent.parent.parent / "mteb" / "results"):
            if not folder.name.startswith(result.model.identity[:_IDENTITY]):
                continue
            digest = self._mteb_file(folder / name).digest
            was_written = Journal(folder / CHECKSUMS).get(f"{name} {mteb.file}") is not None
            if digest == mteb.file:
                yield from _meta_problems(folder)
            if was_written or digest:
                return
        yield "MTEB's result that it was made with is not in mteb/results; copy it here, too"


def _is_link(file: Path) -> bool:
    """Return whether a record or one of its two folders is a link."""
    return any(path.is_symlink() for path in (file, *file.parents[:2]))


def _base_of(file: Path) -> Path:
    """Return the folder of all records, ``<base>/<label>-<identity>/seed_<n>/<task>.json``."""
    parents = file.absolute().parents
    return parents[min(2, len(parents) - 1)]  # less deep is none, which is reported


def _meta_problems(folder: Path) -> Iterator[str]:
    """Yield a problem if MTEB's facts on the model of a folder are not there, or of another one."""
    file = folder / _META
    meta = _facts_of_mteb(file)
    if "revision" not in meta:
        yield f"MTEB's {paths.shown(file)} is missing or was changed"
        return
    if meta["revision"] != folder.name:
        yield f"MTEB's {paths.shown(file)} is of another model, {meta['revision']!r}"
    name = str(meta.get("name"))
    # As MTEB names the folder.
    is_of_folder = name.replace("/", "__").replace(" ", "_") == folder.parent.name
    if "name" in meta and not is_of_folder:
        yield f"MTEB's {paths.shown(file)} is of {name!r}, unlike its folder"


def _facts_of_mteb(file: Path) -> dict[str, Any]:
    """Return MTEB's facts on a model; empty if they cannot be read."""
    meta = None
    if file.is_file():  # a pipe would never end
        with suppress(OSError, ValueError):
            meta = read_json(file, unique_names=True)
    if not isinstance(meta, dict):
        return {}
    return meta


@dataclass(frozen=True)
class _MTEBFile:
    """One of MTEB's files, compared with the list next to it."""

    path: Path
    digest: str = ""  # empty if there is no such file
    problem: str = ""  # why it is not valid, or empty


def _check_mteb_file(file: Path) -> _MTEBFile:
    checksums = file.with_name(CHECKSUMS)
    journal = Journal(checksums)
    prefix = f"{file.name} "
    # Each is ``<file name> <SHA-256>``.
    entries = [entry for entry in sorted(journal.keys()) if entry.startswith(prefix)]
    if not file.is_file():
        was_written = any(journal.was_finished(entry) for entry in entries)
        if was_written:
            problem = f"MTEB's {paths.shown(file)} was removed after it was written"
            return _MTEBFile(file, problem=problem)
        return _MTEBFile(file)
    digest = sha256_file(file)
    problem = ""
    if not checksums.is_file():
        problem = f"{paths.shown(checksums)}, the checksums of MTEB's results, is missing"
    elif journal.damaged:
        numbers = ", ".join(str(number) for number in journal.damaged)
        problem = f"line {numbers} of {paths.shown(checksums)} is damaged; restore it from a copy"
    elif f"{file.name} {digest}" not in entries:
        problem = f"MTEB's {paths.shown(file)} was changed after it was written"
    return _MTEBFile(file, digest, problem)


def problems(result: Result) -> list[str]:
    """Return the inconsistencies of a record; empty if there are none.

    Aggregates follow from the per-query scores, the identity from the settings; a reported main
    score equals MTEB's.
    """
    try:
        result = _with_scores_in_memory(result)
        if isinstance(result.top, StoredTop):
            result.top.check()
    except ResultError as error:  # nothing can be recomputed
        return [str(error)]
    inconsistencies = []
    settings = result.model.settings
    if settings and sha256_json(settings) != result.model.identity:
        inconsistencies.append("its identity does not follow from the model's settings")
    inconsistencies += _main_problems(result)
    main = result.task.main_metric
    aggregates = dict(result.metrics)
    for part in result.parts:
        aggregates[f"{main} on {part.split}/{part.subset}"] = part.score
    for name, aggregate in aggregates.items():
        inconsistencies += _aggregate_problems(result, name, aggregate)
    for name, aggregate in result.metrics.items():
        inconsistencies += _column_choice_problems(result, name, aggregate)
    return inconsistencies


def _with_scores_in_memory(result: Result) -> Result:
    """Return a record whose scores were all read at once, and checked; raises as that does."""
    if isinstance(result.per_query, StoredScores):
        return replace(result, per_query=result.per_query.whole())
    return result


def _main_problems(result: Result) -> Iterator[str]:
    """Compare the main scores of a record and its parts with those that MTEB reported."""
    task = result.task
    main = result.metrics.get(task.main_metric)
    if main is None:
        yield f"main metric {task.main_metric!r} is not among its metrics"
    elif task.mteb:
        yield from _score_problems(task.main_metric, main, task.mteb.value)
    for part in result.parts:
        yield from _score_problems(f"{part.split}/{part.subset}", part.score, part.mteb)


def _score_problems(name: str, score: Aggregate, score_of_mteb: float) -> Iterator[str]:
    """Compare a score with the one that MTEB reported."""
    agrees = score.value is not None and abs(score.value - score_of_mteb) <= _TOLERANCE
    if not agrees:
        yield f"{name}: value is {score.value}, MTEB reported {score_of_mteb}"


def _aggregate_problems(result: Result, name: str, aggregate: Aggregate) -> Iterator[str]:
    """Compare an aggregate with that of the per-query scores."""
    if aggregate.how == REPORTED:  # value of another program, without per-query scores
        other_metrics = result.metrics.keys() - {result.task.main_metric}
        if name in result.per_query or name in other_metrics:
            yield f"{name}: reported by another program, which only a main score may be"
        return
    try:
        computed = _recomputed(result, aggregate)
    except (ValueError, KeyError) as error:
        yield f"{name}: cannot be recomputed ({error})"
        return
    for field in ("value", "low", "high", "n"):
        expected_value, stated_value = getattr(computed, field), getattr(aggregate, field)
        if not _are_equal(expected_value, stated_value):
            yield f"{name}: {field} is {stated_value}, per-query scores give {expected_value}"


def _column_choice_problems(result: Result, name: str, aggregate: Aggregate) -> Iterator[str]:
    """Check that a metric is that of its own column, and of all queries with a score in it."""
    if aggregate.how == REPORTED or not aggregate.columns:
        return
    if name in result.per_query and aggregate.columns != (name,):
        yield f"{name}: is computed from {', '.join(aggregate.columns)}; expected its own scores"
    scored = result.scores.counts.get(aggregate.columns[0], 0)
    if aggregate.n != scored:
        yield f"{name}: is of {aggregate.n} queries; there are scores of {scored}"


def _recomputed(result: Result, aggregate: Aggregate) -> Aggregate:
    """Return an aggregate as it follows from the per-query scores."""
    columns, parts = aggregate.columns, aggregate.parts
    samples = result.scores.samples(columns, parts or ("",))
    parallel = aggregate.interval in PARALLEL.values()
    return aggregate_samples(
        samples, how=aggregate.how, columns=columns, parts=parts, parallel=parallel
    )


def _are_equal(first: float | None, second: float | None) -> bool:
    """Return whether two numbers are equal but for rounding, or both are undefined."""
    if first is None or second is None:
        return first is second
    return abs(first - second) <= _ROUNDING


def fitted_problems(result: Result) -> Iterator[str]:
    """Choose the weights of a fusion again from the sums of its record; yield the differences.

    The folds follow from the texts of queries, their clusters and the seed. The weights of a fold
    follow from the sums of all others, and the scores of its queries add up to its own sum for
    these weights.
    """
    fitted = result.search.fitted
    if fitted is None:
        return
    parts = len(fitted["parts"])
    scores = result.per_query[fitted["metric"]]
    texts = result.data.queries or {}
    queries = list(scores)
    if texts.keys() != scores.keys():
        yield "its fusion has scores of other queries than its texts"
        return
    texts_of_scored = {query: texts[query] for query in queries}
    folds = folds_of_queries(texts_of_scored, result.task.clusters, seed=result.seed)
    if not folds.any():  # too few queries to choose by
        if fitted["folds"] or not np.allclose(fitted["weights"], equal_weights(parts)):
            yield "its fusion states weights other than equal ones, for too few queries"
        return
    grid = weight_grid(parts)
    totals = np.array(fitted["totals"], dtype=np.float64)
    if totals.shape != (FOLDS, len(grid)):
        yield f"its fusion states sums for {totals.shape}; expected {(FOLDS, len(grid))}"
        return
    rows = rows_for_folds(totals, grid)
    sum_of_all = totals.sum(axis=0)
    row = best_row(sum_of_all, grid)
    if fitted["weights"] != grid[row].tolist() or fitted["folds"] != grid[rows].tolist():
        yield "its fusion states weights that do not follow from its sums"
    if not _are_equal(fitted["same_queries"], float(sum_of_all[row] / len(queries))):
        yield f"its fusion states {fitted['same_queries']} on the same queries; its sums differ"
    held_out = np.zeros(FOLDS)
    np.add.at(held_out, folds, [scores[query] for query in queries])
    stated = totals[np.arange(FOLDS), rows]
    if np.abs(held_out - stated).max() > _SUM_ROUNDING * len(queries):
        yield "its held-out scores do not add up to the sums of its fusion"


def _location_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the names of a record's file and folders with its content."""
    model, task = result.model, result.task.key
    if file.name != f"{task}.json":
        yield f"contains the task {task!r}"
    if file.parent.name != f"seed_{result.seed}":
        yield f"contains the seed {result.seed}"
    # The folder is ``<label>-<identity>``.
    label, _, identity = file.parent.parent.name.rpartition("-")
    if identity != model.identity[:8]:
        yield "is in the folder of a model with another identity"
    elif label != model.label:
        yield f"contains the model {model.label!r}"


def unchanged_record(file: Path, *, alone: bool = False) -> Result:
    """Return the record in ``file`` if it and the files that it names are unchanged.

    Its numbers are not recomputed; see `Verifier`. Records with the same queries share their ids.

    Args:
        file: the record.
        alone: whether to skip the files next to it.

    Raises:
        ResultError: the record cannot be read, or a file was changed; names the file.
    """
    result, raw = read_record(file)
    problems_of_tables = []
    if not alone:
        problems_of_tables = side_file_problems(result)
    # Replaced meanwhile, with its files: read the new record.
    if problems_of_tables and read_json(file) != raw:
        return unchanged_record(file)
    if not _has_own_checksum(raw):
        raise ResultError(f"{file}: {_CHANGED}")
    if problems_of_tables:
        raise ResultError(problems_of_tables[0])
    return result


def side_file_problems(result: Result) -> list[str]:
    """Return problems of files with scores and best documents: missing or changed."""
    problems_of_tables = []
    for table in _stored_tables(result):
        try:
            table.file.read()
        except ResultError as error:
            problems_of_tables.append(str(error))
    return problems_of_tables


def _stored_tables(result: Result) -> list[StoredScores | StoredTop]:
    """Return those of scores and best documents that are in files."""
    tables = (result.per_query, result.top)
    return [table for table in tables if isinstance(table, StoredScores | StoredTop)]


def _has_own_checksum(raw: Mapping[str, Any]) -> bool:
    """Return whether a JSON value matches the checksum in it."""
    content = {name: value for name, value in raw.items() if name != "checksum"}
    return bool(raw.get("checksum") == sha256_json(content))


def folder_problems(folder: Path) -> dict[Path, list[str]]:
    """Return the problems of the list of records in ``folder``, and of their summary."""
    problems_by_file = {}
    checksums, summary = folder / CHECKSUMS, folder / SUMMARY
    journal = Journal(checksums)
    damaged_lines = ", ".join(str(number) for number in journal.damaged)
    foreign_entries = _foreign_entries(journal)
    has_records = any(folder.glob("*/seed_*/*.json"))
    if damaged_lines:
        problems_by_file[checksums] = [
            f"line {damaged_lines} is damaged, so changes may not be detected; restore the list "
            "from a copy, or delete what is damaged"
        ]
    elif foreign_entries:
        problems_by_file[checksums] = [
            f"it names {shortened(foreign_entries)}; expected MODEL/seed_N/TASK.json and a "
            "checksum: another program wrote these lines; delete them"
        ]
    elif has_records and checksums.is_file() and not listed_records(folder):
        problems_by_file[checksums] = [
            "this list of all records that were written here is empty; restore it from a copy"
        ]
    elif has_records and not checksums.is_file():
        problems_by_file[checksums] = [
            "this list of all records that were written here is missing; copy it with them"
        ]
    problems_of_summary = list(_summary_problems(summary))
    if problems_of_summary:
        problems_by_file[summary] = problems_of_summary
    for file in _mteb_files_of_no_record(folder):
        problem = _check_mteb_file(file).problem
        if problem:
            problems_by_file[file] = [problem]
    return problems_by_file


def _mteb_files_of_no_record(folder: Path) -> Iterator[Path]:
    """Yield MTEB's files that no record of a folder may be of, so that `Verifier` reads none.

    A killed evaluation leaves such files, which it has listed.
    """
    recorded = set()
    for record in folder.glob("*/seed_*/*.json"):
        _, _, identity = record.parents[1].name.rpartition("-")
        recorded |= {(identity, record.name), (identity, _META)}
    folders_of_models: dict[str, list[Path]] = {}
    for folder_of_model in sorted(folder.glob("mteb/results/*/*")):
        folders_of_models.setdefault(folder_of_model.name[:8], []).append(folder_of_model)
    for identity, folders in folders_of_models.items():
        # Records are in folders that have eight digits of the identity.
        is_one_model = len({folder_of_model.name for folder_of_model in folders}) == 1
        for folder_of_model in folders:
            for file in sorted(folder_of_model.glob("*.json")):
                if not is_one_model or (identity, file.name) not in recorded:
                    yield file


def removed_records(folder: Path) -> list[Path]:
    """Return the records that are listed in a folder but missing."""
    removed = []
    for name, checksums in listed_records(folder).items():
        was_written = any(checksums.values())
        if was_written and not os.path.lexists(folder / name):
            removed.append(name)
    return [folder / name for name in sorted(removed)]


def _summary_problems(file: Path) -> Iterator[str]:
    """Compare a summary with its checksum and its records.

    It may be older than they are: entries of replaced records are not compared.
    """
    if not os.path.lexists(file):  # a folder need not have one
        return
    if file.is_symlink() or not file.is_file():
        yield f"it is no file, but a folder, a pipe or a link; {_AGAIN}"
        return
    # On a higher floor, where the means are computed.
    all_results = importlib.import_module("qwen3nb.answers.all_results")
    try:
        summary = read_json(file, unique_names=True)
        wrong_form = all_results.form_problem(summary)
        if wrong_form:
            yield f"it has not the form of a summary ({wrong_form}); {_AGAIN}"
            return
        if not _has_own_checksum(summary):
            yield _CHANGED
            return
        named, differences = _named_records(summary, file.parent)
        yield from differences
        if differences:
            return
        others = _records_but(named, file.parent)
        for problem in all_results.problems_with_records(file.parent, summary, named, others):
            yield f"{problem}; the next evaluation writes this file again"
    except (OSError, ValueError) as error:
        yield f"it cannot be read ({str(error).removeprefix(f'{file}: ')}); {_AGAIN}"
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        yield f"it has not the form of a summary; {_AGAIN}"


def _named_records(
    summary: Mapping[str, Any], folder: Path
) -> tuple[dict[str, dict[str, Result]], list[str]]:
    """Return the records that a summary names, but for replaced ones, and what is wrong of them.

    The records are by model and task.
    """
    listed = listed_records(folder)
    named: dict[str, dict[str, Result]] = {}
    problems_of_entries = []
    for model, tasks in summary["results"].items():
        named[model] = {}
        for task, entry in tasks.items():
            record, problem = _named_record(entry, folder, listed)
            if problem:
                problems_of_entries.append(f"{model} on {task}: {problem}")
            if record is not None:
                named[model][task] = record
    return named, problems_of_entries


def _named_record(
    entry: Mapping[str, Any], folder: Path, listed: Mapping[str, Mapping[str, bool]]
) -> tuple[Result | None, str]:
    """Return the record of an entry of a summary, unless it was replaced, and what is wrong."""
    record, digest = entry["record"], entry["checksum"]
    if record in listed and digest not in listed[record]:
        return None, "it was made from no record that was written here"
    if not os.path.lexists(folder / record):
        if record in listed:  # reported as removed elsewhere
            return None, ""
        remedy = (
            "if it was removed on purpose, remove this file, which the next evaluation writes again"
        )
        return None, f"{record} was never written here; {remedy}"
    try:
        result, raw = read_record(folder / record)
    except ResultError:  # reported elsewhere
        return None, ""
    was_replaced = raw.get("checksum", "") != digest
    if was_replaced:
        return None, ""
    scores = json.loads(json.dumps(scores_of(result)))  # with lists in place of tuples
    if scores != entry:
        return result, f"it is not what {record} holds"
    return result, ""


def _records_but(named: Mapping[str, Mapping[str, Result]], folder: Path) -> list[Result]:
    """Return the records of a folder that a summary may have and that are none of ``named``."""
    named_files = {record.path(folder) for tasks in named.values() for record in tasks.values()}
    others = []
    for file in sorted(folder.glob("*/seed_*/*.json")):
        if file in named_files:
            continue
        with suppress(ResultError):  # reported elsewhere
            record = unchanged_record(file, alone=True)
            if not why_left_out(record):
                others.append(record)
    return others


def scores_of(result: Result) -> dict[str, Any]:
    """Return the aggregates of a record, and its checksum."""
    task, model = result.task, result.model
    score_of_mteb = None
    if task.mteb:
        score_of_mteb = asdict(task.mteb)
    return {
        "identity": model.identity,
        "type": task.type,
        "dataset": task.dataset,
        "revision": task.revision,
        "splits": task.splits,
        "subsets": task.subsets,
        "main_metric": task.main_metric,
        "main_score": result.main.value,
        "metrics": {name: {**vars(value)} for name, value in result.metrics.items()},
        "parts": [asdict(part) for part in result.parts],
        "mteb": score_of_mteb,
        "size": task.size,
        "counts": task.counts,
        "seconds": result.cost.seconds,
        # As in `Result.path`, which refuses unsafe names.
        "record": f"{model.label}-{model.identity[:8]}/seed_{result.seed}/{task.key}.json",
        "checksum": result.checksum,
    }


def listed_records(folder: Path) -> dict[str, dict[str, bool]]:
    """Return the checksums of all records ever written in ``folder``, by the record's path.

    Each with whether writing it was ever completed: no later line takes that back.
    """
    journal = Journal(folder / CHECKSUMS)
    checksums_by_path: dict[str, dict[str, bool]] = {}
    for entry in sorted(journal.keys()):
        if not _ENTRY.fullmatch(entry):  # reported by `folder_problems`
            continue
        name, _, digest = entry.rpartition(" ")
        checksums = checksums_by_path.setdefault(name, {})
        checksums[digest] = journal.was_finished(entry)
    return checksums_by_path


def _foreign_entries(journal: Journal) -> list[str]:
    """Return the entries of a list that name no record of its folder."""
    return [entry for entry in sorted(journal.keys()) if not _ENTRY.fullmatch(entry)]


def _mteb_differences(file: _MTEBFile, result: Result) -> Iterator[str]:
    """Compare a record with MTEB's own file, unless it is from a later evaluation."""
    # Empty if the record names no file of MTEB.
    digest_in_record = ""
    if result.task.mteb is not None:
        digest_in_record = result.task.mteb.file
    folder = file.path.parent
    if digest_in_record:
        was_written = Journal(folder / CHECKSUMS).get(f"{file.path.name} {digest_in_record}")
        if was_written is None:
            yield f"MTEB's result that it was made with was never in {paths.shown(folder)}"
            return
        if digest_in_record != file.digest:  # replaced by a later evaluation
            return
        parameters = _facts_of_mteb(folder / _META).get("n_parameters")
        stated = result.model.parameters
        if None not in (parameters, stated) and parameters != stated:
            meta = paths.shown(folder / _META)
            yield f"its model has {stated} parameters, in MTEB's {meta} it has {parameters}"
    try:
        outcome = json.loads(file.path.read_bytes())  # MTEB writes NaN
        yield from _outcome_differences(outcome, result.task, paths.shown(file.path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield f"MTEB's result {paths.shown(file.path)} has not the form of one"
    except (RecursionError, OverflowError):
        yield f"MTEB's result {paths.shown(file.path)} nests too deep, or has too large a number"


def _outcome_differences(outcome: Mapping[str, Any], task: TaskInfo, file: str) -> Iterator[str]:
    """Compare the score, revision, splits and subsets of a record with MTEB's result."""
    means_by_split = []  # over subsets
    subsets: set[str] = set()
    for entries in outcome["scores"].values():
        means_by_split.append(fmean(entry["main_score"] for entry in entries))
        subsets.update(entry["hf_subset"] for entry in entries if entry.get("hf_subset"))
    score = fmean(means_by_split)
    if task.mteb:
        agrees = abs(score - task.mteb.value) <= _TOLERANCE
        if not agrees:
            yield f"MTEB's score is {task.mteb.value}, in {file} it is {score}"
    in_record = {
        "revision": task.revision,
        "splits": sorted(task.splits),
        "subsets": sorted(task.subsets),
    }
    in_outcome = {
        "revision": outcome.get("dataset_revision"),
        "splits": sorted(outcome["scores"]),
        "subsets": sorted(subsets),
    }
    for name, record_value in in_record.items():
        outcome_value = in_outcome[name]
        if record_value and outcome_value and record_value != outcome_value:
            yield f"its {name} is {record_value}, in {file} it is {outcome_value}"
