"""Files of the runs of a reranking: where they are, and whether they are those of the record.

<model>/seed_<n>/<task>.trec              the reranked run, beside its record
first_stages/<task>-<digest>.trec         that of the first stage, shared by all rerankers
<model>/seed_<n>/<task>.first.trec        the same, as older versions wrote it for each
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import file_stamp, sha256_file

__all__ = ["first_run_file", "first_stage_file", "run_problems"]


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / Path(name).name


def first_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the first stage's run for the record in ``file``."""
    shared = config.get("first_run")
    if isinstance(shared, dict):
        return first_stage_file(file.parent.parent.parent, str(shared.get("name")))
    return file.with_suffix(".first.trec")


def run_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the runs of a record with their digests, or with its queries."""
    digests = _digests(file, result.config)
    if digests is not None:
        for run, digest in digests.items():
            if not run.is_file():
                yield f"its run {run.name} is missing"
            elif _digest(run, tuple(file_stamp(run))) != digest:
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


def _digests(file: Path, config: Mapping[str, Any]) -> dict[Path, str] | None:
    """Return the digest of each run; None for an older record, which has none."""
    digests, shared = config.get("runs"), config.get("first_run")
    if not isinstance(digests, dict):
        return None
    own = {file.with_name(Path(str(name)).name): str(each) for name, each in digests.items()}
    if isinstance(shared, dict):
        own[first_run_file(file, config)] = str(shared.get("sha256"))
    return own


@lru_cache(maxsize=16)
def _digest(run: Path, stamp: tuple[Any, ...]) -> str:
    """Digest of a run; one that many records share is read once, unless its stamp changes."""
    return sha256_file(run)
