"""Verify that the numbers of records follow from their scores and the files next to them.

A record is compared with its checksum, the list of all records ever written in its folder, its
per-query scores, settings and runs, and MTEB's own result; the summary of a folder with its
records. Nothing is signed: the help of ``qwen3nb verify`` lists changes that are not detected if
every checksum is recomputed.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.metrics.aggregate import PARALLEL, REPORTED, Aggregate, aggregate_samples
from qwen3nb.metrics.retrieval import JUDGED, METRICS, score_run
from qwen3nb.records.record import CHECKSUMS, Result, TaskInfo, check_file, read_record
from qwen3nb.records.side_files import (
    ResultError,
    StoredScores,
    StoredTop,
    files_in,
    first_run_file,
    first_stage_file,
    named_files,
    reranked_run_file,
)
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.journal import TICK, Journal

SUMMARY, SUMMARY_SCHEMA = "all_results.json", "qwen3nb.all-results/3"
_ROUNDING = 1e-9  # tolerance between two computations of a number
_SCORE_ROUNDING = 1e-6  # tolerance between a stored score and one computed from its run
_TOLERANCE = 1e-5  # MTEB rounds some of its scores to five digits
_CHANGED = "its content is not that of its checksum: it was changed after it was written"
_IDENTITY = 40  # digits of a model's identity in the name of MTEB's folder
_META = "model_meta.json"


class Verifier:
    """Verifies records, and computes shared digests once. The files must not change meanwhile."""

    def __init__(self, *, checksums_only: bool = False) -> None:
        """Create a verifier; ``checksums_only`` limits it to checksums and digests."""
        self._checksums_only = checksums_only
        self._digest = cache(sha256_file)  # of runs, which records may share
        self._listed = cache(listed_records)
        self._mteb_folders = cache(lambda base: list(base.glob("*/*")))  # a model, its identity
        self._mteb_file = cache(_mteb_file)

    def check(self, file: Path) -> list[str]:
        """Return the problems of the record in ``file``; an unreadable file is one."""
        listed = self._listed_checksums(file)
        if not os.path.lexists(file) and any(listed.values()):
            remedy = f"if that was meant, delete its lines in {CHECKSUMS}"
            return [f"it was removed after it was written; {remedy}"]
        try:
            return list(self._problems(file, listed))
        except (OSError, ValueError, KeyError) as error:
            return [str(error).removeprefix(f"{file}: ")]

    def _listed_checksums(self, file: Path) -> dict[str, bool]:
        """Return the checksums of a record in the list of its folder; see `listed_records`."""
        base = file.absolute().parents[2]
        name = file.absolute().relative_to(base).as_posix()
        return self._listed(base).get(name, {})

    def _problems(self, file: Path, listed: Mapping[str, bool]) -> Iterator[str]:
        result, raw = read_record(file)
        changed = _own_problems(raw)
        yield from changed
        if not changed and listed and result.checksum not in listed:
            yield f"{CHECKSUMS} does not list it as it is: it was changed after it was written"
        lost = side_file_problems(result)
        yield from lost
        if not lost and not self._checksums_only:
            yield from problems(result)
            yield from _location_problems(file, result)
            run = list(run_problems(file, result, digest=self._digest))
            yield from run or _rescored_problems(file, result)
            yield from self._mteb_problems(file, result)
        if not result.model.settings:
            yield "it has no settings, from which the model's identity follows"

    def stamp(self, file: Path) -> str:
        """Return a digest of the times and sizes of all that a record is compared with.

        Empty if a file is missing or has only just changed.
        """
        try:
            check_file(file)
            stats = [each.stat() for each in self._compared_files(file)]
            listed = self._listed_checksums(file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""
        newest = max(stat.st_ctime_ns for stat in stats)
        if time.time_ns() - newest <= TICK:
            return ""
        stamps = [(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
        return sha256_json([stamps, listed])

    def _compared_files(self, file: Path) -> Iterator[Path]:
        """Yield a record's file and those that it is compared with."""
        raw = read_json(file)
        base = file.absolute().parents[2]
        yield file
        yield from named_files(file, raw)
        first_run = files_in(raw).get("first_run")
        if first_run:
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
            if not folder.name.startswith(result.model.identity[:_IDENTITY]):
                continue
            theirs = folder / f"{result.task.name}.json"
            digest, problem = self._mteb_file(theirs)
            _, problem_of_meta = self._mteb_file(folder / _META)
            yield from filter(None, (problem, problem_of_meta))
            if digest and not problem:
                yield from _mteb_differences(theirs, result, digest)


def _mteb_file(file: Path) -> tuple[str, str]:
    """Return the digest of one of MTEB's files, and why it is not valid, or an empty string."""
    checksums = file.with_name(CHECKSUMS)
    journal = Journal(checksums)
    keys = [key for key in sorted(journal.keys()) if key.startswith(f"{file.name} ")]
    if not file.is_file():
        if any(journal.get(key) for key in keys):
            return "", f"MTEB's {paths.shown(file)} was removed after it was written"
        return "", ""
    digest = sha256_file(file)
    if not checksums.is_file():
        return digest, f"{paths.shown(checksums)}, the checksums of MTEB's results, is missing"
    if f"{file.name} {digest}" not in keys:
        return digest, f"MTEB's {paths.shown(file)} was changed after it was written"
    return digest, ""


def problems(result: Result) -> list[str]:
    """Return the inconsistencies of a record; empty if there are none.

    Aggregates follow from the per-query scores, the identity from the settings; a reported main
    score equals MTEB's.
    """
    try:
        for stored in _stored(result):
            stored.check()
    except ResultError as error:  # nothing can be recomputed
        return [str(error)]
    inconsistencies = []
    if result.model.settings and sha256_json(result.model.settings) != result.model.identity:
        inconsistencies.append("its identity does not follow from the model's settings")
    inconsistencies += _main_problems(result)
    main = result.task.main_metric
    aggregates = dict(result.metrics)
    for part in result.parts:
        aggregates[f"{main} on {part.split}/{part.subset}"] = part.score
    for name, aggregate in aggregates.items():
        inconsistencies += _aggregate_problems(result, name, aggregate)
    return inconsistencies


def _main_problems(result: Result) -> Iterator[str]:
    """Compare the main scores of a record and its parts with those that MTEB reported."""
    task = result.task
    scores: list[tuple[str, Aggregate, float]] = []
    main = result.metrics.get(task.main_metric)
    if main is None:
        yield f"main metric {task.main_metric!r} is not among its metrics"
    elif task.mteb:
        scores.append((task.main_metric, main, task.mteb.value))
    scores += [(f"{part.split}/{part.subset}", part.score, part.mteb) for part in result.parts]
    for name, ours, theirs in scores:
        if ours.value is None or not abs(ours.value - theirs) <= _TOLERANCE:
            yield f"{name}: value is {ours.value}, MTEB reported {theirs}"


def _aggregate_problems(result: Result, name: str, aggregate: Aggregate) -> Iterator[str]:
    """Compare an aggregate with that of the per-query scores."""
    if aggregate.how == REPORTED:  # value of another program, without per-query scores
        if name in result.per_query or name in result.metrics.keys() - {result.task.main_metric}:
            yield f"{name}: reported by another program, which only a main score may be"
        return
    columns, parts = aggregate.columns, aggregate.parts
    try:
        samples = [result.scores.sample(columns, part) for part in parts or ("",)]
        parallel = aggregate.interval in PARALLEL.values()
        computed = aggregate_samples(
            samples, how=aggregate.how, columns=columns, parts=parts, parallel=parallel
        )
    except (ValueError, KeyError) as error:
        yield f"{name}: cannot be recomputed ({error})"
        return
    for field in ("value", "low", "high", "n"):
        expected, stated = getattr(computed, field), getattr(aggregate, field)
        if expected is None or stated is None:
            is_equal = expected is stated
        else:
            is_equal = abs(expected - stated) <= _ROUNDING
        if not is_equal:
            yield f"{name}: {field} is {stated}, per-query scores give {expected}"


def _location_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the names of a record's file and folders with its content."""
    model, task = result.model, result.task.key
    if file.name != f"{task}.json":
        yield f"contains the task {task!r}"
    if file.parent.name != f"seed_{result.seed}":
        yield f"contains the seed {result.seed}"
    label, _, identity = file.parent.parent.name.rpartition("-")
    if identity != model.identity[:8]:
        yield "is in the folder of a model with another identity"
    elif label != model.label:
        yield f"contains the model {model.label!r}"


def run_problems(
    file: Path, result: Result, *, digest: Callable[[Path], str] = sha256_file
) -> Iterator[str]:
    """Yield the problems of the runs of the record in ``file``."""
    files = result.files
    digests = {file.with_name(name): sha for name, sha in (files.runs | files.qrels).items()}
    if files.first_run is not None:
        digests[first_run_file(file, files)] = files.first_run["sha256"]
    for run, expected in digests.items():
        if not run.is_file():
            yield f"its run {run.name} is missing"
        elif digest(run) != expected:
            yield f"its run {run.name} is not the one that was scored"


def _rescored_problems(file: Path, result: Result) -> Iterator[str]:
    """Rescore the run of the record in ``file`` with its qrels; yield the differences."""
    files = result.files
    if not (files.runs and files.qrels):
        return
    run: dict[str, dict[str, float]] = {}
    for query, _, document, _, score, _ in _rows(reranked_run_file(file, files)):
        run.setdefault(query, {})[document] = float(score)
    qrels: dict[str, dict[str, int]] = {}
    for qrels_name in files.qrels:
        for query, _, document, grade in _rows(file.with_name(qrels_name)):
            qrels.setdefault(query, {})[document] = int(grade)
    names = [name for name in result.per_query if name.partition("@")[0] in METRICS]
    if result.data.complete:  # every document counts as judged
        names = [name for name in names if name != JUDGED]
    threshold = result.data.relevance_threshold or 1
    computed = score_run(qrels, run, names, threshold=threshold, zeros=True)
    for name in names:
        yield from _column_problems(name, result.per_query[name], computed[name])


def _column_problems(
    name: str, stated: Mapping[str, float], computed: Mapping[str, float]
) -> Iterator[str]:
    """Yield the first score of a column that its run and its qrels don't give."""
    for query, value in computed.items():
        if query in stated and not abs(stated[query] - value) <= _SCORE_ROUNDING:
            yield (
                f"{name} of query {query!r} is {stated[query]}, its run and its qrels give {value}"
            )
            return


def _rows(file: Path) -> Iterator[list[str]]:
    with file.open(encoding="utf-8") as lines:
        yield from (line.split() for line in lines)


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
    lost = [] if alone else side_file_problems(result)
    if lost and read_json(file) != raw:  # replaced meanwhile, with its files
        return unchanged_record(file)
    for problem in (*(f"{file}: {each}" for each in _own_problems(raw)), *lost):
        raise ResultError(problem)
    return result


def side_file_problems(result: Result) -> list[str]:
    """Return problems of files with scores and best documents: missing or changed."""
    wrong = []
    for stored in _stored(result):
        try:
            stored.file.read()
        except ResultError as error:
            wrong.append(str(error))
    return wrong


def _stored(result: Result) -> list[StoredScores | StoredTop]:
    both = (result.per_query, result.top)
    return [each for each in both if isinstance(each, StoredScores | StoredTop)]


def _own_problems(raw: dict[str, Any]) -> list[str]:
    """Return a problem if a JSON value does not match its checksum."""
    content = {name: value for name, value in raw.items() if name != "checksum"}
    return [] if raw.get("checksum") == sha256_json(content) else [_CHANGED]


def folder_problems(folder: Path) -> dict[Path, list[str]]:
    """Return the problems of the list of records in ``folder``, and of their summary."""
    problems, file = {}, folder / CHECKSUMS
    if damaged := Journal(file).damaged:
        lines = f"line {', '.join(map(str, damaged))} is damaged, so changes may not be detected"
        problems[file] = [f"{lines}; restore the list from a copy, or delete what is damaged"]
    elif not file.is_file() and any(folder.glob("*/seed_*/*.json")):
        problems[file] = [
            "this list of all records that were written here is missing; copy it with them"
        ]
    if wrong := list(_summary_problems(folder / SUMMARY)):
        problems[folder / SUMMARY] = wrong
    return problems


def removed_records(folder: Path) -> list[Path]:
    """Return the records that are listed in a folder but missing."""
    listed = {name for name, each in listed_records(folder).items() if any(each.values())}
    return [folder / name for name in sorted(listed) if not os.path.lexists(folder / name)]


def _summary_problems(file: Path) -> Iterator[str]:
    """Compare a summary with its checksum and its records.

    It may be older than they are: entries of replaced records are not compared.
    """
    try:
        value = read_json(file)
        yield from _own_problems(value)
        listed = listed_records(file.parent)
        for model, tasks in value["results"].items():
            for task, entry in tasks.items():
                record, digest = entry["record"], entry["checksum"]
                if digest not in listed.get(record, {digest: True}):
                    yield f"{model} on {task}: it was made from no record that was written here"
                elif os.path.lexists(file.parent / record):
                    result, raw = read_record(file.parent / record)
                    same = json.loads(json.dumps(scores_of(result))) == entry
                    if raw.get("checksum", "") == digest and not same:
                        yield f"{model} on {task}: it is not what {record} holds"
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"it cannot be read ({error!r})"


def scores_of(result: Result) -> dict[str, Any]:
    """Return the aggregates of a record, and its checksum."""
    task, model = result.task, result.model
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
        "mteb": asdict(task.mteb) if task.mteb else None,
        "size": task.size,
        "counts": task.counts,
        "seconds": result.cost.seconds,
        # As in `Result.path`, which refuses unsafe names.
        "record": f"{model.label}-{model.identity[:8]}/seed_{result.seed}/{task.key}.json",
        "checksum": result.checksum,
    }


def listed_records(folder: Path) -> dict[str, dict[str, bool]]:
    """Return the checksums of all records ever written in ``folder``, by the record's path.

    Each with whether writing it was completed.
    """
    journal = Journal(folder / CHECKSUMS)
    listed: dict[str, dict[str, bool]] = {}
    for key in sorted(journal.keys()):
        name, _, digest = key.rpartition(" ")
        listed.setdefault(name, {})[digest] = bool(journal.get(key))
    return listed


def _mteb_differences(theirs: Path, result: Result, digest: str) -> Iterator[str]:
    """Compare a record with MTEB's own file, unless it is from a later evaluation."""
    stated = ""
    if result.task.mteb is not None:
        stated = result.task.mteb.file
    journal = Journal(theirs.with_name(CHECKSUMS))
    if stated and journal.get(f"{theirs.name} {stated}") is None:
        yield f"MTEB's result that it was made with was never in {paths.shown(theirs.parent)}"
        return
    if stated not in ("", digest):
        return
    try:
        outcome = json.loads(theirs.read_bytes())  # MTEB writes NaN
        yield from _outcome_differences(outcome, result.task, paths.shown(theirs))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"MTEB's result {paths.shown(theirs)} cannot be read ({error!r})"


def _outcome_differences(outcome: Mapping[str, Any], task: TaskInfo, where: str) -> Iterator[str]:
    """Compare the score, revision, splits and subsets of a record with MTEB's result."""
    means = []  # over subsets, by split; MTEB averages these
    subsets: set[str] = set()
    for entries in outcome["scores"].values():
        means.append(fmean(entry["main_score"] for entry in entries))
        subsets.update(entry.get("hf_subset", "") for entry in entries)
    value = fmean(means)
    if task.mteb and not abs(value - task.mteb.value) <= _TOLERANCE:
        yield f"MTEB's score is {task.mteb.value}, in {where} it is {value}"
    facts = {
        "revision": (task.revision, outcome.get("dataset_revision")),
        "splits": (sorted(task.splits), sorted(outcome["scores"])),
        "subsets": (sorted(task.subsets), sorted(subsets - {""})),
    }
    for name, (ours, theirs) in facts.items():
        if ours and theirs and ours != theirs:
            yield f"its {name} is {ours}, in {where} it is {theirs}"
