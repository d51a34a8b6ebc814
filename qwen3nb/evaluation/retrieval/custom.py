"""Evaluate models on custom queries and documents; save one record per model.

Search is exact: the cosine of each query with every document, multiplied by boosts, if any. BM25
scores are boosted likewise; documents without a word of the query are not ranked. A fusion fuses
the boosted rankings of its parts. A document which is the query itself is not ranked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.datasets.judgements import nonzero, nothing_found_by
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.run import (
    EvaluationRun,
    Run,
    RunOptions,
    UnsupportedError,
    Work,
    evaluate_each,
)
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.retrieval import (
    JUDGED,
    NOTHING_FOUND,
    UNJUDGED,
    Measure,
    Qrels,
    deepest,
    rank_documents,
    recorded_measures,
    score_run,
)
from qwen3nb.models.capabilities import LoadedModel
from qwen3nb.models.load import named
from qwen3nb.models.model import Model
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.fusion import fuse
from qwen3nb.models.search.words import Words, stated_words
from qwen3nb.records.details import DataFacts, Judgements, SearchFacts
from qwen3nb.records.record import Result, TaskInfo

_FUSED_DEPTH = 100  # least number of documents of each part of a fusion
_TOP_DEPTH = 10  # best documents per query kept in a record
Hits = dict[str, dict[str, float]]
AnyModel = str | Path | Model | LoadedModel | ModelEntry


def evaluate_domain(
    models: Iterable[AnyModel],
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
        models: values of `Model`, specs (``bm25``, a fusion such as ``bm25+e5-base-v2``, a folder,
            a name, a hub id), loaded models, or model entries of a query file.
        domain: from `load_domain`.
        strict: whether to raise if a model failed.
        options: options of `Run`; for specs and entries, also of `Model`. Kept qrels have
            grades: binary metrics need `Domain.threshold`, as in ``trec_eval -l 2``.
    """
    run_options = {name: options[name] for name in options if name in RunOptions.__annotations__}
    run = Run(**run_options, strict=strict)
    model_options = {name: options[name] for name in options if name not in run_options}
    model_options |= {"batch_size": run.batch_size, "show_progress": run.show_progress}
    labels: dict[str, str] = {}  # by identity

    def find(entry: AnyModel) -> list[tuple[Any, DomainItem]]:
        model = _model_of(entry, model_options)
        # Of models with equal weights and settings, the first is evaluated.
        label_of_equal = labels.get(model.identity)
        if label_of_equal is not None:
            raise UnsupportedError(f"the same weights and settings as {label_of_equal}")
        if model.label in labels.values():
            raise DataError(
                f"another model has the label {model.label}: set unique labels by `name` in "
                "[models.NAME] of the query file, or as --model NAME=MODEL"
            )
        labels[model.identity] = model.label
        return [(model, DomainItem(model.label, domain))]

    jobs = [(entry_name(entry), partial(find, entry)) for entry in models]
    return evaluate_each(jobs, run, label=domain.name, kind="models")


def entry_name(model: AnyModel) -> str:
    """Return a model's name in messages: its label if known, else its spec."""
    if isinstance(model, Model):
        return model.name or model.spec
    if isinstance(model, ModelEntry):
        return model.label or model.name
    return str(getattr(model, "label", model))


def _model_of(entry: AnyModel, options: Mapping[str, Any]) -> Model | LoadedModel:
    """Return the model of an entry with these options; it is loaded when it is needed.

    Raises:
        DataError: the model has other dimensions than its entry says.
    """
    if isinstance(entry, ModelEntry):
        model = Model(entry.spec, **{**options, "prompts": entry.prompts, "name": entry.label})
        if entry.dimensions is not None:
            _check_dimensions(entry, model)
        return model
    model_or_loaded: Model | LoadedModel = named(entry, **options)
    return model_or_loaded


def _check_dimensions(entry: ModelEntry, model: Model) -> None:
    dimension = model.facts.dimension
    # As the vectors are used, or before they are truncated.
    if entry.dimensions in (dimension, model.facts.width):
        return
    stated_length = f"has {dimension}"
    if dimension is None:
        stated_length = "has no vectors"
    raise DataError(
        f"{entry_name(entry)}: expected vectors of {entry.dimensions} dimensions; "
        f"{entry.spec} {stated_length}"
    )


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
    def measures(self) -> tuple[Measure, ...]:
        """The metrics of records on custom data."""
        return recorded_measures("own data")

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record has the same texts, grades, categories, clusters and words."""
        return (
            record.task.revision == self.domain.revision
            and record.task.categories == self.domain.categories
            and record.task.clusters == self.domain.clusters
            and record.data.notes == list(self.domain.notes)
            and record.search.words == self._words(record.model.settings)
            # Complete grades leave nothing unjudged, so no judgements are recorded.
            and (record.data.judgements is None) == self.domain.complete
        )

    def _words(self, settings: Mapping[str, Any]) -> str:
        """What a record of a model with these settings states on words; see `stated_words`."""
        return stated_words(settings, [self.domain.words.name])

    def _scores(self, hits: Hits) -> QueryScores:
        domain = self.domain
        scores = score_run(domain.grades, hits, self.measures, threshold=domain.threshold)
        columns = {name: scores.array(name) for name in scores}
        if domain.complete and JUDGED in columns:
            columns[JUDGED] = np.ones(len(scores.queries))
        return QueryScores(scores.queries, columns, ids=scores.ids)

    def evaluate(self, model: LoadedModel, run: Run) -> Result:
        """Return the record of a model; ``top`` in its parameters holds the best documents."""
        domain, work = self.domain, Work(model)
        counts: Counter[str] = Counter()
        hits = search_domain(model, domain, counts=counts)
        task = TaskInfo(
            name=domain.name,
            type="Retrieval",
            # Without the digits of the revision, in which the name ends.
            dataset=domain.name.rpartition("-")[0],
            revision=domain.revision,
            main_metric="nDCG@10",
            size={"documents": len(domain.texts), "queries": len(domain.queries)},
            categories=dict(domain.categories),
            counts={**domain.counts, **nonzero(counts)},
            clusters=dict(domain.clusters),
        )
        search = SearchFacts(
            words=self._words(model.settings), dimensions=getattr(model, "dimension", None)
        )
        top = {query: rank_documents(scores)[:_TOP_DEPTH] for query, scores in hits.items()}
        data = self._facts(hits)
        result = work.record(task, self._scores(hits), run, data=data, search=search, top=top)
        # Only now: the time of these searches is no part of the record's cost.
        seconds = as_searcher(model).seconds_per_query(list(domain.queries.values()))
        result = replace(result, search=replace(search, seconds_per_query=seconds))
        return run.with_runs(result, hits, domain.grades)

    def _facts(self, hits: Hits) -> DataFacts:
        """Return what the scores depend on in the data, and the judgements of what was found."""
        domain = self.domain
        # A product with a boost above 1 would lower a score below 0.
        negative_cosine = "no boosts"
        if domain.recipe:
            negative_cosine = "divided by the boosts"
        judgements = None
        if not domain.complete:
            judgements = judgements_of(domain.grades, hits)
        return DataFacts(
            boosts=dict(domain.recipe),
            negative_cosine=negative_cosine,
            relevance_threshold=domain.threshold,
            dropped=list(domain.dropped),
            notes=list(domain.notes),
            queries=dict(domain.queries),
            judgements=judgements,
        )


def judgements_of(qrels: Qrels, run: Hits, *, depth: int = _TOP_DEPTH) -> dict[str, Judgements]:
    """Return, per query, the grades of its first documents and of all relevant ones, best first.

    A document without a judgement has the grade `UNJUDGED`. With both, scores can be computed under
    other assumptions on unjudged documents; see `qwen3nb.answers.doubts`.
    """
    judgements: dict[str, Judgements] = {}
    for query, grades in qrels.items():
        first_documents = rank_documents(run.get(query, {}))[:depth]
        relevant = [grade for grade in grades.values() if grade > 0]
        judgements[query] = {
            "first": [grades.get(document, UNJUDGED) for document in first_documents],
            "ideal": sorted(relevant, reverse=True),
        }
    return judgements


def search_domain(
    model: LoadedModel, domain: Domain, *, depth: int = 0, counts: Counter[str] | None = None
) -> Hits:
    """Return the scores of each query's ``depth`` best documents, including ties with the last.

    By default, these are as many as the recorded measures need.
    Queries for which nothing was found are added to ``counts``, also by part of a fusion.

    Raises:
        EncoderError: a vector that is not finite, or zero for a text that is not blank.
    """
    if counts is None:
        counts = Counter()
    if not depth:
        depth = deepest(recorded_measures("own data"))
    if len(model.parts) > 1:
        # Deep, as fusion can lift documents from below the cutoff.
        run = _fuse_parts(model.parts, domain, max(depth, _FUSED_DEPTH), counts)
    else:
        # A query's own document is removed below, so as many more are asked for.
        numbers_removed = [len(documents) for documents in domain.itself.values()]
        searcher = as_searcher(model)
        k = depth + max(numbers_removed, default=0)
        run = searcher.rank_boosted(_DomainTexts(domain), domain.factors, k=k)
    best: Hits = {}
    for query, scores in run.items():
        removed = domain.itself.get(query, ())
        remaining_scores = {name: score for name, score in scores.items() if name not in removed}
        best[query] = _best_with_ties(remaining_scores, depth)
        if not remaining_scores:
            counts[NOTHING_FOUND] += 1
    return best


def _fuse_parts(
    parts: Iterable[LoadedModel], domain: Domain, depth: int, counts: Counter[str]
) -> Hits:
    """Fuse the rankings of models; count the queries for which each found nothing."""
    runs = []
    for part in parts:
        counts_of_part: Counter[str] = Counter()
        runs.append(search_domain(part, domain, depth=depth, counts=counts_of_part))
        counts[nothing_found_by(part.label)] += counts_of_part[NOTHING_FOUND]
    return fuse(runs)


def _best_with_ties(scores: Mapping[str, float], depth: int) -> dict[str, float]:
    """Return the ``depth`` best documents, including ties with the last."""
    best_scores = sorted(scores.values(), reverse=True)[:depth]
    return {name: score for name, score in scores.items() if score >= best_scores[-1]}


@dataclass(frozen=True)
class _DomainTexts:
    """The texts of custom data by the names that searchers use."""

    domain: Domain

    @property
    def queries(self) -> Mapping[str, str]:
        return self.domain.queries

    @property
    def documents(self) -> Mapping[str, str]:
        return self.domain.texts

    @property
    def words(self) -> Words:
        return self.domain.words
