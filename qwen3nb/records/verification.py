"""Verify records: do their numbers follow from what they and the files beside them hold?

A record is compared with its checksum, its per-query scores, its settings, the files of its runs
and MTEB's own result. What cannot be seen: a record rewritten as a whole, checksum included, by
someone who meant to; per-query scores that were wrong from the start; and, in a record without a
checksum, a change of what nothing else depends on, such as a revision, a size or a time.
"""

from __future__ import annotations

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
from qwen3nb.records.runs import run_digests
from qwen3nb.records.side_files import side_file_problems
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.choices import one_of

__all__ = ["RecordCheck", "Verifier", "problems"]

_ROUNDING = 1e-9  # between two computations of one number
_TOLERANCE = 1e-6  # MTEB's file is rounded to six digits
_IDENTITY = 40  # digits of a model's identity in the name of MTEB's folder


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
        self._mteb: dict[Path, list[Path]] = {}
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
            wrong = [*_signature(raw), *lost]
            if not (lost or self._checksums_only):
                wrong += self._contents(file, result)
        except (OSError, ValueError, KeyError) as error:
            return RecordCheck((str(error),), has_checksum)
        return RecordCheck(tuple(wrong), has_checksum)

    def _contents(self, file: Path, result: Result) -> Iterator[str]:
        yield from problems(result, draws=self._draws)
        if file.name != f"{result.task.key}.json":
            yield f"contains the task {result.task.key!r}"
        if not file.parent.parent.name.endswith(f"-{result.model.identity[:8]}"):
            yield "is in the folder of a model with another identity"
        if (digests := run_digests(file, result.config)) is None:
            yield from _older_run_problems(file, result)
        else:
            yield from self._run_problems(digests)
        if result.task.mteb is not None and not result.task.selection:
            yield from _mteb_problems(self._mteb_files(file, result), result)

    def _run_problems(self, digests: Mapping[Path, str]) -> Iterator[str]:
        """Compare the runs of a record with their digests."""
        for run, digest in digests.items():
            if not run.is_file():
                yield f"its run {run.name} is missing"
                continue
            if run not in self._digests:
                self._digests[run] = sha256_file(run)
            if self._digests[run] != digest:
                yield f"its run {run.name} is not the one that was scored"

    def _mteb_files(self, file: Path, result: Result) -> list[Path]:
        """Return MTEB's own results of the record's model and task."""
        folder = file.parent.parent.parent / "mteb" / "results"
        if folder not in self._mteb:
            self._mteb[folder] = list(folder.glob("*/*"))  # a model, then its identity
        own = result.model.identity[:_IDENTITY]
        files = (
            each / f"{result.task.name}.json"
            for each in self._mteb[folder]
            if each.name.startswith(own)
        )
        return [each for each in files if each.exists()]


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


def _signature(raw: dict[str, Any]) -> Iterator[str]:
    if raw["schema"] != FIRST_SCHEMA and "checksum" not in raw:
        yield "it has no field for its checksum: it was changed after it was written"
    content = {name: value for name, value in raw.items() if name != "checksum"}
    if raw.get("checksum") and raw["checksum"] != sha256_json(content):
        yield "its content is not that of its checksum: it was changed after it was written"


def _older_run_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the runs beside a record that has no digests of them with its queries."""
    runs = {end: file.with_suffix(end) for end in (".first.trec", ".trec")}
    documents = {end: _documents(run) for end, run in runs.items() if run.is_file()}
    if not documents:
        return
    queries = set(next(iter(result.per_query.values()), {}))
    for end, listed in documents.items():
        name = runs[end].name
        if listed is None:
            yield f"its run {name} has a line that is cut or malformed"
        elif set(listed) != queries:
            yield f"its run {name} has {len(listed)} queries, its scores {len(queries)}"
    first, last = documents.get(".first.trec"), documents.get(".trec")
    if first and last and first != last:
        yield f"its run {runs['.trec'].name} has other documents than the first stage's"


def _documents(run: Path) -> dict[str, set[str]] | None:
    """Documents per query of a TREC run; None if a line is cut."""
    text = run.read_text(encoding="utf-8", errors="replace")
    documents: dict[str, set[str]] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 6:
            return None
        documents.setdefault(fields[0], set()).add(fields[2])
    return documents if text.endswith("\n") else None


def _mteb_problems(files: list[Path], result: Result) -> Iterator[str]:
    """Compare with the main score in MTEB's own files, which are of the same data."""
    assert result.task.mteb is not None  # noqa: S101 - so they were looked up
    for theirs in files:
        try:
            value = _mteb_value(json.loads(theirs.read_bytes()))  # MTEB writes NaN
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"MTEB's result {paths.shown(theirs)} cannot be read ({error!r})"
            continue
        if abs(value - result.task.mteb.value) > _TOLERANCE:
            yield (
                f"MTEB's score is {result.task.mteb.value}, in {paths.shown(theirs)} it is {value}"
            )


def _mteb_value(outcome: dict[str, Any]) -> float:
    """The main score as MTEB averages it: over the splits' means over subsets."""
    return fmean(
        fmean(entry["main_score"] for entry in entries) for entries in outcome["scores"].values()
    )
