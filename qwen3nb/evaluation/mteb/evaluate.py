"""Run MTEB tasks and keep the score of every query, which MTEB discards.

MTEB loads the data, runs the model and scores it; its own result goes to ``results/mteb``.
Per-query scores are computed here from MTEB's predictions, aggregated, and compared with
MTEB's main score: a task fails unless the two implementations agree to 1e-5.
"""

from __future__ import annotations

import json
import random
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.mirror import current_revision, data_revision, load_data, local_data
from qwen3nb.datasets.needs import hub_access, needs
from qwen3nb.evaluation.known_models import KnownModel, loaded
from qwen3nb.evaluation.mteb.counts import data_counts
from qwen3nb.evaluation.mteb.known_tasks import KnownTask, known_tasks
from qwen3nb.evaluation.mteb.per_query import SEARCH_TYPES, metrics_of, score_task, scored_run
from qwen3nb.evaluation.mteb.results_folder import keep_results
from qwen3nb.evaluation.mteb.select import selection
from qwen3nb.evaluation.mteb.subsample import limited
from qwen3nb.evaluation.recording import (
    Work,
    assemble,
    evaluating,
    model_info,
    record_path,
    stored,
)
from qwen3nb.evaluation.run import EvaluationError, EvaluationRun, Tally
from qwen3nb.evaluation.run_files import has_runs, with_added_runs, with_runs
from qwen3nb.hub.session import hub_reachable, hub_session
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import DenseSearch
from qwen3nb.models.search.fusion import Fusion
from qwen3nb.records.record import MTEBScore, Result, TaskInfo
from qwen3nb.utils.atomic_files import read_json, write_text
from qwen3nb.utils.progress import tqdm

__all__ = [
    "Model", "evaluate_task", "evaluate_tasks", "is_complete", "stored_record", "unsuited",
]  # fmt: skip

Model = Encoder | BM25 | Fusion | Reranker


@hub_session()  # a hub that fails is not asked for each task
def evaluate_tasks(
    model: Model | KnownModel,
    *,
    tier: str = "smoke",
    tasks: Iterable[Any] | str | None = None,
    limit: int = 0,
    output: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    config: dict[str, Any] | None = None,
    fresh: bool = False,
    runs: bool = False,
    strict: bool = True,
    show_progress: bool = True,
) -> EvaluationRun:
    """Evaluate ``model`` on a tier or on tasks; save each record as it finishes.

    See `qwen3nb.evaluate`, which also takes a model spec.

    Args:
        model: from `load_encoder`, `load_model` or `load_reranker`; one that is only known is
            loaded when a task runs.
        tier: name of a tier; see `TIERS`.
        tasks: MTEB task objects or names to run instead of a tier, or one comma-separated
            string of names; an empty string means the tier's tasks.
        limit: maximum number of queries, of rows, and of documents besides the judged ones;
            0 for no limit.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        batch_size: texts per batch.
        config: parameters to store in each record.
        fresh: run tasks again even if a record exists.
        runs: whether a search keeps its run and its qrels; see `qwen3nb.evaluation.run_files`.
            A record that lacks them gets them, and stays as it is otherwise.
        strict: whether to raise if a task failed; if not, see `EvaluationRun.failures`.
        show_progress: whether to show a progress bar over the tasks.

    Raises:
        EvaluationError: one or more tasks failed, and ``strict``; the message lists each with
            its cause, the tracebacks are saved next to the records, and `EvaluationError.run`
            has the records of the others.
    """
    folder = Path(output) if output else paths.results()
    tally, run, reachable = Tally(), uuid.uuid4().hex[:12], cache(hub_reachable)
    config = {**(config or {}), "tier": tier}
    bar = tqdm(
        known_tasks(tier=tier, tasks=tasks, limit=limit), desc=model.label, unit="task",
        disable=not show_progress,
    )  # fmt: skip
    for task in bar:
        name = task.key
        bar.set_postfix_str(name)
        if reason := unsuited(model, task):
            tally.skip(name, reason)
            continue
        file = record_path(model, name, folder=folder, seed=seed)
        with evaluating(file):
            earlier = None if fresh else stored_record(model, task, folder=folder, seed=seed)
            if earlier is not None and is_complete(earlier, folder=folder, runs=runs):
                tally.add(earlier, name=name, reused=True)
                continue
            loaded(model)  # if it fails, so does every task
            with tally.attempt(name), hub_access(needs([task.load()]), reachable):
                result = evaluate_task(
                    loaded(model), task.load(), seed=seed, batch_size=batch_size, limit=limit,
                    config=config, run=run, run_folder=folder if runs else None,
                    mteb_results=None if limit or earlier else folder / "mteb",
                )  # fmt: skip
                if earlier is not None:
                    result = with_added_runs(earlier, result)
                result.save(folder)
                tally.add(result, name=name, reused=earlier is not None)
            _keep_failure(tally.failure(name), file.with_suffix(".error.txt"))
    return tally.run_or_raise(model.label, kind="tasks", saved=folder, strict=strict)


def _keep_failure(trace: str | None, file: Path) -> None:
    """Save a traceback next to the records; remove an earlier one if the task succeeded."""
    if trace is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, trace)


def unsuited(model: Model | KnownModel, task: KnownTask) -> str:
    """Return why the model does not support the task, or an empty string."""
    if isinstance(model, Reranker):
        return "" if task.type == "Reranking" else f"{model.label} reranks only"
    vectors = not model.searches_only or task.type in SEARCH_TYPES
    return "" if vectors else f"{model.label} has no vectors"


def stored_record(
    model: Model | KnownModel, task: KnownTask, *, folder: Path, seed: int
) -> Result | None:
    """Return the stored record for this model, data and software, if any."""
    return stored(
        record_path(model, task.key, folder=folder, seed=seed),
        identity=model.identity,
        metrics=metrics_of(task.type),
        same=lambda result: (
            result.task.revision == task.revision
            and sorted(result.task.splits) == sorted(task.splits)
            and sorted(result.task.subsets) == sorted(task.subsets)
        ),
    )


def is_complete(result: Result, *, folder: Path, runs: bool) -> bool:
    """Whether a stored record has all that a run keeps: with ``runs``, a search has its run."""
    return not runs or result.task.type not in SEARCH_TYPES or has_runs(result, folder)


def evaluate_task(
    model: Model,
    task: Any,
    *,
    seed: int = 0,
    batch_size: int = 32,
    limit: int = 0,
    config: Mapping[str, Any] | None = None,
    run: str = "",
    mteb_results: Path | None = None,
    run_folder: Path | None = None,
) -> Result:
    """Return the record of ``model`` on one MTEB task; nothing is looked up, and nothing saved.

    Args:
        model: from `load_encoder`, `load_model` or `load_reranker`.
        task: an MTEB task object; its data stay loaded.
        seed: seed of the confidence intervals.
        batch_size: texts per batch.
        limit: as in `evaluate_tasks`.
        config: parameters to store in the record.
        run: id shared by all records of one evaluation.
        mteb_results: folder for MTEB's own result file; None for no file.
        run_folder: folder of the records, for the run and the qrels of a search; None for none.
    """
    revision, work, named = data_revision(task), Work(model), dict(task.metadata.dataset)
    # MTEB shares the tasks of a benchmark, with generators that an earlier run has advanced.
    task.rng_state, task.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
    with _quiet(), local_data(task):
        _load(task, revision)
        if (now := current_revision(named["path"], pinned=str(named.get("revision")))) != revision:
            raise EvaluationError(
                f"{task.metadata.name}: its data changed while they were loaded, from "
                f"{revision} to {now}; run it again"
            )
        with limited(task, limit):
            counts = data_counts(task)
            predicted, outcome, file = _by_mteb(
                model, task, results=mteb_results, batch_size=batch_size
            )
            scores = score_task(task, predicted, outcome, seed=seed)
            searched = task.metadata.type in SEARCH_TYPES and run_folder is not None
            judged, ranked = scored_run(task, predicted, outcome) if searched else ({}, {})
    result = assemble(
        model=model_info(model),
        task=TaskInfo(
            name=task.metadata.name,
            type=task.metadata.type,
            dataset=task.metadata.dataset["path"],
            revision=revision,
            main_metric=scores.main,
            unit=scores.unit,
            size=scores.size,
            mteb=MTEBScore(str(task.metadata.main_score), float(outcome.get_score()), file),
            splits=tuple(task.eval_splits),
            subsets=tuple(task.hf_subsets),
            languages=tuple(task.languages),
            selection=selection(task, limit=limit),
            counts=counts | work.counts(),
        ),
        per_query=scores.per_query,
        metrics=scores.metrics,
        parts=scores.parts,
        work=work,
        seed=seed,
        run=run,
        config={**(config or {}), **({"top": scores.top} if scores.top else {})},
        device=model.device,
        precision=model.settings.get("dtype", "float32"),
    )
    if run_folder is None or not searched:
        return result
    return with_runs(result, run_folder, run=ranked, qrels=judged)


def _by_mteb(
    model: Model, task: Any, *, results: Path | None, batch_size: int
) -> tuple[dict[str, Any], Any, str]:
    """Return MTEB's predictions, its result, and the SHA-256 of its file in ``results``."""
    import mteb

    with tempfile.TemporaryDirectory() as scratch:
        # Always a new folder: MTEB appends to an existing prediction file.
        predictions, written = Path(scratch, "predictions"), Path(scratch, "results")
        with _predictions(task) as predicted:
            outcome = mteb.evaluate(
                _searching(model, task),
                task,
                cache=mteb.ResultCache(written) if results else None,
                overwrite_strategy="always",
                prediction_folder=predictions,
                encode_kwargs={"batch_size": batch_size, "show_progress_bar": False},
                show_progress_bar=False,
                co2_tracker=False,
            ).task_results[0]
        kept = keep_results(written, results) if results else {}
        predicted = predicted or read_json(predictions / task.prediction_file_name)
        return predicted, outcome, kept.get(f"{task.metadata.name}.json", "")


@contextmanager
def _predictions(task: Any) -> Iterator[dict[str, Any]]:
    """Keep MTEB's predictions, by subset and split, instead of writing them to a file.

    As JSON, the scores of a search take longer to write and to read than the search. A release of
    MTEB without the method that is replaced here writes them; then nothing is kept.
    """
    kept: dict[str, Any] = {}
    searched = task.metadata.type in SEARCH_TYPES

    def keep(
        predictions: Any, model: Any, prediction_folder: Path, hf_split: str, hf_subset: str
    ) -> None:
        # MTEB removes documents from a run when it scores it. Others are as they would be read.
        copied = (
            {query: dict(ranked) for query, ranked in predictions.items()}
            if searched
            else json.loads(json.dumps(predictions))
        )
        kept.setdefault(hf_subset, {})[hf_split] = copied

    task._save_task_predictions = keep
    try:
        yield kept
    finally:
        del task._save_task_predictions


def _searching(model: Model, task: Any) -> Any:
    """Return what MTEB runs: for a search, an encoder that searches by blocks.

    MTEB's own search holds the scores of all queries with 50,000 documents, and of a reranking
    task all vectors; its scores depend on how the matrix library rounds.
    """
    if isinstance(model, Encoder) and task.metadata.type in SEARCH_TYPES:
        return DenseSearch(model)
    return model


def _load(task: Any, revision: str = "") -> None:
    """Load a task's data, from the mirror or the hub; again if they were of another revision.

    Raises:
        MirrorError: the data are in neither; the message says how to fetch them.
        EvaluationError: a reranking task loaded without its candidates, as happens offline;
            MTEB would search the whole corpus instead.
    """
    if task.data_loaded and getattr(task, "loaded_revision", revision) != revision:
        task.unload_data()
    if not task.data_loaded:
        load_data(task)
        task.loaded_revision = revision
    if hasattr(task, "convert_v1_dataset_format_to_v2"):
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    if task.metadata.type == "Reranking" and hasattr(task, "convert_v1_dataset_format_to_v2"):
        parts = [data for subset in task.dataset.values() for data in subset.values()]
        if not all(part["top_ranked"] for part in parts):
            raise EvaluationError(
                f"{task.metadata.name}: the candidates of this reranking task did not load; "
                "without them MTEB would search the whole corpus"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and progress bars of MTEB's own code and scorers."""
    import datasets
    from sklearn.exceptions import UndefinedMetricWarning

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"mteb\..*")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"mteb\..*")
            # Published scores refer to the task of that name, superseded or not.
            warnings.filterwarnings("ignore", message=".*is superseded by", category=UserWarning)
            # MTEB's bitext evaluator copies tensors in a way that torch discourages.
            warnings.filterwarnings("ignore", message="To copy construct from a tensor")
            # A toy model never predicts some classes; their precision is undefined but
            # unused here.
            warnings.filterwarnings("ignore", category=UndefinedMetricWarning)
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()
