"""An interactive plot that compares two models query by query.

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
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison import alignment
from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.evaluation.mteb.per_query import DocumentText, SearchTexts
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.comparison.compare import difference_text
from qwen3nb.report.render import table
from qwen3nb.report.render.html import data_attribute
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import MOST_MODELS, Cell, Conclusion, Table
from qwen3nb.utils.choices import one_of, split_names
from qwen3nb.utils.imports import DataFrame

_FAR = 0.5  # differences counted in the conclusion
_LONGEST = 200  # characters of a query in a list, and of a document
_LONGEST_QUERY = 2000  # characters of the selected query
_SHOWN = 5  # documents of a ranking, and judged documents, with their texts
_MOST_QUERIES = 200  # queries with documents, limited by
_SIZE = 1_500_000  # characters of a page


def top_documents(result: Result, query: str) -> list[str]:
    """Return the ids of a query's top documents; empty if the record does not keep them."""
    kept = result.config.get("top")
    if not isinstance(kept, Mapping):
        return []
    task = result.task
    whole = "/".join([*task.splits, *task.subsets, query])  # the id in a record of all parts
    return [str(each) for each in kept.get(query) or kept.get(whole) or ()]


def query_text(result: Result, query: str, texts: SearchTexts | None = None) -> str:
    """Return a query's text, from the record or from ``texts``; its id if neither has it."""
    kept = result.config.get("queries")
    if isinstance(kept, dict) and query in kept:
        return str(kept[query])
    return (texts and texts.text(query)) or query


@dataclass(frozen=True, eq=False, repr=False)
class Explorer:
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

    def text(self, query: str) -> str:
        """Return a query's text, from the record or the data, or its id without either."""
        return query_text(next(iter(self.records.values())), query, self.texts)

    def to_frame(self, *, first: str = "", second: str = "") -> DataFrame:
        """Return a row per query: text, both scores and their difference, the largest first.

        By default for the two best models.

        Raises:
            ValueError: an unknown model; lists the known ones.
        """
        import pandas as pd

        models = self._pair(first, second)
        columns = {name: self.matrix.column(name) for name in models}
        frame = pd.DataFrame(columns, index=pd.Index(self.matrix.queries, name="query"))
        frame.insert(0, "text", [table.cut(self.text(query), _LONGEST) for query in frame.index])
        frame["difference"] = columns[models[0]] - columns[models[1]]
        return frame.sort_values("difference", key=lambda d: -d.abs(), kind="stable")

    def query(self, query: str = "", *, first: str = "", second: str = "") -> Table:
        """Return a table of one query: its judged documents, and the top documents of two models.

        By default, the query on which the two best models differ most.

        Raises:
            ValueError: an unknown query or model.
        """
        models = self._pair(first, second)
        scores = [self.matrix.column(name) for name in models]
        largest = self.matrix.queries[int(np.argmax(np.abs(scores[0] - scores[1])))]
        query = query or largest
        if query not in self.matrix.queries:
            raise ValueError(
                f"unknown query {query!r} of {self.matrix.task}; to_frame() lists all "
                f"{len(self.matrix.queries)}, such as {largest!r}"
            )
        at = self.matrix.queries.index(query)
        values = " and ".join(f"{n} {s[at]:.3f}" for n, s in zip(models, scores, strict=True))
        grades = self.texts.grades(query) if self.texts else {}
        tops = [top_documents(self.records[name], query) for name in models]
        shown = dict.fromkeys([*_best(grades)[:_SHOWN], *tops[0][:_SHOWN], *tops[1][:_SHOWN]])
        read = self.texts.documents({query: list(shown)})[query] if self.texts else {}
        rows = []
        for name in shown:
            row = read.get(name, DocumentText("", ""))
            grade = table.number(grades.get(name), "d", absent="not judged")
            ranks = (_rank(name, top) for top in tops)
            rows.append(((row.title or name, table.cut(row.text, _LONGEST)), grade, *ranks))
        return Table.of(
            rows,
            ("document", "grade", *(f"rank\n{name}" for name in models)),
            note=self.note,
            empty=self.note or "No document is judged, and these records keep no rankings.",
            kind="words",
            name="explorer-query",
            caption=f"Query {query}, “{table.cut(self.text(query), 300)}”: its judged documents "
            f"and the first five of each model, by {self.matrix.metric} {values}.",
        )

    def _pair(self, first: str, second: str) -> tuple[str, str]:
        given = [one_of("model", name, self.models) for name in (first, second) if name]
        rest = (name for name in self.models if name not in given)
        return first or next(rest), second or next(rest)

    def _data(self) -> dict[str, Any]:
        """Return the data for the page's script."""
        models, queries = self.models, self.matrix.queries
        return {
            "metric": self.matrix.metric,
            "models": models,
            "colors": model_colors(models),
            "ids": list(queries),
            "texts": [table.cut(self.text(query), _LONGEST) for query in queries],
            "scores": {
                name: [round(float(v), 5) for v in self.matrix.column(name)] for name in models
            },
            "details": query_details(
                different_queries(self.matrix, models, most=_MOST_QUERIES),
                {name: self.records[name] for name in models},
                self.texts,
            ),
        }

    def _repr_html_(self) -> str:
        data = json.dumps(self._data(), allow_nan=False, separators=(",", ":"))
        for sign in "<>&\u2028\u2029":  # not parsed as markup or as the end of the script
            data = data.replace(sign, f"\\u{ord(sign):04x}")
        boxes = "".join(
            f'<label>{axis}-axis <select data-axis="{axis}">'
            + "".join(
                f"<option{' selected' if i == selected else ''}>{html.escape(name)}</option>"
                for i, name in enumerate(self.models)
            )
            + "</select></label>"
            for selected, axis in enumerate("xy")
        )
        alt = (
            f"A point per query of {table.short_task(self.matrix.task)}: {self.matrix.metric} of "
            "one model on the x-axis, another on the y-axis; "
            f"{len(self.matrix.queries)} queries."
        )
        return (
            f'<div class="q-explorer"{data_attribute(self.data)}>{_note(self.data.text)}'
            f'<div class="q-controls">{boxes}</div>'
            f'<div class="q-plot" role="img" aria-label="{html.escape(alt, quote=True)}"></div>'
            '<div class="q-picked"><p class="q-note">The points are drawn in the book, by a '
            f"script; the tables below need none.</p></div>{_note(self.note)}"
            f'<script type="application/json">{data}</script></div>'
        )


@dataclass(frozen=True)
class NoExplorer:
    """The reason why there is no explorer, shown instead."""

    why: str

    def query(self, query: str = "", *, first: str = "", second: str = "") -> Table:
        """Return an empty table that gives the reason."""
        return Table(("document",), (), self.why)

    def to_frame(self, *, first: str = "", second: str = "") -> DataFrame:
        """Return an empty data frame."""
        import pandas as pd

        return pd.DataFrame({"text": [], "difference": []})

    def _repr_html_(self) -> str:
        return _note(self.why)


def _note(text: str) -> str:
    return f'<p class="q-note">{html.escape(text)}</p>' if text else ""


def _rank(document: str, top: Sequence[str]) -> Cell:
    if document in top:
        return table.number(top.index(document) + 1, "d")
    return Cell(f"after {len(top)}" if top else "not kept")


def _best(grades: Mapping[str, int]) -> list[str]:
    """Return the judged documents, the highest grade first."""
    return sorted(grades, key=lambda document: (-grades[document], document))


def different_queries(matrix: ScoreMatrix, models: Sequence[str], *, most: int) -> list[str]:
    """Return the queries on which models differ most, from every pair in turn."""
    orders = [
        np.argsort(-np.abs(matrix.column(a) - matrix.column(b)), kind="stable")[:most].tolist()
        for a, b in itertools.combinations(models, 2)
    ]
    in_turn = dict.fromkeys(itertools.chain.from_iterable(zip(*orders, strict=True)))
    return [matrix.queries[index] for index in itertools.islice(in_turn, most)]


def query_details(
    queries: Sequence[str], records: Mapping[str, Result], texts: SearchTexts | None
) -> dict[str, Any]:
    """Return rankings, judgements and documents of each query for a page.

    The most important queries come first; those that exceed the size of a page are left out.
    """
    details, named = {}, {}
    for query in queries:
        grades = texts.grades(query) if texts else {}
        top = {name: top_documents(record, query) for name, record in records.items()}
        best = _best(grades)
        ranked = {*best[:_SHOWN], *itertools.chain(*top.values())}
        details[query] = {
            "text": texts.text(query)[:_LONGEST_QUERY] if texts else "",
            "top": {name: each for name, each in top.items() if each},
            "judged": best[:_SHOWN],
            "count": len(best),
            "relevant": sum(grade > 0 for grade in grades.values()),
            "grades": {name: grade for name, grade in grades.items() if name in ranked},
        }
        listed = [name for each in top.values() for name in each[:_SHOWN]] + best[:_SHOWN]
        named[query] = dict.fromkeys(listed)
    read = texts.documents(named) if texts else {}
    documents: dict[str, list[str]] = {}
    kept, size = {}, 0
    for query, each in details.items():
        new = {
            name: [table.cut(row.title, _LONGEST), table.cut(row.text, _LONGEST)]
            for name, row in read.get(query, {}).items()
            if name not in documents
        }
        size += len(json.dumps([query, each, new]))
        if size > _SIZE:
            break
        kept[query] = each
        documents |= new
    return {"queries": kept, "documents": documents}


def explore(
    results: Iterable[Result],
    *,
    task: str,
    metric: str = "nDCG@10",
    models: str | Sequence[str] = (),
    texts: SearchTexts | None = None,
) -> Explorer | NoExplorer:
    """Return the explorer of a task, or the reason why there is none.

    The metric is per query, and between 0 and 1. ``models`` names two or more, also in a
    comma-separated string; by default all, or the best of many. Texts and judgements are by default
    those of the task, if its data are available locally; otherwise, ids are shown with the reason.

    Raises:
        ValueError: an unknown model, or only one; lists the known ones.
    """
    given = [result for result in latest(results) if result.task.key == task]
    matrices, left_out = alignment.pair_results(given, metric=metric, tasks=[task])
    if not matrices:
        reasons = "; ".join(left_out) or "there is none"
        return NoExplorer(f"Two models with {metric} on {task} are needed: {reasons}.")
    matrix = matrices[0]
    order = np.argsort(-matrix.scores.mean(axis=1), kind="stable")
    best = [matrix.systems[index] for index in order]
    named = split_names(models) if isinstance(models, str) else models
    chosen = [one_of("model", name, best) for name in named]
    kept = [name for name in best if not chosen or name in chosen][:MOST_MODELS]
    if len(kept) < 2:
        raise ValueError(f"expected two or more models; got {kept[0]!r} alone")
    rows = [matrix.systems.index(name) for name in kept]
    matrix = replace(matrix, systems=tuple(kept), scores=matrix.scores[rows])
    newest = alignment.by_part(alignment.newest_records(given)[0])
    names = alignment.system_names(newest)
    records = {names[r.model.identity, r.seed]: r for r in newest if r.task.key == matrix.task}
    records = {name: records[name] for name in kept}
    note = ""
    if texts is None and not records[kept[0]].config.get("queries"):
        try:
            texts = SearchTexts.of_task(records[kept[0]].task)
        except (ValueError, OSError) as error:
            note = f"Query texts are not available: {table.cut(str(error), 200)}"
    if len(kept) < len(best):
        note += f" {table.plural(len(best) - len(kept), 'model')} not shown: -p models A,B chooses."
    return Explorer(matrix, records, texts, note.strip())


def explorer_conclusion(explorer: Explorer | NoExplorer) -> Conclusion:
    """State on how many queries the two best models differ much, and who wins them."""
    if isinstance(explorer, NoExplorer):
        return Conclusion(explorer.why)
    first, second = explorer.models[:2]
    differences = explorer.matrix.column(first) - explorer.matrix.column(second)
    far, won = int((np.abs(differences) > _FAR).sum()), int((differences > _FAR).sum())
    (mean,) = paired_differences(explorer.matrix, pairs=[(first, second)], seed=0)
    return Conclusion(
        f"On {far} of {mean.n} queries of {table.short_task(explorer.matrix.task)} the two best "
        f"models differ by more than {_FAR:g} in {explorer.matrix.metric}: {first} wins {won} of "
        f"them and {second} {far - won}. The largest difference is "
        f"{np.abs(differences).max():.3f}, the mean over all {mean.n} "
        f"{difference_text(mean, p_value=False)}.",
        data=explorer.data,
    )
