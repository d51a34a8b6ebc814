"""Verify records: do their numbers follow from what they and the files beside them hold?

A record is compared with its checksum, its per-query scores, its settings, the files of its runs
and MTEB's own result. What cannot be seen: a record rewritten as a whole, checksum included, by
someone who meant to; per-query scores that were wrong from the start; and, in a record without a
checksum, a change of what nothing else depends on, such as a revision, a size or a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import FIRST_SCHEMA, Result, checksum, problems
from qwen3nb.records.side_files import side_file_problems
from qwen3nb.utils.atomic_files import read_json, sha256_file

__all__ = ["file_problems", "without_checksum"]

_TOLERANCE = 1e-6  # MTEB's file is rounded to six digits


def file_problems(file: Path, *, checksums_only: bool = False) -> list[str]:
    """Return what is wrong with the record in ``file``; an unreadable file is a problem.

    Args:
        file: of a record.
        checksums_only: whether to leave out everything but the checksum and the digests of the
            files beside the record.
    """
    try:
        result = Result.load(file)
        raw = read_json(file)
        lost = list(side_file_problems(file, raw))
        wrong = [*_signature(raw), *lost]
        return wrong if checksums_only or lost else [*wrong, *_contents(file, result)]
    except (OSError, ValueError, KeyError) as error:
        return [str(error)]


def without_checksum(files: Iterable[Path]) -> list[Path]:
    """Return the files of readable records that have no checksum."""
    return [file for file in files if not _checksum(file)]


def _checksum(file: Path) -> str:
    try:
        return Result.load(file).checksum
    except ResultError:
        return "unknown"


def _signature(raw: dict[str, Any]) -> Iterator[str]:
    if raw["schema"] != FIRST_SCHEMA and "checksum" not in raw:
        yield "it has no field for its checksum: it was changed after it was written"
    if raw.get("checksum") and raw["checksum"] != checksum(raw):
        yield "its content is not that of its checksum: it was changed after it was written"


def _contents(file: Path, result: Result) -> Iterator[str]:
    yield from problems(result)
    if file.name != f"{result.task.key}.json":
        yield f"contains the task {result.task.key!r}"
    if not file.parent.parent.name.endswith(f"-{result.model.identity[:8]}"):
        yield "is in the folder of a model with another identity"
    yield from _run_problems(file, result)
    yield from _mteb_problems(file, result)


def _run_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the runs beside the record with their digests, or with its queries."""
    digests = result.config.get("runs")
    if isinstance(digests, dict):
        for name, digest in digests.items():
            run = file.with_name(Path(str(name)).name)
            if not run.is_file():
                yield f"its run {run.name} is missing"
            elif sha256_file(run) != digest:
                yield f"its run {run.name} is not the one that was scored"
        return
    queries = set(next(iter(result.per_query.values()), {}))
    runs = {end: file.with_suffix(end) for end in (".first.trec", ".trec")}
    documents = {end: _documents(run) for end, run in runs.items() if run.is_file()}
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


def _mteb_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare with the main score in MTEB's own file, if it is of the same data."""
    folder = file.parent.parent.parent / "mteb" / "results"
    if result.task.mteb is None or result.task.selection:
        return
    own = f"*/{result.model.identity[:40]}*/{result.task.name}.json"
    for theirs in folder.glob(own):
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
