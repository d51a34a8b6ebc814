"""The interactive page of the explorer: one piece of HTML with its data, script and style.

The same piece works in JupyterLab, in the book and in a saved page. It needs no kernel, no other
script and no network, so there is one explorer to test. Its script computes what
`Explorer.difference` does, to the last digit of the p-value.

Rankings are included for as many queries as a page has room for, those with the largest differences
first; texts of documents for the first few hundred.
"""

import html
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import qwen3nb.report.render
from qwen3nb.analysis.comparison.differences import ALPHA
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.explored_task import ExploredTask, GradedRankings, top_documents
from qwen3nb.evaluation.mteb.per_query import DocumentText
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.html import data_attribute
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import cut

SEED = 0  # of the sign flips
FEWEST = 10  # queries that can tell two models apart
SHOWN = 5  # documents of a ranking, and judged documents, with their texts
_DOCUMENT = 200  # characters of a document
_LONGEST_QUERY, _SHORTEST_QUERY = 2000, 60  # characters of a query, as there is room
_ALL_QUERIES = 600_000  # characters of all queries
_MOST_TEXTS = 200  # queries with texts of documents
_TEXTS = 1_300_000  # characters of these texts
_RANKINGS = 2_000_000  # characters of rankings and grades
_LARGEST_PAGE = 4_500_000  # characters of all tasks; the first has a place in any case
_MARKUP = "<>&\u2028\u2029"  # characters that a browser may take for markup or the end of a script
_WITHOUT_SCRIPT = (
    "The points are drawn by a script. If you see none, run this cell again, or trust the "
    "notebook. The tables below need no script."
)


@dataclass(frozen=True)
class ExplorerPage:
    """The interactive page of one task or several, which a reader chooses from."""

    tasks: tuple[ExploredTask, ...]

    def _repr_html_(self) -> str:
        data = DataUsed()
        for task in self.tasks:
            data |= task.data
        parts = [
            _note(data.text),
            f'<div class="q-explorer-view"><p class="q-note">{_WITHOUT_SCRIPT}</p></div>',
            f'<script type="application/json">{self._json()}</script>',
            f"<script>{_file('explorer.js')}</script>",
        ]
        return f'<div class="q-explorer"{data_attribute(data)}>{"".join(parts)}</div>'

    def _json(self) -> str:
        """Return the data for the script, as text that a script element may have."""
        rules = {
            "level": LEVEL,
            "alpha": ALPHA,
            "draws": DRAWS,
            "seed": SEED,
            "fewest": FEWEST,
            "shown": SHOWN,
        }
        tasks: list[str] = []
        size = 0
        for task in self.tasks:
            text = json.dumps(task_data(task), allow_nan=False, separators=(",", ":"))
            size += len(text)
            if tasks and size > _LARGEST_PAGE:
                break
            tasks.append(text)
        style = json.dumps(_file("explorer.css"))
        text = f'{{"rules":{json.dumps(rules)},"style":{style},"tasks":[{",".join(tasks)}]}}'
        for char in _MARKUP:
            text = text.replace(char, f"\\u{ord(char):04x}")
        return text


@cache
def _file(name: str) -> str:
    folder = Path(qwen3nb.report.render.__path__[0])
    return (folder / name).read_text(encoding="utf-8")


def _note(text: str) -> str:
    if not text:
        return ""
    return f'<p class="q-note">{html.escape(text)}</p>'


def task_data(task: ExploredTask) -> dict[str, object]:
    """Return what the script reads of one task."""
    matrix, models = task.matrix, task.models
    values, scores = _numbered(matrix.scores.ravel().tolist())
    room = _ALL_QUERIES // len(matrix.queries)
    longest = min(max(room, _SHORTEST_QUERY), _LONGEST_QUERY)
    order = different_queries(matrix, models)
    rankings = _rankings(task, order)
    return {
        "name": matrix.task,
        "metric": matrix.metric,
        "note": task.note,
        "models": models,
        "colors": [model_colors(models)[model] for model in models],
        "ids": list(matrix.queries),
        "texts": [task.text(query)[:longest] for query in matrix.queries],
        "words": list(task.words),
        "categories": _names(task.categories),
        "languages": _names(task.languages),
        "clusters": _names(matrix.clusters, fewest=1),
        # A score is stored once, with all its digits.
        "values": values,
        "scores": np.reshape(scores, matrix.scores.shape).tolist(),
        "graded": _graded(task.graded_rankings),
        **rankings,
    }


def _numbered(values: Sequence[float]) -> tuple[list[float], list[int]]:
    """Return the different values, and the position there of each value."""
    different = sorted(set(values))
    positions = {value: position for position, value in enumerate(different)}
    return different, [positions[value] for value in values]


def _names(of_queries: Sequence[str], *, fewest: int = 2) -> dict[str, object] | None:
    """Return the sorted names of groups, and the position of each query's; None if too few."""
    names = sorted(set(of_queries))
    if len(names) < fewest:
        return None
    positions = {name: position for position, name in enumerate(names)}
    return {"names": names, "of": [positions[name] for name in of_queries]}


def _graded(found: GradedRankings | str) -> dict[str, object]:
    """Return the grades of rankings, a digit or letter per document, or why there are none."""
    if isinstance(found, str):
        return {"why": found}
    grades = []
    ideal: list[list[int]] = []
    for rankings in found.rankings.values():
        grades.append(
            ["".join(_digit(int(grade)) for grade in ranking.grades) for ranking in rankings]
        )
        ideal = [
            [ranking.ideal.count(grade) for grade in range(1, found.highest + 1)]
            for ranking in rankings
        ]
    return {
        "measures": [[str(one), one.metric, one.depth] for one in found.measures],
        "threshold": found.threshold,
        "highest": found.highest,
        "grades": grades,
        "ideal": ideal,  # how many relevant documents have the grade 1, 2, …
    }


def _digit(grade: int) -> str:
    return np.base_repr(max(grade, 0), 36)


def different_queries(matrix: ScoreMatrix, models: Sequence[str]) -> list[str]:
    """Return the queries, first those on which models differ most, from every pair in turn."""
    rows_by_pair = []
    for model, other_model in itertools.combinations(models, 2):
        differences = np.abs(matrix.column(model) - matrix.column(other_model))
        rows_by_pair.append(np.argsort(-differences, kind="stable").tolist())
    # First the largest difference of each pair, then the second largest of each.
    rows: dict[int, None] = {}
    for rows_of_rank in zip(*rows_by_pair, strict=True):
        rows |= dict.fromkeys(rows_of_rank)
        if len(rows) == len(matrix.queries):
            break
    return [matrix.queries[row] for row in rows]


def best_judged(grades: Mapping[str, float]) -> list[str]:
    """Return the judged documents, the highest grade first."""
    return sorted(grades, key=lambda document: (-grades[document], document))


def first_ranked(rankings: Iterable[Sequence[str]]) -> list[str]:
    """Return the first documents of each ranking, those of several more than once."""
    documents: list[str] = []
    for ranking in rankings:
        documents += ranking[:SHOWN]
    return documents


class _Documents:
    """Documents by their number on a page, in the order in which they are first named."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def _rankings(task: ExploredTask, queries: Sequence[str]) -> dict[str, object]:
    """Return rankings, grades and texts of documents, of as many queries as there is room for."""
    documents = _Documents()
    details: dict[str, object] = {}
    wanted: dict[str, list[str]] = {}
    size = 0
    for query in queries:
        rankings = [top_documents(task.records[model], query) for model in task.models]
        grades = task.grades(query)
        detail = _query_detail(rankings, grades, documents)
        detail.append(task.relevant_count(query))
        detail.append(task.judged_count(query))
        size += len(json.dumps(detail)) + len(query)
        if size > _RANKINGS:
            break
        details[query] = detail
        shown = [*first_ranked(rankings), *best_judged(grades)[:SHOWN]]
        wanted[query] = list(dict.fromkeys(shown))
    with_texts = dict(itertools.islice(wanted.items(), _MOST_TEXTS))
    return {
        "details": details,
        "documents": list(documents.numbers),
        "document_texts": _document_texts(task, with_texts, documents),
    }


def _query_detail(
    rankings: Sequence[Sequence[str]], grades: Mapping[str, float], documents: _Documents
) -> list[object]:
    """Return rankings by model, graded documents, and the best judged ones."""
    judged = best_judged(grades)
    named = dict.fromkeys([*itertools.chain(*rankings), *judged[:SHOWN]])
    numbers_by_model = []
    for ranking in rankings:
        numbers_by_model.append([documents.number(name) for name in ranking])
    graded = {documents.number(name): grades[name] for name in named if name in grades}
    numbers_of_judged = [documents.number(name) for name in judged[:SHOWN]]
    return [numbers_by_model, graded, numbers_of_judged]


def _document_texts(
    task: ExploredTask, wanted: Mapping[str, Sequence[str]], documents: _Documents
) -> dict[int, list[str]]:
    """Return title and text of documents by their number, as far as there is room."""
    found: Mapping[str, Mapping[str, DocumentText]] = {}
    if task.texts is not None:
        found = task.texts.documents(wanted)
    texts: dict[int, list[str]] = {}
    size = 0
    for documents_of_query in found.values():
        for name, document in documents_of_query.items():
            text = [cut(document.title, _DOCUMENT), cut(document.text, _DOCUMENT)]
            size += len(json.dumps(text))
            if size > _TEXTS:
                return texts
            texts[documents.number(name)] = text
    return texts
