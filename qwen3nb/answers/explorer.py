"""How do two models compare, query by query? An interactive plot, and single queries by hand.

Each query is a point; the selected query is shown with its text, its judged documents and the top
documents of both models, and has its own address. The page is self-contained: the book's copy of
plotly draws the points, and nothing is fetched. Without scripts, readers see a table of the
queries, by descending difference.

Documents are included for the queries that differ most; for the others, only scores and text, so
pages with thousands of queries stay small enough for e-mail.
"""

import html
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison import alignment
from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.board.grid import headline_task
from qwen3nb.evaluation.mteb.per_query import DocumentText, SearchTexts
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render import table
from qwen3nb.report.render.differences import difference_text
from qwen3nb.report.render.html import data_attribute, styled, unstyled
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import MOST_MODELS, Cell, Conclusion, Table, cut
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.imports import DataFrame

_LARGE_DIFFERENCE = 0.5  # those above it are counted in the conclusion
_LONGEST = 200  # characters of a query in a list, and of a document
_LONGEST_CAPTION = 300  # characters of a query in a caption
_LONGEST_QUERY = 2000  # characters of the selected query
_SHOWN = 5  # documents of a ranking, and judged documents, with their texts
_MOST_QUERIES = 200  # queries with documents, limited by
_LARGEST_PAGE = 1_500_000  # characters of a page
_MARKUP = "<>&\u2028\u2029"  # characters that a browser may take for markup or the end of a script


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
    recorded = result.data.queries or {}
    if query in recorded:
        return str(recorded[query])
    text = texts.text(query) if texts else ""
    return text or query


@dataclass(frozen=True, eq=False, repr=False)
class Explorer(Answer):
    """Scores of two or more models, the best first, on their shared queries."""

    matrix: ScoreMatrix
    records: Mapping[str, Result]  # by name of the model in the matrix
    texts: SearchTexts | None = None  # texts and judgements; without them, ids are shown
    note: str = ""  # reason for missing texts, and number of models left out

    def __repr__(self) -> str:
        size = f"{len(self.models)} models, {len(self.matrix.queries)} queries"
        return f"<Explorer of {self.matrix.task}: {size}>"

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return DataUsed.of(self.records.values())

    @property
    def models(self) -> list[str]:
        """Names of the models, the best mean first."""
        return list(self.matrix.systems)

    @property
    def conclusion(self) -> Conclusion:
        """On how many queries the two best models differ much, and who wins them."""
        best, next_best = self.models[:2]
        differences = self.matrix.column(best) - self.matrix.column(next_best)
        wins = int(np.sum(differences > _LARGE_DIFFERENCE))
        losses = int(np.sum(differences < -_LARGE_DIFFERENCE))
        largest = np.max(np.abs(differences))
        (mean_difference,) = paired_differences(self.matrix, pairs=[(best, next_best)], seed=0)
        task = table.short_task(self.matrix.task)
        return Conclusion(
            f"On {wins + losses} of {mean_difference.n} queries of {task} the two best models "
            f"differ by more than {_LARGE_DIFFERENCE:g} in {self.matrix.metric}: {best} wins "
            f"{wins} of them and {next_best} {losses}. The largest difference is {largest:.3f}, "
            f"the mean over all {mean_difference.n} "
            f"{difference_text(mean_difference, p_value=False)}.",
            data=self.data,
        )

    def table(self) -> Table:
        """The query on which the two best models differ most."""
        return self.query()

    def plot(self) -> "ExplorerPlot":
        """The interactive plot: a point per query, whose documents are shown when it is chosen."""
        return ExplorerPlot(self)

    def text(self, query: str) -> str:
        """Return a query's text, from the record or the data, or its id without either."""
        record = next(iter(self.records.values()))
        return query_text(record, query, self.texts)

    def to_frame(self, *, first: str = "", second: str = "") -> DataFrame:
        """Return a row per query: text, both scores and their difference, the largest first.

        By default for the two best models.

        Raises:
            ValueError: an unknown model; lists the known ones.
        """
        import pandas as pd

        first, second = self._pair(first, second)
        columns = {
            "text": [cut(self.text(query), _LONGEST) for query in self.matrix.queries],
            first: self.matrix.column(first),
            second: self.matrix.column(second),
        }
        frame = pd.DataFrame(columns, index=pd.Index(self.matrix.queries, name="query"))
        frame["difference"] = frame[first] - frame[second]
        # By size, gains and losses alike.
        return frame.sort_values("difference", key=lambda column: -column.abs(), kind="stable")

    def query(self, query: str = "", *, first: str = "", second: str = "") -> Table:
        """Return a table of one query: its judged documents, and the top documents of two models.

        By default, the query on which the two best models differ most.

        Raises:
            ValueError: an unknown query or model.
        """
        models = self._pair(first, second)
        query = self._find_query(query, models)
        row = self.matrix.queries.index(query)
        scores = [f"{model} {self.matrix.column(model)[row]:.3f}" for model in models]
        text = cut(self.text(query), _LONGEST_CAPTION)
        return Table.of(
            self._document_rows(query, models),
            ("document", "grade", *(f"rank\n{model}" for model in models)),
            note=self.note,
            empty=self.note or "No document is judged, and these records keep no rankings.",
            kind="words",
            name="explorer-query",
            caption=f"Query {query}, “{text}”: its judged documents and the first five of each "
            f"model, by {self.matrix.metric} {' and '.join(scores)}.",
        )

    def _document_rows(self, query: str, models: Sequence[str]) -> list[list[object]]:
        """Return title, grade and ranks of the judged and the top documents of a query."""
        grades = self.texts.grades(query) if self.texts else {}
        rankings = {model: top_documents(self.records[model], query) for model in models}
        best_judged = _best_judged(grades)[:_SHOWN]
        documents = list(dict.fromkeys([*best_judged, *_first_ranked(rankings)]))
        texts: Mapping[str, DocumentText] = {}
        if self.texts:
            texts = self.texts.documents({query: documents})[query]
        rows = []
        for document in documents:
            text = texts.get(document, DocumentText("", ""))
            title = (text.title or document, cut(text.text, _LONGEST))
            grade = table.number(grades.get(document), "d", absent="not judged")
            ranks = [_rank_cell(document, ranking) for ranking in rankings.values()]
            rows.append([title, grade, *ranks])
        return rows

    def _find_query(self, query: str, models: tuple[str, str]) -> str:
        """Return a query, by default the one on which two models differ most."""
        model, other_model = models
        differences = self.matrix.column(model) - self.matrix.column(other_model)
        most_different = self.matrix.queries[int(np.argmax(np.abs(differences)))]
        if not query:
            return most_different
        if query not in self.matrix.queries:
            raise ValueError(
                f"unknown query {query!r} of {self.matrix.task}; to_frame() lists all "
                f"{len(self.matrix.queries)}, such as {most_different!r}"
            )
        return query

    def _pair(self, first: str, second: str) -> tuple[str, str]:
        """Return two models: those that are given, else the best of the others."""
        for name in (first, second):
            if name:
                check_choice("model", name, self.models)
        other_models = [name for name in self.models if name not in (first, second)]
        return first or other_models.pop(0), second or other_models.pop(0)

    def _repr_html_(self) -> str:
        views = (self.conclusion, self.plot(), self.table())
        return styled("\n".join(unstyled(view._repr_html_()) for view in views))


@dataclass(frozen=True)
class NoExplorer(Answer):
    """The reason why there is no explorer, shown instead."""

    why: str

    @property
    def conclusion(self) -> Conclusion:
        """The reason."""
        return Conclusion(self.why)

    def table(self) -> Table:
        """An empty table that gives the reason."""
        return self.query()

    def plot(self) -> Conclusion:
        """The reason."""
        return self.conclusion

    def query(self, query: str = "", *, first: str = "", second: str = "") -> Table:
        """Return an empty table that gives the reason."""
        return Table(("document",), (), self.why)

    def to_frame(self, *, first: str = "", second: str = "") -> DataFrame:
        """Return an empty data frame."""
        import pandas as pd

        return pd.DataFrame({"text": [], "difference": []})


@dataclass(frozen=True)
class ExplorerPlot:
    """The interactive plot of an explorer, as HTML with its data; the book has the script."""

    explorer: Explorer

    def _repr_html_(self) -> str:
        models = self.explorer.models
        controls = _model_choice("x", models, models[0]) + _model_choice("y", models, models[1])
        matrix = self.explorer.matrix
        alt = (
            f"A point per query of {table.short_task(matrix.task)}: {matrix.metric} of one model "
            f"on the x-axis, another on the y-axis; {len(matrix.queries)} queries."
        )
        parts = [
            _note(self.explorer.data.text),
            f'<div class="q-controls">{controls}</div>',
            f'<div class="q-plot" role="img" aria-label="{html.escape(alt, quote=True)}"></div>',
            '<div class="q-picked"><p class="q-note">The points are drawn in the book, by a '
            "script; the tables below need none.</p></div>",
            _note(self.explorer.note),
            f'<script type="application/json">{self._json()}</script>',
        ]
        attribute = data_attribute(self.explorer.data)
        return f'<div class="q-explorer"{attribute}>{"".join(parts)}</div>'

    def _json(self) -> str:
        """Return the data for the page's script, as text that a script element may have."""
        text = json.dumps(self._data(), allow_nan=False, separators=(",", ":"))
        for char in _MARKUP:
            text = text.replace(char, f"\\u{ord(char):04x}")
        return text

    def _data(self) -> dict[str, object]:
        explorer = self.explorer
        matrix, models = explorer.matrix, explorer.models
        scores = {}
        for model in models:
            # Five digits, for a smaller page.
            scores[model] = [round(float(score), 5) for score in matrix.column(model)]
        details = query_details(
            different_queries(matrix, models, most=_MOST_QUERIES),
            {model: explorer.records[model] for model in models},
            explorer.texts,
        )
        return {
            "metric": matrix.metric,
            "models": models,
            "colors": model_colors(models),
            "ids": list(matrix.queries),
            "texts": [cut(explorer.text(query), _LONGEST) for query in matrix.queries],
            "scores": scores,
            "details": details,
        }


def _model_choice(axis: str, models: Sequence[str], selected_model: str) -> str:
    """Return the list from which a reader chooses the model of an axis, as HTML."""
    options = ""
    for model in models:
        attribute = " selected" if model == selected_model else ""
        options += f"<option{attribute}>{html.escape(model)}</option>"
    return f'<label>{axis}-axis <select data-axis="{axis}">{options}</select></label>'


def _note(text: str) -> str:
    if not text:
        return ""
    return f'<p class="q-note">{html.escape(text)}</p>'


def _rank_cell(document: str, ranking: Sequence[str]) -> Cell:
    if document in ranking:
        return table.number(ranking.index(document) + 1, "d")
    if ranking:
        return Cell(f"after {len(ranking)}")
    return Cell("not kept")


def _best_judged(grades: Mapping[str, int]) -> list[str]:
    """Return the judged documents, the highest grade first."""
    return sorted(grades, key=lambda document: (-grades[document], document))


def different_queries(matrix: ScoreMatrix, models: Sequence[str], *, most: int) -> list[str]:
    """Return the queries on which models differ most, from every pair in turn."""
    rows_by_pair = []
    for model, other_model in itertools.combinations(models, 2):
        differences = np.abs(matrix.column(model) - matrix.column(other_model))
        rows_by_pair.append(np.argsort(-differences, kind="stable")[:most].tolist())
    # First the largest difference of each pair, then the second largest of each.
    rows: dict[int, None] = {}
    for rows_of_rank in zip(*rows_by_pair, strict=True):
        rows |= dict.fromkeys(rows_of_rank)
    return [matrix.queries[row] for row in itertools.islice(rows, most)]


def query_details(
    queries: Sequence[str], records: Mapping[str, Result], texts: SearchTexts | None
) -> dict[str, object]:
    """Return rankings, judgements and documents of each query for a page.

    The most important queries come first; those that exceed the size of a page are left out.
    """
    details = {}
    names_of_documents = {}
    for query in queries:
        rankings = {model: top_documents(record, query) for model, record in records.items()}
        grades: Mapping[str, int] = {}
        text = ""
        if texts:
            grades = texts.grades(query)
            text = texts.text(query)[:_LONGEST_QUERY]
        details[query] = _query_detail(text, rankings, grades)
        documents_with_text = [*_first_ranked(rankings), *_best_judged(grades)[:_SHOWN]]
        # Each document once, in this order.
        names_of_documents[query] = dict.fromkeys(documents_with_text)
    documents: Mapping[str, Mapping[str, DocumentText]] = {}
    if texts:
        documents = texts.documents(names_of_documents)
    return _what_fits_on_a_page(details, documents)


def _what_fits_on_a_page(
    details: Mapping[str, dict[str, object]],
    documents: Mapping[str, Mapping[str, DocumentText]],
) -> dict[str, object]:
    """Return the first queries with their documents, each document once."""
    details_on_page: dict[str, object] = {}
    documents_on_page: dict[str, list[str]] = {}
    size = 0
    for query, detail in details.items():
        new_documents = {}
        for name, document in documents.get(query, {}).items():
            if name not in documents_on_page:
                new_documents[name] = [cut(document.title, _LONGEST), cut(document.text, _LONGEST)]
        size += len(json.dumps([query, detail, new_documents]))
        if size > _LARGEST_PAGE:
            break
        details_on_page[query] = detail
        documents_on_page |= new_documents
    return {"queries": details_on_page, "documents": documents_on_page}


def _first_ranked(rankings: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the first documents of each ranking, those of several more than once."""
    documents: list[str] = []
    for ranking in rankings.values():
        documents += ranking[:_SHOWN]
    return documents


def _query_detail(
    text: str, rankings: Mapping[str, Sequence[str]], grades: Mapping[str, int]
) -> dict[str, object]:
    best_judged = _best_judged(grades)[:_SHOWN]
    documents = {*best_judged, *itertools.chain(*rankings.values())}
    return {
        "text": text,
        "top": {model: ranking for model, ranking in rankings.items() if ranking},
        "judged": best_judged,
        "count": len(grades),
        "relevant": sum(grade > 0 for grade in grades.values()),
        "grades": {name: grade for name, grade in grades.items() if name in documents},
    }


def explore(
    results: Iterable[Result],
    *,
    task: str = "",
    tier: str = "",
    metric: str = "nDCG@10",
    models: str | Sequence[str] = (),
    texts: SearchTexts | None = None,
) -> Explorer | NoExplorer:
    """Return the explorer of a task, or the reason why there is none.

    Without a ``task``, it is the one of the ``tier`` that most models have, by default of the
    richest tier with records. The metric is per query, and between 0 and 1. ``models`` names two or
    more, also in a comma-separated string; by default all, or the best of many. Texts and
    judgements are by default those of the task, if its data are available locally; otherwise, ids
    are shown with the reason.

    Raises:
        ValueError: a task that no record has, an unknown model, or only one; lists the known ones.
    """
    all_records = latest(results)
    if task and all_records:
        check_choice("task", task, sorted({record.task.key for record in all_records}))
    if not task:
        task = headline_task(all_records, tier=tier or richest_tier(all_records))
    on_task = [record for record in all_records if record.task.key == task]
    matrices, reasons = alignment.pair_results(on_task, metric=metric, tasks=[task])
    if not matrices:
        reason = "; ".join(reasons) or "there is none"
        return NoExplorer(f"Two models with {metric} on {task} are needed: {reason}.")
    all_models = _best_first(matrices[0])
    names = split_names(models) if isinstance(models, str) else models
    offered_models = _offered_models(all_models.systems, names)
    matrix = _rows_of(all_models, offered_models)
    by_name = _records_by_name(on_task, matrix.task)
    records = {name: by_name[name] for name in offered_models}
    notes = []
    record = records[offered_models[0]]
    if texts is None and not record.data.queries:
        try:
            texts = SearchTexts.of_task(record.task)
        except (ValueError, OSError) as error:
            notes.append(f"Query texts are not available: {cut(str(error), 200)}")
    hidden_models = len(all_models.systems) - len(offered_models)
    if hidden_models:
        count = table.plural(hidden_models, "model")
        notes.append(f"{count} not shown: -p models A,B chooses.")
    return Explorer(matrix, records, texts, " ".join(notes))


def _offered_models(all_models: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the models that are named, else the best; the best first."""
    for name in names:
        check_choice("model", name, all_models)
    offered_models = list(all_models)
    if names:
        offered_models = [model for model in all_models if model in names]
    if len(offered_models) < 2:
        others = ", ".join(name for name in all_models if name not in offered_models)
        raise ValueError(
            f"expected two or more models; got {offered_models[0]!r} alone; add one of: {others}"
        )
    return offered_models[:MOST_MODELS]


def _best_first(matrix: ScoreMatrix) -> ScoreMatrix:
    """Return the scores with the models in the order of their means."""
    order = np.argsort(-matrix.scores.mean(axis=1), kind="stable")
    return _rows_of(matrix, [matrix.systems[row] for row in order])


def _rows_of(matrix: ScoreMatrix, models: Sequence[str]) -> ScoreMatrix:
    rows = [matrix.systems.index(model) for model in models]
    return replace(matrix, systems=tuple(models), scores=matrix.scores[rows])


def _records_by_name(results: Iterable[Result], task: str) -> dict[str, Result]:
    """Return the newest records of a task, or of a part of one, by name of the model."""
    records = alignment.by_part(alignment.newest_records(results)[0])
    names = alignment.system_names(records)
    return {
        names[record.model.identity, record.seed]: record
        for record in records
        if record.task.key == task
    }
