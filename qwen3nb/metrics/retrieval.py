"""Retrieval metrics per query, under their usual names.

The conventions are those of trec_eval: documents are ranked by score, compared as 32-bit
floats, ties by document id, descending; gains are linear in the grade (``nDCGexp``:
2^grade - 1), and grades of 0 or below have no gain; a judged query that is missing from the
run scores 0. A query without a relevant document is omitted, or scores 0 on request, as in MTEB.

A document without a judgement counts as not relevant, but for metrics of judged documents only:
these score the ranking that is left without it. Grades may be fractions, such as means of several
graders.

References:
    Järvelin and Kekäläinen 2002 (nDCG); Voorhees 1999 (MRR); Buckley and Voorhees 2005; Buckley and
    Voorhees 2004 (bpref); Sakai 2007 (condensed rankings); McSherry and Najork 2008 (ties).
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.run_arrays import RunArrays

Qrels = Mapping[str, Mapping[str, float]]
Run = Mapping[str, Mapping[str, float]]
Grades = Sequence[float]
# A list per query, in order; or, by query, a list or a dictionary of numbers by document.
Rankings: TypeAlias = (
    Sequence[Iterable[Hashable]]
    | Mapping[str, Iterable[Hashable]]
    | Mapping[str, Mapping[str, float]]
)

UNJUDGED = -1  # the grade of a document without a judgement
JUDGED = "Judged@10"  # recorded with every score on own data, and no score itself
# Names of counts in records; the second follows the name of a part of a fusion.
NOTHING_FOUND = "queries for which nothing was retrieved, counted as 0"
PART_FOUND_NOTHING = ", a part of the fusion, retrieved nothing"
# Documents of a ranking in which metrics of judged documents only look for them, as in TREC.
JUDGED_DEPTH = 1000
# Such as ``nDCG@10``, ``P(rel=2)@5`` and ``bpref``, as ir_measures writes them.
_NAME = re.compile(
    r"(?P<metric>[A-Za-z_]+)(\(rel=(?P<threshold>\d+(\.\d+)?)\))?(@(?P<depth>[1-9]\d*))?"
)


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain > 0)


def _ndcg(grades: Grades, ideal: Grades, k: int) -> float:
    return _dcg(grades[:k]) / _dcg(ideal[:k])


def _ndcg_exponential(grades: Grades, ideal: Grades, k: int) -> float:
    """NDCG with gains of 2^grade - 1 (Burges et al. 2005), which emphasises high grades."""
    gains = [2.0 ** max(grade, 0) - 1 for grade in grades[:k]]
    best_gains = [2.0**grade - 1 for grade in ideal[:k]]
    return _dcg(gains) / _dcg(best_gains)


def _mrr(grades: Grades, ideal: Grades, k: int) -> float:
    for rank, grade in enumerate(grades[:k], start=1):
        if grade > 0:
            return 1 / rank
    return 0.0


def _judged(grades: Grades, ideal: Grades, k: int) -> float:
    """Share of judged documents among the first k: how far the other metrics can be trusted.

    As in ir_measures, the denominator is the number of retrieved documents if fewer than k.
    """
    retrieved_grades = grades[:k]
    judged_count = sum(grade != UNJUDGED for grade in retrieved_grades)
    return judged_count / max(len(retrieved_grades), 1)


def _relevant(grades: Grades) -> int:
    return sum(grade > 0 for grade in grades)


def _recall(grades: Grades, ideal: Grades, k: int) -> float:
    return _relevant(grades[:k]) / len(ideal)


def _precision(grades: Grades, ideal: Grades, k: int) -> float:
    return _relevant(grades[:k]) / k


def _hit(grades: Grades, ideal: Grades, k: int) -> float:
    return float(_relevant(grades[:k]) > 0)


def _average_precision(grades: Grades, ideal: Grades, k: int) -> float:
    """Average precision, divided by the number of all relevant documents."""
    total, relevant_count = 0.0, 0
    for rank, grade in enumerate(grades[:k], start=1):
        if grade > 0:
            relevant_count += 1
            total += relevant_count / rank
    return total / len(ideal)


def _bpref(grades: Grades, judged: Grades, k: int) -> float:
    """Share of preferences for relevant documents over others that the ranking keeps.

    Each relevant document is compared with the first R documents that are judged not relevant,
    where R is the number of relevant ones. Source: Buckley and Voorhees 2004, in the form of
    trec_eval: with fewer than R of them, their number takes the place of R.
    """
    relevant_count = _relevant(judged)
    compared_count = min(relevant_count, len(judged) - relevant_count)
    total, not_relevant_before = 0.0, 0
    for grade in grades:
        if grade <= 0:
            not_relevant_before += 1
        elif not_relevant_before == 0:
            total += 1
        else:
            total += 1 - min(not_relevant_before, relevant_count) / compared_count
    return total / relevant_count


@dataclass(frozen=True)
class Metric:
    """How a query is scored, and what the metric needs to be right on any data."""

    # Takes the grades of the ranked documents (`UNJUDGED` without a judgement), the grades of all
    # relevant documents from highest to lowest, and the number k of documents that count.
    score: Callable[[Grades, Grades, int], float]
    # Whether it reads grades as they are. If not, it sees 1 for a relevant document and 0 for
    # another: on data with a relevance threshold, grades from the threshold are relevant.
    graded: bool
    formula: str = ""  # anchor of its formula in ``book/methods.md``, after ``formula-``
    # Whether documents without a judgement are left out before. It then takes the grades of all
    # judged documents in place of those of the relevant ones.
    judged_only: bool = False
    has_depth: bool = True  # whether a depth belongs to its name, as in ``nDCG@10``
    # Whether documents of equal scores share the mean of their grades. As DCG is linear in gains
    # that are grades, it then is the mean over all orders of these documents.
    averages_ties: bool = False


METRICS: dict[str, Metric] = {
    "nDCG": Metric(_ndcg, graded=True, formula="ndcg"),
    "MRR": Metric(_mrr, graded=False, formula="mrr"),
    "Recall": Metric(_recall, graded=False, formula="recall"),
    "P": Metric(_precision, graded=False, formula="precision"),
    "MAP": Metric(_average_precision, graded=False, formula="map"),
    "Hit": Metric(_hit, graded=False, formula="recall"),
    "Judged": Metric(_judged, graded=False, formula="precision"),
    "nDCGexp": Metric(_ndcg_exponential, graded=True, formula="ndcg"),
    "bpref": Metric(_bpref, graded=False, formula="bpref", judged_only=True, has_depth=False),
    "condensed_nDCG": Metric(_ndcg, graded=True, formula="condensed", judged_only=True),
    "condensed_MRR": Metric(_mrr, graded=False, formula="condensed", judged_only=True),
    "tie_averaged_nDCG": Metric(_ndcg, graded=True, formula="ties", averages_ties=True),
}

# Measures of records by kind of evaluation, in the order of tables. A measure added here is
# computed for the next record; stored records without it are evaluated again. A search returns as
# many documents as the deepest of them needs.
RECORDED: dict[str, tuple[str, ...]] = {
    "task": ("nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100", "MAP@100"),
    "collection": (
        *("nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100", "P@10", "MAP@100"),
        JUDGED,
    ),
    "own data": ("MRR@10", "nDCG@10", "P@5", "P@10", "Recall@10", "Recall@20", JUDGED),
    "reranking": ("nDCG@10", "MRR@10"),
}


# Of own data, on request: they need deeper searches, so that one asked for brings the others.
OF_JUDGED_DOCUMENTS = ("bpref", "condensed_nDCG@10", "condensed_MRR@10")


class Measure(str):
    """A metric of `METRICS` at a depth: a name such as ``nDCG@10``, which it prints and equals.

    >>> measure = Measure("nDCG@10")
    >>> measure, measure.depth, {measure: 0.5}["nDCG@10"]
    ('nDCG@10', 10, 0.5)

    ``bpref`` has no depth. ``P(rel=2)@5`` has a threshold of its own: grades from 2 are relevant.

    Raises:
        ValueError: an unknown metric, or no depth; lists the choices. Or a threshold of a metric
            that reads grades as they are.
    """

    metric: str  # its name in `METRICS`
    depth: int  # number of documents that count
    threshold: float | None  # lowest relevant grade, if the name states one
    search_depth: int  # number of documents that a search must return for it
    graded: bool  # whether it reads grades as they are; see `Metric`
    judged_only: bool  # whether it leaves out documents without a judgement
    averages_ties: bool  # whether documents of equal scores share the mean of their grades

    def __new__(cls, name: str) -> Self:
        """Return the measure of a name such as ``nDCG@10``."""
        match = _NAME.fullmatch(name)  # ``<metric>@<depth>``
        metric = METRICS.get(match["metric"]) if match is not None else None
        if match is None or metric is None or metric.has_depth != (match["depth"] is not None):
            with_depth = [other for other in METRICS if METRICS[other].has_depth]
            without_depth = [other for other in METRICS if not METRICS[other].has_depth]
            raise ValueError(
                f"unknown metric {name!r}; choose one of {', '.join(with_depth)} with a depth, "
                f"as in nDCG@10, or {', '.join(without_depth)}"
            )
        threshold = match["threshold"]
        if threshold is not None and (metric.graded or float(threshold) == 0):
            raise ValueError(
                f"{name}: expected a threshold above 0, of a metric without grades, as in "
                "P(rel=2)@5"
            )
        measure = super().__new__(cls, name)  # the text itself
        measure.threshold = None if threshold is None else float(threshold)
        measure.metric = match["metric"]
        measure.depth = int(match["depth"] or JUDGED_DEPTH)
        measure.graded = metric.graded
        measure.judged_only = metric.judged_only
        measure.averages_ties = metric.averages_ties
        measure.search_depth = measure.depth
        if metric.judged_only:
            measure.search_depth = max(measure.depth, JUDGED_DEPTH)
        return measure

    @property
    def needs_whole_ranking(self) -> bool:
        """Whether it reads documents below its depth: judged ones, or all of equal scores."""
        return self.judged_only or self.averages_ties

    def score(self, grades: Grades, ideal: Grades) -> float:
        """Return the value of one query from its grades, 0 or 1 unless the metric is `graded`."""
        return METRICS[self.metric].score(grades, ideal, self.depth)

    def score_ranking(self, ranking: "JudgedRanking") -> float:
        """Return the value of one query from its ranking, binary unless the metric is `graded`."""
        metric = METRICS[self.metric]
        if self.judged_only:
            grades = [grade for grade in ranking.grades if grade != UNJUDGED]
            return metric.score(grades, ranking.judged, self.depth)
        if self.averages_ties:
            return metric.score(ranking.tie_means(), ranking.ideal, self.depth)
        return metric.score(ranking.grades, ranking.ideal, self.depth)


def recorded_measures(kind: str) -> tuple[Measure, ...]:
    """Return the measures of records of a ``kind`` in `RECORDED`."""
    return tuple(Measure(name) for name in RECORDED[kind])


def deepest(measures: Iterable[Measure]) -> int:
    """Return the number of documents that the deepest of ``measures`` needs; 0 without any."""
    return max((measure.search_depth for measure in measures), default=0)


def find_measure(name: str) -> Measure | None:
    """Return the measure of a name; None if it is no measure of rankings."""
    try:
        return Measure(name)
    except ValueError:
        return None


def relevance(grade: float, threshold: float) -> int:
    """Return 1 for a grade from the threshold, else 0; `UNJUDGED` stays."""
    if grade == UNJUDGED:
        return UNJUDGED
    return int(grade >= threshold)


def rank_documents(scores: Mapping[str, float]) -> list[str]:
    """Return document ids from best to worst.

    Raises:
        ValueError: a score is NaN or infinite; names the document.
    """
    names = list(scores)
    values = np.fromiter(scores.values(), dtype=np.float64, count=len(names))
    is_finite = np.isfinite(values)
    if not is_finite.all():
        document = names[int(is_finite.argmin())]
        raise ValueError(f"document {document!r}: expected a finite score; got {scores[document]}")
    with np.errstate(over="ignore"):  # beyond 32 bits, a score is infinite
        rounded_values = values.astype(np.float32)
    best_first = np.argsort(rounded_values)[::-1]  # fast, but ties are in no certain order
    ranked_values = rounded_values[best_first]
    has_ties = (ranked_values[1:] == ranked_values[:-1]).any()  # with the next score
    if not has_ties:
        return [names[row] for row in best_first.tolist()]
    # Equal scores rank by id, from the last.
    scored_names = zip(rounded_values.tolist(), names, strict=True)
    return [name for _, name in sorted(scored_names, reverse=True)]


def ranking(run: Run, query: str, depth: int | None = None) -> list[str]:
    """Return the ``depth`` best documents of ``query``, by default all; none if it is missing.

    Raises:
        ValueError: see `rank_documents`.
    """
    if query not in run:
        return []
    if isinstance(run, RunArrays):
        return run.ranked(query, depth)
    return rank_documents(run[query])[:depth]


@dataclass(frozen=True)
class JudgedRanking:
    """What a metric reads of one query."""

    grades: Grades  # of the ranked documents, best first; `UNJUDGED` without a judgement
    ideal: Grades  # of all relevant documents, highest first
    judged_count: int = 0  # number of all judged documents
    # Numbers of ranked documents with equal scores, from the first; empty if none are equal.
    ties: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        judgements: Mapping[str, float],
        documents: Iterable[str],
        scores: Mapping[str, float] | None = None,
    ) -> Self:
        """Return the grades of ranked documents; grades below 0 count as 0.

        With ``scores``, documents of equal scores are known.
        """
        ranked = list(documents)
        grades = []
        for document in ranked:
            grade = judgements.get(document)
            grades.append(UNJUDGED if grade is None else max(grade, 0))
        positive = [grade for grade in judgements.values() if grade > 0]
        ideal = sorted(positive, reverse=True)
        ties: list[int] = []
        if scores is not None:
            ties = _sizes_of_ties([scores[document] for document in ranked])
        return cls(grades, ideal, len(judgements), ties)

    @property
    def judged(self) -> list[float]:
        """The grades of all judged documents, highest first."""
        return [*self.ideal, *[0] * (self.judged_count - len(self.ideal))]

    def binary(self, threshold: float) -> Self:
        """Return the ranking with 1 for grades from the threshold, and 0 for those below."""
        grades = [relevance(grade, threshold) for grade in self.grades]
        ideal = [1 for grade in self.ideal if grade >= threshold]
        return type(self)(grades, ideal, self.judged_count, self.ties)

    def tie_means(self) -> list[float]:
        """Return the grades with the mean of those of equal scores in place of each.

        Documents without a judgement count as 0. Source: McSherry and Najork, "Computing
        information retrieval performance measures efficiently in the presence of tied scores"
        (ECIR 2008).
        """
        means: list[float] = []
        for size in self.ties:
            tied_grades = self.grades[len(means) : len(means) + size]
            mean = sum(max(grade, 0) for grade in tied_grades) / size
            means += [mean] * size
        return means


def _sizes_of_ties(scores: Sequence[float]) -> list[int]:
    """Return the numbers of equal scores, as 32-bit floats, of a ranking from its best."""
    sizes: list[int] = []
    with np.errstate(over="ignore"):  # beyond 32 bits, a score is infinite
        rounded_scores = np.asarray(scores, dtype=np.float64).astype(np.float32).tolist()
    previous_score = math.nan
    for score in rounded_scores:
        if score == previous_score:
            sizes[-1] += 1
        else:
            sizes.append(1)
        previous_score = score
    return sizes


def score_run(
    qrels: Qrels,
    run: Run,
    metrics: Iterable[str] = ("nDCG@10",),
    *,
    threshold: float = 1,
    zeros: bool = False,
) -> QueryScores:
    """Compute the value per metric and query id.

    >>> scores = score_run({"q": {"d1": 1}}, {"q": {"d1": 0.3, "d2": 0.9}}, ["MRR@10", "Recall@1"])
    >>> dict(scores)
    {'MRR@10': {'q': 0.5}, 'Recall@1': {'q': 0.0}}

    Args:
        qrels: grade per query and document; fractions are gains as they are.
        run: score per query and document; higher is better.
        metrics: names of a `Measure`, such as ``nDCG@10`` or ``bpref``.
        threshold: lowest grade that is relevant for metrics that are not graded and whose name
            states no other, such as ``P(rel=2)@5``.
        zeros: whether a query with judgements, none of them relevant, scores 0.

    Raises:
        ValueError: an unknown metric (lists the choices), or a score that is not finite.
    """
    measures = [Measure(metric) for metric in metrics]
    depth: int | None = deepest(measures)
    if any(measure.needs_whole_ranking for measure in measures):
        depth = None
    reads_ties = any(measure.averages_ties for measure in measures)
    values: dict[str, dict[str, float]] = {str(measure): {} for measure in measures}
    for query, judgements in qrels.items():
        has_relevant = any(grade > 0 for grade in judgements.values())
        if not has_relevant:
            if zeros and judgements:  # all of them not relevant
                for measure in measures:
                    values[measure][query] = 0.0
            continue
        try:
            documents = ranking(run, query, depth)
        except ValueError as error:
            raise ValueError(f"query {query!r}: {error}") from None
        scores = run.get(query, {}) if reads_ties else None
        graded_ranking = JudgedRanking.of(judgements, documents, scores)
        binary_ranking = graded_ranking.binary(threshold)
        for measure in measures:
            judged_ranking = graded_ranking if measure.graded else binary_ranking
            if measure.threshold is not None:
                judged_ranking = graded_ranking.binary(measure.threshold)
            if judged_ranking.ideal:  # else nothing is relevant at this threshold
                values[measure][query] = measure.score_ranking(judged_ranking)
            elif zeros:
                values[measure][query] = 0.0
    return QueryScores.of(values)


# Takes the documents of a query, best first, and its relevant ones; returns its score.
OwnMeasure: TypeAlias = Callable[[list[Any], list[Any]], float]


def score_rankings(
    retrieved: Rankings,
    relevant: Rankings,
    metrics: str | OwnMeasure | Iterable[str | OwnMeasure] = (
        "MRR@10",
        "Recall@1",
        "Recall@10",
        "Recall@100",
        "nDCG@10",
    ),
) -> dict[str, float]:
    """Compute the mean of each metric over queries, from ranked lists of documents.

    >>> score_rankings([["a", "b", "c"], ["c", "a"]], [{"b"}, {"c"}], ["MRR@10", "Recall@1"])
    {'MRR@10': 0.75, 'Recall@1': 0.5}

    An own measure is a function of one query:

    >>> def found_first(retrieved, relevant):
    ...     return float(retrieved[0] in relevant)
    >>> score_rankings([["a", "b"], ["c", "a"]], [["b"], ["c"]], ["MRR@10", found_first])
    {'MRR@10': 0.75, 'found_first': 0.5}

    Args:
        retrieved: for each query, its documents from best to worst; or a dictionary by query, of
            such lists or of scores by document, as a run of trec_eval.
        relevant: for each query, its relevant documents, at least one; or a dictionary by query, of
            such lists or of grades by document. A run and its grades may also be given in the other
            order, as to trec_eval: grades are integers, scores are not.
        metrics: as for `score_run`, or functions. A function takes the retrieved documents of a
            query and its relevant ones, as two lists, and returns a number; its name is the
            metric's.

    Raises:
        ValueError: lists of different lengths, a query without a relevant document, or a
            document twice in a ranking.
        TypeError: a text instead of a list of documents; or grades and scores that cannot be told
            apart.
    """
    if callable(metrics) or isinstance(metrics, str):
        metrics = [metrics]
    measures = list(metrics)
    qrels, run, queries = _judged_queries(retrieved, relevant)
    names = [measure for measure in measures if isinstance(measure, str)]
    scores = score_run(qrels, run, names)
    means: dict[str, float] = {}
    for measure in measures:
        if isinstance(measure, str):
            name = measure
            values = list(scores[measure].values())
        else:
            name = getattr(measure, "__name__", type(measure).__name__)
            values = [float(measure(*query)) for query in queries]
        if name in means:
            raise ValueError(f"expected metrics of different names; got {name!r} twice")
        means[name] = sum(values) / max(len(values), 1)
    return means


def _judged_queries(
    retrieved: Rankings, relevant: Rankings
) -> tuple[Qrels, Run, list[tuple[list[Any], list[Any]]]]:
    """Return grades, scores and, for own measures, both lists of documents of each query."""
    names: Iterable[object] = range(len(relevant))
    if isinstance(retrieved, Mapping) and isinstance(relevant, Mapping):
        retrieved, relevant = _as_to_trec_eval(retrieved, relevant)
        names = list(relevant)
        retrieved, relevant = _paired_by_query(retrieved, relevant)
    if isinstance(retrieved, Mapping) or isinstance(relevant, Mapping):
        raise TypeError("expected two lists, or two dictionaries by query; got one of each")
    if len(retrieved) != len(relevant):
        raise ValueError(
            f"expected as many rankings as sets of relevant documents; got {len(retrieved)} and "
            f"{len(relevant)}"
        )
    qrels: dict[str, dict[str, float]] = {}
    run: dict[str, dict[str, float]] = {}
    queries: list[tuple[list[Any], list[Any]]] = []
    for name, ranking_of_query, answers in zip(names, retrieved, relevant, strict=True):
        documents = _ranked_documents(ranking_of_query, name)
        grades = _grades_of(answers)
        # A score that falls with the rank; a document that occurs twice has only one.
        scores = {str(document): -float(rank) for rank, document in enumerate(documents)}
        relevant_documents = [document for document, grade in grades.items() if grade > 0]
        if not relevant_documents:
            raise ValueError(f"query {name}: expected at least one relevant document; got none")
        if len(scores) < len(documents):
            raise ValueError(f"query {name}: a document occurs twice in its ranking")
        qrels[str(name)] = {str(document): grade for document, grade in grades.items()}
        run[str(name)] = scores
        queries.append((documents, relevant_documents))
    return qrels, run, queries


def _as_to_trec_eval(
    retrieved: Mapping[Any, Any], relevant: Mapping[Any, Any]
) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
    """Return a run and its grades, if they are numbers in either order; see `score_rankings`."""
    if _has_numbers(retrieved) and _has_numbers(relevant):
        if _has_grades(retrieved) == _has_grades(relevant):
            raise TypeError(
                "expected grades as integers and scores with decimals; write "
                "score_rankings({query: [document, ...]}, {query: {document: grade}}, metrics)"
            )
        if _has_grades(retrieved):
            return relevant, retrieved
    return retrieved, relevant


def _paired_by_query(
    retrieved: Mapping[Any, Any], relevant: Mapping[Any, Any]
) -> tuple[list[Any], list[Any]]:
    """Return what was retrieved and what is relevant, query by query.

    A query for which nothing was retrieved has an empty ranking.
    """
    if retrieved and not retrieved.keys() & relevant.keys():
        raise ValueError(
            f"expected rankings of the judged queries; got {next(iter(retrieved))!r:.40} and "
            f"{next(iter(relevant), None)!r:.40}, and none that both have"
        )
    return [retrieved.get(query, []) for query in relevant], list(relevant.values())


def _has_numbers(values_by_query: Mapping[Any, Any]) -> bool:
    return all(isinstance(values, Mapping) for values in values_by_query.values())


def _has_grades(values_by_query: Mapping[Any, Mapping[Any, float]]) -> bool:
    """Return whether all numbers by query and document are integers."""
    for values in values_by_query.values():
        if not all(isinstance(value, int | np.integer) for value in values.values()):
            return False
    return True


def _ranked_documents(documents: Any, query: object) -> list[Any]:
    """Return the documents of one query, best first."""
    if isinstance(documents, str):
        raise TypeError(
            f"query {query}: expected a list of documents, got the text {documents!r:.40}; write "
            "[[document, ...], ...], a list for each query"
        )
    if isinstance(documents, Mapping):
        return list(rank_documents(documents))
    return list(documents)


def _grades_of(answers: Any) -> dict[Any, float]:
    """Return the grade of each document that is relevant to a query."""
    if isinstance(answers, str):  # a single one
        return {answers: 1}
    if isinstance(answers, Mapping):
        return {document: _as_number(grade) for document, grade in answers.items()}
    return dict.fromkeys(answers, 1)


def _as_number(grade: Any) -> float:
    """Return a grade of any library as a number of Python; a fraction stays one."""
    number = float(grade)
    if number.is_integer():
        return int(number)
    return number
