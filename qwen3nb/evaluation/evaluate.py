"""Evaluate a model on MTEB tasks, test collections or custom data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.datasets.collection import TestCollection, query_clusters
from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.in_memory import is_table
from qwen3nb.evaluation.mteb.evaluate import TaskItem
from qwen3nb.evaluation.mteb.select import check_types, suite_tasks
from qwen3nb.evaluation.retrieval.custom import evaluate_domain
from qwen3nb.evaluation.retrieval.first_stage import first_stage
from qwen3nb.evaluation.retrieval.nano import find_collections_or_parts, nano_facts
from qwen3nb.evaluation.retrieval.rerank import data_name, rerank
from qwen3nb.evaluation.run import EvaluationRun, Job, Run, RunOptions, Work, evaluate_each
from qwen3nb.metrics.retrieval import Measure, deepest, recorded_measures, score_run
from qwen3nb.models.capabilities import reranks_only
from qwen3nb.models.kinds.prompts import parse_prompts
from qwen3nb.models.load import label_of, to_model
from qwen3nb.models.options import BATCH_SIZE
from qwen3nb.models.search.words import stated_words
from qwen3nb.records.details import DataFacts, SearchFacts
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.tiers import NANO, TIERS
from qwen3nb.utils.choices import split_names

if TYPE_CHECKING:
    from mteb import AbsTask

log = logging.getLogger(__name__)

Data = TestCollection | Path | str


def evaluate(
    model: Any,
    data: Domain | Data | Iterable[Data] | None = None,
    *,
    tier: str = "smoke",
    tasks: Iterable[AbsTask] | str | None = None,
    types: Sequence[str] | str = (),
    limit: int = 0,
    relevance_threshold: int = 1,
    output: Path | str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    prompts: Mapping[str, str] | str | None = None,
    query_prefix: str = "",
    doc_prefix: str = "",
    base: Path | str | None = None,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    runs: bool = False,
    strict: bool = True,
    label: str = "",
    fingerprint: str = "",
    show_progress: bool = True,
    watch: Callable[[Sequence[Result]], str] | None = None,
    wait_for: Callable[[Sequence[str]], bool] | None = None,
) -> EvaluationRun:
    """Evaluate ``model`` on a tier, on tasks or on ``data``; save each record as it finishes.

    A task with a record for the same model, data, metrics and software is not run again, and a
    model named by its spec is not loaded if no task runs. A task that fails does not stop the
    others; one that the model does not support (such as classification with BM25) is skipped and
    listed. A reranker reranks BM25's candidates; see `rerank`.

    Args:
        model: a `Model`, or its spec, such as ``bm25`` or a folder; a loaded model; any object
            with ``encode(texts)``, such as a SentenceTransformer; or a pair of a model and its
            tokenizer.
        data: one or more test collections, or their folders, instead of MTEB tasks; or custom
            queries and documents from `load_domain`, evaluated as by `qwen3nb domain`.
        tier: name of a tier; see `TIERS`. The tier ``nano`` also cuts tasks and collections that
            are given, to at most 50 queries and 5,000 documents each.
        tasks: MTEB task objects or names to run instead of a tier, or one comma-separated
            string of names; an empty string means the tier's tasks.
        types: types of these tasks to run, such as ``["Retrieval", "STS"]``; by default all.
        limit: maximum number of queries, of rows, and of documents in addition to the judged ones;
            0 for no limit. A limited task has a different name and is left out of MTEB's own
            results.
        relevance_threshold: for ``data``, the lowest grade that counts as relevant in binary
            metrics, such as MRR; nDCG uses the grades as they are.
        output: folder for records; by default `paths.results`.
        seed: seed, part of the records' path.
        batch_size: texts per batch; by default the model's own, which is 32.
        prompts: as for `Model`, for a model named by its spec or an object with ``encode``;
            part of the model's identity.
        query_prefix: prompt of queries; with ``doc_prefix``, an alternative to ``prompts``.
        doc_prefix: prompt of passages.
        base: base model of a LoRA adapter named by its spec.
        config: parameters to store in each record.
        fresh: run again even if a record exists.
        runs: whether to keep run and qrels of a search next to the record, in TREC format. A record
            without them is computed again, from cached vectors.
        strict: whether to raise if a task or collection failed; if not, see
            `EvaluationRun.failures`.
        label: for an object with ``encode``, its name in tables.
        fingerprint: for such an object, identifies its content; without it, vectors and records are
            not reused.
        show_progress: whether to show progress bars.
        watch: called after each record with all so far; the text that it returns is printed.
        wait_for: called with the names of tasks if only those are left that other processes are
            at: whether to wait for them. By default, they are waited for.

    Raises:
        SpecError: ``model`` is not a known model.
        EvaluationError: a task failed, and ``strict``; lists each failure with its cause. The
            tracebacks are saved next to the records; `EvaluationError.run` has the other records.
        TypeError: another kind of ``model``; or data frames as ``data``: says what to write.
        ValueError: both ``data`` and ``tasks`` or ``limit``; a label or fingerprint for a model
            that has its own; prompts or a base for a loaded model; or prompts given in both ways.
    """
    if query_prefix or doc_prefix:
        if prompts is not None:
            raise ValueError("expected either prompts, or query_prefix and doc_prefix; got both")
        prompts = {"query": query_prefix, "passage": doc_prefix}
    model = to_model(
        model,
        prompts=parse_prompts(prompts),
        base=base,
        label=label,
        fingerprint=fingerprint,
        batch_size=batch_size,
        show_progress=show_progress,
    )
    options: RunOptions = {
        "output": output,
        "seed": seed,
        "config": config,
        "fresh": fresh,
        "runs": runs,
        "strict": strict,
        "batch_size": batch_size or getattr(model, "batch_size", None) or BATCH_SIZE,
        "show_progress": show_progress,
        "watch": watch,
        "wait_for": wait_for,
    }
    if relevance_threshold > 1 and (data is None or isinstance(data, Domain)):
        raise ValueError(
            "relevance_threshold is for collections and their folders; load_domain has its own"
        )
    if data is None:
        return _evaluate_tasks(model, options, tier=tier, tasks=tasks, types=types, limit=limit)
    _check_data_alone(data, tasks=tasks, types=types, limit=limit)
    if isinstance(data, Domain):
        if tier == NANO:
            raise ValueError(
                "the tier nano cuts collections; got a Domain: write its data in the BEIR format, "
                "or leave the tier out"
            )
        return evaluate_domain([model], data, **options)
    if isinstance(data, TestCollection | Path | str):
        data = [data]
    return _evaluate_data_sets(
        model, list(data), options, threshold=relevance_threshold, nano=tier == NANO
    )


def _evaluate_tasks(
    model: Any,
    options: RunOptions,
    *,
    tier: str,
    tasks: Iterable[AbsTask] | str | None,
    types: Sequence[str] | str,
    limit: int,
) -> EvaluationRun:
    """Evaluate a model on tasks, or on a tier; see `evaluate`."""
    # Refuse mistyped tasks before loading a model, which may take minutes.
    selected = suite_tasks(tier=tier, tasks=tasks)
    if types:
        selected = _of_types(selected, types)
    is_whole_tier = not tasks and not types
    if is_whole_tier and reranks_only(model):
        return rerank(model, tier=tier, limit=limit, **options)
    items = [TaskItem(task, limit) for task in selected]
    jobs: list[Job] = [(item.key, partial(item.on, model)) for item in items]
    # Each record states the tier that it was made for.
    options["config"] = {**(options["config"] or {}), "tier": tier}
    return evaluate_each(jobs, Run(**options), label=label_of(model), kind="tasks")


def _evaluate_data_sets(
    model: Any, data_sets: list[Data], options: RunOptions, *, threshold: int, nano: bool
) -> EvaluationRun:
    """Evaluate a model on test collections or their folders; see `evaluate`."""
    if reranks_only(model):
        if threshold > 1:
            raise ValueError("relevance_threshold is not for rerankers yet; leave it out")
        return rerank(model, data_sets, nano=nano, **options)
    jobs: list[Job] = []
    for data_set in data_sets:
        find = partial(_find, model, data_set, threshold, nano)
        jobs.append((data_name(data_set), find))
    return evaluate_each(jobs, Run(**options), label=label_of(model), kind="collections")


def _check_data_alone(data: Any, *, tasks: Any, types: Sequence[str] | str, limit: int) -> None:
    """Raise an error for tables, and for data together with what selects MTEB tasks."""
    tables = [data]
    if isinstance(data, list | tuple):
        tables += data  # of several, or a list of rows
    if isinstance(data, Mapping) or any(is_table(table) for table in tables):
        raise TypeError(
            "expected a collection; for data frames of queries, documents and judgements, write "
            "q.evaluate(model, q.TestCollection.from_texts(queries, documents, judgements))"
        )
    if isinstance(data, str) and data in TIERS:
        raise ValueError(f"{data!r} is a tier: give tier={data!r}; data are folders or collections")
    if types:
        raise ValueError(f"expected either data, or types of tasks; got both, types={types!r}")
    if tasks is not None or limit:
        raise ValueError(
            "expected either data, or tasks with an optional limit; got both; "
            "for a smaller collection, give TestCollection.from_texts the texts to keep"
        )


def _of_types(tasks: Sequence[AbsTask], types: Sequence[str] | str) -> list[AbsTask]:
    """Return the tasks of these types; a type that none has is named."""
    names = list(types)
    if isinstance(types, str):
        names = split_names(types)
    absent_types = check_types(names, tasks)
    selected = [task for task in tasks if task.metadata.type in names]
    if not selected:
        present = sorted({str(task.metadata.type) for task in tasks})
        raise ValueError(f"no task of the types {names}; these tasks have {', '.join(present)}")
    if absent_types:
        log.warning("no task of the types %s among these; not evaluated", ", ".join(absent_types))
    return selected


@dataclass(frozen=True)
class CollectionItem:
    """A test collection to evaluate, such as a BEIR folder or the MS MARCO dev set."""

    collection: TestCollection

    @property
    def key(self) -> str:
        """Name of the collection, which says if it was cut."""
        return self.collection.key

    name = key

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The metrics of collections; the first is the main metric."""
        return recorded_measures("collection")

    @property
    def depth(self) -> int:
        """Number of documents per query that the metrics need."""
        return deepest(self.measures)

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record has the same texts, judgements, depth and words."""
        return (
            record.task.revision == self.collection.revision
            and record.task.substitute == self.collection.substitute
            and record.search.depth == self.depth
            and record.task.clusters == query_clusters(self.collection)
            and record.search.words == self._words(record.model.settings)
        )

    def _words(self, settings: Mapping[str, Any]) -> str:
        """What a record of a model with these settings states on words; see `stated_words`."""
        return stated_words(settings, [self.collection.words.name])

    def evaluate(self, model: Any, run: Run) -> Result:
        """Search the collection and score every query; the run is cached."""
        collection, work = self.collection, Work(model)
        stage = first_stage(collection, model, depth=self.depth)
        task = TaskInfo(
            name=collection.name,
            type="Retrieval",
            dataset=collection.name,
            revision=collection.revision,
            main_metric=self.measures[0],
            size={"documents": len(collection.documents), "queries": len(collection.queries)},
            group=collection.group,
            counts={**collection.counts, **stage.counts, **work.counts()},
            clusters=query_clusters(collection),
            substitute=collection.substitute,
            selection=NANO if collection.nano else "",
        )
        threshold = collection.relevance_threshold
        # zeros: a query counts as 0 if none of its judged documents is relevant.
        scores = score_run(
            collection.qrels, stage.run, self.measures, threshold=threshold, zeros=True
        )
        data = DataFacts(nano=nano_facts(collection) or None)
        # The usual threshold is not stated.
        if threshold != 1:
            data = replace(data, relevance_threshold=threshold)
        search = SearchFacts(depth=self.depth, words=self._words(model.settings))
        result = work.record(task, scores, run, data=data, search=search)
        return run.with_runs(result, stage.run, collection.qrels)


def _find(
    model: Any, data: Data, threshold: int, nano: bool
) -> Iterator[tuple[Any, CollectionItem]]:
    for collection in find_collections_or_parts(data, nano=nano):
        if threshold > 1:
            collection = replace(collection, relevance_threshold=threshold)
        yield model, CollectionItem(collection)
