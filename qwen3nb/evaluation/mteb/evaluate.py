"""Run MTEB tasks and keep the score of every query, which MTEB discards.

MTEB loads the data, runs the model and scores it; its own result goes to ``results/mteb``.
Per-query scores are computed here from MTEB's predictions, aggregated, and compared with
MTEB's main score: a task fails unless the two implementations agree to 1e-5.

    results/mteb/results/<model>/<revision>/<task>.json
    results/mteb/results/<model>/<revision>/model_meta.json
    results/mteb/results/<model>/<revision>/checksums.jsonl     ours
"""

from __future__ import annotations

import hashlib
import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from qwen3nb.datasets.judgements import (
    judgement_counts,
    nonzero,
    nothing_found_by,
    shared_documents,
    text_counts,
)
from qwen3nb.datasets.mirror import data_revision, hub_access, load_data, local_data, needs
from qwen3nb.datasets.rows import DataError, listed
from qwen3nb.evaluation.mteb.labels import labels_read_once
from qwen3nb.evaluation.mteb.per_query import (
    PREDICTED_TYPES,
    metrics_of,
    score_task,
    task_slices,
)
from qwen3nb.evaluation.mteb.predictions import KeptSearch, Predictions, read_predictions
from qwen3nb.evaluation.mteb.select import is_nano, limited, quiet, selection, task_key
from qwen3nb.evaluation.retrieval.nano import nano_data, nano_revision, source_revision
from qwen3nb.evaluation.run import (
    SEARCH_TYPES,
    EvaluationError,
    Run,
    UnsupportedError,
    Work,
)
from qwen3nb.metrics.retrieval import NOTHING_FOUND, Qrels, deepest, recorded_measures
from qwen3nb.models.capabilities import (
    LoadedModel,
    empty_rankings,
    encodes,
    refusal,
    reranks_only,
)
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.mteb_rows import ColumnValues, task_languages
from qwen3nb.models.search.words import stated_words, words_of_languages
from qwen3nb.records.details import DataFacts, SearchFacts
from qwen3nb.records.record import CHECKSUMS, MTEBScore, Result, TaskInfo, is_substitute
from qwen3nb.utils.atomic_files import errors_naming, exclusive_lock, write_bytes
from qwen3nb.utils.journal import noted

if TYPE_CHECKING:
    from mteb import AbsTask, ResultCache
    from mteb.results import TaskResult

_MODALITIES = {"image": "images", "audio": "sound"}  # modalities of tasks, as words


@dataclass(frozen=True)
class TaskItem:
    """An MTEB task object, limited to ``limit`` queries or rows; 0 for all."""

    task: AbsTask
    limit: int = 0

    @property
    def key(self) -> str:
        """Name of the task with its selection; see `qwen3nb.records.TaskInfo.key`."""
        return task_key(self.task, limit=self.limit)

    name = key

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics of tasks of its type."""
        return metrics_of(self.task.metadata.type)

    def unsuited(self, model: LoadedModel) -> str:
        """Return why the model does not support the task; empty if it does."""
        other_modalities = sorted({*self.task.metadata.modalities} - {"text"})
        if other_modalities:
            names = " and ".join(_MODALITIES.get(name, name) for name in other_modalities)
            return f"only text is evaluated, and its data have {names}"
        return refusal(model, self.task.metadata.type)

    def on(self, model: LoadedModel) -> list[tuple[Any, Self]]:
        """Return the model with the task; raise UnsupportedError if it does not support it."""
        reason = self.unsuited(model)
        if reason:
            raise UnsupportedError(reason)
        return [(model, self)]

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record has the same revision, splits, subsets and words."""
        revision = record.task.revision
        if is_nano(self.task):
            revision = source_revision(revision)
        return (
            revision == data_revision(self.task)
            and sorted(record.task.splits) == sorted(self.task.eval_splits)
            and sorted(record.task.subsets) == sorted(self.task.hf_subsets)
            and record.search.words == self._words(record.model.settings)
        )

    def _words(self, settings: Mapping[str, Any]) -> str:
        """What a record of a model with these settings states on words; see `stated_words`."""
        languages = [task_languages(self.task.metadata, subset) for subset in self.task.hf_subsets]
        return stated_words(settings, [words_of_languages(spoken).name for spoken in languages])

    def evaluate(self, model: LoadedModel, run: Run) -> Result:
        """Return the record of a model; for a whole task, also keep MTEB's own result.

        The data of the task stay loaded.
        """
        task, revision, work = self.task, data_revision(self.task), Work(model)
        results_folder = None
        if not self.limit and not is_nano(task):
            results_folder = run.folder / "mteb"
        empty_rankings(model).clear()
        # MTEB shares task objects of a benchmark, whose generators an earlier run has advanced.
        task.rng_state, task.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
        with hub_access(needs([task])), quiet(), local_data(task):
            load_task(task, revision)
            with nano_data(task) as nano, limited(task, self.limit):
                counts = data_counts(task)
                by_mteb = _evaluate_by_mteb(model, task, results_folder, run.batch_size)
                scores = score_task(task, by_mteb.predictions, by_mteb.outcome)
        counts |= nonzero(nothing_found(scores.run, model))
        main_score = float(by_mteb.outcome.get_score())
        info = TaskInfo(
            name=task.metadata.name,
            type=task.metadata.type,
            dataset=task.metadata.dataset["path"],
            revision=nano_revision(revision, nano),
            main_metric=scores.main,
            unit=scores.unit,
            size=scores.size,
            mteb=MTEBScore(str(task.metadata.main_score), main_score, by_mteb.digest),
            splits=tuple(task.eval_splits),
            subsets=tuple(task.hf_subsets),
            languages=tuple(task.languages),
            selection=selection(task, limit=self.limit),
            counts=counts | work.counts(),
            clusters=_clusters(task, scores.qrels),
        )
        result = work.record(
            info,
            scores.per_query,
            run,
            metrics=scores.metrics,
            parts=scores.parts,
            data=DataFacts(nano=nano or None),
            search=SearchFacts(words=self._words(model.settings)),
            top=scores.top or None,
        )
        return run.with_runs(result, scores.run, scores.qrels)


def _clusters(task: AbsTask, qrels: Qrels) -> dict[str, str]:
    """Return the cluster of each query: as the task says, or by its only relevant document."""
    cluster_of = getattr(task, "clusters", None)
    if cluster_of is None:
        return shared_documents(qrels)
    return {query: cluster_of(query) for query in qrels}


def nothing_found(run: Mapping[str, Mapping[str, float]], model: LoadedModel) -> dict[str, int]:
    """Count the queries for which a search found nothing, also by part of a fusion."""
    without_documents = [query for query, documents in run.items() if not documents]
    counts = {NOTHING_FOUND: len(without_documents)}
    for part, count in empty_rankings(model).items():
        counts[nothing_found_by(part)] = count
    return counts


@dataclass(frozen=True)
class _MTEBEvaluation:
    """What MTEB's evaluation of a task leaves."""

    predictions: Predictions
    outcome: Any  # MTEB's ``TaskResult``
    digest: str  # SHA-256 of its file; empty if it is not kept


def _evaluate_by_mteb(
    model: LoadedModel, task: AbsTask, results_folder: Path | None, batch_size: int
) -> _MTEBEvaluation:
    """Let MTEB evaluate a model; its result is kept in ``results_folder``, if any."""
    from mteb import ResultCache

    kind = task.metadata.type
    model_of_mteb: Any = model
    if kind in SEARCH_TYPES:
        model_of_mteb = KeptSearch(
            _search_model(model),
            depth=deepest(recorded_measures("task")),
            as_arrays=len(task.hf_subsets) * len(task.eval_splits) > 1,
        )
    with tempfile.TemporaryDirectory() as scratch, errors_naming(Path(scratch).parent):
        folder = Path(scratch)
        cache = None
        if results_folder is not None:
            cache = ResultCache(folder / "results")
        predictions_folder = None
        if kind in PREDICTED_TYPES:
            predictions_folder = folder / "predictions"
        with labels_read_once(task):
            outcome = _task_result(
                model_of_mteb,
                task,
                cache=cache,
                predictions_folder=predictions_folder,
                options={"batch_size": batch_size, "show_progress_bar": False},
            )
        digest = ""
        if results_folder is not None:
            digests = keep_results(folder / "results", results_folder)
            digest = digests.get(f"{task.metadata.name}.json", "")
        predictions: Predictions = {}
        if isinstance(model_of_mteb, KeptSearch):
            predictions = model_of_mteb.runs
        elif predictions_folder is not None:
            predictions = read_predictions(predictions_folder / task.prediction_file_name)
        return _MTEBEvaluation(predictions, outcome, digest)


def _task_result(
    model: Any,
    task: AbsTask,
    *,
    cache: ResultCache | None,
    predictions_folder: Path | None,
    options: dict[str, Any],
) -> TaskResult:
    """Evaluate each part of a loaded task as `mteb.evaluate` does, and keep MTEB's result.

    `mteb.evaluate` imports sentence-transformers first, only to look at the type of the model. That
    takes longer than a whole search by words, which needs none of it.

    Args:
        model: a model of MTEB.
        task: no aggregate of other tasks.
        cache: where MTEB keeps its result; None: nowhere.
        predictions_folder: where MTEB writes predictions; None: nowhere.
        options: passed on to the model's ``encode``.
    """
    from mteb.results import TaskResult
    from mteb.timing import TimingStack

    batches = [[subset] for subset in task.hf_subsets]
    if task.metadata.type == "BitextMining":  # MTEB encodes the texts of all subsets together
        batches = [list(task.hf_subsets)]
    timer = TimingStack()
    start = time.monotonic()
    scores: dict[str, dict[str, Any]] = {}
    for split in task.eval_splits:
        scores[split] = {}
        for subsets in batches:
            scores_of_subsets = task.evaluate(
                model,
                split,
                subsets_to_run=subsets,
                encode_kwargs=options,
                prediction_folder=predictions_folder,
                timer=timer,
            )
            scores[split].update(scores_of_subsets)
    result = TaskResult.from_task_results(
        task,
        scores,
        evaluation_time=time.monotonic() - start,
        date=datetime.now(tz=UTC),
        evaluation_phases=timer.phases or None,
    )
    if cache is not None:
        cache.save_to_cache(result, model.mteb_model_meta, encode_kwargs=options)
    return result


def _search_model(model: LoadedModel) -> Any:
    """Return a model as a search model of MTEB.

    An encoder searches by blocks: MTEB's own search needs memory for the scores of all queries with
    50,000 documents, or for all vectors when reranking, and depends on rounding in the matrix
    library.
    """
    from mteb.models import SearchCrossEncoderWrapper

    if encodes(model):
        return as_searcher(model)
    if reranks_only(model):
        return SearchCrossEncoderWrapper(model)
    return model


def load_task(task: AbsTask, revision: str = "") -> None:
    """Load a task's data from the mirror or the hub; reload data of another revision.

    Raises:
        MirrorError: the data are in neither; says how to fetch them.
        EvaluationError: a reranking task loaded without its candidates, as happens offline; or a
            mirror's substitute lacks a split or a subset of the task.
    """
    # Data that others loaded are taken to be of the revision that is asked for.
    loaded_revision = getattr(task, "loaded_revision", revision)
    if task.data_loaded and loaded_revision != revision:
        task.unload_data()
    if not task.data_loaded:
        load_data(task)
        task.loaded_revision = revision
    if hasattr(task, "convert_v1_dataset_format_to_v2"):
        # In place: an older task's queries, corpus and judgements move into `task.dataset`.
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    if is_substitute(revision):
        _check_parts(task)
    if task.metadata.type == "Reranking":
        splits = itertools.chain.from_iterable(subset.values() for subset in task.dataset.values())
        if not all(split["top_ranked"] for split in splits):
            raise EvaluationError(
                f"{task.metadata.name}: the candidates of this reranking task did not load; "
                "without them MTEB would search the whole corpus"
            )


def _check_parts(task: AbsTask) -> None:
    """Raise EvaluationError if a split or a subset to evaluate is missing or empty.

    Some loaders read all subsets at once, and don't notice that one is missing.
    """
    missing_parts = [f"{part.subset}/{part.split}" for part in task_slices(task) if not part.data]
    if missing_parts:
        raise EvaluationError(
            f"{task.metadata.name}: the copy of {task.metadata.dataset['path']} lacks "
            f"{listed(missing_parts)} (subset/split). "
            f"Fetch it again: `qwen3nb fetch --tasks {task.metadata.name} --mirror DIR`"
        )


def data_counts(task: AbsTask) -> dict[str, int]:
    """Count irregularities of a loaded search task, such as missing judged documents.

    Raises:
        EvaluationError: most of the judged documents of a part are not in its corpus.
    """
    counts: Counter[str] = Counter()
    for part in task_slices(task):
        is_search = isinstance(part.data, Mapping) and "relevant_docs" in part.data
        if not is_search:
            continue
        corpus = part.data["corpus"]
        try:
            # zeros: a query without a relevant document scores 0.
            counts_of_judgements = judgement_counts(
                part.data["relevant_docs"],
                queries=ColumnValues(part.data["queries"], "id"),
                documents=ColumnValues(corpus, "id"),
                place=f"{task.metadata.name}{part.prefix}",
                zeros=True,
            )
        except DataError as error:
            raise EvaluationError(str(error)) from None
        counts.update(counts_of_judgements)
        counts.update(text_counts("documents", _joined_texts(corpus)))
    return nonzero(counts)


def _joined_texts(corpus: Any) -> Iterator[str]:
    """Yield the title and text of each document, as one text."""
    columns = [
        ColumnValues(corpus, name) for name in ("title", "text") if name in corpus.column_names
    ]
    for texts in zip(*columns, strict=True):
        yield " ".join(str(text or "") for text in texts)


def keep_results(source: Path, folder: Path) -> dict[str, str]:
    """Copy MTEB's results into ``folder`` atomically; return the SHA-256 of each file by name.

    MTEB itself writes in place.
    """
    digests = {}
    for file in sorted(source.rglob("*.json")):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        target = folder / file.relative_to(source)
        checksums = target.with_name(CHECKSUMS)
        # `noted` lists the file before and after it is written, so that a removal shows.
        with exclusive_lock(checksums), noted(checksums, f"{target.name} {digest}"):
            write_bytes(target, content)
        digests[file.name] = digest
    return digests
