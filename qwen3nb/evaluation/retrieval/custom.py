"""Evaluate models on custom queries and documents; save one record per model.

Search is exact: the cosine of each query with every document, multiplied by the boosts if
there are any. All documents are ranked, not only the best by cosine. Vectors come from the
embedding cache, so a second run encodes nothing. The scores of BM25 are boosted likewise; what
shares no word with a query is not ranked. A fusion fuses the boosted rankings of its parts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.known_models import KnownModel, Model, known_or_loaded, loaded
from qwen3nb.evaluation.recording import (
    Work,
    assemble,
    evaluating,
    model_info,
    record_path,
    stored,
)
from qwen3nb.evaluation.retrieval.query_time import seconds_per_query
from qwen3nb.evaluation.run import EvaluationRun, Tally
from qwen3nb.evaluation.run_files import has_runs, with_added_runs, with_runs
from qwen3nb.metrics.retrieval import rank_documents, score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_model
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import search_texts
from qwen3nb.models.search.fusion import Fusion, fuse
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.record import Result, TaskInfo

__all__ = ["DOMAIN_METRICS", "entry_name", "evaluate_domain", "search_domain"]

DOMAIN_METRICS = ("MRR@10", "nDCG@10", "P@5", "P@10", "Recall@10", "Recall@20")
_GRADED = ("nDCG@10",)
_DEPTH = 20  # cutoff of the deepest metric
_FUSED = 100  # documents of each part of a fusion
_TOP = 10  # best documents per query kept in a record
Run = dict[str, dict[str, float]]


def evaluate_domain(
    models: Iterable[str | Path | Model | ModelEntry],
    domain: Domain,
    *,
    output: Path | str | None = None,
    seed: int = 0,
    fresh: bool = False,
    runs: bool = False,
    show_progress: bool = True,
    load: Callable[..., Model] = load_model,
    **options: Any,
) -> EvaluationRun:
    """Evaluate each model on ``domain``; save each record as it finishes.

    A model whose record is there is not loaded. A model that fails does not stop the others. A
    model given twice (with the same weights and settings) is evaluated once;
    `EvaluationRun.skipped` names the second. Two different models under one label are refused,
    since no table could tell them apart.

    Args:
        models: specs as for `load_model` (``bm25``, a fusion such as ``bm25+e5-base-v2``, a
            folder, a name, a hub id), loaded models, or model entries of a query file.
        domain: from `load_domain`.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        fresh: evaluate again even if a record exists.
        runs: as in `qwen3nb.evaluate`; the qrels hold the grades, so that a program needs
            `Domain.threshold` for the binary metrics, as in ``trec_eval -l 2``.
        show_progress: whether to show progress bars.
        load: loads a spec with options, as `load_model`.
        options: options of `load_encoder`.
    """
    options["show_progress"] = show_progress
    folder = Path(output) if output else paths.results()
    tally, run = Tally(), uuid.uuid4().hex[:12]
    labels: dict[str, str] = {}  # by identity
    for each in models:
        with tally.attempt(entry_name(each)):
            model = _known_or_loaded(each, load=load, options=options)
            if (earlier := labels.get(model.identity)) is not None:
                tally.skip(entry_name(each), f"the same weights and settings as {earlier}")
                continue
            if model.label in labels.values():
                raise DataError(
                    f"another model has the label {model.label}: give each its own, by `name` in "
                    "[models.NAME] of the query file, or as --model NAME=MODEL"
                )
            labels[model.identity] = model.label
            with evaluating(record_path(model, domain.name, folder=folder, seed=seed)):
                result, reused = _evaluate(
                    model, domain, folder=folder, seed=seed, fresh=fresh, runs=runs, run=run
                )
            tally.add(result, name=model.label, reused=reused)
    return tally.run(label=domain.name, kind="models", folder=folder)


def entry_name(model: str | Path | Model | ModelEntry) -> str:
    """Return what a model is called in messages: its label if it is known, else what names it."""
    label = str(getattr(model, "label", ""))
    return label or (model.name if isinstance(model, ModelEntry) else str(model))


def _known_or_loaded(
    model: str | Path | Model | ModelEntry,
    *,
    load: Callable[..., Model],
    options: Mapping[str, Any],
) -> KnownModel | Model:
    if isinstance(model, Encoder | BM25 | Fusion):
        return model
    entry = model if isinstance(model, ModelEntry) else ModelEntry(str(model), str(model))
    return known_or_loaded(entry, load=lambda: _loaded(entry, load, options), options=options)


def _loaded(model: ModelEntry, load: Callable[..., Model], options: Mapping[str, Any]) -> Model:
    """Load the model of an entry, and check what the entry says of it."""
    alone = find_source(model.spec).kind != "fusion"  # the label is not that of its parts
    label = model.label if alone else ""
    loaded = load(model.spec, prompts=model.prompts, label=label, **options)
    loaded.label = model.label or loaded.label  # search models ignore the options of encoders
    dimension = getattr(loaded, "dimension", None)
    if model.dimensions not in (None, dimension, getattr(loaded, "width", None)):
        has = "has no vectors" if dimension is None else f"has {dimension}"
        raise DataError(
            f"{entry_name(model)}: expected vectors of {model.dimensions} dimensions; "
            f"{model.spec} {has}"
        )
    if model.prompts and isinstance(loaded, BM25):
        raise DataError(f"{entry_name(model)}: {model.spec} has no vectors, so it takes no prompts")
    return loaded


def search_domain(model: Model, domain: Domain, *, depth: int = _DEPTH) -> Run:
    """Return the scores of each query's ``depth`` best documents, including ties with the last.

    Raises:
        EncoderError: a vector that is not finite, or zero for a text that is not blank.
    """
    if isinstance(model, BM25):
        return _search_words(model, domain, depth=depth)
    if isinstance(model, Fusion):
        runs = [search_domain(part, domain, depth=_FUSED) for part in model.parts]
        return {query: _best(scores, depth) for query, scores in fuse(runs).items()}
    boosts = np.array([domain.factors[name] for name in domain.texts])
    hits = search_texts(
        model, list(domain.queries.values()), domain.texts.values(), total=len(domain.texts),
        k=depth, cosine=True, boosts=boosts, keep_ties=True, zeros=True,
    )  # fmt: skip
    return hits.run(domain.queries, list(domain.texts))


def _search_words(bm25: BM25, domain: Domain, *, depth: int) -> Run:
    """Search with BM25; its scores are positive, so the boosts multiply them.

    A boost can lift a document from below any rank. Each query is therefore searched deeper
    until no document below can reach its last hit, whatever its boost.
    """
    bm25.index([{"id": name, "text": text} for name, text in domain.texts.items()])
    largest = max(domain.factors.values())
    run: Run = {query: {} for query in domain.queries}
    deeper, left = _FUSED + depth, list(domain.queries)
    while left:
        queries = [{"id": name, "text": domain.queries[name]} for name in left]
        hits = bm25.search(queries, top_k=deeper)
        for query, scores in hits.items():
            lifted = {name: score * domain.factors[name] for name, score in scores.items()}
            run[query] = _best(lifted, depth)
        left = [
            query
            for query in left
            if deeper <= len(hits[query]) < len(domain.texts)
            and min(run[query].values()) <= min(hits[query].values()) * largest
        ]
        deeper *= 4
    return run


def _best(scores: Mapping[str, float], depth: int) -> dict[str, float]:
    """Return the ``depth`` best documents, including ties with the last."""
    best = sorted(scores.values(), reverse=True)[:depth]
    return {name: score for name, score in scores.items() if score >= best[-1]}


def _evaluate(
    model: KnownModel | Model,
    domain: Domain,
    *,
    folder: Path,
    seed: int,
    fresh: bool,
    runs: bool,
    run: str,
) -> tuple[Result, bool]:
    """Return the record of a model, saved, and whether it was there."""
    file = record_path(model, domain.name, folder=folder, seed=seed)
    earlier = None if fresh else _stored(file, model, domain)
    if earlier is not None and (not runs or has_runs(earlier, folder)):
        return earlier, True
    result, hits = _searched(loaded(model), domain, seed=seed, run=run)
    if runs:
        result = with_runs(result, folder, run=hits, qrels=domain.grades)
    if earlier is not None:
        result = with_added_runs(earlier, result)
    result.save(folder)
    return result, earlier is not None


def _searched(model: Model, domain: Domain, *, seed: int, run: str) -> tuple[Result, Run]:
    """Return the record of a model, which is not saved, and the run that it scores."""
    work = Work(model)
    hits = search_domain(model, domain)
    graded = score_run(domain.grades, hits, _GRADED)
    binary = score_run(domain.relevant, hits, [m for m in DOMAIN_METRICS if m not in _GRADED])
    result = assemble(
        model=model_info(model),
        task=TaskInfo(
            name=domain.name,
            type="Retrieval",
            dataset=domain.name.rpartition("-")[0],
            revision=domain.revision,
            main_metric="nDCG@10",
            size={"documents": len(domain.texts), "queries": len(domain.queries)},
            categories=dict(domain.categories),
            counts=dict(domain.counts),
        ),
        per_query={name: (graded | binary)[name] for name in DOMAIN_METRICS},
        work=work,
        seed=seed,
        run=run,
        config={**_config(domain, hits), "dimensions": getattr(model, "dimension", None)},
        device=model.device,
        precision=model.settings.get("dtype", "float32"),
    )
    seconds = seconds_per_query(model, list(domain.queries.values()))
    return replace(result, config={**result.config, "seconds_per_query": seconds}), hits


def _stored(file: Path, model: KnownModel | Model, domain: Domain) -> Result | None:
    return stored(
        file,
        identity=model.identity,
        metrics=DOMAIN_METRICS,
        same=lambda result: (
            result.task.revision == domain.revision
            and result.task.categories == domain.categories
            and result.config["notes"] == list(domain.notes)
        ),
    )


def _config(domain: Domain, hits: Run) -> dict[str, Any]:
    """Return the record's parameters; ``top`` holds the best documents of each query."""
    return {
        "boosts": dict(domain.recipe),
        "negative_cosine": "divided by the boosts" if domain.recipe else "no boosts",
        "relevance_threshold": domain.threshold,
        "dropped": list(domain.dropped),
        "notes": list(domain.notes),
        "queries": dict(domain.queries),
        "top": {query: rank_documents(scores)[:_TOP] for query, scores in hits.items()},
    }
