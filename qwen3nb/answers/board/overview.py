"""The leaderboard's first table: shared ranks, brackets, and a score per model and task.

It has two decimals and a shade by the score within its column. The interval and the third decimal
are in each number's title, which a pointer and the keyboard show.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean, MeanColumn
from qwen3nb.analysis.comparison.brackets import Ties
from qwen3nb.answers.board.grid import Grid, Links, is_of_benchmark
from qwen3nb.answers.board.published import PUBLISHED, PublishedModel, published_note
from qwen3nb.answers.board.scores import why_missing
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.report.render.brackets import bracket_cells, hidden_tie_words, tie_words
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.html import data_attribute, escaped_text, styled
from qwen3nb.report.render.table import Table, plural, short_task
from qwen3nb.tiers import is_search
from qwen3nb.utils.format import interval_text, number_text

# Titles of the tasks that this package contains, by their type.
_TITLES: Mapping[str, str] = {
    "Retrieval": "Search",
    "Reranking": "Rerank",
    "Classification": "Classify",
    "Clustering": "Cluster",
    "STS": "Similarity",
}
_OWN_TASKS = ("PyDocs", "AuthorSTS")  # how their names begin
NO_VECTORS = "no vectors"
OWN_DATA = "domain-"  # how the data sets of `qwen3nb domain` begin


@dataclass(frozen=True)
class Score:
    """One score of the table, or why there is none."""

    value: float | None
    about: str  # three decimals and the interval, or the reason
    link: str = ""

    @property
    def text(self) -> str:
        """The score with two decimals; a dash where a model has no vectors, else the reason."""
        if self.value is not None:
            # Without the sign of a score that is rounded to 0.
            return number_text(round(self.value, 2) + 0.0, digits=2)
        return "–" if self.about == NO_VECTORS else self.about


@dataclass(frozen=True)
class ScoreColumn:
    """The scores of all models on one task or mean."""

    title: str  # for readers, such as ``Search``
    size: str  # such as ``200 queries``
    task: str  # its key
    metric: str  # may be empty for a mean
    scores: Mapping[str, Score]  # by identity of the model

    @property
    def about(self) -> str:
        """The task and its metric."""
        return ", ".join(filter(None, (self.task, self.metric)))

    def shade(self, score: Score) -> float:
        """Return how dark a score is shown: its share of the column's best, from 0 to 1."""
        values = [other.value for other in self.scores.values() if other.value is not None]
        best = max(values, default=0.0)
        if score.value is None or best <= 0:
            return 0.0
        return max(0.0, score.value / best)


@dataclass(frozen=True)
class RankedModel:
    """One row: a model, with its name in the comparison."""

    identity: str
    name: str
    system: str  # its name among the ranked models; empty if it is not ranked
    link: str = ""
    is_toy: bool = False  # whether the demo made it


@dataclass(frozen=True, repr=False)
class Overview:
    """All models with shared ranks, brackets and scores, as a page shows them first."""

    models: Sequence[RankedModel]  # the ranked ones first, in the order of their ranks
    columns: Sequence[ScoreColumn]
    ties: Ties
    task: str  # key of the task or mean that decides the order
    ranked_on: str  # its title
    references: Table  # the models of the comparison set that were not run
    published: Sequence[PublishedModel] = ()  # those of them with published scores
    files: str = ""  # links that save the scores
    data: DataUsed = NO_SCORES

    def __repr__(self) -> str:
        """The table as a terminal shows it."""
        heads = ["rank", "model", *[column.title for column in self.columns]]
        lines = [heads]
        for model in self.models:
            scores = [column.scores[model.identity].text for column in self.columns]
            lines.append([self._rank_text(model), model.name, *scores])
        for reference in self.published:
            texts = [_published_text(reference, column.task) for column in self.columns]
            lines.append(["–", f"{reference.name} (published)", *texts])
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        return "\n".join(_aligned(line, widths) for line in lines)

    def _repr_html_(self) -> str:
        heads = "".join(map(_head, self.columns))
        lanes = '<td class="q-tie"></td>' * self._lane_count
        parts = [
            '<div class="q-scroll"><table class="q numbers q-board"'
            f' data-task="{html.escape(self.task, quote=True)}"><thead><tr>'
            '<th scope="col" title="Models that share a rank are not shown to differ">rank</th>'
            f'{lanes}<th scope="col" class="q-model">model</th>{heads}</tr></thead>'
            f"<tbody>{''.join(self._rows())}</tbody>{self._published_html()}</table></div>",
            self._references_html(),
        ]
        if self.data.text:
            parts.append(f'<p class="q-note">{escaped_text(self.data.text)}</p>')
        parts.append(f'<p class="q-note">{self._note_html()}</p>')
        if self.published:
            parts.append(f'<p class="q-note">{escaped_text(published_note(self.published))}</p>')
        content = "".join(parts)
        attributes = data_attribute(self.data)
        return styled(
            f'<div class="q-table" id="tab-scores"{attributes}>{content}</div>{self.files}'
        )

    @property
    def _lane_count(self) -> int:
        cells = bracket_cells(self.ties)
        return cells[0].count("<td") if cells else 0

    def _rows(self) -> Iterable[str]:
        brackets = bracket_cells(self.ties)
        no_bracket = '<td class="q-tie" aria-hidden="true"></td>' * self._lane_count
        for row, model in enumerate(self.models):
            beside = brackets[row] if model.system else no_bracket
            scores = "".join(_score_cell(column, model.identity) for column in self.columns)
            start = ' class="q-first"' if self._starts_rank(row) else ""
            yield f"<tr{start}>{self._rank_cell(row)}{beside}{self._name_cell(model)}{scores}</tr>"

    def _starts_rank(self, row: int) -> bool:
        ranks = self.ties.ranks
        return row == 0 or row >= len(ranks) or ranks[row] != ranks[row - 1]

    def _rank_cell(self, row: int) -> str:
        """Return the cell of a rank, which spans all models that share it; empty for the others."""
        ranks = self.ties.ranks
        if row >= len(ranks):
            return '<td class="q-place" title="not ranked: it lacks these scores">–</td>'
        if not self._starts_rank(row):
            return ""
        rank = ranks[row]
        span = ranks.count(rank)
        rows = f' rowspan="{span}"' if span > 1 else ""
        best = " q-best" if rank == 1 else ""
        return f'<td class="q-place{best}" data-sort="{rank}"{rows}>{rank}</td>'

    def _rank_text(self, model: RankedModel) -> str:
        return str(self.ties.rank(model.system)) if model.system else "–"

    def _name_cell(self, model: RankedModel) -> str:
        name = escaped_text(model.name)
        about = ""
        hidden = ""
        if model.system:
            words = tie_words(self.ties, model.system)
            about = f' title="{html.escape(words, quote=True)}"' if words else ""
            hidden = hidden_tie_words(self.ties, model.system)
        if model.link:
            name = f'<a href="{html.escape(model.link, quote=True)}"{about}>{name}</a>'
        if model.is_toy:
            name += " (toy)"
        return f'<th scope="row" class="q-model">{name}{hidden}</th>'

    def _published_html(self) -> str:
        """Return the rows of published scores, below and apart from what was measured."""
        lanes = '<td class="q-tie" aria-hidden="true"></td>' * self._lane_count
        rows = []
        for model in self.published:
            name = html.escape(model.name, quote=False)
            origin = html.escape(f"{PUBLISHED}: {model.origin}", quote=True)
            cells = "".join(_published_cell(model, column.task) for column in self.columns)
            rows.append(
                f'<tr><td class="q-place" title="not ranked: {PUBLISHED}">–</td>{lanes}'
                f'<th scope="row" class="q-model" title="{origin}">{name}'
                f'<span class="q-detail">{PUBLISHED}</span></th>{cells}</tr>'
            )
        return f'<tbody class="q-published">{"".join(rows)}</tbody>' if rows else ""

    def _references_html(self) -> str:
        count = len(self.references)
        if not count:
            return ""
        summary = f"{plural(count, 'reference model')} not run yet"
        return (
            f'<details class="q-references"><summary>{summary}</summary>'
            f"{self.references.to_html()}</details>"
        )

    def _note_html(self) -> str:
        """Return what a reader must know, in at most 40 words, with a link to the method."""
        sentences = []
        if self.ties.brackets:
            where = escaped_text(self._ranked_on)
            sentences.append(f"A bracket joins models between which {where} shows no difference.")
        if any(score.about == NO_VECTORS for score in self._scores()):
            sentences.append("–: has no vectors.")
        sentences.append("Hover a number for its interval, click for its run.")
        metrics = dict.fromkeys(column.metric for column in self.columns if column.metric)
        if metrics:
            sentences.append(f"Metrics: {escaped_text(', '.join(metrics))}.")
        if any(model.is_toy for model in self.models):
            sentences.append("Toy: not for use.")
        if len(self.models) > 1:
            sentences.append('<a href="#tab-ranks">How the ranks are made</a>')
        return " ".join(sentences)

    @property
    def _ranked_on(self) -> str:
        """The title of the deciding task within a sentence: a name keeps its letters."""
        return self.ranked_on.lower() if self.ranked_on in _TITLES.values() else self.ranked_on

    def _scores(self) -> Iterable[Score]:
        for column in self.columns:
            yield from column.scores.values()


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of a terminal: the rank and the model on the left, scores on the right."""
    cells = [text.ljust(width) for text, width in zip(texts[:2], widths[:2], strict=True)]
    cells += [text.rjust(width) for text, width in zip(texts[2:], widths[2:], strict=True)]
    return "  ".join(cells).rstrip()


def _head(column: ScoreColumn) -> str:
    about = html.escape(column.about, quote=True)
    size = f'<span class="q-detail">{escaped_text(column.size)}</span>'
    return f'<th scope="col" title="{about}">{escaped_text(column.title)}{size}</th>'


def _score_cell(column: ScoreColumn, identity: str) -> str:
    score = column.scores[identity]
    about = html.escape(score.about, quote=True)
    if score.value is None:
        return f'<td class="q-none" title="{about}">{escaped_text(score.text)}</td>'
    text = escaped_text(score.text)
    if score.link:
        link = html.escape(score.link, quote=True)
        content = f'<a href="{link}" title="{about}">{text}</a>'
    else:
        content = f'<span tabindex="0" title="{about}">{text}</span>'
    shade = f"{column.shade(score):.2f}"
    return f'<td data-sort="{score.value!r}" style="--q-shade:{shade}">{content}</td>'


def _published_text(model: PublishedModel, column: str) -> str:
    value = model.values.get(column)
    return model.absence(column) if value is None else value.text(2)


def _published_cell(model: PublishedModel, column: str) -> str:
    """Return a published score without a value to sort by; its words are also spoken."""
    text = escaped_text(_published_text(model, column))
    value = model.values.get(column)
    if value is None:
        return f'<td class="q-none" title="{model.reason(column)}">{text}</td>'
    about = f"{number_text(value.value)}, {value.words}; {model.origin}"
    title = html.escape(about, quote=True)
    spoken = f'<span class="q-spoken"> {escaped_text(value.words)}</span>'
    return f'<td class="q-none"><span tabindex="0" title="{title}">{text}{spoken}</span></td>'


def task_title(record: Result) -> str:
    """Return the title of a task for readers.

    A task of this package is called by what it asks for, own data by the collection's name, and
    any other one by its own.
    """
    if record.task.dataset.startswith(OWN_DATA):
        return record.task.dataset.removeprefix(OWN_DATA)
    if record.task.name.startswith(_OWN_TASKS):
        return _TITLES.get(record.task.type, short_task(record.task.key))
    return short_task(record.task.key)


def task_columns(grid: Grid, tasks: Sequence[str], links: Links) -> list[ScoreColumn]:
    """Return a column per task that at least one model has."""
    columns = []
    for task in tasks:
        records = grid.on(task)
        if not records:
            continue
        example = records[0]
        scores = {}
        for identity, by_task in grid.records.items():
            if task in by_task:
                scores[identity] = _score_of(by_task[task], links)
            else:
                searched = grid.is_search(task)
                reason = why_missing(grid.example(identity), searched=searched)
                scores[identity] = Score(None, reason)
        columns.append(
            ScoreColumn(
                task_title(example),
                f"{example.main.n:,} {example.task.unit}",
                task,
                example.task.main_metric,
                scores,
            )
        )
    return columns


def _score_of(record: Result, links: Links) -> Score:
    score = record.main
    if score.value is None:
        return Score(None, f"undefined: {score.undefined}")
    interval = None
    if score.low is not None and score.high is not None:
        interval = (score.low, score.high)
    about = f"{record.task.main_metric} {_with_interval(score.value, interval)}"
    return Score(score.value, f"{about}, {score.n:,} {record.task.unit}", score_link(record, links))


def _with_interval(value: float, interval: Interval | None) -> str:
    return f"{number_text(value)} {interval_text(interval, sign=False)}".strip()


def mean_columns(grid: Grid, links: Links) -> list[ScoreColumn]:
    """Return a column per mean over a benchmark."""
    columns = []
    for index, column in enumerate(grid.columns):
        if not is_of_benchmark(column):
            continue
        scores = {}
        for identity, means in grid.means.items():
            page = links.get(newest(grid.records[identity].values()).run, "")
            scores[identity] = _mean_score(means[index], grid.example(identity), page)
        columns.append(ScoreColumn(column.name, column.over, column.name, column.metric, scores))
    return columns


def _mean_score(mean: BenchmarkMean, example: Result, page: str) -> Score:
    column: MeanColumn = mean.column
    if mean.value is not None:
        about = f"{column.metric} {_with_interval(mean.value, mean.interval)}, {column.over}"
        return Score(mean.value, about.strip(), page)
    if not mean.measured and len(mean.missing) == len(column.weights):
        searched = any(is_search(task) for task in column.weights)
        return Score(None, why_missing(example, searched=searched))
    return Score(None, f"{mean.measured} of {column.tasks}")
