"""Search and rerank, with the first stage as the baseline.

A record has the per-query scores of the reranked run and of the first stage, and the gain. A
reranker cannot rank documents missed by the first stage: the recall of the first stage is the
ceiling, and the ideal order of the candidates the upper bound. The run is saved next to the record
in TREC format, the run of the first stage once for all rerankers.

The candidates of MTEB tasks are kept on disk, by the revision of the data and the recipe of the
first stage: a second reranker neither loads the data set nor searches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import Unpack

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, query_clusters
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.judgements import nonzero
from qwen3nb.datasets.mirror import MirrorError, explain, hub_access, needs
from qwen3nb.datasets.rows import DataError, checked_rows, numbered_json_rows
from qwen3nb.datasets.trec import run_digest, write_run
from qwen3nb.evaluation.mteb.select import (
    choose_tasks,
    nano_task,
    quiet,
    sample_positions,
    split_groups,
    task_key,
)
from qwen3nb.evaluation.retrieval.first_stage import (
    FirstStage,
    Retriever,
    first_stage,
    load_retriever,
)
from qwen3nb.evaluation.retrieval.nano import find_collections_or_parts, nano_facts
from qwen3nb.evaluation.run import EvaluationRun, Job, Run, RunOptions, Work, evaluate_each
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.retrieval import Measure, recorded_measures, score_run
from qwen3nb.metrics.run_arrays import RunArrays
from qwen3nb.models.capabilities import ScoresPairs
from qwen3nb.models.load import loaded_scorer
from qwen3nb.models.model import Model
from qwen3nb.models.rerankers import Reranker, RerankError
from qwen3nb.records.details import DataFacts, FirstRun, RunFiles, SearchFacts
from qwen3nb.records.kept_runs import run_problems
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.records.side_files import first_run_file, first_stage_file, reranked_run_file, run_path
from qwen3nb.tiers import BENCHMARKS, NANO, TIERS
from qwen3nb.utils.atomic_files import sha256_file, sha256_json, write_text
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.journal import Journal
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from mteb import AbsTask

# MTEB's task and the folder of official files; main metric MRR@10, as on its leaderboard.
# The data set's name under ``dataset``, and a value per metric; None if a part is missing.
DataSetRow: TypeAlias = dict[str, Any]

_MSMARCO = (*BENCHMARKS["MS MARCO dev"].tasks, "MSMARCO-dev")
_TRUNCATIONS = ("cut", "queries_cut")  # names in `Stats`


def rerank(
    reranker: Model | ScoresPairs | Path | str,
    data: Any = None,
    *,
    tier: str = "",
    limit: int = 0,
    nano: bool = False,
    msmarco: Path | str | None = None,
    first: Retriever = "bm25",
    first_prompts: str = "",
    depth: int = 100,
    **options: Unpack[RunOptions],
) -> EvaluationRun:
    """Search and rerank data sets; save a record and its run of every data set.

    The first stage's run is saved once in ``first_stages``; records name it with its digest.

    Args:
        reranker: a `Model`, its spec, or from `load_reranker`.
        data: a folder (BEIR, CQADupStack, MS MARCO dev), the name of an MTEB task
            (including PyDocsRetrieval), a task object or a `TestCollection`; or several.
        tier: name of a tier, instead of ``data``; see `Tier.reranking`.
        limit: maximum number of queries, and of documents in addition to the judged ones; 0 for no
            limit. Scores are comparable only under the same limit.
        nano: whether to cut ``data`` as the tier `nano` does.
        msmarco: folder of the official MS MARCO dev files, used instead of the tier's MSMARCO, with
            ``depth`` of the official candidates (BM25's top 1,000).
        first: the first-stage retriever; see `qwen3nb.evaluation.retrieval.first_stage`. As text
            also the name of an encoder, or several names with commas, which are fused.
        first_prompts: of encoders named in ``first``; empty for each encoder's own.
        depth: candidates per query.
        options: as in `evaluate`: ``output``, ``seed``, ``config``, ``fresh``, ``strict`` and
            ``show_progress``; with ``runs``, the qrels are kept, too.

    Raises:
        ValueError: neither ``data`` nor ``tier``, or both; or a tier without data sets to rerank.
        EvaluationError: one or more data sets failed, and ``strict``; the records of the others
            are saved.
    """
    has_data_sets = data is not None
    has_tier = bool(tier)
    has_exactly_one = has_data_sets != has_tier
    # The files of MS MARCO take the place of a tier's task.
    if not has_exactly_one or (msmarco and not has_tier):
        raise ValueError(
            "expected either data sets or a tier (with the MS MARCO dev files, if any); got "
            f"data {data!r}, tier {tier!r}, msmarco {msmarco and str(msmarco)!r}"
        )
    if isinstance(first, str):
        first = load_retriever(*split_names(first), prompts=first_prompts)
    if tier:
        data_sets = _data_sets_of(tier)
    elif isinstance(data, list | tuple):
        data_sets = list(data)
    else:
        data_sets = [data]
    # The official files take the place of MTEB's task.
    if msmarco is not None:
        data_sets = [name for name in data_sets if name not in _MSMARCO]
    model = loaded_scorer(reranker)

    # Called when the job's turn comes: one data set is in memory at a time.
    def find(data_set: Any, retriever: Retriever) -> Iterator[tuple[ScoresPairs, RerankItem]]:
        for item in rerank_items(data_set, retriever, depth=depth, limit=limit, nano=nano):
            yield model, item

    jobs: list[Job] = [(data_name(entry), partial(find, entry, first)) for entry in data_sets]
    if msmarco is not None:
        folder = Path(msmarco)
        jobs.append((data_name(folder), partial(find, folder, "given")))
    return evaluate_each(jobs, Run(**options), label=model.label, kind="data sets")


def _data_sets_of(tier: str) -> list[Any]:
    """Return the data sets of a tier that a reranker searches and reranks.

    Raises:
        ValueError: an unknown tier, or one without such data sets; lists those with some.
    """
    data_sets = list(TIERS[check_choice("tier", tier, TIERS)].reranking)
    if not data_sets:
        names = [entry.name for entry in TIERS.values() if entry.reranking]
        raise ValueError(
            f"the tier {tier} has no data sets to search and rerank; choose one of: "
            f"{', '.join(names)}"
        )
    return data_sets


def data_name(data: Any) -> str:
    """Return the name of a data set in messages."""
    if hasattr(data, "metadata"):
        return task_key(data)
    if isinstance(data, TestCollection):
        return data.name
    return str(data)


def rerank_items(
    data: Any,
    first: Retriever = "bm25",
    *,
    depth: int = 100,
    limit: int = 0,
    nano: bool = False,
) -> Iterator[RerankItem]:
    """Load and search the collections of a data set, or of the tasks in a group, one by one.

    Raises:
        DataError: no such data set or first stage, or data that are malformed.
        MirrorError: the data are neither in the mirror nor on the hub.
    """
    with_candidates = partial(_with_candidates, first=first, depth=depth, limit=limit)
    is_folder = isinstance(data, str | Path) and Path(data).expanduser().is_dir()
    # All other data are MTEB tasks.
    if isinstance(data, TestCollection) or is_folder:
        collections = find_collections_or_parts(data, nano=nano)
        for collection in collections:
            yield with_candidates(collection, parts=_parts_of_group(collections))
        return
    tasks = _tasks_of(data)
    members = split_groups(tasks)
    group = ""
    if len(members) > 1:
        group = tasks[0].metadata.name
    for task in members:
        collections = _load_collections(nano_task(task) if nano else task, group)
        parts = _parts_of_group(collections)
        # The members of a group of tasks count as parts of one data set.
        if group:
            parts = len(members)
        for collection in collections:
            yield with_candidates(collection, parts=parts)


def _parts_of_group(collections: Sequence[TestCollection]) -> int:
    """Return the number of collections in a group; 0 if they are none."""
    if any(collection.group for collection in collections):
        return len(collections)
    return 0


def _tasks_of(data: Any) -> list[AbsTask]:
    """Return a task object, or the task of a name.

    Raises:
        DataError: no MTEB task has the name.
    """
    if not isinstance(data, str | Path):
        return [data]
    try:
        return choose_tasks(tasks=[str(data)])
    except ValueError as error:
        raise DataError(f"{str(data)!r} is neither a folder nor an MTEB task ({error})") from None


def _with_candidates(
    whole_collection: TestCollection, first: Retriever, *, depth: int, limit: int, parts: int
) -> RerankItem:
    collection = limited_collection(whole_collection, limit)
    stage = first_stage(collection, first, depth=depth)
    # Without a digest, TREC cannot express an id: raise the error that names it.
    if not stage.digest:
        run_digest(Path(collection.name), stage.run, tag="")
    return RerankItem(collection, stage, limit=limit, parts=parts)


def _load_collections(task: AbsTask, group: str) -> list[TestCollection]:
    """Load the collections of a task, without progress bars or MTEB's own copy."""
    was_loaded = task.data_loaded
    try:
        with hub_access(needs([task])), quiet():
            collections = find_collections_or_parts(task)
    except (DataError, MirrorError):  # their messages say what to do
        raise
    except Exception as error:  # a loader may raise anything
        is_built_in = task.metadata.dataset["path"].startswith("qwen3nb/")
        # Not downloaded, so a failure is no matter of the network.
        if is_built_in:
            raise
        raise explain(task, error) from error
    if not was_loaded:
        task.unload_data()
    if not group:
        return collections
    return [replace(collection, group=group) for collection in collections]


def limited_collection(collection: TestCollection, limit: int) -> TestCollection:
    """Return at most ``limit`` queries, and as many documents in addition to the judged ones.

    The sample is the same for every model. Candidates in the data are kept.
    """
    if not limit:
        return collection
    names = sorted(collection.queries)
    queries = [names[position] for position in sample_positions(len(names), limit)]
    qrels = {query: collection.qrels[query] for query in queries}
    needed_documents: set[str] = set()
    for grades in qrels.values():
        needed_documents.update(grades)
    candidates = None
    if collection.candidates is not None:
        candidates = {query: collection.candidates[query] for query in queries}
        for documents in candidates.values():
            needed_documents.update(documents)
    other_documents = sorted(collection.documents.keys() - needed_documents)
    sampled_documents = [
        other_documents[position] for position in sample_positions(len(other_documents), limit)
    ]
    kept_documents = needed_documents.union(sampled_documents)
    is_whole = len(queries) == len(names) and collection.documents.keys() <= kept_documents
    if is_whole:
        return collection
    return replace(
        collection,
        queries={query: collection.queries[query] for query in queries},
        qrels=qrels,
        candidates=candidates,
        documents={
            name: text for name, text in collection.documents.items() if name in kept_documents
        },
        counts={},  # those of the whole collection do not apply
    )


@dataclass(frozen=True)
class RerankItem:
    """A test collection with its candidates."""

    collection: TestCollection
    first: FirstStage  # the first stage with its run
    limit: int = 0  # the limit applied to the collection, or 0
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
    def measures(self) -> tuple[Measure, ...]:
        """The metrics of rerankings."""
        return recorded_measures("reranking")

    @property
    def task(self) -> TaskInfo:
        """The task of the record, with irregularities of the data."""
        main_metric, selection = "nDCG@10", ""
        if self.name in _MSMARCO:
            main_metric = "MRR@10"
        if self.limit:
            selection = f"limit{self.limit}"
        collection = self.collection
        if collection.nano:
            selection = "-".join(filter(None, (NANO, selection)))
        return TaskInfo(
            name=f"{self.name}.{self.first.label}-{self.first.recipe['depth']}",
            type="Reranking",
            dataset=self.name,
            revision=collection.revision,
            main_metric=main_metric,
            size={"documents": len(collection.documents), "queries": len(collection.queries)},
            selection=selection,
            counts={**collection.counts, **self.first.counts},
            clusters=query_clusters(collection),
            substitute=collection.substitute,
        )

    @property
    def _facts(self) -> DataFacts:
        collection = self.collection
        # The usual threshold is not stated.
        threshold = None
        if collection.relevance_threshold != 1:
            threshold = collection.relevance_threshold
        return DataFacts(
            collection=self.name,
            group=collection.group,
            parts=self.parts,
            limit=self.limit,
            relevance_threshold=threshold,
            nano=nano_facts(collection) or None,
        )

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record has the same first stage and data, and its runs exist."""
        has_same_first_stage = record.search.first == self.first.recipe
        has_same_data = record.task.substitute == self.collection.substitute
        if not (has_same_first_stage and has_same_data):
            return False
        file = record.path(folder)
        runs = [reranked_run_file(file, record.files), first_run_file(file, record.files)]
        if not all(run.is_file() for run in runs):
            return False
        return not any(run_problems(file, record))

    def evaluate(self, model: ScoresPairs, run: Run) -> Result:
        """Return the record of a reranker, and write the runs."""
        work = Work(model)
        reranked, counts = self.score_candidates(model, run)
        truncations = {
            "pairs whose document was cut to the maximum length": counts["cut"],
            "queries cut to leave room for a document": counts["queries_cut"],
        }
        task = replace(self.task, counts={**self.task.counts, **nonzero(truncations)})
        result = work.record(
            task,
            self._per_query(reranked),
            run,
            data=self._facts,
            search=SearchFacts(first=self.first.recipe, counts=counts),
        )
        record = result.path(run.folder)
        digest = run_digest(record, reranked, tag=model.label)
        run_file = write_run(run_path(record, digest), reranked, tag=model.label)
        first_run = self._write_first_run(run.folder)
        result = replace(result, files=RunFiles(runs={run_file.name: digest}, first_run=first_run))
        # Only the qrels are left to write.
        return run.with_runs(result, None, self.collection.qrels)

    def _write_first_run(self, folder: Path) -> FirstRun:
        """Write the first stage's run unless another reranker has; its name has the digest."""
        file = first_stage_file(folder, f"{self.task.key}-{self.first.digest[:16]}.trec")
        if not file.is_file() or sha256_file(file) != self.first.digest:
            write_run(file, self.first.run, tag=self.first.label)
        return FirstRun(name=file.name, sha256=sha256_file(file))

    def score_candidates(self, reranker: ScoresPairs, run: Run) -> tuple[RunArrays, dict[str, int]]:
        """Return the run of the model's scores, and the numbers of pairs and truncations.

        Scored queries are journaled: an interrupted run loses at most one. A ``fresh`` run scores
        all queries again.
        """
        # By name: no score should depend on the order of the first stage.
        candidates = self.first.run.by_name()
        name = f"{reranker.identity[:16]}-{sha256_json(self.first.recipe)[:16]}.jsonl"
        journal = Journal(paths.cache() / "rerank" / name)
        log_odds = [np.empty(0)]  # one array at least, for a run without queries
        counts = {"pairs": 0, **dict.fromkeys(_TRUNCATIONS, 0)}
        bar = tqdm(
            candidates.queries,
            desc=f"{reranker.label}: reranking",
            unit="query",
            disable=not run.show_progress,
            leave=False,
        )
        for query in bar:
            text = self.collection.queries[query]
            documents = candidates.listed(query)
            texts = [self.collection.documents[document] for document in documents]
            key = sha256_json([text, documents, texts])  # another one once any text changes
            entry = None
            if not run.measures_again:
                entry = journal.get(key)
            if entry is None:
                entry = _score_query(reranker, text, texts)
                journal.add(key, entry)
            log_odds.append(np.array(entry["log_odds"], dtype=np.float64))
            counts["pairs"] += len(entry["log_odds"])
            for truncation in _TRUNCATIONS:
                counts[truncation] += entry.get(truncation, 0)
        return replace(candidates, scores=np.concatenate(log_odds)), counts

    def _per_query(self, reranked: RunArrays) -> QueryScores:
        """Return the columns of the record: reranked, first stage, gain, ceiling, upper bound."""
        recall = f"Recall@{self.first.recipe['depth']}"
        reranked_scores = self._scores(reranked, self.measures)
        first_scores = self._scores(self.first.run, (*self.measures, recall))
        # The upper bound: a reranker that knows the grades.
        best_scores = self._scores(self._best_order(), self.measures)
        columns = {str(name): reranked_scores.array(name) for name in self.measures}
        for measure in self.measures:
            first_stage_column = first_scores.array(measure)
            columns[f"first {measure}"] = first_stage_column
            columns[f"gain {measure}"] = columns[measure] - first_stage_column
            columns[f"oracle {measure}"] = best_scores.array(measure)
        columns[f"first {recall}"] = first_scores.array(recall)
        return QueryScores(reranked_scores.queries, columns, ids=reranked_scores.ids)

    def _scores(self, run: RunArrays, measures: Iterable[str]) -> QueryScores:
        collection = self.collection
        return score_run(
            collection.qrels, run, measures, threshold=collection.relevance_threshold, zeros=True
        )

    def _best_order(self) -> RunArrays:
        """Return the candidates with their grades as scores."""
        run, qrels = self.first.run, self.collection.qrels
        grades: list[float] = []
        for query in run:
            grades.extend(qrels[query].get(name, 0) for name in run.listed(query))
        return replace(run, scores=np.array(grades, dtype=np.float64))


def _score_query(model: ScoresPairs, query: str, documents: Sequence[str]) -> dict[str, Any]:
    """Score the documents of a query; return the scores, and the numbers of truncations."""
    before = {name: getattr(model.stats, name, 0) for name in _TRUNCATIONS}
    scores = model.score_documents(query, documents).tolist()
    truncated = {name: getattr(model.stats, name, 0) - before[name] for name in _TRUNCATIONS}
    return {"log_odds": scores, **truncated}


def rerank_pairs(reranker: Reranker, pairs: Any, output: Path) -> int:
    """Score ``{"query", "document"}`` lines into ``{"p_yes", "log_odds", "truncated"}`` lines.

    Lines keep their order; the file is written atomically. Pairs of one query are scored together.
    ``pairs`` is a JSONL file, or its rows as a data frame or a list of dictionaries. Returns the
    number of pairs.

    Raises:
        DataError: a line is not a pair; the message names the line.
        RerankError: a pair cannot be scored.
    """
    fields = {"query": str, "document": str}
    if isinstance(pairs, Path | str):
        place = str(pairs)
        numbered_rows = numbered_json_rows(Path(pairs), fields)
    else:
        place = "pairs"
        numbered = enumerate(table_rows(pairs, what=place), start=1)
        numbered_rows = checked_rows(numbered, fields, place)
    rows = [row for _, row in numbered_rows]  # the numbers are for error messages
    try:
        scores = reranker.score_pairs(rows)
    except RerankError as error:
        raise RerankError(f"{place}: {error}") from None
    if not rows:
        raise DataError(f"{place}: the file has no pairs")
    columns = (scores.p_yes.tolist(), scores.log_odds.tolist(), scores.truncated.tolist())
    lines = []
    for p_yes, log_odds, is_truncated in zip(*columns, strict=True):
        row = {"p_yes": p_yes, "log_odds": log_odds, "truncated": is_truncated}
        lines.append(json.dumps(row))
    write_text(output, "\n".join(lines) + "\n")
    return len(rows)


def dataset_rows(results: Sequence[Result]) -> list[DataSetRow]:
    """Return a row per data set with every metric of the records, and a row of means.

    A group (CQADupStack) counts once, with the mean of its parts, or None if one is missing.
    """
    records_by_name: dict[str, list[Result]] = {}
    for result in results:
        name = result.data.group or str(result.data.collection)
        records_by_name.setdefault(name, []).append(result)
    metrics = list(results[0].metrics) if results else []
    rows: list[DataSetRow] = []
    for name, records in records_by_name.items():
        row: DataSetRow = {"dataset": name}
        # Each record of a group states its number of parts; without a group, it is 0.
        is_whole = len(records) >= (records[-1].data.parts or 1)
        for metric in metrics:
            row[metric] = None
            if is_whole:
                row[metric] = _mean([record.metrics[metric].value for record in records])
        rows.append(row)
    if rows:
        plural = "s" if len(rows) > 1 else ""
        means = {metric: _mean([row[metric] for row in rows]) for metric in metrics}
        rows.append({"dataset": f"mean of {len(rows)} data set{plural}", **means})
    return rows


def _mean(values: list[float | None]) -> float | None:
    """The mean; None if any value is None."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return sum(numbers) / len(numbers)
