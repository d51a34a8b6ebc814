"""Evaluate models on custom queries and documents; save one record per model.

Search is exact: the cosine of each query with every document, multiplied by boosts, if any. BM25
scores are boosted likewise; documents without a word of the query are not ranked. A fusion fuses
the boosted rankings of its parts.
"""

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.run import EvaluationRun, Run, UnsupportedError, Work, evaluate_each
from qwen3nb.metrics.retrieval import RECORDED, rank_documents, score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import known_or_loaded, load_model
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import search_texts
from qwen3nb.models.search.fusion import Fusion, fuse
from qwen3nb.models.types import KnownModel
from qwen3nb.records.record import Result, TaskInfo

_GRADED = ("nDCG@10",)  # graded; the other metrics are binary
_DEPTH = 20  # cutoff of the deepest metric
_FUSED = 100  # documents of each part of a fusion
_TOP = 10  # best documents per query kept in a record
_TIMED = 20  # maximum number of timed queries
Hits = dict[str, dict[str, float]]
Model = Encoder | BM25 | Fusion


def evaluate_domain(
    models: Iterable[str | Path | Model | ModelEntry],
    domain: Domain,
    *,
    strict: bool = False,
    **options: Any,
) -> EvaluationRun:
    """Evaluate each model on ``domain``; save each record as it finishes.

    A model with a record is not loaded again, and one that fails does not stop the others.
    Duplicates (the same weights and settings) are in `EvaluationRun.skipped`. Two different models
    with the same label are refused.

    Args:
        models: specs as for `load_model` (``bm25``, a fusion such as ``bm25+e5-base-v2``, a
            folder, a name, a hub id), loaded models, or model entries of a query file.
        domain: from `load_domain`.
        strict: whether to raise if a model failed.
        options: options of `Run` and of `load_encoder`. Kept qrels have grades: binary metrics need
            `Domain.threshold`, as in ``trec_eval -l 2``.
    """
    own = {each.name for each in fields(Run)} & options.keys()
    run = Run(**{name: options[name] for name in own}, strict=strict)
    settings = {name: value for name, value in options.items() if name not in own}
    settings |= {"batch_size": run.batch_size, "show_progress": run.show_progress}
    labels: dict[str, str] = {}  # by identity

    def find(entry: str | Path | Model | ModelEntry) -> list[tuple[Any, DomainItem]]:
        model = _known(entry, settings)
        if (earlier := labels.get(model.identity)) is not None:
            raise UnsupportedError(f"the same weights and settings as {earlier}")
        if model.label in labels.values():
            raise DataError(
                f"another model has the label {model.label}: set unique labels by `name` in "
                "[models.NAME] of the query file, or as --model NAME=MODEL"
            )
        labels[model.identity] = model.label
        return [(model, DomainItem(model.label, domain))]

    jobs = [(entry_name(each), partial(find, each)) for each in models]
    return evaluate_each(jobs, run, label=domain.name, kind="models")


def entry_name(model: str | Path | Model | ModelEntry) -> str:
    """Return a model's name in messages: its label if known, else its spec."""
    label = str(getattr(model, "label", ""))
    return label or (model.name if isinstance(model, ModelEntry) else str(model))


def _known(
    model: str | Path | Model | ModelEntry, options: Mapping[str, Any]
) -> Model | KnownModel:
    """Return a model, or a known identity; a loaded model has the settings of its entry."""
    if isinstance(model, Encoder | BM25 | Fusion):
        return model
    entry = model if isinstance(model, ModelEntry) else ModelEntry(str(model), str(model))
    own = {"prompts": entry.prompts, "label": entry.label, "dimension": entry.dimensions}
    known: Model | KnownModel = known_or_loaded(
        entry.spec, partial(_loaded, entry, options), {**options, **own}
    )
    return known


def _loaded(entry: ModelEntry, options: Mapping[str, Any]) -> Model:
    """Load the model of an entry.

    Raises:
        DataError: the model has other dimensions.
        SpecError: prompts for a model without vectors.
    """
    alone = not find_source(entry.spec).parts  # do not label parts
    label = entry.label if alone else ""
    model = load_model(entry.spec, prompts=entry.prompts, label=label, **options)
    model.label = entry.label or model.label  # search models ignore the options of encoders
    dimension = getattr(model, "dimension", None)
    if entry.dimensions not in (None, dimension, getattr(model, "width", None)):
        has = "has no vectors" if dimension is None else f"has {dimension}"
        raise DataError(
            f"{entry_name(entry)}: expected vectors of {entry.dimensions} dimensions; "
            f"{entry.spec} {has}"
        )
    return model


@dataclass(frozen=True)
class DomainItem:
    """Custom queries and documents; ``name`` is the label of the model."""

    name: str
    domain: Domain

    @property
    def key(self) -> str:
        """Name of the data."""
        return self.domain.name

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics of records on custom data."""
        return RECORDED["own data"]

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record has the same texts, grades, categories, clusters and notes."""
        return (
            record.task.revision == self.domain.revision
            and record.task.categories == self.domain.categories
            and record.task.clusters == self.domain.clusters
            and record.config["notes"] == list(self.domain.notes)
        )

    def evaluate(self, model: Model, run: Run) -> Result:
        """Return the record of a model; ``top`` in its parameters holds the best documents."""
        domain, work = self.domain, Work(model)
        hits = search_domain(model, domain)
        graded = score_run(domain.grades, hits, _GRADED)
        binary = score_run(domain.relevant, hits, [m for m in self.measures if m not in _GRADED])
        result = work.record(
            TaskInfo(
                name=domain.name,
                type="Retrieval",
                dataset=domain.name.rpartition("-")[0],
                revision=domain.revision,
                main_metric="nDCG@10",
                size={"documents": len(domain.texts), "queries": len(domain.queries)},
                categories=dict(domain.categories),
                counts=dict(domain.counts),
                clusters=dict(domain.clusters),
            ),
            {name: (graded | binary)[name] for name in self.measures},
            run,
            config={
                "boosts": dict(domain.recipe),
                "negative_cosine": "divided by the boosts" if domain.recipe else "no boosts",
                "relevance_threshold": domain.threshold,
                "dropped": list(domain.dropped),
                "notes": list(domain.notes),
                "queries": dict(domain.queries),
                "top": {query: rank_documents(scores)[:_TOP] for query, scores in hits.items()},
                "dimensions": getattr(model, "dimension", None),
            },
        )
        # After the costs are computed.
        seconds = seconds_per_query(model, list(domain.queries.values()))
        result.config["seconds_per_query"] = seconds
        return run.with_runs(result, hits, domain.grades)


def search_domain(model: Model, domain: Domain, *, depth: int = _DEPTH) -> Hits:
    """Return the scores of each query's ``depth`` best documents, including ties with the last.

    Raises:
        EncoderError: a vector that is not finite, or zero for a text that is not blank.
    """
    if isinstance(model, BM25):
        model.index([{"id": name, "text": text} for name, text in domain.texts.items()])
        found: Hits = {}
        for query, text in domain.queries.items():
            scores = model.search([{"id": query, "text": text}], top_k=len(domain.texts))[query]
            # The scores are positive, so the boosts multiply them.
            lifted = {name: score * domain.factors[name] for name, score in scores.items()}
            found[query] = _best(lifted, depth)
        return found
    if isinstance(model, Fusion):
        runs = [search_domain(part, domain, depth=_FUSED) for part in model.parts]
        return {query: _best(scores, depth) for query, scores in fuse(runs).items()}
    hits = search_texts(
        model,
        list(domain.queries.values()),
        domain.texts.values(),
        total=len(domain.texts),
        k=depth,
        cosine=True,
        boosts=np.array([domain.factors[name] for name in domain.texts]),
        keep_ties=True,
    )
    return hits.run(domain.queries, list(domain.texts))


def _best(scores: Mapping[str, float], depth: int) -> dict[str, float]:
    """Return the ``depth`` best documents, including ties with the last."""
    best = sorted(scores.values(), reverse=True)[:depth]
    return {name: score for name, score in scores.items() if score >= best[-1]}


def seconds_per_query(model: Model, queries: Sequence[str]) -> float:
    """Return the median time of a query in seconds, one at a time, after a warm-up.

    For an encoder, from text to vector, without the cache; for BM25, from text to ranking, with
    indexed documents; for a fusion, the sum.
    """
    if isinstance(model, Fusion):
        return sum(seconds_per_query(part, queries) for part in model.parts)
    samples: list[float] = []
    with nullcontext() if isinstance(model, BM25) else model.uncached():
        for text in (queries[0], *queries[:_TIMED]):
            started = time.perf_counter()
            if isinstance(model, BM25):
                model.search([{"id": "q", "text": text}], top_k=100)
            else:
                model.encode(text, role="query", show_progress_bar=False)
            samples.append(time.perf_counter() - started)
    return statistics.median(samples[1:])
