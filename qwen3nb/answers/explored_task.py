"""One task as the explorer shows it: scores, queries, their categories, graded rankings.

A binary measure, such as MRR@10, can be computed again with another threshold of relevance if the
records keep enough documents of each ranking and the grades are known. It is offered only if the
computation with the records' own threshold gives the recorded score of every query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.candidate_rules import OTHER
from qwen3nb.evaluation.mteb.per_query import SearchTexts
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.retrieval import METRICS, UNJUDGED, JudgedRanking, Measure
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result

HIGHEST_GRADE = 35  # that a page has room for: a grade is a digit or a letter there
_ROUNDING = 1e-9  # by which a score that is computed again may differ
_NO_GRADES = "The grades are not available here, so that the threshold cannot be changed."


def top_documents(result: Result, query: str) -> list[str]:
    """Return the ids of a query's top documents; empty if the record does not keep them."""
    rankings = result.top
    if rankings is None:
        return []
    task = result.task
    query_of_whole_task = "/".join([*task.splits, *task.subsets, query])  # "test/en/12" for "12"
    documents = rankings.get(query) or rankings.get(query_of_whole_task) or ()
    return [str(document) for document in documents]


def query_text(result: Result, query: str, texts: SearchTexts | None = None) -> str:
    """Return a query's text, from the record or from ``texts``; its id if neither has it."""
    return _stated_text(result, query, texts) or query


def _stated_text(result: Result, query: str, texts: SearchTexts | None) -> str:
    recorded = result.data.queries or {}
    if query in recorded:
        return str(recorded[query])
    if texts is None:
        return ""
    return texts.text(query)


@dataclass(frozen=True)
class GradedRankings:
    """Grades of the first documents of every model, for binary measures at any threshold."""

    measures: tuple[Measure, ...]  # that can be computed from these documents
    threshold: float  # lowest grade that is relevant in the records
    highest: int  # highest grade of any document
    # by model, a ranking per query
    rankings: Mapping[str, tuple[JudgedRanking, ...]]

    def scores(self, model: str, measure: str, threshold: float) -> Array:
        """Return a model's score per query; NaN for a query without a relevant document.

        With the threshold of the records, such a query scores 0, as it does there.
        """
        scores = [
            _score(Measure(measure), ranking.binary(threshold)) for ranking in self.rankings[model]
        ]
        values = np.array(scores, dtype=np.float64)
        if threshold == self.threshold:
            return np.nan_to_num(values)
        return values


def _score(measure: Measure, ranking: JudgedRanking) -> float:
    if not ranking.ideal:
        return float("nan")
    return measure.score(ranking.grades, ranking.ideal)


@dataclass(frozen=True, eq=False, repr=False)
class ExploredTask:
    """Scores of models on the queries that they share, the best model first."""

    matrix: ScoreMatrix
    records: Mapping[str, Result]  # by name of the model in the matrix
    texts: SearchTexts | None = None  # texts and judgements; without them, ids are shown
    note: str = ""  # reason for missing texts, and number of models left out

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return DataUsed.of(self.records.values())

    @property
    def models(self) -> list[str]:
        """Names of the models, the best mean first."""
        return list(self.matrix.systems)

    @property
    def _record(self) -> Result:
        return self.records[self.matrix.systems[0]]

    def text(self, query: str) -> str:
        """Return a query's text, from the record or the data, or its id without either."""
        return query_text(self._record, query, self.texts)

    @cached_property
    def words(self) -> tuple[int | None, ...]:
        """Number of words of each query; None where its text is not known."""
        texts = [_stated_text(self._record, query, self.texts) for query in self.matrix.queries]
        return tuple(len(text.split()) or None for text in texts)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Category of each query; empty if no query has one."""
        by_query: dict[str, str] = {}
        for record in self.records.values():
            by_query |= record.task.categories
        if not by_query:
            return ()
        return tuple(by_query.get(query, OTHER) for query in self.matrix.queries)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Languages of each query; empty if the task has a single part."""
        languages_of_part = {}
        for part in self._record.parts:
            languages_of_part[f"{part.split}/{part.subset}/"] = ", ".join(part.languages)
        if not languages_of_part:
            return ()
        return tuple(languages_of_part.get(part_of(query), OTHER) for query in self.matrix.queries)

    def grades(self, query: str) -> Mapping[str, float]:
        """Return the known grades of a query's documents, by id."""
        if self.texts is not None:
            return self.texts.grades(query)
        grades: dict[str, float] = {}
        for record in self.records.values():
            judgements = (record.data.judgements or {}).get(query)
            if judgements is None:
                continue
            documents = top_documents(record, query)
            graded = zip(documents, judgements["first"], strict=False)
            grades |= {name: grade for name, grade in graded if grade != UNJUDGED}
        return grades

    def relevant_grades(self, query: str) -> Sequence[float]:
        """Return the grades of all relevant documents of a query, the highest first."""
        if self.texts is not None:
            return JudgedRanking.of(self.texts.grades(query), ()).ideal
        for record in self.records.values():
            judgements = (record.data.judgements or {}).get(query)
            if judgements is not None:
                return judgements["ideal"]
        return ()

    def relevant_count(self, query: str) -> int:
        """Return the number of relevant documents of a query, by the records' own threshold."""
        return sum(grade >= self._threshold for grade in self.relevant_grades(query))

    def judged_count(self, query: str) -> int | None:
        """Return the number of judged documents; None if only those found are known."""
        if self.texts is None:
            return None
        return len(self.texts.grades(query))

    @cached_property
    def graded_rankings(self) -> GradedRankings | str:
        """Rankings with grades, or the reason why there are none."""
        rankings = {}
        all_relevant = [self.relevant_grades(query) for query in self.matrix.queries]
        highest = int(max((max(grades, default=0) for grades in all_relevant), default=0))
        binary_measures = self._recorded_binary_measures()
        if not highest:
            return _NO_GRADES
        if not binary_measures:
            return "The records have no measure with a threshold."
        if highest > HIGHEST_GRADE:
            return f"Grades above {HIGHEST_GRADE} have no slider."
        if any(not float(grade).is_integer() for grades in all_relevant for grade in grades):
            return "Grades that are fractions have no slider."
        grades_of_queries = [self.grades(query) for query in self.matrix.queries]
        kept = 0  # documents of a ranking
        for model, record in self.records.items():
            judged = []
            columns = zip(self.matrix.queries, grades_of_queries, all_relevant, strict=True)
            for query, grades, relevant in columns:
                documents = top_documents(record, query)
                kept = max(kept, len(documents))
                ranked = JudgedRanking.of(grades, documents).grades
                judged.append(JudgedRanking(ranked, relevant))
            rankings[model] = tuple(judged)
        graded = GradedRankings((), self._threshold, highest, rankings)
        measures = []
        for measure in binary_measures:
            if measure.search_depth <= kept and self._agrees(graded, measure):
                measures.append(measure)
        if not measures:
            return (
                f"The records keep {kept} documents of a ranking: "
                "too few to compute a measure with another threshold."
            )
        return replace(graded, measures=tuple(measures))

    @property
    def _threshold(self) -> float:
        return self._record.data.relevance_threshold or 1

    def _recorded_binary_measures(self) -> list[Measure]:
        """Return the measures that every record has and that only tell relevant or not."""
        measures = []
        for name in self._record.per_query:
            is_everywhere = all(name in record.per_query for record in self.records.values())
            metric = name.partition("@")[0]
            is_binary = metric in METRICS and not METRICS[metric].graded and metric != "Judged"
            if is_everywhere and is_binary:
                measures.append(Measure(name))
        return measures

    def _agrees(self, graded: GradedRankings, measure: Measure) -> bool:
        """Whether a measure, computed again, is the recorded one on every query."""
        for model, record in self.records.items():
            recorded = record.per_query[measure]
            computed = graded.scores(model, measure, graded.threshold)
            for query, score in zip(self.matrix.queries, computed.tolist(), strict=True):
                recorded_score = recorded.get(query, recorded.get(_whole_id(record, query)))
                if recorded_score is None or abs(recorded_score - score) > _ROUNDING:
                    return False
        return True


def part_of(query: str) -> str:
    """Return the part that an id begins with, such as ``test/en/`` of ``test/en/12``."""
    return "/".join([*query.split("/")[:2], ""])


def _whole_id(record: Result, query: str) -> str:
    return "/".join([*record.task.splits, *record.task.subsets, query])
