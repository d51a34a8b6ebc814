"""How do two models compare, query by query? An interactive plot, and single queries by hand.

Each query is a point; the selected query is shown with its text, its judged documents and the top
documents of both models. A reader picks models, categories, languages and lengths, and the page
tests the queries that are left (`qwen3nb.answers.explorer_page`). `Explorer.only` and
`Explorer.difference` do the same in Python.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison import alignment
from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    PairedDifference,
    corrected,
    family_words,
    paired_differences,
)
from qwen3nb.analysis.comparison.query_groups import thirds
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.board.grid import headline_task
from qwen3nb.answers.doubts import judged_share
from qwen3nb.answers.explored_task import ExploredTask, top_documents
from qwen3nb.answers.explorer_page import SEED, SHOWN, ExplorerPage, best_judged, first_ranked
from qwen3nb.evaluation.mteb.per_query import DocumentText, SearchTexts
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render import table
from qwen3nb.report.render.differences import difference_cells, difference_text
from qwen3nb.report.render.html import styled, unstyled
from qwen3nb.report.render.table import MOST_MODELS, Cell, Conclusion, Table, cut
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.imports import DataFrame

_LARGE_DIFFERENCE = 0.5  # those above it are counted in the conclusion
_LONGEST = 200  # characters of a query in a list, and of a document
_LONGEST_CAPTION = 300  # characters of a query in a caption
_MOST_TASKS = 8  # that a page offers
_LENGTHS = ("short", "medium", "long")  # thirds of the queries


@dataclass(frozen=True, eq=False, repr=False)
class Explorer(ExploredTask, Answer):
    """Scores of two or more models, the best first, on their shared queries."""

    others: tuple[ExploredTask, ...] = ()  # more tasks that the interactive page offers

    def __repr__(self) -> str:
        size = f"{len(self.models)} models, {len(self.matrix.queries)} queries"
        return f"<Explorer of {self.matrix.task}: {size}>"

    @property
    def conclusion(self) -> Conclusion:
        """On how many queries the two best models differ much, and who wins them."""
        best, next_best = self.models[:2]
        differences = self.matrix.column(best) - self.matrix.column(next_best)
        wins = int(np.sum(differences > _LARGE_DIFFERENCE))
        losses = int(np.sum(differences < -_LARGE_DIFFERENCE))
        (mean_difference,) = paired_differences(self.matrix, pairs=[(best, next_best)], seed=0)
        winners = ""
        if wins or losses:
            winners = f" {best} wins {wins} of them, {next_best} {losses}."
        return Conclusion(
            f"The two best models are more than {_LARGE_DIFFERENCE:g} apart in "
            f"{self.matrix.metric} on {wins + losses} of {mean_difference.n} queries of "
            f"{table.short_task(self.matrix.task)}.{winners} "
            f"Over all {mean_difference.n}, {best} is "
            f"{difference_text(mean_difference, p_value=False)} ahead.",
            data=self.data,
        )

    def table(self) -> Table:
        """The query on which the two best models differ most."""
        return self.query()

    def plot(self) -> ExplorerPage:
        """The interactive page: a point per query, whose documents are shown when it is chosen."""
        return ExplorerPage((self, *self.others))

    def only(
        self,
        *,
        category: str = "",
        language: str = "",
        words: tuple[int, int] | None = None,
    ) -> "Explorer":
        """Return the explorer of some of the queries.

        ``words`` are the smallest and the largest number of words of a query.

        Raises:
            ValueError: an unknown category or language, or no query is left.
        """
        if category:
            check_choice("category", category, sorted(set(self.categories)))
        if language:
            check_choice("language", language, sorted(set(self.languages)))
        rows = []
        for row in range(len(self.matrix.queries)):
            is_wanted = not category or self.categories[row] == category
            is_wanted &= not language or self.languages[row] == language
            if words is not None:
                is_wanted &= _is_between(self.words[row], words)
            if is_wanted:
                rows.append(row)
        if not rows:
            raise ValueError("no query has this category, language and length")
        return replace(self, matrix=self.matrix.at(rows), others=())

    def with_threshold(self, threshold: int, *, metric: str = "MRR@10") -> "Explorer":
        """Return the explorer with a binary measure, computed again with another threshold.

        Queries without a relevant document at this threshold are left out.

        Raises:
            ValueError: the records have no grades, or too few documents, for the measure.
        """
        graded = self.graded_rankings
        if isinstance(graded, str):
            raise ValueError(graded)
        check_choice("metric", metric, graded.measures)
        scores = np.array([graded.scores(model, metric, threshold) for model in self.models])
        rows = np.flatnonzero(np.isfinite(scores).all(axis=0)).tolist()
        if not rows:
            raise ValueError(f"no query has a document with a grade of {threshold} or above")
        matrix = replace(self.matrix, metric=metric, scores=scores)
        return replace(self, matrix=matrix.at(rows), others=())

    def difference(self, *, first: str = "", second: str = "") -> PairedDifference:
        """Return the tested mean difference of two models, by default of the two best."""
        pair = self._pair(first, second)
        (difference,) = paired_differences(self.matrix, pairs=[pair], seed=SEED)
        return difference

    def subset_table(self, *, first: str = "", second: str = "") -> Table:
        """Return a table of the difference in every category, language and third of lengths.

        P-values are corrected over all of its rows, by Holm's method.
        """
        first, second = self._pair(first, second)
        subsets = self._subsets()
        differences = corrected(
            [part.difference(first=first, second=second) for part in subsets.values()]
        )
        rows = []
        for name, difference in zip(subsets, differences, strict=True):
            cells = difference_cells(difference, alpha=ALPHA)
            rows.append([name, difference.n, *difference.means, *cells])
        return Table.of(
            rows,
            ("queries", "number", first, second, "Δ\n95 % interval", "p\ncorrected"),
            note=f"{self.matrix.metric}; {family_words(differences)}.",
            empty="These queries have no categories, languages or texts.",
            name="explorer-subsets",
            caption=f"{first} minus {second} by kind of query.",
            data=self.data,
        )

    def _subsets(self) -> dict[str, "Explorer"]:
        """Return the categories, languages and thirds of lengths, by name."""
        subsets = {}
        for category in _several(self.categories):
            subsets[category] = self.only(category=category)
        for language in _several(self.languages):
            subsets[language] = self.only(language=language)
        lengths = sorted(length for length in self.words if length is not None)
        for name, ends in zip(_LENGTHS, thirds(lengths), strict=False):
            smallest, largest = ends
            numbers = f"{smallest} to {largest}"
            if smallest == largest:
                numbers = str(smallest)
            subsets[f"{name}, {numbers} words"] = self.only(words=ends)
        return subsets

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

    def largest_table(self, most: int = 12, *, first: str = "", second: str = "") -> Table:
        """Return the queries on which two models, by default the best, differ most."""
        frame = self.to_frame(first=first, second=second).head(most)
        first, second, difference = frame.columns[1:]
        rows = []
        for query, row in frame.iterrows():
            scores = [table.number(row[model]) for model in (first, second)]
            text = (row["text"], str(query))
            rows.append([text, *scores, table.number(row[difference], "+.3f")])
        return Table.of(
            rows,
            ("query", first, second, "Δ"),
            note=f"{self.matrix.metric}; Δ is {first} minus {second}.",
            kind="words",
            name="explorer-largest",
            caption="Queries with the largest differences.",
            data=self.data,
        )

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
        grades = self.grades(query)
        rankings = {model: top_documents(self.records[model], query) for model in models}
        judged = best_judged(grades)[:SHOWN]
        documents = list(dict.fromkeys([*judged, *first_ranked(rankings.values())]))
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

    def subset_table(self, *, first: str = "", second: str = "") -> Table:
        """Return an empty table that gives the reason."""
        return self.query()

    def largest_table(self, most: int = 12, *, first: str = "", second: str = "") -> Table:
        """Return an empty table that gives the reason."""
        return self.query()

    def query(self, query: str = "", *, first: str = "", second: str = "") -> Table:
        """Return an empty table that gives the reason."""
        return Table(("document",), (), self.why)

    def to_frame(self, *, first: str = "", second: str = "") -> DataFrame:
        """Return an empty data frame."""
        import pandas as pd

        return pd.DataFrame({"text": [], "difference": []})


def _is_between(value: int | None, ends: tuple[int, int]) -> bool:
    smallest, largest = ends
    return value is not None and smallest <= value <= largest


def _several(names: Sequence[str]) -> list[str]:
    """Return the different names, sorted; none if there is a single one."""
    different = sorted(set(names))
    if len(different) < 2:
        return []
    return different


def _rank_cell(document: str, ranking: Sequence[str]) -> Cell:
    if document in ranking:
        return table.number(ranking.index(document) + 1, "d")
    if ranking:
        return Cell(f"after {len(ranking)}")
    return Cell("not kept")


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
    richest tier with records; without one, any that most models have. Its page offers other tasks
    too. The metric is per query, and between 0 and 1. ``models`` names two or more, also in a
    comma-separated string; by default all, or the best of many. Texts and judgements are by default
    those of the task, if its data are available locally; otherwise, ids are shown with the reason.

    Raises:
        ValueError: a task that no record has, an unknown model, or only one; lists the known ones.
    """
    all_records = latest(results)
    if task and all_records:
        check_choice("task", task, sorted({record.task.key for record in all_records}))
    names = split_names(models) if isinstance(models, str) else models
    if task:
        return _explore_task(all_records, task, metric=metric, names=names, texts=texts)
    task = headline_task(all_records, tier=tier or richest_tier(all_records))
    answer = _explore_task(all_records, task, metric=metric, names=names, texts=texts)
    if names:
        return answer
    explorers = []
    if isinstance(answer, Explorer):
        explorers.append(answer)
    for other_task in _other_tasks(all_records, task, metric)[: _MOST_TASKS - 1]:
        other = _explore_task(all_records, other_task, metric=metric, texts=texts)
        if isinstance(other, Explorer):
            explorers.append(other)
    if not explorers:
        return answer
    # Such as the largest collection of own data, in a study without a tier's tasks.
    first, *others = explorers
    return replace(first, others=tuple(others))


def _other_tasks(records: Iterable[Result], task: str, metric: str) -> list[str]:
    """Return the other tasks with a metric, those of most models first."""
    models: dict[str, set[str]] = {}
    for record in records:
        if metric in record.per_query:
            models.setdefault(record.task.key, set()).add(record.model.identity)
    models.pop(task, None)
    return sorted(models, key=lambda name: (-len(models[name]), name))


def _explore_task(
    all_records: Sequence[Result],
    task: str,
    *,
    metric: str,
    names: Sequence[str] = (),
    texts: SearchTexts | None = None,
) -> Explorer | NoExplorer:
    """Return the explorer of one task, or the reason why there is none."""
    on_task = [record for record in all_records if record.task.key == task]
    matrices, reasons = alignment.pair_results(on_task, metric=metric, tasks=[task])
    if not matrices:
        reason = "; ".join(reasons) or "there is none"
        return NoExplorer(f"Two models with {metric} on {task} are needed: {reason}.")
    by_name = _records_by_name(on_task)
    all_models = _best_first(_joined_parts(matrices, task, by_name))
    offered_models = _offered_models(all_models.systems, names)
    matrix = _rows_of(all_models, offered_models)
    records = {name: by_name[name] for name in offered_models}
    notes = []
    record = records[offered_models[0]]
    if texts is None and not record.data.queries:
        try:
            texts = SearchTexts.of_task(record.task)
        except (ValueError, OSError) as error:
            notes.append(f"Query texts are not available: {cut(str(error), 200)}")
    notes += _unjudged_notes(records)
    hidden_models = len(all_models.systems) - len(offered_models)
    if hidden_models:
        count = table.plural(hidden_models, "model")
        notes.append(f"{count} not shown: -p models A,B chooses.")
    return Explorer(matrix, records, texts, " ".join(notes))


def _unjudged_notes(records: Mapping[str, Result]) -> list[str]:
    """Say for which model fewest of the first documents are judged, unless all are."""
    shares = {model: judged_share(record) for model, record in records.items()}
    incomplete = {model: share for model, share in shares.items() if share is not None}
    if not incomplete or min(incomplete.values()) == 1:
        return []
    model = min(incomplete, key=incomplete.__getitem__)
    return [
        f"Of the first ten documents of {model}, {100 * incomplete[model]:.0f} % are judged. "
        "The others count as not relevant."
    ]


def _joined_parts(
    matrices: Sequence[ScoreMatrix], task: str, records: Mapping[str, Result]
) -> ScoreMatrix:
    """Return the scores on all parts of a task, by the ids that its records have.

    Only the first part, if no two models have all of them.
    """
    has_parts = any(record.parts for record in records.values())
    if not has_parts:
        return matrices[0]
    systems = _in_all(matrices)
    if len(systems) < 2:
        matrices = matrices[:1]
        systems = _in_all(matrices)
    prefixes = _prefixes_of_parts(records.values())
    queries: list[str] = []
    clusters: list[str] = []
    for matrix in matrices:
        prefix = prefixes[matrix.task]
        queries += [prefix + query for query in matrix.queries]
        clusters += [prefix + cluster for cluster in matrix.clusters]
    if len(clusters) < len(queries):  # of one part, they are not known
        clusters = []
    return ScoreMatrix(
        task=task,
        metric=matrices[0].metric,
        systems=tuple(systems),
        queries=tuple(queries),
        scores=np.hstack([matrix.scores_of(systems) for matrix in matrices]),
        unpaired={},
        clusters=tuple(clusters),
    )


def _in_all(matrices: Sequence[ScoreMatrix]) -> list[str]:
    """Return the models that all matrices have."""
    systems = list(matrices[0].systems)
    for matrix in matrices[1:]:
        systems = [system for system in systems if system in matrix.systems]
    return systems


def _prefixes_of_parts(records: Iterable[Result]) -> dict[str, str]:
    """Return what the ids of queries begin with, by key of the part."""
    prefixes = {}
    for part in alignment.by_part(records):
        prefixes[part.task.key] = "/".join([*part.task.splits, *part.task.subsets, ""])
    return prefixes


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


def _records_by_name(results: Iterable[Result]) -> dict[str, Result]:
    """Return the newest records of a task by name of the model."""
    records = alignment.newest_records(results)[0]
    names = alignment.system_names(records)
    return {names[record.model.identity, record.seed]: record for record in records}
