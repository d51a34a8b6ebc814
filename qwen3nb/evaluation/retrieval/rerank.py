"""Search and rerank, with the first stage as the baseline.

A record has the per-query scores of the reranked run and of the first stage, and the gain. A
reranker cannot rank what the first stage missed: the recall of the first stage is the ceiling, and
an oracle's order of the candidates the upper bound. The run is saved next to the record in TREC
format, that of the first stage once for all rerankers.

The candidates of MTEB tasks are kept on disk, by the revision of the data and the recipe of the
first stage: a second reranker neither loads the data set nor searches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.mirror import MirrorError, data_revision, explain, hub_access, needs
from qwen3nb.datasets.rows import DataError, numbered_json_rows
from qwen3nb.datasets.trec import run_digest, write_run
from qwen3nb.evaluation.mteb.select import drawn, quiet, select_tasks, split_groups, task_key
from qwen3nb.evaluation.retrieval.first_stage import (
    First,
    FirstStage,
    describe,
    first_stage,
    stored_stage,
)
from qwen3nb.evaluation.run import EvaluationRun, Run, Work, assemble, evaluate_each, with_qrels
from qwen3nb.metrics.retrieval import RECORDED, score_run
from qwen3nb.metrics.run_arrays import RunArrays
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.rerankers.prompt_template import RerankError
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.records.side_files import (
    first_run_file,
    first_stage_file,
    reranked_run_file,
    run_path,
)
from qwen3nb.records.verification import run_problems
from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.atomic_files import (
    read_json,
    sha256_file,
    sha256_json,
    write_json,
    write_text,
)
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.code_version import installed_version
from qwen3nb.utils.files.journal import Journal
from qwen3nb.utils.progress import tqdm

# MTEB's task and the folder of official files; reported by MRR@10, as on its leaderboard.
_MSMARCO = (*BENCHMARKS["MS MARCO dev"].tasks, "MSMARCO-dev")
_COUNTS = ("cut", "saturated", "tied", "equal", "queries_cut")
_PLAIN = ("revision", "size", "limit", "parts")  # fields of `RerankItem` that are kept as they are
_FORMAT = 1  # of kept candidates; increase when their content changes


def rerank(
    reranker: Reranker | Path | str,
    data: Any = None,
    *,
    tier: str = "",
    limit: int = 0,
    msmarco: Path | str | None = None,
    first: First = "bm25",
    depth: int = 100,
    **options: Any,
) -> EvaluationRun:
    """Search and rerank each data set; save a record and its run for each.

    The first stage's run is saved once in ``first_stages``; records name it with its digest.

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
        options: as in `evaluate`: ``output``, ``seed``, ``config``, ``fresh``, ``strict`` and
            ``show_progress``; with ``runs``, the qrels are kept, too.

    Raises:
        ValueError: neither ``data`` nor ``tier``, or both.
        EvaluationError: one or more data sets failed, and ``strict``; the records of the others
            are saved.
    """
    if (data is None) == (not tier) or (msmarco and not tier):
        raise ValueError(
            "expected either data sets or a tier (with the MS MARCO dev files, if any); got "
            f"data {data!r}, tier {tier!r}, msmarco {msmarco and str(msmarco)!r}"
        )
    listed = list(data) if isinstance(data, list | tuple) else [data]
    if tier:
        names = TIERS[one_of("tier", tier, TIERS)].reranking
        listed = [name for name in names if msmarco is None or name not in _MSMARCO]
    wanted: list[tuple[Any, First]] = [(each, first) for each in listed]
    wanted += [(Path(msmarco), "given")] if msmarco is not None else []
    model = load_reranker(reranker) if isinstance(reranker, Path | str) else reranker
    run = Run(**options)

    def find(part: DataSet | Exception, stage: First) -> Iterator[tuple[Any, RerankItem]]:
        if isinstance(part, Exception):
            raise part
        loaded = load_candidates(part, stage, depth=depth, limit=limit)
        yield from ((model, each) for each in loaded)

    jobs: list[Any] = []
    for spec, stage in wanted:
        try:
            jobs += [(part.name, partial(find, part, stage)) for part in split_data(spec)]
        except Exception as error:  # noqa: BLE001 - a data set that fails, as any other
            jobs.append((str(spec), partial(find, error, stage)))
    return evaluate_each(jobs, run, label=model.label, kind="data sets")


@dataclass(frozen=True)
class DataSet:
    """What is loaded at a time: a collection, a folder or an MTEB task, with its name in messages.

    ``group`` is the MTEB task of which it is one of so many ``parts``, or empty.
    """

    data: Any
    name: str
    group: str = ""
    parts: int = 0

    @property
    def is_task(self) -> bool:
        """Whether it is an MTEB task."""
        return hasattr(self.data, "metadata")


def load_candidates(
    part: DataSet, first: First = "bm25", *, depth: int = 100, limit: int = 0
) -> list[RerankItem]:
    """Load and search one part, unless its candidates are kept; one item per collection.

    Raises:
        DataError: no such first stage, or data that are malformed.
        MirrorError: the data are neither in the mirror nor on the hub.
    """
    file = None  # data that are read whenever they are needed
    if part.is_task and not part.data.data_loaded:
        key = {
            "format": _FORMAT,
            "task": part.name,
            "group": [part.group, part.parts],
            "data": data_revision(part.data),
            "mteb": installed_version("mteb"),
            "first": describe(first)[1],
            "depth": depth,
            "limit": limit,
        }
        file = paths.cache() / "candidates" / f"{sha256_json(key)[:32]}.json"
        if (kept := _read(file)) is not None:
            return kept
    with hub_access(needs([part.data]) if part.is_task else []):
        collections = _loaded(part)
        parts = part.parts or (len(collections) if collections[0].group else 0)
        searched = []
        for whole in collections:
            collection = limited_collection(whole, limit)
            stage = first_stage(collection, first, depth=depth)
            size = {"documents": len(collection.documents), "queries": len(collection.queries)}
            texts = {name: collection.documents[name] for name in stage.run.retrieved()}
            cut = replace(collection, documents=texts, candidates=None)
            searched.append(RerankItem(cut, stage, collection.revision, size, limit, parts))
    if file is not None:
        _write(file, searched)
    return searched


def limited_collection(collection: TestCollection, limit: int) -> TestCollection:
    """Return at most ``limit`` queries, and as many documents besides their judged ones.

    The draw is the same for every model. A document that is a candidate in the data stays.
    """
    if not limit:
        return collection
    names = sorted(collection.queries)
    queries = [names[index] for index in drawn(len(names), limit)]
    qrels = {query: collection.qrels[query] for query in queries}
    candidates = None
    if collection.candidates is not None:
        candidates = {query: collection.candidates[query] for query in queries}
    needed = {document for grades in qrels.values() for document in grades}
    needed |= {document for listed in (candidates or {}).values() for document in listed}
    others = sorted(collection.documents.keys() - needed)
    needed |= {others[index] for index in drawn(len(others), limit)}
    if len(queries) == len(names) and collection.documents.keys() <= needed:
        return collection
    return replace(
        collection,
        queries={query: collection.queries[query] for query in queries},
        qrels=qrels,
        candidates=candidates,
        documents={name: text for name, text in collection.documents.items() if name in needed},
        counts={},  # those of the whole do not hold here
    )


def split_data(data: Any) -> list[DataSet]:
    """Split a group of MTEB tasks into its parts; anything else is one part.

    Raises:
        DataError: neither a folder nor an MTEB task.
    """
    if isinstance(data, TestCollection):
        return [DataSet(data, data.name)]
    if isinstance(data, str | Path) and Path(data).expanduser().is_dir():
        return [DataSet(data, str(data))]
    try:
        tasks = select_tasks(names=[str(data)]) if isinstance(data, str | Path) else [data]
    except ValueError as error:
        raise DataError(f"{str(data)!r} is neither a folder nor an MTEB task ({error})") from None
    split = split_groups(tasks)
    group, parts = (tasks[0].metadata.name, len(split)) if len(split) > 1 else ("", 0)
    return [DataSet(task, task_key(task), group, parts) for task in split]


def _loaded(part: DataSet) -> list[TestCollection]:
    """Load the collections of a part; of a task without progress bars or MTEB's own copy."""
    if not part.is_task:
        return find_collections(part.data)
    task, own = part.data, not part.data.data_loaded
    try:
        with quiet():
            collections = find_collections(task)
    except (DataError, MirrorError):
        raise
    except Exception as error:  # a loader may raise anything
        if task.metadata.dataset["path"].startswith("qwen3nb/"):
            raise
        raise explain(task, error) from error
    if own:
        task.unload_data()
    return [replace(each, group=part.group or each.group) for each in collections]


def _write(file: Path, kept: list[RerankItem]) -> None:
    """Write the candidates; their runs are kept by `first_stage`."""
    names = [each.name for each in fields(TestCollection)]
    rows = [
        {
            "collection": {name: getattr(each.collection, name) for name in names},
            "label": each.first.label,
            "recipe": each.first.recipe,
            **{name: getattr(each, name) for name in _PLAIN},
        }
        for each in kept
    ]
    write_json(file, {"digest": sha256_json(rows), "collections": rows}, indent=None)


def _read(file: Path) -> list[RerankItem] | None:
    """Read the candidates; None if they are damaged, or without their run."""
    try:
        content = read_json(file)
        rows: list[dict[str, Any]] = content["collections"]
        if content["digest"] != sha256_json(rows):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # loaded and searched again
    kept = []
    for row in rows:
        collection = TestCollection(**row["collection"])
        stage = stored_stage(row["label"], row["recipe"], collection.queries)
        if stage is None:
            return None
        kept.append(RerankItem(collection, stage, **{name: row[name] for name in _PLAIN}))
    return kept


@dataclass(frozen=True)
class RerankItem:
    """A test collection without the documents that the first stage did not retrieve."""

    collection: TestCollection  # queries, qrels, and the texts of the candidates
    first: FirstStage  # the first stage with its run
    revision: str  # revision of the whole collection
    size: dict[str, int]  # numbers of documents and queries of the whole collection
    limit: int = 0  # the limit that the collection was reduced by, or 0
    parts: int = 0  # number of collections in its group, or 0

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self.collection.name

    @property
    def key(self) -> str:
        """Name of the collection, its first stage and depth, and the limit."""
        return self.task.key

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics of rerankings."""
        return RECORDED["reranking"]

    @property
    def task(self) -> TaskInfo:
        """The task of the record, with what is odd about the data."""
        return TaskInfo(
            name=f"{self.name}.{self.first.label}-{self.first.recipe['depth']}",
            type="Reranking",
            dataset=self.name,
            revision=self.revision,
            main_metric="MRR@10" if self.name in _MSMARCO else "nDCG@10",
            size=self.size,
            selection=f"limit{self.limit}" if self.limit else "",
            counts={**self.collection.counts, **self.first.counts},
        )

    def same(self, record: Result, folder: Path) -> bool:
        """Whether a record is of the same first stage and data, and has its runs."""
        file = record.path(folder)
        runs = (reranked_run_file(file, record.config), first_run_file(file, record.config))
        return (
            record.config.get("first") == self.first.recipe
            and all(run.is_file() for run in runs)
            and not any(run_problems(file, record))
        )

    def evaluate(self, model: Reranker, run: Run, earlier: Result | None) -> Result:
        """Return the record of a reranker; the runs are written."""
        if earlier is not None:
            return with_qrels(earlier, run, self.collection.qrels)
        work = Work(model)
        ranked, counts, longest = self.scored(model, run)
        cut = {
            "pairs whose document was cut to the maximum length": counts["cut"],
            "queries cut to leave room for a document": counts["queries_cut"],
        }
        task = self.task
        odd = {**task.counts, **{name: count for name, count in cut.items() if count}}
        result = assemble(
            work,
            replace(task, counts=odd),
            self._per_query(ranked),
            run,
            config={
                "collection": self.name,
                "group": self.collection.group,
                "parts": self.parts,
                "limit": self.limit,
                "first": self.first.recipe,
                "counts": counts,
                "longest_query": longest,
            },
        )
        file = result.path(run.folder)
        digest = run_digest(file, ranked, tag=model.label)
        own = write_run(run_path(file, digest), ranked, tag=model.label)
        # The first reranker writes the first stage's run, under a name that has its digest.
        shared = first_stage_file(run.folder, f"{task.key}-{self.first.digest[:16]}.trec")
        if not shared.is_file() or sha256_file(shared) != self.first.digest:
            write_run(shared, self.first.run, tag=self.first.label)
        named = {
            "runs": {own.name: digest},
            "first_run": {"name": shared.name, "sha256": sha256_file(shared)},
        }
        result = replace(result, config=result.config | named)
        return with_qrels(result, run, self.collection.qrels)

    def scored(
        self, reranker: Reranker, run: Run
    ) -> tuple[RunArrays, dict[str, int], dict[str, Any]]:
        """Return the run of log-odds, the numbers of pairs, cuts and ties, and the longest query.

        Each query is journaled when it is scored: an interrupted run loses one at most, and a
        ``fresh`` run scores all again. Of queries cut to leave room for a document, the longest is
        named with its tokens.
        """
        collection, candidates, stats = self.collection, self.first.run.by_name(), reranker.stats
        name = f"{reranker.identity[:16]}-{sha256_json(self.first.recipe)[:16]}.jsonl"
        journal = Journal(paths.cache() / "rerank" / name)
        log_odds: list[NDArray[np.float64]] = []
        counts = dict.fromkeys(("pairs", *_COUNTS), 0)
        longest: dict[str, Any] = {}
        bar = tqdm(
            candidates.queries,
            desc=f"{reranker.label}: {collection.name}",
            unit="query",
            disable=not run.show_progress,
            leave=False,
        )
        for query in bar:
            documents, text = candidates.listed(query), collection.queries[query]
            texts = [collection.documents[document] for document in documents]
            key = sha256_json([text, documents, texts])
            done: dict[str, Any] | None = None if run.fresh else journal.get(key)
            if done is None:
                before = {name: getattr(stats, name) for name in _COUNTS}
                scores = reranker.score(text, texts).log_odds.tolist()
                counted = {name: getattr(stats, name) - before[name] for name in _COUNTS}
                done = {"log_odds": scores, **counted}
                journal.add(key, done)
            log_odds.append(np.array(done["log_odds"], dtype=np.float64))
            counts["pairs"] += len(log_odds[-1])
            for each in _COUNTS:
                counts[each] += done.get(each, 0)
            tokens = reranker.query_length(text) if done.get("queries_cut") else 0
            if tokens > longest.get("tokens", 0):
                longest = {"query": query, "tokens": tokens}
        scored = replace(candidates, scores=np.concatenate([*log_odds, np.empty(0)]))
        return scored, counts, longest

    def _per_query(self, reranked: RunArrays) -> dict[str, dict[str, float]]:
        """Columns of the record: reranked, first stage, gain, ceiling, upper bound."""
        qrels, base = self.collection.qrels, self.first.run
        recall = f"Recall@{self.first.recipe['depth']}"
        grades = (qrels[query].get(name, 0) for query in base for name in base.listed(query))
        oracle = replace(base, scores=np.fromiter(grades, np.float64, len(base.scores)))
        columns = dict(score_run(qrels, reranked, self.measures, zeros=True))
        first = score_run(qrels, base, (*self.measures, recall), zeros=True)
        best = score_run(qrels, oracle, self.measures, zeros=True)
        for metric in self.measures:
            columns[f"first {metric}"] = first[metric]
            columns[f"gain {metric}"] = {
                query: value - first[metric][query] for query, value in columns[metric].items()
            }
            columns[f"oracle {metric}"] = best[metric]
        columns[f"first {recall}"] = first[recall]
        return columns


def rerank_pairs(reranker: Reranker, pairs: Path, output: Path) -> int:
    """Score ``{"query", "document"}`` lines into ``{"p_yes", "log_odds", "truncated"}`` lines.

    Lines keep their order; the file is written atomically. Pairs of one query are
    scored together, wherever they are in the file. Return the number of pairs.

    Raises:
        DataError: a line is not a pair; the message names the line.
        RerankError: a pair cannot be scored.
    """
    fields = {"query": str, "document": str}
    rows = [row for _, row in numbered_json_rows(pairs, fields)]
    try:
        scores = reranker.score_pairs(rows)
    except RerankError as error:
        raise RerankError(f"{pairs}: {error}") from None
    if not rows:
        raise DataError(f"{pairs}: the file has no pairs")
    names = ("p_yes", "log_odds", "truncated")
    columns = (getattr(scores, name).tolist() for name in names)
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    write_text(output, "\n".join(lines) + "\n")
    return len(rows)


def dataset_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per data set, with every metric of the records, and the mean of each metric.

    A group (CQADupStack) counts once, with the mean of its parts, or None if one is missing. A
    second mean leaves MS MARCO out, if it is one of several, as is usual for BEIR.
    """
    parts: dict[str, list[Result]] = {}
    for result in results:
        name = result.config["group"] or result.config["collection"]
        parts.setdefault(name, []).append(result)
    metrics = list(results[0].metrics) if results else []
    rows: list[dict[str, Any]] = []
    for name, own in parts.items():
        whole = len(own) >= (own[-1].config.get("parts") or 1)
        values = {m: _mean([r.metrics[m].value for r in own]) if whole else None for m in metrics}
        rows.append({"dataset": name, **values})
    others = [row for row in rows if row["dataset"] not in _MSMARCO]
    means = []
    for averaged, without in ((rows, ""), (others, ", without MS MARCO")):
        if averaged and (not without or len(others) < len(rows)):
            count = f"{len(averaged)} data set{'' if len(averaged) == 1 else 's'}"
            values = {metric: _mean([row[metric] for row in averaged]) for metric in metrics}
            means.append({"dataset": f"mean of {count}{without}", **values})
    return rows + means


def _mean(values: list[float | None]) -> float | None:
    """The mean; None if any value is None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
