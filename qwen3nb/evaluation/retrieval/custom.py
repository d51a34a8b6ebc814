"""Evaluate models on custom queries and documents; save one record per model.

Search is exact: the cosine of each query with every document, multiplied by the boosts if
there are any. All documents are ranked, not only the best by cosine. Vectors come from the
embedding cache, so a second run encodes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.recording import (
    Work,
    assemble,
    model_info,
    record_path,
    stored,
)
from qwen3nb.evaluation.run import EvaluationRun, Tally
from qwen3nb.metrics.retrieval import rank_documents, score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.records.record import Result, TaskInfo

__all__ = ["DOMAIN_METRICS", "evaluate_domain", "search_domain"]

DOMAIN_METRICS = ("MRR@10", "nDCG@10", "P@5", "P@10", "Recall@10", "Recall@20")
_GRADED = ("nDCG@10",)
_DEPTH = 20  # cutoff of the deepest metric
_TOP = 10  # best documents per query kept in a record
Run = dict[str, dict[str, float]]


def evaluate_domain(
    models: Iterable[str | Path | Encoder | ModelEntry],
    domain: Domain,
    *,
    output: Path | str | None = None,
    seed: int = 0,
    fresh: bool = False,
    show_progress: bool = True,
    **options: Any,
) -> EvaluationRun:
    """Evaluate each model on ``domain``; save each record as it finishes.

    A model that fails does not stop the others; a model given twice (with the same weights
    and settings) is evaluated once.

    Args:
        models: specs as for `load_encoder`, encoders, or model entries of a query file.
        domain: from `load_domain`.
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        fresh: evaluate again even if a record exists.
        show_progress: whether to show progress bars.
        options: options of `load_encoder`.
    """
    folder = Path(output) if output else paths.results()
    tally, run, seen = Tally(), uuid.uuid4().hex[:12], set()
    for model in models:
        with tally.attempt(getattr(model, "label", None) or str(model)):
            encoder = _encoder(model, show_progress=show_progress, **options)
            if encoder.identity in seen:
                continue
            seen.add(encoder.identity)
            result, reused = _evaluate(
                encoder, domain, folder=folder, seed=seed, fresh=fresh, run=run
            )
            tally.add(result, name=encoder.label, reused=reused)
    return tally.run()


def _encoder(model: str | Path | Encoder | ModelEntry, **options: Any) -> Encoder:
    if isinstance(model, Encoder):
        return model
    if not isinstance(model, ModelEntry):
        return load_encoder(model, **options)
    encoder = load_encoder(model.spec, **options)
    if model.dimensions not in (None, encoder.dimension):
        raise DataError(
            f"{model.name}: expected {model.dimensions} dimensions; vectors of {model.spec} have "
            f"{encoder.dimension}"
        )
    return encoder


def search_domain(encoder: Encoder, domain: Domain, *, depth: int = _DEPTH) -> Run:
    """Return the scores of each query's ``depth`` best documents, including ties with the last.

    Raises:
        ValueError: a vector that is zero or not finite.
    """
    documents = encoder.encode(list(domain.texts.values()), role="passage")
    queries = encoder.encode(list(domain.queries.values()), role="query")
    boosts = np.array([domain.factors[name] for name in domain.texts])
    hits = search(queries, documents, k=depth, cosine=True, boosts=boosts, keep_ties=True)
    return hits.run(domain.queries, list(domain.texts))


def _evaluate(
    encoder: Encoder, domain: Domain, *, folder: Path, seed: int, fresh: bool, run: str
) -> tuple[Result, bool]:
    """Return the record of a model and whether it was reused."""
    file = record_path(encoder, domain.name, folder=folder, seed=seed)
    if not fresh and (earlier := _stored(file, encoder, domain)) is not None:
        return earlier, True
    work = Work(encoder)
    hits = search_domain(encoder, domain)
    graded = score_run(domain.grades, hits, _GRADED)
    binary = score_run(domain.relevant, hits, [m for m in DOMAIN_METRICS if m not in _GRADED])
    result = assemble(
        model=model_info(encoder),
        task=TaskInfo(
            name=domain.name,
            type="Retrieval",
            dataset=domain.name.rpartition("-")[0],
            revision=domain.revision,
            main_metric="nDCG@10",
            size={"documents": len(domain.texts), "queries": len(domain.queries)},
            categories=dict(domain.categories),
        ),
        per_query={name: (graded | binary)[name] for name in DOMAIN_METRICS},
        work=work,
        seed=seed,
        run=run,
        config=_config(domain, hits),
        device=encoder.device,
        precision=encoder.settings.get("dtype", "float32"),
    )
    result.save(folder)
    return result, False


def _stored(file: Path, encoder: Encoder, domain: Domain) -> Result | None:
    return stored(
        file,
        identity=encoder.identity,
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
