"""Search and rerank, with the first stage as the baseline.

The record of a data set has the per-query scores of the reranked run and of the first
stage, and the gain. A reranker cannot rank what the first stage missed: the recall of the
first stage is the ceiling, and an oracle's order of the candidates the upper bound. Both
runs are saved next to the record in TREC format.

Scores are saved query by query, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.trec import write_run
from qwen3nb.evaluation.recording import (
    Work,
    assemble,
    model_info,
    record_path,
    stored,
)
from qwen3nb.evaluation.retrieval.first_stage import First, FirstStage, Run, describe, first_stage
from qwen3nb.evaluation.run import EvaluationRun, Tally
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.journal import Journal

__all__ = ["dataset_rows", "dataset_scores", "rerank", "rerank_collection"]

METRICS = ("nDCG@10", "MRR@10")
_COUNTS = ("cut", "saturated", "tied", "equal")


def rerank(
    reranker: Reranker | Path | str,
    data: Any,
    *,
    first: First = "bm25",
    depth: int = 100,
    output: Path | str | None = None,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    strict: bool = True,
    show_progress: bool = True,
) -> EvaluationRun:
    """Search and rerank each data set; save a record and two runs for each.

    Args:
        reranker: from `load_reranker`, or its model spec.
        data: a folder (BEIR, CQADupStack, MS MARCO dev), the name of an MTEB task
            (including PyDocsRetrieval), a task object or a `TestCollection`; or several.
        first: the first-stage retriever; see `qwen3nb.evaluation.retrieval.first_stage`.
        depth: candidates per query.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        config: parameters to store in each record.
        fresh: score again even if a record or a journal exists.
        strict: whether to raise if a data set failed; if not, see `EvaluationRun.failures`.
        show_progress: whether to show progress bars.

    Raises:
        EvaluationError: one or more data sets failed, and ``strict``; the records of the others
            are saved.
    """
    if isinstance(reranker, Path | str):
        reranker = load_reranker(reranker)
    folder = Path(output) if output else paths.results()
    tally, run = Tally(), uuid.uuid4().hex[:12]
    for spec in data if isinstance(data, list | tuple) else [data]:
        with tally.attempt(spec.name if isinstance(spec, TestCollection) else str(spec)):
            for collection in find_collections(spec):
                result, reused = rerank_collection(
                    reranker, collection, first=first, depth=depth, output=folder, seed=seed,
                    config=config, fresh=fresh, show_progress=show_progress, run=run,
                )  # fmt: skip
                tally.add(result, name=collection.name, reused=reused)
    return tally.run_or_raise(reranker.label, kind="data sets", saved=folder, strict=strict)


def dataset_scores(results: Iterable[Result], metric: str = "nDCG@10") -> dict[str, float | None]:
    """Score of each data set; a group (CQADupStack) counts once, with the mean of its parts."""
    parts: dict[str, list[float | None]] = {}
    for result in results:
        name = result.config["group"] or result.config["collection"]
        parts.setdefault(name, []).append(result.metrics[metric].value)
    return {name: _mean(values) for name, values in parts.items()}


def dataset_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per data set and one for their mean, with every metric of the records."""
    scores = {metric: dataset_scores(results, metric) for metric in results[0].metrics}
    rows: list[dict[str, Any]] = [
        {"dataset": name, **{metric: values[name] for metric, values in scores.items()}}
        for name in next(iter(scores.values()))
    ]
    overall = {metric: _mean(list(values.values())) for metric, values in scores.items()}
    return [*rows, {"dataset": "mean", **overall}]


def _mean(values: list[float | None]) -> float | None:
    """The mean; None if any value is None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def rerank_collection(
    reranker: Reranker,
    collection: TestCollection,
    *,
    first: First = "bm25",
    depth: int = 100,
    output: Path | str | None = None,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    show_progress: bool = True,
    run: str = "",
) -> tuple[Result, bool]:
    """Search and rerank one collection; return its record and whether it was reused."""
    folder = Path(output) if output else paths.results()
    name, wanted = _wanted(collection, first, depth)
    file = record_path(reranker, name, folder=folder, seed=seed)
    if not fresh and (earlier := _earlier(file, reranker, wanted)) is not None:
        return earlier, True
    work = Work(reranker)
    candidates = first_stage(collection, first, depth=depth)
    reranked, counts = _rerank(
        reranker, collection, candidates, fresh=fresh, show_progress=show_progress
    )
    runs = _write_runs(file, candidates, reranked, tag=reranker.label)
    kept = {**(config or {}), "collection": collection.name, "group": collection.group}
    result = assemble(
        model=model_info(reranker),
        task=TaskInfo(
            name=name,
            type="Reranking",
            dataset=collection.name,
            revision=collection.revision,
            main_metric="nDCG@10",
            size={"documents": len(collection.documents), "queries": len(collection.queries)},
        ),
        per_query=_per_query(collection, candidates.run, reranked, depth),
        work=work,
        seed=seed,
        run=run,
        config={**kept, "first": wanted, "counts": counts, "runs": runs},
        device=reranker.device,
        precision=reranker.settings["dtype"],
    )
    result.save(folder)
    return result, False


def _write_runs(file: Path, candidates: FirstStage, reranked: Run, *, tag: str) -> dict[str, str]:
    """Write both runs beside the record; return their digests by name."""
    written = (
        write_run(file.with_suffix(".first.trec"), candidates.run, tag=candidates.label),
        write_run(file.with_suffix(".trec"), reranked, tag=tag),
    )
    return {each.name: sha256_file(each) for each in written}


def _wanted(collection: TestCollection, first: First, depth: int) -> tuple[str, dict[str, Any]]:
    """Return the task name and everything that determines its candidates."""
    label, recipe = describe(first)
    wanted = {**recipe, "depth": depth, "data": collection.revision}
    return f"{collection.name}.{label}-{depth}", wanted


def _earlier(file: Path, reranker: Reranker, first: dict[str, Any]) -> Result | None:
    """Return the stored record for this reranker, first stage and data, if any."""
    return stored(
        file,
        identity=reranker.identity,
        same=lambda result: result.config.get("first") == first,
    )


def _rerank(
    reranker: Reranker,
    collection: TestCollection,
    first: FirstStage,
    *,
    fresh: bool,
    show_progress: bool,
) -> tuple[Run, dict[str, int]]:
    """Return log-odds per query and document, and the counts of truncations and ties."""
    name = f"{reranker.identity[:16]}-{sha256_json(first.recipe)[:16]}.jsonl"
    journal = Journal(paths.cache() / "rerank" / name)
    run: Run = {}
    counts = dict.fromkeys(("pairs", *_COUNTS), 0)
    bar = tqdm(
        first.run.items(), desc=f"{reranker.label}: {collection.name}", unit="query",
        disable=not show_progress, leave=False,
    )  # fmt: skip
    for query, candidates in bar:
        documents = sorted(candidates)
        text = collection.queries[query]
        texts = [collection.documents[document] for document in documents]
        key = sha256_json([text, documents, texts])
        done = None if fresh else journal.get(key)
        if done is None:
            done = _score(reranker, text, texts)
            journal.add(key, done)
        run[query] = dict(zip(documents, done["log_odds"], strict=True))
        counts["pairs"] += len(documents)
        for each in _COUNTS:
            counts[each] += done[each]
    return run, counts


def _score(reranker: Reranker, query: str, texts: list[str]) -> dict[str, Any]:
    before = [getattr(reranker.stats, name) for name in _COUNTS]
    scores = reranker.score(query, texts)
    after = [getattr(reranker.stats, name) for name in _COUNTS]
    counted = {name: b - a for name, a, b in zip(_COUNTS, before, after, strict=True)}
    return {"log_odds": scores.log_odds.tolist(), **counted}


def _per_query(
    collection: TestCollection, base: Run, reranked: Run, depth: int
) -> dict[str, dict[str, float]]:
    """Columns of the record: reranked, first stage, gain, ceiling, upper bound."""
    qrels = collection.qrels
    oracle = {
        query: {name: float(qrels[query].get(name, 0)) for name in scores}
        for query, scores in base.items()
    }
    columns = dict(score_run(qrels, reranked, METRICS))
    first = score_run(qrels, base, (*METRICS, f"Recall@{depth}"))
    best = score_run(qrels, oracle, METRICS)
    for metric in METRICS:
        columns[f"first {metric}"] = first[metric]
        columns[f"gain {metric}"] = {
            query: value - first[metric][query] for query, value in columns[metric].items()
        }
        columns[f"oracle {metric}"] = best[metric]
    columns[f"first Recall@{depth}"] = first[f"Recall@{depth}"]
    return columns
