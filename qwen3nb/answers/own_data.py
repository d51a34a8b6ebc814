"""Which model should one use on one's own search data? What `qwen3nb domain` has measured.

A collection is one set of queries and documents; several revisions of it have one page. The model
in use is named by the caller, else it is the one that was evaluated first.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from qwen3nb.answers.answer import Answer
from qwen3nb.answers.candidate_rules import CUSTOM_DATA, NothingFoundError
from qwen3nb.answers.candidates import Candidates, compare_candidates
from qwen3nb.answers.explored_task import query_text
from qwen3nb.answers.fusions import fusion_table
from qwen3nb.answers.long_documents import long_documents_table
from qwen3nb.evaluation.judged import JudgedVerdict, load_verdict, only_judged
from qwen3nb.metrics.retrieval import UNJUDGED
from qwen3nb.records.data_used import DataUsed, counted_queries
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results, from_oldest, newest
from qwen3nb.records.store import latest
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, score_text
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.imports import DataFrame

_MOST_UNJUDGED = 20  # documents to judge that a page lists


@dataclass(frozen=True, repr=False)
class OwnData(Answer):
    """Models on one collection of own queries and documents, and which of them to use."""

    name: str  # of the collection
    records: tuple[Result, ...]  # on its newest revision: one per model, that in use first
    candidates: Candidates | None  # the comparison; None if there is nothing to compare
    reason: str = ""  # why nothing is compared, in a sentence
    judged: JudgedVerdict | None = None  # the verdict of `qwen3nb judge`; None without one

    @property
    def conclusion(self) -> Conclusion:
        """Which model to use, in two short sentences; see `reasons_table`."""
        if self.candidates is None:
            text = f"{self._scores_sentence()} {self.reason}".strip()
            return Conclusion(text, data=self._data)
        return Conclusion(self.candidates.decision.brief, data=self._data)

    def _scores_sentence(self) -> str:
        """Say what the models score, without a comparison; empty without records."""
        if not self.records:
            return ""
        scores = [
            f"{record.model.label} has {record.task.main_metric} {score_text(record.main)}"
            for record in self.records
        ]
        sentence = f"{'; '.join(scores)} on {self.name}, n = {self.records[0].main.n}."
        if self.records[0].task.is_generated:
            sentence += f" These are {self.questions}."
        return sentence

    @property
    def questions(self) -> str:
        """How many queries the scores are on, and which of them were generated."""
        record = self.records[0]
        return counted_queries(record, record.main.n)

    @property
    def judged_conclusion(self) -> Conclusion | None:
        """Which model grading alone preferred, marked as such; None without a verdict of it."""
        if self.judged is None:
            return None
        return Conclusion(self.judged.sentence, data=self._data)

    def reasons_table(self) -> Table | None:
        """The reasons of the decision, a sentence a row; None if no model is compared."""
        if self.candidates is None:
            return None
        rows = [[f"{sentence}."] for sentence in self.candidates.decision.sentences]
        return Table.of(rows, ["why"], kind="facts", name="own-reasons", data=self._data)

    def table(self) -> Table | None:
        """The verdict on each candidate; with one model, its scores; None without records."""
        if not self.records:
            return None
        if self.candidates is None:
            return self.scores_table()
        verdicts = self.candidates.table()
        return replace(verdicts, name="own-verdicts", caption=f"Candidates on {self.name}.")

    def figure(self) -> Figure | None:
        """The scores of the models, with brackets that join those which tie; None without any."""
        if self.candidates is None:
            return None
        return self.candidates.figure()

    def to_frame(self) -> DataFrame:
        """The scores of each model by each metric."""
        return Results(self.records).to_frame(all_metrics=True)

    def scores_table(self) -> Table | None:
        """The scores of each model, the model in use first; None without records."""
        if not self.records:
            return None
        # Without duplicates, in the order of the records.
        metrics = dict.fromkeys(name for record in self.records for name in record.metrics)
        rows = []
        for record in self.records:
            row: dict[str, object] = {"model": record.model.label}
            for metric in metrics:
                score = record.metrics.get(metric)
                row[metric] = "" if score is None else number(score)
            rows.append(row)
        return Table.of(
            rows,
            name="own-scores",
            caption=f"Scores on {self.name}.",
            note=f"n = {self.records[0].main.n} queries.{self._threshold_note()}",
            data=self._data,
        )

    def _threshold_note(self) -> str:
        """Say from which grade a document is relevant to metrics without grades; or empty."""
        threshold = self.records[0].data.relevance_threshold
        if threshold is None:
            return ""
        return (
            f" MRR, P and Recall: relevant from grade {threshold:g}; nDCG reads grades as they are."
        )

    def category_table(self) -> Table | None:
        """The differences by category of queries; None without categories."""
        if self.candidates is None:
            return None
        return self._unless_empty(self.candidates.category_table())

    def changes_table(self) -> Table | None:
        """The queries that changed most; None if no model is compared."""
        if self.candidates is None:
            return None
        return self._unless_empty(self.candidates.changes_table())

    def trend_table(self) -> Table | None:
        """The runs of each model over time; None if each ran once."""
        if self.candidates is None:
            return None
        return self._unless_empty(self.candidates.trend_table())

    def fusion_table(self) -> Table | None:
        """The weights of fusions that the grades have chosen; None without such a fusion."""
        table = fusion_table({record.model.label: record for record in self.records})
        if table is None:
            return None
        return replace(table, name="own-fusions", data=self._data)

    def models_table(self) -> Table | None:
        """What each model is and what it costs; None if no model is compared."""
        if self.candidates is None:
            return None
        return self._unless_empty(self.candidates.models_table())

    def unjudged_ranges_table(self) -> Table | None:
        """What grades of unjudged documents could do to the verdicts; None if all is judged."""
        if self.candidates is None:
            return None
        ranges = replace(self.candidates.unjudged_ranges_table(), name="own-unjudged-ranges")
        return self._unless_empty(ranges)

    def long_documents_table(self) -> Table | None:
        """What models did with documents longer than they take; None if all fit."""
        table = long_documents_table(self.records)
        if table is None:
            return None
        return replace(table, data=self._data)

    def unjudged_table(self) -> Table | None:
        """The documents to judge first: found without a judgement; None if all are judged.

        A document that more models rank high comes first.
        """
        documents = unjudged_documents(self.records)
        if not documents:
            return None
        rows = [
            {
                "query": query_text(self.records[0], document.query),
                "document": document.name,
                # The column is sorted by the number of models.
                "found by": Cell(", ".join(document.models), value=len(document.models)),
                "best place": document.place,
            }
            for document in documents[:_MOST_UNJUDGED]
        ]
        queries = {document.query for document in documents}
        note = (
            f"Without a judgement among the first ten: {plural(len(documents), 'document')}, of "
            f"{len(queries)} of {self.records[0].main.n} queries. They count as not relevant."
        )
        return Table.of(
            rows,
            kind="words",
            name="own-unjudged",
            caption="Documents to judge first.",
            note=note,
            data=self._data,
        )

    def _unless_empty(self, table: Table) -> Table | None:
        """Return a table of the comparison with its data; None if it has no rows."""
        if not table.rows:
            return None
        return replace(table, data=self._data)

    @cached_property
    def _data(self) -> DataUsed:
        return DataUsed.of_revisions(
            (record.task.key, record.task.revision) for record in self.records
        )


@dataclass(frozen=True)
class UnjudgedDocument:
    """A document without a judgement among the first ten of a query."""

    query: str  # id
    name: str  # of the document
    models: tuple[str, ...]  # labels of the models that rank it among their first ten
    place: int  # the best of their places; 1 is first


def unjudged_documents(records: Iterable[Result]) -> list[UnjudgedDocument]:
    """Return the documents without a judgement that models rank among their first ten.

    Those that most models rank come first, then those with the best place. Records without
    rankings or judgements have none.
    """
    # By query and document, the place in the ranking of each model.
    places: dict[tuple[str, str], dict[str, int]] = {}
    for record in records:
        for query, judgements in (record.data.judgements or {}).items():
            ranking = (record.top or {}).get(query, [])
            # Only the first ten documents have a grade.
            graded = zip(ranking, judgements["first"], strict=False)
            for place, (document, grade) in enumerate(graded, start=1):
                if grade == UNJUDGED:
                    place_by_model = places.setdefault((query, document), {})
                    place_by_model[record.model.label] = place
    documents = []
    for (query, document), place_by_model in places.items():
        best_place = min(place_by_model.values())
        documents.append(UnjudgedDocument(query, document, tuple(place_by_model), best_place))
    # Those that most models rank come first, then those with the best place.
    return sorted(
        documents, key=lambda found: (-len(found.models), found.place, found.query, found.name)
    )


def collections(results: Iterable[Result]) -> list[str]:
    """Return the names of the collections with records, sorted."""
    return sorted({name for result in results if (name := collection_name(result))})


def page_of(name: str) -> str:
    """Return the name of the page of a collection.

    >>> page_of("notes"), page_of("my notes")
    ('own-data-notes', 'own-data-my-notes-f30ac2')
    """
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    if slug != name:  # two names may have one slug
        slug += f"-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    return f"own-data-{slug}"


def collection_name(result: Result) -> str:
    """Return the name of a record's collection; empty for other data."""
    data = result.task.dataset or ""
    if not data.startswith(CUSTOM_DATA):
        return ""
    return data.removeprefix(CUSTOM_DATA)


def own_data(
    results: Iterable[Result], name: str = "", *, current: str = "", seed: int = 0
) -> OwnData:
    """Return which model to use on a collection of own data; without records, how to begin.

    Args:
        results: records; those of other data are ignored.
        name: the collection; by default the only one.
        current: label of the model in use; by default the one that was evaluated first.
        seed: seed of the resampling.

    Raises:
        ValueError: no such collection, or several and no ``name``; lists those with records. Or
            no record of ``current``.
    """
    measured = _measured(list(results), name, current=current, seed=seed)
    graded = measured.name or name
    if not graded:
        # Without a record, a verdict of grading may be all that there is.
        graded = only_judged()
    return replace(measured, judged=load_verdict(graded))


def _measured(every: Sequence[Result], name: str, *, current: str, seed: int) -> OwnData:
    """Return what records show of a collection; see `own_data`."""
    names = collections(every)
    if not names and not name:
        advice = "No own data yet: `qwen3nb domain` evaluates models on them."
        return OwnData(name="", records=(), candidates=None, reason=advice)
    if not name and len(names) > 1:
        raise ValueError(f"choose one of the collections: {', '.join(names)}")
    name = check_choice("collection", name or names[0], names)
    of_collection = [record for record in every if collection_name(record) == name]
    records = _on_newest_revision(of_collection)
    labels = [record.model.label for record in records]
    current = check_choice("model in use", current or labels[0], labels)
    current_records = [record for record in records if record.model.label == current]
    other_records = [record for record in records if record.model.label != current]
    ordered_records = (*current_records, *other_records)
    if not other_records:
        advice = "Evaluate another model with `qwen3nb domain` to compare the two."
        return OwnData(name, ordered_records, candidates=None, reason=advice)
    task = records[0].task.key
    try:
        compared = compare_candidates(of_collection, current=current, task=task, seed=seed)
    except NothingFoundError as error:
        return OwnData(name, ordered_records, candidates=None, reason=f"No verdict: {error}.")
    return OwnData(name, ordered_records, compared)


def _on_newest_revision(records: Sequence[Result]) -> list[Result]:
    """Return the latest record of each model on the newest revision, the first evaluated first."""
    revision = newest(records).task.revision
    on_revision = [record for record in records if record.task.revision == revision]
    return latest(from_oldest(on_revision))
