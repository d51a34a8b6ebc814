"""Verify records: do their numbers follow from what they and the files beside them hold?

A record is compared with its checksum, its per-query scores, its settings, the files of its runs
and MTEB's own result. What cannot be seen: a record rewritten as a whole, checksum included, by
someone who meant to; per-query scores that were wrong from the start; and, in a record without a
checksum, a change of what nothing else depends on, such as a revision, a size or a time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.metrics.aggregate import (
    AGGREGATES,
    PERCENTILE,
    REPORTED,
    Aggregate,
    Draws,
    aggregate_samples,
    sample_of,
)
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.errors import ResultError
from qwen3nb.records.query_scores import QueryScores, StoredScores
from qwen3nb.records.record import FIRST_SCHEMA, Result, read_record
from qwen3nb.records.runs import run_problems
from qwen3nb.records.side_files import side_file_problems
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.files.journal import Journal

__all__ = [
    "MTEB_CHECKSUMS",
    "RecordCheck",
    "Verifier",
    "add_mteb_checksum",
    "problems",
    "signature_problems",
    "unchanged_record",
]

_ROUNDING = 1e-9  # between two computations of one number
_TOLERANCE = 1e-6  # MTEB's file is rounded to six digits
_IDENTITY = 40  # digits of a model's identity in the name of MTEB's folder
MTEB_CHECKSUMS = "checksums.jsonl"  # beside MTEB's results
_META = "model_meta.json"


@dataclass(frozen=True)
class RecordCheck:
    """What was found in the file of a record.

    Attributes:
        problems: what is wrong, a line each; empty if the record holds.
        has_checksum: whether the record has one; also true of a file that cannot be read.
    """

    problems: tuple[str, ...]
    has_checksum: bool = True


class Verifier:
    """Verifies records; what several of them need is computed or listed once for all.

    The files must not change while one verifier is in use.
    """

    def __init__(self, *, checksums_only: bool = False) -> None:
        """Check everything, or only checksums and the digests of the files beside the records."""
        self._checksums_only = checksums_only
        self._draws = Draws()
        self._mteb = _MTEBFiles()
        self._digests: dict[Path, str] = {}  # of runs, which records may share

    def check(self, file: Path) -> RecordCheck:
        """Return what is wrong with the record in ``file``; an unreadable file is a problem."""
        try:
            result, raw = read_record(file)
        except (OSError, ValueError) as error:
            return RecordCheck((str(error),))
        has_checksum = bool(result.checksum)
        try:
            lost = list(side_file_problems(file, raw))
            wrong = [*signature_problems(raw), *lost]
            if not (lost or self._checksums_only):
                wrong += self._contents(file, result)
            if raw["schema"] != FIRST_SCHEMA and not result.model.settings:
                wrong.append("it has no settings, from which the model's identity follows")
        except (OSError, ValueError, KeyError) as error:
            return RecordCheck((str(error),), has_checksum)
        return RecordCheck(tuple(wrong), has_checksum)

    def _contents(self, file: Path, result: Result) -> Iterator[str]:
        yield from problems(result, draws=self._draws)
        yield from _location_problems(file, result)
        yield from run_problems(file, result, known=self._digests)
        yield from self._mteb.problems(file, result)


def problems(result: Result, *, draws: Draws | None = None) -> list[str]:
    """Return what does not follow from the rest of the record; empty if it is consistent.

    Aggregates follow from the per-query scores, the identity from the settings, and a reported
    main score is MTEB's.

    Args:
        result: the record.
        draws: where the percentile intervals of many records share what they draw.
    """
    draws = draws or Draws()
    if isinstance(result.per_query, StoredScores):
        try:
            result = replace(result, per_query=result.per_query.loaded())
        except ResultError as error:  # nothing can be recomputed
            return [str(error)]
    wrong = []
    if result.model.settings and sha256_json(result.model.settings) != result.model.identity:
        wrong.append("its identity does not follow from the model's settings")
    if result.task.main_metric not in result.metrics:
        wrong.append(f"main metric {result.task.main_metric!r} is not among its metrics")
    for name, stored in _aggregates(result):
        if stored.how == REPORTED:  # another program's value: there are no per-query scores
            mteb = result.task.mteb
            if mteb and name == result.task.main_metric and not _same(mteb.value, stored.value):
                wrong.append(f"{name}: value is {stored.value}, MTEB reported {mteb.value}")
            continue
        try:
            again = _recomputed(result, stored, draws)
        except (ValueError, KeyError) as error:
            wrong.append(f"{name}: cannot be recomputed ({error})")
            continue
        for part in ("value", "low", "high", "n"):
            ours, theirs = getattr(again, part), getattr(stored, part)
            if not _same(ours, theirs):
                wrong.append(f"{name}: {part} is {theirs}, per-query scores give {ours}")
    return wrong


def _recomputed(result: Result, stored: Aggregate, draws: Draws) -> Aggregate:
    """Compute an aggregate of a record again, from its per-query scores."""
    one_of("aggregate", stored.how, AGGREGATES)
    return aggregate_samples(
        [_sample(result.per_query, stored.columns, part) for part in stored.parts or ("",)],
        how=stored.how,
        columns=stored.columns,
        seed=result.seed,
        percentile=stored.interval == PERCENTILE,
        wilson=stored.interval == "wilson",
        parts=stored.parts,
        draws=draws,
    )


def _sample(
    per_query: Mapping[str, Mapping[str, float]], columns: tuple[str, ...], part: str
) -> Array:
    if isinstance(per_query, QueryScores):
        return per_query.sample(columns, part)
    return sample_of(per_query, columns, part)


def _aggregates(result: Result) -> Iterator[tuple[str, Aggregate]]:
    """Yield every aggregate of a record with a name for messages."""
    yield from result.metrics.items()
    for part in result.parts:
        yield f"{result.task.main_metric} on {part.split}/{part.subset}", part.score


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=0, abs_tol=_ROUNDING)


def _location_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the names of a record's file and folders with what it contains."""
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


def unchanged_record(file: Path, *, alone: bool = False) -> Result:
    """Return the record in ``file`` if it and the files that it names are as they were written.

    What its numbers follow from is up to `Verifier`.

    Args:
        file: the record.
        alone: whether to leave the files beside it unread.

    Raises:
        ResultError: it cannot be read, or it or a file beside it was changed; names the file.
    """
    result, raw = read_record(file)
    lost = [] if alone else [*side_file_problems(file, raw), *_id_problems(result)]
    if lost and read_json(file) != raw:  # replaced meanwhile, with the files that it named
        return unchanged_record(file)
    for problem in (*(f"{file}: {each}" for each in signature_problems(raw)), *lost):
        raise ResultError(problem)
    return result


def _id_problems(result: Result) -> Iterator[str]:
    """Yield whether the query ids beside a record are not those it names.

    They are read once for all records of the same queries, as long as one of these is in use.
    """
    try:
        _ = result.scores.queries
    except ResultError as error:
        yield str(error)


def signature_problems(raw: dict[str, Any]) -> Iterator[str]:
    """Yield whether the JSON of a record is not that of its checksum."""
    if raw["schema"] != FIRST_SCHEMA and "checksum" not in raw:
        yield "it has no field for its checksum: it was changed after it was written"
    content = {name: value for name, value in raw.items() if name != "checksum"}
    if raw.get("checksum") and raw["checksum"] != sha256_json(content):
        yield "its content is not that of its checksum: it was changed after it was written"


def add_mteb_checksum(file: Path, data: bytes) -> None:
    """Note that MTEB's ``file`` may hold ``data`` from now on; call it before writing them.

    The checksums are a journal, so that at any time that of what is there is among them. Results
    of older versions have none.
    """
    journal = Journal(file.with_name(MTEB_CHECKSUMS))
    key = _key(file, hashlib.sha256(data).hexdigest())
    if journal.get(key) is None:
        journal.add(key, True)


def _key(file: Path, digest: str) -> str:
    return f"{file.name} {digest}"


class _MTEBFiles:
    """MTEB's results, listed once for all records; they must not change meanwhile."""

    def __init__(self) -> None:
        self._folders: dict[Path, list[Path]] = {}
        self._checked: dict[Path, str] = {}  # what is wrong with a file, or nothing

    def problems(self, file: Path, result: Result) -> Iterator[str]:
        """Yield what is wrong with MTEB's results of the record in ``file``.

        A record of a part of a task is not compared, as MTEB's file may be of another part.
        """
        if result.task.mteb is None or result.task.selection:
            return
        for folder in self._of_model(file, result):
            theirs = folder / f"{result.task.name}.json"
            wrong = [self._changed(each) for each in (theirs, folder / _META)]
            yield from filter(None, wrong)
            if theirs.exists() and not wrong[0]:
                yield from _score_problems(theirs, result.task.mteb.value)

    def _of_model(self, file: Path, result: Result) -> list[Path]:
        base = file.parent.parent.parent / "mteb" / "results"
        if base not in self._folders:
            self._folders[base] = list(base.glob("*/*"))  # a model, then its identity
        own = result.model.identity[:_IDENTITY]
        return [each for each in self._folders[base] if each.name.startswith(own)]

    def _changed(self, file: Path) -> str:
        if file not in self._checked:
            self._checked[file] = _checksum_problem(file)
        return self._checked[file]


def _checksum_problem(file: Path) -> str:
    """Return whether a file is not one of those that were written; empty if it is."""
    checksums = file.with_name(MTEB_CHECKSUMS)
    if not (checksums.is_file() and file.is_file()):
        return ""
    if Journal(checksums).get(_key(file, sha256_file(file))) is None:
        return f"MTEB's {paths.shown(file)} was changed after it was written"
    return ""


def _score_problems(theirs: Path, ours: float) -> Iterator[str]:
    """Compare a main score with that in MTEB's own file, which is of the same data."""
    try:
        value = _main_score(json.loads(theirs.read_bytes()))  # MTEB writes NaN
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"MTEB's result {paths.shown(theirs)} cannot be read ({error!r})"
        return
    if not abs(value - ours) <= _TOLERANCE:
        yield f"MTEB's score is {ours}, in {paths.shown(theirs)} it is {value}"


def _main_score(outcome: dict[str, Any]) -> float:
    """The main score as MTEB averages it: over the splits' means over subsets."""
    return fmean(
        fmean(entry["main_score"] for entry in entries) for entries in outcome["scores"].values()
    )
