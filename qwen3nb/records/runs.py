"""Files of the runs of searches and rerankings, and of their qrels.

    <model>/seed_<n>/<task>.<digest>.trec     the run, beside its record
    <model>/seed_<n>/<task>.<digest>.qrels    the judgements that it is scored by
    first_stages/<task>-<digest>.trec         a first stage's run, shared by all rerankers

A name has the digest of the content: whoever writes a file writes the same, and a record that is
about to be replaced keeps its run until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qwen3nb.metrics.retrieval import METRICS, score_run
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import sha256_file

_ROUNDING = 1e-6


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / name


def first_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the first stage's run for the record in ``file``."""
    name = (config.get("first_run") or {}).get("name", "")
    return first_stage_file(file.parent.parent.parent, name)


def reranked_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the run of the record in ``file``, which has one."""
    return file.with_name(next(iter(config.get("runs") or ("",))) or f"{file.stem}.trec")


def run_problems(
    file: Path, result: Result, *, digest: Callable[[Path], str] = sha256_file
) -> Iterator[str]:
    """Yield what is wrong with the runs of the record in ``file``."""
    config = result.config
    named = {**(config.get("runs") or {}), **(config.get("qrels") or {})}
    digests = {file.with_name(name): digest for name, digest in named.items()}
    if first := config.get("first_run"):
        digests[first_run_file(file, config)] = first["sha256"]
    for run, expected in digests.items():
        if not run.is_file():
            yield f"its run {run.name} is missing"
        elif digest(run) != expected:
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
        stated = result.per_query[name]
        for query, value in values.items():
            if query in stated and not abs(stated[query] - value) <= _ROUNDING:
                ours = stated[query]
                yield f"{name} of query {query!r} is {ours}, its run and its qrels give {value}"
                break


def _rows(file: Path) -> Iterator[list[str]]:
    with file.open(encoding="utf-8") as lines:
        yield from (line.split() for line in lines)
