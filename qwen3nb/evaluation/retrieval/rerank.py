"""Search and rerank, with the first stage as the baseline.

The record of a data set has the per-query scores of the reranked run and of the first
stage, and the gain. A reranker cannot rank what the first stage missed: the recall of the
first stage is the ceiling, and an oracle's order of the candidates the upper bound. The run is
saved next to the record in TREC format, that of the first stage once for all rerankers.

Queries are scored in blocks, and saved one by one, so an interrupted run resumes where it
stopped. A query that leaves no room for a document is truncated after the document; the record
counts such queries (``queries_cut``) and names the longest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.trec import run_digest, write_run
from qwen3nb.evaluation.recording import (
    Work,
    assemble,
    evaluating,
    model_info,
    record_path,
    stored,
)
from qwen3nb.evaluation.retrieval.candidates import Candidates, load_candidates, split_data
from qwen3nb.evaluation.retrieval.first_stage import First, FirstStage
from qwen3nb.evaluation.retrieval.score_candidates import score_candidates
from qwen3nb.evaluation.run import EvaluationRun, Tally
from qwen3nb.evaluation.run_files import has_runs, with_qrels
from qwen3nb.hub.session import hub_reachable, hub_session
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.metrics.run_arrays import RunArrays
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.records.runs import (
    first_run_file,
    first_stage_file,
    reranked_run_file,
    run_problems,
)
from qwen3nb.records.side_files import run_path
from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.files.journal import Journal
from qwen3nb.utils.progress import tqdm

__all__ = ["dataset_rows", "dataset_scores", "rerank", "rerank_candidates"]

METRICS = ("nDCG@10", "MRR@10")
# MTEB's task and the folder of official files; reported by MRR@10, as on its leaderboard.
_MSMARCO = (*BENCHMARKS["MS MARCO dev"].tasks, "MSMARCO-dev")


@hub_session()  # a hub that fails is not asked for each data set
def rerank(
    reranker: Reranker | Path | str,
    data: Any = None,
    *,
    tier: str = "",
    limit: int = 0,
    msmarco: Path | str | None = None,
    first: First = "bm25",
    depth: int = 100,
    output: Path | str | None = None,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    runs: bool = False,
    strict: bool = True,
    load: Callable[..., list[Candidates]] = load_candidates,
    show_progress: bool = True,
) -> EvaluationRun:
    """Search and rerank each data set; save a record and its run for each.

    The first stage of an MTEB task is kept with the candidates, for this and other rerankers. Its
    run is saved once in ``first_stages``, and records name it with its digest.

    Args:
        reranker: from `load_reranker`, or its model spec.
        data: a folder (BEIR, CQADupStack, MS MARCO dev), the name of an MTEB task
            (including PyDocsRetrieval), a task object or a `TestCollection`; or several.
        tier: name of a tier, instead of ``data``; see `Tier.reranking`.
        limit: maximum number of queries, and of documents besides their judged ones; 0 for
            no limit. Scores are comparable only under the same limit.
        msmarco: folder of the official MS MARCO dev files, to be reranked instead of the
            tier's MSMARCO: the official candidates (BM25's top 1,000) are cut to ``depth``.
        first: the first-stage retriever; see `qwen3nb.evaluation.retrieval.first_stage`.
        depth: candidates per query.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        config: parameters to store in each record.
        fresh: score again even if a record or a journal exists.
        runs: whether the qrels are kept, too; the runs are in any case.
        strict: whether to raise if a data set failed; if not, see `EvaluationRun.failures`.
        load: `load_candidates`, or `LoadedCandidates.load` to share them between rerankers.
        show_progress: whether to show progress bars.

    Raises:
        ValueError: neither ``data`` nor ``tier``, or both.
        EvaluationError: one or more data sets failed, and ``strict``; the records of the others
            are saved.
    """
    wanted = _data_sets(data, tier, first=first, msmarco=msmarco)
    if isinstance(reranker, Path | str):
        reranker = load_reranker(reranker)
    folder = Path(output) if output else paths.results()
    tally, run, reachable = Tally(), uuid.uuid4().hex[:12], cache(hub_reachable)
    parts = []
    for spec, stage in wanted:
        with tally.attempt(spec.name if isinstance(spec, TestCollection) else str(spec)):
            parts += [(part, stage) for part in split_data(spec)]
    bar = tqdm(parts, desc=reranker.label, unit="data set", disable=not show_progress)
    for part, stage in bar:
        bar.set_postfix_str(part.name)
        with tally.attempt(part.name):
            for each in load(part, stage, depth=depth, limit=limit, reachable=reachable):
                result, reused = rerank_candidates(
                    reranker, each, output=folder, seed=seed, config=config, fresh=fresh,
                    runs=runs, show_progress=show_progress, run=run,
                )  # fmt: skip
                tally.add(result, name=each.collection.name, reused=reused)
    return tally.run_or_raise(reranker.label, kind="data sets", saved=folder, strict=strict)


def _data_sets(
    data: Any, tier: str, *, first: First, msmarco: Path | str | None
) -> list[tuple[Any, First]]:
    """Return the data sets of ``data`` or ``tier``, each with its first stage."""
    if (data is None) == (not tier) or (msmarco and not tier):
        raise ValueError(
            "expected either data sets or a tier (with the MS MARCO dev files, if any); got "
            f"data {data!r}, tier {tier!r}, msmarco {msmarco and str(msmarco)!r}"
        )
    if not tier:
        return [(each, first) for each in (data if isinstance(data, list | tuple) else [data])]
    names = TIERS[one_of("tier", tier, TIERS)].reranking
    if msmarco is None:
        return [(name, first) for name in names]
    kept = [(name, first) for name in names if name not in _MSMARCO]
    return [*kept, (Path(msmarco), "given")]


def dataset_scores(results: Iterable[Result], metric: str = "nDCG@10") -> dict[str, float | None]:
    """Score of each data set; a group (CQADupStack) counts once, with the mean of its parts.

    The score of a group is None unless all of its parts are there.
    """
    parts: dict[str, list[float | None]] = {}
    expected: dict[str, int] = {}
    for result in results:
        name = result.config["group"] or result.config["collection"]
        parts.setdefault(name, []).append(result.metrics[metric].value)
        expected[name] = result.config.get("parts") or 1
    return {
        name: _mean(values) if len(values) >= expected[name] else None
        for name, values in parts.items()
    }


def dataset_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per data set, with every metric of the records, and the mean of each metric.

    If MS MARCO is one of several data sets, a second mean leaves it out, as is usual for BEIR.
    """
    if not results:
        return []
    scores = {metric: dataset_scores(results, metric) for metric in results[0].metrics}
    names = list(next(iter(scores.values())))
    rows: list[dict[str, Any]] = [
        {"dataset": name, **{metric: values[name] for metric, values in scores.items()}}
        for name in names
    ]
    others = [name for name in names if name not in _MSMARCO]
    means = [(f"mean of {_counted(names)}", names)]
    if 0 < len(others) < len(names):
        means.append((f"mean of {_counted(others)}, without MS MARCO", others))
    for label, averaged in means:
        overall = {
            metric: _mean([values[name] for name in averaged]) for metric, values in scores.items()
        }
        rows.append({"dataset": label, **overall})
    return rows


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} data set{'' if len(names) == 1 else 's'}"


def _mean(values: list[float | None]) -> float | None:
    """The mean; None if any value is None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def rerank_candidates(
    reranker: Reranker,
    candidates: Candidates,
    *,
    output: Path | str | None = None,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    runs: bool = False,
    show_progress: bool = True,
    run: str = "",
) -> tuple[Result, bool]:
    """Rerank the candidates of one collection; return its record and whether it was reused."""
    folder = Path(output) if output else paths.results()
    task = _task_info(candidates)
    file = record_path(reranker, task.key, folder=folder, seed=seed)
    with evaluating(file):
        result, reused = _rerank_candidates(
            reranker, candidates, task, file, folder=folder, seed=seed, config=config, fresh=fresh,
            show_progress=show_progress, run=run,
        )  # fmt: skip
        if runs and not has_runs(result, folder):
            result = with_qrels(result, folder, candidates.collection.qrels)
            result.save(folder)
        return result, reused


def _rerank_candidates(
    reranker: Reranker,
    candidates: Candidates,
    task: TaskInfo,
    file: Path,
    *,
    folder: Path,
    seed: int,
    config: dict[str, Any] | None,
    fresh: bool,
    show_progress: bool,
    run: str,
) -> tuple[Result, bool]:
    collection, first = candidates.collection, candidates.first
    if not fresh and (earlier := _earlier(file, reranker, first.recipe)) is not None:
        return earlier, True
    work = Work(reranker)
    done = score_candidates(
        reranker, collection, first.run,
        journal=_journal(reranker, first), fresh=fresh, show_progress=show_progress,
    )  # fmt: skip
    digest = run_digest(file, done.run, tag=reranker.label)
    run_file = write_run(run_path(file, digest), done.run, tag=reranker.label)
    shared = _share_first(folder, task.key, first)
    result = assemble(
        model=model_info(reranker),
        task=replace(task, counts={**task.counts, **_texts_cut(done.counts)}),
        per_query=_per_query(collection, first.run, done.run, first.recipe["depth"]),
        work=work,
        seed=seed,
        run=run,
        config={
            **(config or {}),
            "collection": collection.name,
            "group": collection.group,
            "parts": candidates.parts,
            "limit": candidates.limit,
            "first": first.recipe,
            "counts": done.counts,
            "longest_query": done.longest,
            "runs": {run_file.name: digest},
            "first_run": {"name": shared.name, "sha256": sha256_file(shared)},
        },
        device=reranker.device,
        precision=reranker.settings["dtype"],
    )
    result.save(folder)
    return result, False


def _task_info(candidates: Candidates) -> TaskInfo:
    """Describe the collection and its first stage as the task of a record."""
    collection, first = candidates.collection, candidates.first
    return TaskInfo(
        name=f"{collection.name}.{first.label}-{first.recipe['depth']}",
        type="Reranking",
        dataset=collection.name,
        revision=candidates.revision,
        main_metric="MRR@10" if collection.name in _MSMARCO else "nDCG@10",
        size=candidates.size,
        selection=f"limit{candidates.limit}" if candidates.limit else "",
        counts={**collection.counts, **first.counts},
    )


def _texts_cut(counts: dict[str, int]) -> dict[str, int]:
    """Name the truncations that a reader of the scores should know of, if there are any."""
    named = {
        "pairs whose document was cut to the maximum length": counts["cut"],
        "queries cut to leave room for a document": counts["queries_cut"],
    }
    return {name: count for name, count in named.items() if count}


def _share_first(folder: Path, task: str, first: FirstStage) -> Path:
    """Return the file of the first stage's run, which is written by the first reranker.

    Its name has the digest of its content, so that whoever writes it writes the same.
    """
    file = first_stage_file(folder, f"{task}-{first.digest[:16]}.trec")
    if not file.is_file() or sha256_file(file) != first.digest:
        write_run(file, first.run, tag=first.label)
    return file


def _journal(reranker: Reranker, first: FirstStage) -> Journal:
    name = f"{reranker.identity[:16]}-{sha256_json(first.recipe)[:16]}.jsonl"
    return Journal(paths.cache() / "rerank" / name)


def _earlier(file: Path, reranker: Reranker, first: dict[str, Any]) -> Result | None:
    """Return the stored record for this reranker, first stage and data, if it has its runs."""

    def same(result: Result) -> bool:
        runs = (reranked_run_file(file, result.config), first_run_file(file, result.config))
        return (
            result.config.get("first") == first
            and all(run.is_file() for run in runs)
            and not any(run_problems(file, result, known={}))
        )

    return stored(file, identity=reranker.identity, metrics=METRICS, same=same)


def _per_query(
    collection: TestCollection, base: RunArrays, reranked: RunArrays, depth: int
) -> dict[str, dict[str, float]]:
    """Columns of the record: reranked, first stage, gain, ceiling, upper bound."""
    qrels = collection.qrels
    grades = (qrels[query].get(name, 0) for query in base for name in base.listed(query))
    oracle = replace(base, scores=np.fromiter(grades, np.float64, len(base.scores)))
    columns = dict(score_run(qrels, reranked, METRICS, zeros=True))
    first = score_run(qrels, base, (*METRICS, f"Recall@{depth}"), zeros=True)
    best = score_run(qrels, oracle, METRICS, zeros=True)
    for metric in METRICS:
        columns[f"first {metric}"] = first[metric]
        columns[f"gain {metric}"] = {
            query: value - first[metric][query] for query, value in columns[metric].items()
        }
        columns[f"oracle {metric}"] = best[metric]
    columns[f"first Recall@{depth}"] = first[f"Recall@{depth}"]
    return columns
