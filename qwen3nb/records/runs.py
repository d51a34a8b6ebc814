"""Files of the runs of searches and rerankings, and of their qrels.

    <model>/seed_<n>/<task>.<digest>.trec     the run, beside its record
    <model>/seed_<n>/<task>.<digest>.qrels    the judgements that it is scored by
    first_stages/<task>-<digest>.trec         a first stage's run, shared by all rerankers
    <model>/seed_<n>/<task>.trec              a reranked run, as older versions wrote it
    <model>/seed_<n>/<task>.first.trec        that of its first stage, likewise

A name has the digest of the content: whoever writes a file writes the same, and a record that is
about to be replaced keeps its run until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qwen3nb.metrics.retrieval import METRICS, score_run
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import sha256_file

__all__ = [
    "first_run_file",
    "first_stage_file",
    "reranked_run_file",
    "rescored_problems",
    "run_digests",
    "run_problems",
]

_ROUNDING = 1e-6


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / name


def first_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the first stage's run for the record in ``file``."""
    shared = config.get("first_run")
    if isinstance(shared, dict):
        return first_stage_file(file.parent.parent.parent, str(shared.get("name")))
    return file.with_suffix(".first.trec")


def reranked_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the reranked run of the record in ``file``."""
    names = [str(name) for name in config.get("runs") or ()]
    return file.with_name(names[0]) if names else file.with_suffix(".trec")


def run_digests(file: Path, config: Mapping[str, Any]) -> dict[Path, str] | None:
    """Return the SHA-256 of each run, and of the qrels, of the record in ``file``.

    None if it names no run: a search without, or a reranking of an older version.
    """
    digests, shared = config.get("runs"), config.get("first_run")
    if not isinstance(digests, dict):
        return None
    named = {**digests, **dict(config.get("qrels") or {})}
    own = {file.with_name(name): str(each) for name, each in named.items()}
    if isinstance(shared, dict):
        own[first_run_file(file, config)] = str(shared.get("sha256"))
    return own


def run_problems(file: Path, result: Result, *, known: dict[Path, str]) -> Iterator[str]:
    """Yield what is wrong with the runs of the record in ``file``.

    ``known`` holds the digests of runs that records share; new ones are added.
    """
    if (digests := run_digests(file, result.config)) is None:
        yield from _older_run_problems(file, result)
        return
    for run, digest in digests.items():
        if not run.is_file():
            yield f"its run {run.name} is missing"
            continue
        if run not in known:
            known[run] = sha256_file(run)
        if known[run] != digest:
            yield f"its run {run.name} is not the one that was scored"


def rescored_problems(file: Path, result: Result) -> Iterator[str]:
    """Score the run of the record in ``file`` again, by its qrels; yield what differs."""
    config = result.config
    if not (config.get("runs") and config.get("qrels")):
        return
    run: dict[str, dict[str, float]] = {}
    for query, _, document, _, score, _ in _rows(reranked_run_file(file, config)):
        run.setdefault(query, {})[document] = float(score)
    qrels: dict[str, dict[str, int]] = {}
    for query, _, document, grade in _rows(file.with_name(next(iter(config["qrels"])))):
        qrels.setdefault(query, {})[document] = int(grade)
    # Scores of one's own data by relevant documents are of those above a threshold.
    scored = ("nDCG",) if "relevance_threshold" in config else METRICS
    names = [name for name in result.per_query if name.partition("@")[0] in scored]
    for name, values in score_run(qrels, run, names, zeros=True).items():
        for query, value in values.items():
            stated = result.per_query[name].get(query)
            if stated is not None and not abs(stated - value) <= _ROUNDING:
                yield f"{name} of query {query!r} is {stated}, its run and its qrels give {value}"
                break


def _rows(file: Path) -> Iterator[list[str]]:
    with file.open(encoding="utf-8") as lines:
        yield from (line.split() for line in lines)


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
