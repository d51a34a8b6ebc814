"""Evaluate models on custom queries and documents; save one record per model.

Search is exact: the cosine of each query with every document, multiplied by boosts, if any. BM25
scores are boosted likewise; documents without a word of the query are not ranked. A fusion fuses
the boosted rankings of its parts, by rank or as `qwen3nb.evaluation.retrieval.fitted_fusion` says.
A document which is the query itself is not ranked.

Documents longer than the model takes are split, and score as their best chunk; see
`qwen3nb.models.search.chunks`. A model that splits some has another label and identity than without
chunks, so that no record of the same model changes. Where all documents fit, nothing is different.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.custom.generated import counted_kinds
from qwen3nb.datasets.custom.load import Domain
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.datasets.judgements import nonzero, nothing_found_by
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.retrieval.fitted_fusion import fit_fusion
from qwen3nb.evaluation.run import (
    TEXTS_CUT,
    EvaluationRun,
    Run,
    RunOptions,
    UnsupportedError,
    Work,
    evaluate_each,
    stored,
)
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.retrieval import (
    JUDGED,
    NOTHING_FOUND,
    OF_JUDGED_DOCUMENTS,
    JudgedRanking,
    Measure,
    Qrels,
    deepest,
    rank_documents,
    recorded_measures,
    score_run,
)
from qwen3nb.models.capabilities import LoadedModel, fits_weights
from qwen3nb.models.load import named, with_chunks, with_chunks_if_longer
from qwen3nb.models.model import Model
from qwen3nb.models.search.chunked import split_documents, splits
from qwen3nb.models.search.chunks import BEST, CUT, check_chunks
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.fusion import fuse
from qwen3nb.models.search.words import Words, reads_words, stated_words
from qwen3nb.records.details import (
    TOP_DEPTH,
    DataFacts,
    FittedWeights,
    GeneratedFacts,
    Judgements,
    SearchFacts,
    SplitDocuments,
)
from qwen3nb.records.record import Result, TaskInfo

SAME_MODEL = "the same weights and settings as "  # why a model is skipped; a label follows
_FUSED_DEPTH = 100  # least number of documents of each part of a fusion
Hits = dict[str, dict[str, float]]
AnyModel = str | Path | Model | LoadedModel | ModelEntry


def evaluate_domain(
    models: Iterable[AnyModel],
    domain: Domain,
    *,
    strict: bool = False,
    metrics: Iterable[str] = (),
    chunks: str = BEST,
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
        metrics: further metrics, such as ``nDCG@5`` or ``bpref``; see `measures_with`.
        chunks: what is done with documents longer than the model takes: ``max`` splits them, and
            the best chunk counts; a number splits all into chunks of so many characters; ``cut``
            reads their beginning. See `Model`.
        options: options of `Run`; for specs and entries, also of `Model`. Kept qrels have
            grades: binary metrics need `Domain.threshold`, as in ``trec_eval -l 2``.

    Raises:
        ValueError: an unknown metric; lists the choices.
        DataError: a metric of judged documents, where no document is judged not relevant.
    """
    measures = measures_with(metrics, domain)
    run_options = {name: options[name] for name in options if name in RunOptions.__annotations__}
    run = Run(**run_options, strict=strict)
    model_options = {name: options[name] for name in options if name not in run_options}
    model_options |= {"batch_size": run.batch_size, "show_progress": run.show_progress}
    check_chunks(chunks)
    labels: dict[str, str] = {}  # by identity

    def find(entry: AnyModel) -> list[tuple[Any, DomainItem]]:
        item = DomainItem(entry_name(entry), domain, measures, chunks)
        model = _with_chunks(_model_of(entry, model_options), item, run)
        # Of models with equal weights and settings, the first is evaluated.
        label_of_equal = labels.get(model.identity)
        if label_of_equal is not None:
            raise UnsupportedError(f"{SAME_MODEL}{label_of_equal}")
        if model.label in labels.values():
            raise DataError(
                f"another model has the label {model.label}: set unique labels by `name` in "
                "[models.NAME] of the query file, or as --model NAME=MODEL"
            )
        labels[model.identity] = model.label
        return [(model, replace(item, name=model.label))]

    jobs = [(entry_name(entry), partial(find, entry)) for entry in models]
    return evaluate_each(jobs, run, label=domain.name, kind="models")


def _with_chunks(model: Any, item: "DomainItem", run: Run) -> Any:
    """Return the model with chunks if it splits documents of the item, else as it is.

    A model whose records tell which it is is not loaded.
    """
    if item.chunks == CUT:
        return model
    if not run.measures_again:
        record = stored(model, item, run)
        if record is not None and _fits_all(record, item):
            return model
        splitting_model = with_chunks(model, item.chunks)
        if stored(splitting_model, item, run) is not None:
            return splitting_model
    return with_chunks_if_longer(model, list(item.domain.texts.values()), item.chunks)


def _fits_all(record: Result, item: "DomainItem") -> bool:
    """Return whether a record without chunks shows that there is nothing to split."""
    if item.chunks == BEST:
        return record.search.split == []  # an older record does not say
    return all(len(text) <= int(item.chunks) for text in item.domain.texts.values())


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


def measures_with(metrics: Iterable[str], domain: Domain) -> tuple[Measure, ...]:
    """Return the measures of records on own data, and those that are asked for.

    One that needs deeper searches, such as ``bpref``, brings the others that do.

    Raises:
        ValueError: an unknown metric; lists the choices.
        DataError: a metric of judged documents, where no document is judged not relevant.
    """
    measures = dict.fromkeys(recorded_measures("own data"))  # in order, each once
    for metric in metrics:
        measure = Measure(metric)
        measures[measure] = None
        if measure.judged_only:
            _refuse_without_irrelevant(measure, domain)
            measures |= dict.fromkeys(Measure(name) for name in OF_JUDGED_DOCUMENTS)
    return tuple(measures)


def _refuse_without_irrelevant(measure: Measure, domain: Domain) -> None:
    """Refuse to compare relevant documents with others where nobody named one."""
    for grades in domain.grades.values():
        if any(grade < domain.threshold for grade in grades.values()):
            return
    raise DataError(
        f"{measure} compares relevant documents with those that are judged not relevant; no query "
        "has one. Grade some with 0 (qwen3nb judge asks for them), or use nDCG@10"
    )


@dataclass(frozen=True)
class DomainItem:
    """Custom queries and documents; ``name`` is the label of the model."""

    name: str
    domain: Domain
    measures: tuple[Measure, ...] = recorded_measures("own data")
    chunks: str = CUT  # see `evaluate_domain`

    @property
    def key(self) -> str:
        """Name of the data."""
        return self.domain.name

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
            and record.data.generated == generated_facts(self.domain)
        )

    def _words(self, settings: Mapping[str, Any]) -> str:
        """What a record of a model with these settings states on words; see `stated_words`."""
        if not reads_words(settings):
            return ""
        return stated_words(settings, [self.domain.words.name])

    def _scores(self, hits: Hits) -> QueryScores:
        domain = self.domain
        scores = score_run(domain.grades, hits, self.measures, threshold=domain.threshold)
        columns = {name: scores.array(name) for name in scores}
        if JUDGED in columns:
            columns[JUDGED] = self._judged_shares(scores.queries, columns[JUDGED])
        return QueryScores(scores.queries, columns, ids=scores.ids)

    def _judged_shares(self, queries: Sequence[str], shares: Array) -> Array:
        """Return the judged share of each query (N,); 1 where the grades are complete."""
        domain = self.domain
        is_complete = [domain.complete or query in domain.complete_queries for query in queries]
        return np.where(is_complete, 1.0, shares)

    def evaluate(self, model: LoadedModel, run: Run) -> Result:
        """Return the record of a model; ``top`` in its parameters holds the best documents."""
        domain, work = self.domain, Work(model)
        counts: Counter[str] = Counter()
        hits, fitted = _search(
            model, domain, depth=deepest(self.measures), counts=counts, seed=run.seed
        )
        task = TaskInfo(
            name=domain.name,
            type="Retrieval",
            # Without the digits of the revision, in which the name ends.
            dataset=domain.name.rpartition("-")[0],
            revision=domain.revision,
            main_metric="nDCG@10",
            size={"documents": len(domain.texts), "queries": len(domain.queries)},
            categories=dict(domain.categories),
            counts={**domain.counts, **nonzero(counts), **texts_cut(work)},
            clusters=dict(domain.clusters),
        )
        search = SearchFacts(
            words=self._words(model.settings),
            dimensions=getattr(model, "dimension", None),
            bytes_per_document=getattr(model, "bytes_per_document", None),
            fitted=fitted,
            split=self._split(model),
        )
        top = {query: rank_documents(scores)[:TOP_DEPTH] for query, scores in hits.items()}
        data = self._facts(hits)
        result = work.record(task, self._scores(hits), run, data=data, search=search, top=top)
        # Only now: the time of these searches is no part of the record's cost.
        seconds = as_searcher(model).seconds_per_query(list(domain.queries.values()))
        result = replace(result, search=replace(search, seconds_per_query=seconds))
        return run.with_runs(result, hits, domain.grades)

    def _split(self, model: LoadedModel) -> list[SplitDocuments] | None:
        """Return the documents in chunks; none if all fit, None if that was not looked at."""
        documents_in_chunks = split_documents(model)
        can_split = any(splits(part) for part in model.parts)
        if documents_in_chunks or (self.chunks == BEST and can_split):
            return documents_in_chunks
        return None

    def _facts(self, hits: Hits) -> DataFacts:
        """Return what the scores depend on in the data, and the judgements of what was found."""
        domain = self.domain
        # A product with a boost above 1 would lower a score below 0.
        negative_cosine = "no boosts"
        if domain.recipe:
            negative_cosine = "divided by the boosts"
        judgements = None
        if not domain.complete:
            judgements = judgements_of(domain.grades, hits, complete=domain.complete_queries)
        return DataFacts(
            boosts=dict(domain.recipe),
            negative_cosine=negative_cosine,
            relevance_threshold=domain.threshold,
            dropped=list(domain.dropped),
            notes=list(domain.notes),
            queries=dict(domain.queries),
            judgements=judgements,
            generated=generated_facts(domain),
        )


def texts_cut(work: Work) -> dict[str, int]:
    """Return the number of texts that were cut, as a record counts it; empty for none."""
    return {name: count for name, count in work.counts().items() if name == TEXTS_CUT}


def generated_facts(domain: Domain) -> GeneratedFacts | None:
    """Return how many of the queries were generated, and how; None if none was."""
    if not domain.generated:
        return None
    return GeneratedFacts(
        queries=len(domain.generated),
        kinds=counted_kinds(domain.generated.values()),
        origins=[dict(origin) for origin in domain.origins],
    )


def judgements_of(
    qrels: Qrels, run: Hits, *, depth: int = TOP_DEPTH, complete: Collection[str] = ()
) -> dict[str, Judgements]:
    """Return, per query, the grades of its first documents and of all relevant ones, best first.

    A document without a judgement has the grade `UNJUDGED`, and 0 for a query of ``complete``.
    With both, scores can be computed under other assumptions on unjudged documents; see
    `qwen3nb.answers.doubts`.
    """
    judgements: dict[str, Judgements] = {}
    for query, grades in qrels.items():
        first_documents = rank_documents(run.get(query, {}))[:depth]
        ranking = JudgedRanking.of(grades, first_documents)
        first_grades = list(ranking.grades)
        if query in complete:
            first_grades = [max(grade, 0) for grade in ranking.grades]
        judgements[query] = {"first": first_grades, "ideal": list(ranking.ideal)}
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
    hits, _ = _search(model, domain, depth=depth, counts=counts)
    return hits


def _search(
    model: LoadedModel,
    domain: Domain,
    *,
    depth: int = 0,
    counts: Counter[str] | None = None,
    seed: int = 0,
) -> tuple[Hits, FittedWeights | None]:
    """Return what `search_domain` does, and the weights of a fusion that the grades chose."""
    if counts is None:
        counts = Counter()
    if not depth:
        depth = deepest(recorded_measures("own data"))
    fitted = None
    if len(model.parts) > 1:
        # Deep, as fusion can lift documents from below the cutoff. Not deeper for metrics that are
        # asked for: the fused ranking, and so every other score, would be another one.
        depth_of_parts = max(deepest(recorded_measures("own data")), _FUSED_DEPTH)
        runs = _runs_of_parts(model.parts, domain, depth_of_parts, counts)
        if fits_weights(model):
            fitted_run = fit_fusion(
                model,
                runs,
                domain.grades,
                texts=domain.queries,
                clusters=domain.clusters,
                depth=depth_of_parts,
                seed=seed,
            )
            run, fitted = fitted_run.hits, fitted_run.fitted
        else:
            run = fuse(runs)
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
    return best, fitted


def _runs_of_parts(
    parts: Iterable[LoadedModel], domain: Domain, depth: int, counts: Counter[str]
) -> list[Hits]:
    """Return the rankings of models; count the queries for which each found nothing."""
    runs = []
    for part in parts:
        counts_of_part: Counter[str] = Counter()
        runs.append(search_domain(part, domain, depth=depth, counts=counts_of_part))
        counts[nothing_found_by(part.label)] += counts_of_part[NOTHING_FOUND]
    return runs


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
