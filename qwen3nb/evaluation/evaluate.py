"""Evaluate a model on MTEB tasks or on custom test collections."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.collection_formats import find_collections
from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.evaluation.known_models import known_or_loaded, loaded
from qwen3nb.evaluation.mteb.evaluate import Model, evaluate_tasks
from qwen3nb.evaluation.recording import evaluating, record_path, stored
from qwen3nb.evaluation.retrieval.custom import evaluate_domain
from qwen3nb.evaluation.retrieval.evaluate import DEPTH, METRICS, evaluate_collection, searched_run
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.evaluation.run import EvaluationRun, Tally
from qwen3nb.evaluation.run_files import has_runs, with_added_runs, with_runs
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.load import load_model
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion
from qwen3nb.records.record import Result
from qwen3nb.utils.imports import load_library

__all__ = ["evaluate"]

Data = TestCollection | Path | str


def evaluate(
    model: Any,
    data: Domain | Data | Iterable[Data] | None = None,
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
    label: str = "",
    fingerprint: str = "",
    show_progress: bool = True,
) -> EvaluationRun:
    """Evaluate ``model`` on a tier, on tasks or on ``data``; save each record as it finishes.

    On a tier, a reranker reranks BM25's candidates; see `rerank`.

    A task with a record for the same model, data and software is not run again, and a model
    named by its spec is not loaded if no task runs.
    A task that fails does not stop the others; a task the model does not support (BM25 has
    no vectors to classify with) is skipped and listed.

    Args:
        model: a model spec, such as ``bm25`` or a folder; a loaded model; or any object with
            ``encode(texts)``, such as a SentenceTransformer.
        data: one or more test collections, or their folders, to evaluate on instead of MTEB
            tasks; a reranker reranks BM25's candidates. Or your own queries and documents, from
            `load_domain`, as `qwen3nb domain` evaluates them.
        tier: name of a tier; see `TIERS`.
        tasks: MTEB task objects or names to run instead of a tier, or one comma-separated
            string of names; an empty string means the tier's tasks.
        limit: maximum number of queries, of rows, and of documents besides the judged ones;
            0 for no limit. A limited task has a different name and is left out of MTEB's
            own results.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        batch_size: texts per batch.
        config: parameters to store in each record.
        fresh: run again even if a record exists.
        runs: whether a search keeps its run and its qrels beside the record, in TREC format. A
            record that lacks them gets them, without encoding a cached text again, and stays
            as it is otherwise.
        strict: whether to raise if a task or collection failed; if not, see
            `EvaluationRun.failures`.
        label: for an object with ``encode``, its name in tables.
        fingerprint: for such an object, identifies its content; without one, none of its
            vectors and records are used again.
        show_progress: whether to show progress bars.

    Raises:
        SpecError: ``model`` is not a known model.
        EvaluationError: one or more tasks failed, and ``strict``; the message lists each with
            its cause, the tracebacks are saved next to the records, and `EvaluationError.run`
            has the records of the others.
        TypeError: ``model`` is none of these.
        ValueError: both ``data`` and ``tasks`` or ``limit``; a label or fingerprint for a model
            that has its own.
    """
    if not isinstance(model, str | Path | Model):
        model = WrappedEncoder(
            model, label=label, fingerprint=fingerprint, batch_size=batch_size,
            show_progress=show_progress,
        )  # fmt: skip
    elif label or fingerprint:
        raise ValueError("label and fingerprint are for objects with encode(); a model has its own")
    if isinstance(data, Domain):
        run = evaluate_domain(
            [model], data, output=output, seed=seed, fresh=fresh, runs=runs,
            batch_size=batch_size, show_progress=show_progress,
        )  # fmt: skip
        if strict:
            run.raise_failures()
        return run
    if isinstance(model, str | Path):
        load = partial(_loaded, model, with_mteb=data is None, batch_size=batch_size,
                       show_progress=show_progress)  # fmt: skip
        model = known_or_loaded(ModelEntry(str(model), str(model)), load=load, options={})
    if data is None and not tasks and isinstance(model, Reranker):
        return rerank(
            model, tier=tier, limit=limit, output=output, seed=seed, config=config, fresh=fresh,
            runs=runs, strict=strict, show_progress=show_progress,
        )  # fmt: skip
    if data is None:
        return evaluate_tasks(
            model, tier=tier, tasks=tasks, limit=limit, output=output, seed=seed,
            batch_size=batch_size, config=config, fresh=fresh, runs=runs, strict=strict,
            show_progress=show_progress,
        )  # fmt: skip
    if tasks is not None or limit:
        raise ValueError(
            "expected either data, or tasks with an optional limit; got both "
            "(TestCollection.subset makes a collection smaller)"
        )
    listed = [data] if isinstance(data, TestCollection | Path | str) else list(data)
    if isinstance(model, Reranker):
        return rerank(
            model, listed, output=output, seed=seed, config=config, fresh=fresh, runs=runs,
            strict=strict, show_progress=show_progress,
        )  # fmt: skip
    return _on_collections(
        model, listed, folder=Path(output) if output else paths.results(), seed=seed,
        config=config, fresh=fresh, runs=runs, strict=strict,
    )  # fmt: skip


def _loaded(spec: str | Path, *, with_mteb: bool, **options: Any) -> Encoder | BM25 | Fusion:
    """Load a model; MTEB before it, see `load_library`."""
    if with_mteb:
        load_library("mteb")
    return load_model(spec, **options)


def _on_collections(
    model: Any,
    data: Iterable[Data],
    *,
    folder: Path,
    seed: int,
    config: dict[str, Any] | None,
    fresh: bool,
    runs: bool,
    strict: bool,
) -> EvaluationRun:
    tally, run = Tally(), uuid.uuid4().hex[:12]
    for each in data:
        with tally.attempt(each.name if isinstance(each, TestCollection) else str(each)):
            for collection in find_collections(each):
                with evaluating(record_path(model, collection.name, folder=folder, seed=seed)):
                    result, reused = _on_collection(
                        model, collection, folder=folder, seed=seed, fresh=fresh, runs=runs,
                        config=config, run=run,
                    )  # fmt: skip
                tally.add(result, name=collection.name, reused=reused)
    return tally.run_or_raise(model.label, kind="collections", saved=folder, strict=strict)


def _on_collection(
    model: Any,
    collection: TestCollection,
    *,
    folder: Path,
    seed: int,
    fresh: bool,
    runs: bool,
    **options: Any,
) -> tuple[Result, bool]:
    """Return the record of a collection, saved, and whether it was there."""
    earlier = None if fresh else _stored(model, collection, folder=folder, seed=seed)
    if earlier is not None and (not runs or has_runs(earlier, folder)):
        return earlier, True
    model = loaded(model)
    result = evaluate_collection(model, collection, metrics=METRICS, seed=seed, **options)
    if runs:
        searched = searched_run(model, collection)
        result = with_runs(result, folder, run=searched, qrels=collection.qrels)
    if earlier is not None:
        result = with_added_runs(earlier, result)
    result.save(folder)
    return result, earlier is not None


def _stored(model: Any, collection: TestCollection, *, folder: Path, seed: int) -> Result | None:
    return stored(
        record_path(model, collection.name, folder=folder, seed=seed),
        identity=model.identity,
        metrics=METRICS,
        same=lambda result: (
            result.task.revision == collection.revision and result.config.get("depth") == DEPTH
        ),
    )
