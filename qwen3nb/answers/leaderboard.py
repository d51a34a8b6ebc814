"""Which model is best, and how certain is that? All models of a tier: scores, ranks, the lead.

For a tier with benchmarks, the means of each come first, then tasks and types.
"""

import functools
import itertools
import operator
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import (
    comparable,
    model_names,
    newest_records,
    pair_results,
)
from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean, MeanColumn
from qwen3nb.analysis.comparison.differences import ALPHA, TEST, PairedDifference
from qwen3nb.analysis.comparison.ranking import FEWEST_TASKS, Ranking, Standing, rank_systems
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.models.kinds.resolve import FUSION_KIND, KINDS
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import latest
from qwen3nb.report.render.differences import SINGLE_QUERY
from qwen3nb.report.render.figure import (
    Axes,
    Figure,
    ForestRow,
    MplFigure,
    any_takes_two_lines,
    draw_estimate,
    forest_figure,
    grid,
    name_rows,
    panels,
    plain,
)
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import (
    MOST_MODELS,
    Cell,
    Conclusion,
    Head,
    Sections,
    Table,
    not_shown,
    number,
    plural,
    score_text,
    short_task,
    transposed,
)
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS, Benchmark, is_search
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.format import interval_text
from qwen3nb.utils.imports import DataFrame

_SEARCHES = ("Retrieval", "Reranking")  # types of tasks that need no vectors
_NEAR_BEST = (
    "not significantly different from the best of its column, as in the table of differences; only "
    "for metrics that are a mean over queries"
)
ALL_TASKS = "all tasks"  # title of the ranking on the mean over a tier's tasks
_MEANS = (
    "Means over the tasks of one benchmark; a group such as CQADupStack counts as one task. No "
    "metric: the main scores, averaged as on MTEB's leaderboard. 95 % intervals, combined from "
    "those of the given tasks. Incomplete: a mean needs a score on every task; the "
    "tables of tasks show what is missing. Best of each column in bold, second best underlined."
)
_MOST_BEHIND = 8  # models in the figure of the landing page, next to the best
_MOST_NAMED = 3  # models that a sentence names
_MOST_TASKS = 4  # tasks that a sentence names
_HOW_SURE = "sure"  # notebook that explains how sure the lead is

Records = Mapping[str, Mapping[str, Result]]  # by identity of the model, then by task
Links = Mapping[str, str]  # the page of each run id


def by_model(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """Return the newest records by identity of the model, then by task."""
    records: dict[str, dict[str, Result]] = {}
    newest_results, _ = newest_records(results)
    for result in newest_results:
        records_by_task = records.setdefault(result.model.identity, {})
        records_by_task[result.task.key] = result
    return records


@dataclass(frozen=True)
class Lead:
    """The best model on a task or benchmark, and the others that can be paired with it."""

    name: str
    record: Result  # for a benchmark, with the mean as its score
    leads: tuple[PairedDifference, ...]  # differences from the others, the best of them first
    queries: str  # number of paired queries, such as ``200 queries``
    unpaired: int  # number of models whose scores cannot be paired with it

    def first_shown(self, alpha: float) -> PairedDifference | None:
        """The lead over the best of those that it is shown to be better than; None without any."""
        for lead in self.leads:
            if lead.significant(alpha):
                return lead
        return None

    def sentence(self, alpha: float) -> str:
        """The best model, its lead, and whether these queries show it."""
        shown_lead = self.first_shown(alpha)
        possibly_equal = [lead.second for lead in self.leads if not lead.significant(alpha)]
        verb = "scores highest"
        if shown_lead and not possibly_equal:
            verb = "is best"
        task = self.record.task
        score = f"{task.main_metric} {score_text(self.record.main)}"
        text = f"{self.name} {verb} on {short_task(task.key)}: {score}"
        if not self.leads:
            return f"{text}, over {self.queries}; no other model can be compared with it."
        lead_over_next = self.leads[0]
        text += f", {_lead_text(lead_over_next)}"
        # The next best model is shown to be behind; others further down may not be.
        if shown_lead is lead_over_next:
            text += f", a difference that these {self.queries} show."
            if possibly_equal:
                names = _first_names(possibly_equal, _MOST_NAMED)
                text += f" It is not shown to be ahead of {names}."
            return text
        text += f", not a difference that these {self.queries} show."
        if shown_lead:
            text += f" It is {_lead_text(shown_lead)}, which they do show."
        return text


def _lead_text(difference: PairedDifference) -> str:
    if difference.identical and difference.n > 1:
        return f"level with {difference.second} on every query"
    ends = interval_text(difference.interval, sign=False, absent=f"({SINGLE_QUERY})")
    return f"ahead of {difference.second} by {difference.difference:.3f} {ends}"


def _first_names(names: Sequence[str], count: int) -> str:
    """Return the first few names, and the number of further ones."""
    text = ", ".join(names[:count])
    if len(names) > count:
        text += f" and {len(names) - count} more"
    return text


def find_lead(comparison: Comparison, *, task: str) -> Lead | None:
    """Return the best model on a task or on the mean of a benchmark; None without results."""
    records = comparison.scored(task)
    if not records:
        return None
    by_score = sorted(records, key=lambda record: record.main.value or 0.0, reverse=True)
    best = by_score[0]
    name = comparison.name(best)
    on_task = comparison.on(best.task.key)
    lead_over: dict[str, PairedDifference] = {}
    unpaired = 0
    if on_task is not None:
        # Stored as other - best; reversed, it is the lead of the best.
        lead_over = {pair.first: pair.reversed() for pair in on_task.against(name)}
        unpaired = len(on_task.unranked)  # models that lack a task of the mean
    leads = []
    for record in by_score[1:]:
        lead = lead_over.get(comparison.name(record))
        if lead is not None and comparable(best, record):
            leads.append(lead)
        else:
            unpaired += 1
    return Lead(name, best, tuple(leads), f"{best.main.n:,} {best.task.unit}", unpaired)


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(Answer):
    """All models of a tier with their scores, their ranks and the lead of the best."""

    results: tuple[Result, ...]  # any records; those on other tasks are ignored
    tier: str  # the tier whose tasks are the columns
    keys: tuple[str, ...] = ()  # tasks to show instead of the tier's
    compared: Comparison | None = None  # of these results; by default computed when it is needed
    links: Links = field(default_factory=dict)

    @cached_property
    def comparison(self) -> Comparison:
        """Every model against the baseline, and against each other."""
        if self.compared is not None:
            return self.compared
        return compare(self.results, tier=self.tier, tasks=self.keys)

    @cached_property
    def grid(self) -> "_Grid":
        """The models, the best first, with their records and means."""
        return _grid(self.results, self.tier, self.keys)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Keys of the tasks shown."""
        return self.keys or TIERS[self.tier].task_keys

    @cached_property
    def task(self) -> str:
        """The task or mean that decides which model is best.

        The first mean of a tier with benchmarks, else the task with most models.
        """
        if self.keys:
            return busiest_task(self.results, self.keys)
        if TIERS[self.tier].benchmarks and self.comparison.means:
            return self.comparison.means[0].task
        return busiest_task(self.results, self.tasks)

    @property
    def conclusion(self) -> Conclusion:
        """The best model, its lead, and whether the lead is significant.

        From the comparison used on all pages. Without results on the task, the tasks of the
        results are named.
        """
        conclusion = lead_conclusion(self.comparison, task=self.task, results=self.results)
        return replace(conclusion, how_sure=how_sure_page(self.comparison))

    def table(self, *, name: str = "") -> Table:
        """A row per model and a column per task; the two best of each column are marked.

        Models not significantly different from the best of a column also have a mark. A tier with
        benchmarks has a column per mean over a benchmark instead; the means by type and the tasks
        are in `task_tables`. ``name`` is that of its files, by default ``comparison-`` and the
        tier.
        """
        name = name or f"comparison-{'tasks' if self.keys else self.tier}"
        if self.grid.columns:
            return replace(_means_table(self.grid, self.tier, self.links), name=name)
        near_best = {key: _near_best(self.grid.on(key), self.comparison) for key in self.tasks}
        scores = _scores_table(self.grid, near_best, self.links)
        if any(near_best.values()):
            scores = replace(scores, legend=(("†", _NEAR_BEST),))
        return replace(scores, name=name)

    def figure(self) -> Figure:
        """A panel per task, with a point and its 95 % interval per model, the best on top.

        A tier with benchmarks has a panel per mean over a benchmark. Models keep their row and
        colour in every panel; rows of missing results are empty.
        """
        if self.grid.columns:
            scores = _means_table(self.grid, self.tier, {})
        else:
            # Names the columns; no model is marked.
            near_best: dict[str, Iterable[str]] = dict.fromkeys(self.tasks, ())
            scores = _scores_table(self.grid, near_best, {})
        best_scores = replace(scores, rows=scores.rows[:MOST_MODELS])
        title = scores.caption.removesuffix(".")
        first_head = " ".join(scores.columns[1].split())
        first_panel = ", ".join(f"{row[0].text} {row[1].text}" for row in best_scores.rows)
        return Figure(
            name="comparison-tasks" if self.keys else f"comparison-{self.tier}",
            draw=functools.partial(_draw_scores, best_scores),
            caption=f"{title} over the n given with each panel. Rows are ordered by the first "
            "panel; a row without a point was not measured. Overlapping intervals say little "
            "about a difference: see the paired tests." + not_shown(len(scores) - len(best_scores)),
            alt="Panels with a point and an interval per model. "
            f"{first_head}: {first_panel or 'no values'}.",
            data=scores.data,
        )

    def to_frame(self) -> DataFrame:
        """The scores as numbers, a row per model, with the ends of the intervals."""
        return self.table().to_frame(intervals=True)

    def lead_figure(self) -> Figure | None:
        """How far each model is behind the best one, the best on top; None for fewer than two."""
        return lead_figure(self.comparison, task=self.task)

    def headline_table(self, *, most: int | None = None) -> Table:
        """The scores of the landing page: the means, or `task`, of at most the ``most`` best."""
        # A tier without benchmarks has no means: the task with most models stands for it.
        board = self
        if not TIERS[self.tier].benchmarks:
            task = busiest_task(self.results, TIERS[self.tier].task_keys)
            board = replace(self, keys=(task,), compared=self.comparison)
        scores = board.table(name="headline")
        if not scores.rows:
            note = f"No results on the {self.tier} tier yet; run `qwen3nb eval --tier {self.tier}`."
            return Table(("model",), (), note)
        if most is None or len(scores) <= most:
            return scores
        note = f"The best {most} of {len(scores)} models. {scores.note}"
        return replace(scores, rows=scores.rows[:most], note=note)

    def rank_table(self, *, seed: int = 0) -> Table | None:
        """A row per model and a column per ranking; None for fewer than two models."""
        return rank_table(
            standings(self.results, tier=self.tier, seed=seed, comparison=self.compared)
        )

    def cost_table(self) -> Table:
        """The time, memory and size of each model's records."""
        return cost_table(self.results)

    def expected_table(self) -> Table | None:
        """Scores expected on STS-B and MS MARCO, and measured; None if no such model was."""
        return expected_table(self.results)

    def sts_table(self) -> Table | None:
        """Every STS task with the mean, and MS MARCO; None for a tier with benchmarks."""
        if self.grid.columns:
            return None
        return sts_table(self.results)

    def task_tables(self) -> Sections | None:
        """The means by type, and tables of tasks by benchmark and type.

        None for a tier without benchmarks, whose leaderboard shows its tasks.
        """
        if not TIERS[self.tier].benchmarks:
            return None
        # All tasks of the tier, also if some are selected for the other tables.
        models = replace(self, keys=()).grid
        tables = []
        has_means_by_type = not all(_is_of_benchmark(column) for column in models.columns)
        if has_means_by_type:
            by_type = _means_table(models, self.tier, self.links, types=True)
            tables.append(("Means by type of task", by_type))
        for name in TIERS[self.tier].benchmarks:
            benchmark = BENCHMARKS[name]
            for title, tasks in _titles_and_tasks(benchmark):
                tables.append((title, _tasks_table(models, benchmark, tasks, self.links)))
        return Sections(
            tuple(tables),
            "All tasks, by benchmark and type, with the models in the order of the table above.",
        )


def leaderboard(
    results: Iterable[Result],
    *,
    tier: str = "smoke",
    tasks: str | Sequence[str] = (),
    comparison: Comparison | None = None,
    baseline: str = "",
    seed: int = 0,
    links: Links | None = None,
) -> Leaderboard:
    """Return all models on a tier: scores, ranks, and whether the best one is shown to be best.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose tasks are the columns.
        tasks: keys of the tasks to show instead of the tier's, also comma-separated.
        comparison: comparison of these results; computed if None.
        baseline: label of the model to compare with; by default a reference model.
        seed: seed of the paired tests.
        links: page of each run id.
    """
    records = tuple(results)
    keys = split_names(tasks) if isinstance(tasks, str) else tasks
    if comparison is None and (baseline or seed):
        comparison = compare(records, tier=tier, tasks=keys, baseline=baseline, seed=seed)
    return Leaderboard(records, tier, tuple(keys), comparison, links or {})


def how_sure_page(comparison: Comparison) -> str:
    """Return the page that explains how sure a lead is, relative to its own folder.

    Empty if the book has none: for fewer than two models, or in a study without its notebook.
    """
    models = {record.model.identity for record in comparison.records.values()}
    notebook = paths.notebooks() / f"{_HOW_SURE}.ipynb"
    if len(models) < 2 or not notebook.is_file():
        return ""
    return f"{_HOW_SURE}.html"


def lead_conclusion(
    comparison: Comparison, *, task: str, results: Iterable[Result] = ()
) -> Conclusion:
    """State the best model on a task or mean, its lead, and whether the lead is significant.

    Without results on it, the tasks of ``results`` are named.
    """
    lead = find_lead(comparison, task=task)
    if lead is None:
        return Conclusion(_no_results(results))
    text = lead.sentence(comparison.procedure.alpha)
    if lead.unpaired:
        text += f" Not compared for lack of scores: {plural(lead.unpaired, 'model')}."
    return Conclusion(text, data=comparison.data_used(task))


def _no_results(results: Iterable[Result]) -> str:
    tasks_with_results = sorted({short_task(result.task.key) for result in results})
    place = "the tasks of this page" if tasks_with_results else "whole tasks"
    text = (
        f"No results yet on {place}: `qwen3nb eval` writes some. A run with `--limit` has a "
        "separate page."
    )
    if tasks_with_results:
        text += (
            f" There are results on {_first_names(tasks_with_results, _MOST_TASKS)}; the reading "
            "guide of the first page links their pages."
        )
    return text


def lead_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    For a benchmark as task, its mean is shown.
    """
    lead = find_lead(comparison, task=task)
    if lead is None or not lead.leads:
        return None
    alpha = comparison.procedure.alpha
    deficits = [difference.reversed() for difference in lead.leads[:_MOST_BEHIND]]
    styles = model_styles([lead.name, *(deficit.first for deficit in deficits)])
    rows = [ForestRow(lead.name, 0.0, **styles[lead.name])]
    for deficit in deficits:
        row = ForestRow(
            deficit.first,
            deficit.difference,
            deficit.interval,
            clear=deficit.significant(alpha),
            **styles[deficit.first],
        )
        rows.append(row)
    key, metric = lead.record.task.key, lead.record.task.main_metric
    score = lead.record.main.value or 0.0
    caption = (
        f"{short_task(key)}: how far each model is from the best, {lead.name} ({metric} "
        f"{score:.3f}), paired over the same {lead.queries}, with the 95 % interval of the "
        f"difference. Filled: different by the test ({comparison.test}, "
        f"{comparison.family(key)}, corrected p < {alpha:g}) and by the interval; open: not."
    )
    return forest_figure(
        rows,
        xlabel=f"{metric} minus the best model's",
        name="lead",
        caption=caption + comparison.mean_note(task) + not_shown(len(lead.leads) - len(deficits)),
        columns=1,
        data=comparison.data_used(task),
    )


def _scores_table(models: "_Grid", near_best: Mapping[str, Iterable[str]], links: Links) -> Table:
    """Return a row per model and a column per task, with marks on models near the best."""
    # The keys of `near_best` are the tasks, in the order of the columns.
    heads = ["model", *[_task_head(task, models.on(task)) for task in near_best]]
    rows = []
    records: list[Result] = []
    for identity, name in models.names.items():
        records_by_task = models.records[identity]
        example = models.example(identity)
        row = [Cell(name, link=links.get(example.run, ""))]
        for task, identities in near_best.items():
            if task in records_by_task:
                mark = "†" if identity in identities else ""
                link = score_link(records_by_task[task], links)
                row.append(number(records_by_task[task].main, link=link, mark=mark))
            else:
                row.append(Cell(_why_missing(example, searched=models.is_search(task))))
        rows.append(row)
        records += [record for task, record in records_by_task.items() if task in near_best]
    methods = interval_words(record.main.interval for record in records)
    return Table.of(
        rows,
        heads,
        best=True,
        note=f"95 % intervals over n ({methods}); best of each column in bold, second "
        "best underlined, whether or not they differ significantly (see the paired differences)."
        + few_queries_sentence(record.main for record in records),
        caption="Scores of all models, with 95 % intervals.",
        data=DataUsed.of(records),
    )


def _task_head(key: str, records: Sequence[Result]) -> str:
    if not records:
        return short_task(key)
    score = records[0].main
    return Head(f"{short_task(key)}\n{records[0].task.main_metric}, n = {score.n}", score.n)


def _near_best(records: Iterable[Result], comparison: Comparison) -> set[str]:
    """Return the models not significantly different from the best on a task, by identity.

    Includes only models that can be paired with the best.
    """
    # Only means over queries are compared query by query; a correlation has no such scores.
    means = [
        record for record in records if record.main.how == "mean" and record.main.value is not None
    ]
    if not means:
        return set()
    # No value is None here; the 0.0 is for the type.
    best = max(means, key=lambda record: record.main.value or 0.0)
    identities = set()
    for record in means:
        if record is best:
            continue
        difference = comparison.between(record, best)
        if difference and not difference.significant(comparison.procedure.alpha):
            identities.add(record.model.identity)
    return identities


def _why_missing(example: Result, *, searched: bool) -> str:
    """Return why a model has no result on tasks, inferred from its result on another.

    ``searched`` says whether one of the tasks is a search, which needs no vectors.
    """
    kind_name = example.model.settings.get("model", {}).get("kind")
    search_kinds = [kind.name for kind in (*KINDS, FUSION_KIND) if kind.searches]
    if kind_name in search_kinds and not searched:
        return "no vectors"
    return "not run"


def record_list(results: Iterable[Result]) -> Table:
    """Return a row per record: model, task, main metric with its interval, and n."""
    records = list(results)
    rows = [
        {
            "model": (record.model.label, record.model.identity[:8]),
            "task": record.task.key,
            "metric": record.task.main_metric,
            "value": record.main,
            "n": f"{record.main.n} {record.task.unit}",
        }
        for record in records
    ]
    methods = interval_words(record.main.interval for record in records)
    few_queries = few_queries_sentence(record.main for record in records)
    return Table.of(
        rows,
        note=f"Intervals: 95 %, {methods}, over n.{few_queries}",
        empty="no records",
        kind="words",
        data=DataUsed.of(records),
    )


@dataclass(frozen=True)
class _Grid:
    """Models on a tier, the best first, and their means on its benchmarks."""

    names: Mapping[str, str]  # of the models, by identity
    records: Records
    columns: tuple[MeanColumn, ...]  # in the tier's order; none if tasks are shown
    means: Mapping[str, Sequence[BenchmarkMean]]  # by model identity, one per column

    def on(self, task: str) -> list[Result]:
        """Return the records of a task, in the order of the models."""
        return [records[task] for records in self.records.values() if task in records]

    def example(self, identity: str) -> Result:
        """Return some record of a model."""
        return next(iter(self.records[identity].values()))

    def is_search(self, task: str) -> bool:
        """Whether a task needs no vectors: by its records, else by its name."""
        records = self.on(task)
        if records:
            return records[0].task.type in _SEARCHES
        return is_search(task)

    def data_used(self, columns: Iterable[MeanColumn]) -> DataUsed:
        """Return the data of the tasks that are averaged."""
        tasks: dict[str, None] = {}
        for column in columns:
            tasks |= dict.fromkeys(column.weights)
        records = [self.on(task) for task in tasks]
        return DataUsed.of(itertools.chain(*records))


def _grid(results: Iterable[Result], tier: str, tasks: Sequence[str] = ()) -> _Grid:
    """Return the models with a result, sorted by the first available mean, or the first task.

    Models without it follow, those with most tasks first.
    """
    keys = tasks or TIERS[tier].task_keys
    columns = () if tasks else benchmark_means.tier_columns(tier)
    on_tier = [result for result in latest(results) if result.task.key in keys]
    names, records = model_names(on_tier), by_model(on_tier)
    means = {}
    for identity, records_by_task in records.items():
        means[identity] = [
            benchmark_means.column_mean(column, records_by_task.values()) for column in columns
        ]
    if columns:
        index = _first_measured(means)
        order = sorted(
            records,
            key=lambda identity: (
                *_descending(means[identity][index].value),
                -len(records[identity]),
                names[identity],
            ),
        )
    else:
        order = sorted(
            records,
            key=lambda identity: (
                *_descending(_score_on(keys[0], records[identity])),
                names[identity],
            ),
        )
    return _Grid(
        {identity: names[identity] for identity in order},
        {identity: records[identity] for identity in order},
        columns,
        means,
    )


def _descending(score: float | None) -> tuple[bool, float]:
    """Return a key that sorts the best score first, and no score last."""
    return score is None, -(score or 0.0)


def _score_on(task: str, records: Mapping[str, Result]) -> float | None:
    if task not in records:
        return None
    return records[task].main.value


def _first_measured(means: Mapping[str, Sequence[BenchmarkMean]]) -> int:
    """Return the first column in which a model has a mean; the first of all if there is none."""
    by_column = zip(*means.values(), strict=True)
    for index, column in enumerate(by_column):
        if any(mean.value is not None for mean in column):
            return index
    return 0


def _means_table(models: _Grid, tier: str, links: Links, *, types: bool = False) -> Table:
    """Return a row per model, a column per mean over a benchmark, or over one of its types."""
    columns = [column for column in models.columns if _is_of_benchmark(column)]
    if types:
        columns = [column for column in models.columns if not _is_of_benchmark(column)]
    heads = ["model"]
    for column in columns:
        measure = column.over
        if column.metric:
            measure = f"{column.metric}, {column.over}"
        heads.append(f"{column.name}\n{measure}")
    rows = []
    for identity, name in models.names.items():
        newest_record = newest(models.records[identity].values())
        row: list[Cell | str] = [Cell(name, link=links.get(newest_record.run, ""))]
        for mean in models.means[identity]:
            if mean.column in columns:
                row.append(_mean_cell(mean, newest_record))
        rows.append(row)
    noun = "type of task" if types else "benchmark"
    return Table.of(
        rows,
        heads,
        best=True,
        note="" if types else _MEANS,
        empty=f"No results on the tier {tier}.",
        name="types",
        caption=f"The mean over each {noun} of the tier {tier}, with 95 % intervals.",
        data=models.data_used(columns),
    )


def _is_of_benchmark(column: MeanColumn) -> bool:
    """Return whether a mean is over a whole benchmark, not one type of its tasks."""
    return column.name.startswith(column.benchmark)


def _mean_cell(mean: BenchmarkMean, example: Result) -> Cell | str:
    if mean.value is not None:
        return number(mean.value, interval=mean.interval)
    if not mean.measured and len(mean.missing) == len(mean.column.weights):
        has_search = any(is_search(task) for task in mean.column.weights)
        return _why_missing(example, searched=has_search)
    return Cell(f"{mean.measured} of {mean.column.tasks}", "incomplete")


def _tasks_table(models: _Grid, benchmark: Benchmark, tasks: Sequence[str], links: Links) -> Table:
    """Return the scores of all models on some tasks of a benchmark, a row per task."""
    columns = [benchmark_means.task_column(benchmark, task) for task in tasks]
    heads = ["model", *[_benchmark_task_head(column, models) for column in columns]]
    rows = []
    for identity, name in models.names.items():
        row: list[Cell | str] = [name]
        for column in columns:
            row.append(_benchmark_task_cell(column, models.records[identity], links))
        rows.append(row)
    scores = Table.of(
        rows,
        heads,
        best=True,
        name=f"tasks-{benchmark.name}-{tasks[0]}",
        caption=f"Scores of all models on the tasks of {benchmark.name}, with 95 % intervals.",
        data=models.data_used(columns),
    )
    if len(tasks) == 1:
        return scores
    return transposed(scores, first="task")


def _titles_and_tasks(benchmark: Benchmark) -> Iterator[tuple[str, Sequence[str]]]:
    """Return the titles and tasks of a benchmark's types, and those of its groups."""
    for kind, tasks in benchmark.types.items():
        name = benchmark.name
        if len(benchmark.types) > 1:
            name = f"{benchmark.name}: {kind}"
        yield f"{name} ({plural(len(tasks), 'task')})", tasks
        for task in tasks:
            parts = GROUPS.get(task)  # such as the forums of CQADupStack
            if parts:
                yield f"{benchmark.name}: the parts of {task} ({len(parts)})", parts


def _benchmark_task_cell(
    column: MeanColumn, records: Mapping[str, Result], links: Links
) -> Cell | str:
    tasks = list(column.weights)  # several for a task in parts
    if len(tasks) == 1 and tasks[0] in records:
        record = records[tasks[0]]
        score = benchmark_means.task_score(record, column.metric)
        return number(score, absent=f"no {column.metric}", link=score_link(record, links))
    mean = benchmark_means.column_mean(column, records.values())
    measured = len(tasks) - len(mean.missing)
    # Some parts of the task are missing: say how many there are.
    if mean.value is None and 0 < measured < len(tasks):
        return Cell(f"{measured} of {len(tasks)}", "incomplete")
    example = next(iter(records.values()))
    return _mean_cell(mean, example)


def _benchmark_task_head(column: MeanColumn, models: _Grid) -> str:
    """Return the task's name, with its metric and n or the number of its parts."""
    tasks = list(column.weights)
    if len(tasks) > 1:
        return f"{column.name}\n{column.metric}, mean of {len(tasks)}"
    records = models.on(tasks[0])
    if not records:
        return short_task(column.name)
    score = benchmark_means.task_score(records[0], column.metric)
    queries = score.n if score else 0
    metric = column.metric or _metric_of(records[0])
    return Head(f"{short_task(column.name)}\n{metric}, n = {queries}", queries)


def _metric_of(record: Result) -> str:
    """Name the metric of the score that MTEB reports, which may be none of the record's."""
    score = benchmark_means.task_score(record)
    for name, value in record.metrics.items():
        if value == score:
            return name
    if record.task.mteb:
        return record.task.mteb.metric
    return record.task.main_metric


def busiest_task(results: Iterable[Result], keys: Iterable[str]) -> str:
    """Return the task with per-query scores of most models; the first if tied."""
    models: dict[str, set[str]] = {task: set() for task in keys}
    for result in results:
        if result.task.key in models and result.task.main_metric in result.per_query:
            models[result.task.key].add(result.model.identity)
    return max(models, key=lambda task: len(models[task]))


def headline_task(results: Iterable[Result], *, tier: str) -> str:
    """Return the task of a tier with per-query scores of most models; the first if tied.

    A tier with benchmarks is summarised by the first of `Comparison.means` instead.
    """
    return busiest_task(results, TIERS[tier].task_keys)


def cost_table(results: Iterable[Result]) -> Table:
    """Return the cost of each model's records."""
    records = latest(results)
    names = model_names(records)
    rows = []
    for identity, records_by_task in by_model(records).items():
        rows.append(_cost_row(names[identity], list(records_by_task.values())))
    rows.sort(key=operator.itemgetter("model"))
    return Table.of(
        rows,
        note="Seconds over all tasks, with loading and scoring; peak memory of the whole process.",
        name="cost",
        caption="Cost of the results of each model.",
    )


def _cost_row(name: str, records: Sequence[Result]) -> dict[str, object]:
    costs = [record.cost for record in records]
    # 0 stands for costs that were not measured; `or None` shows them as such.
    peak_mebibytes = max(cost.peak_memory_bytes or 0 for cost in costs) / 2**20
    speeds = [cost.texts_per_second for cost in costs if cost.texts_per_second]
    speed = Cell("none encoded")
    if speeds:
        speed = Cell(f"{min(speeds):,.0f} to {max(speeds):,.0f}", value=max(speeds))
    return {
        "model": name,
        "parameters": number(records[0].model.parameters or None, ",", absent="none"),
        "seconds": number(sum(cost.seconds for cost in costs), ".1f"),
        "texts encoded": number(sum(cost.encoded for cost in costs), ","),
        "texts/s": speed,
        "peak MiB": number(peak_mebibytes or None, ",.0f", absent="not measured"),
        "device": records[0].environment.device,
    }


def _draw_scores(scores: Table, width: float) -> MplFigure:
    """Draw a panel per column of a table with a row per model."""
    rows = scores.rows[::-1]  # the last row is drawn on top
    names = [row[0].text for row in rows]
    heads = scores.columns[1:]
    row_height = 0.165  # inches
    if any_takes_two_lines(names):
        row_height = 0.22
    height = row_height * len(rows) + 0.72
    figure, axes, left_axes = panels(len(heads), width, height=height, sharey=True)
    for index, (axis, head) in enumerate(zip(axes, heads, strict=True), start=1):
        cells = [row[index] for row in rows]
        _draw_panel(axis, head, dict(zip(names, cells, strict=True)))
    for axis in left_axes:
        name_rows(axis, names)
    return figure


def _draw_panel(axis: Axes, head: str, cells: Mapping[str, Cell]) -> None:
    styles = model_styles(list(cells))
    for row, (model, cell) in enumerate(cells.items()):
        if cell.value is not None:
            draw_estimate(axis, row, cell.value, cell.interval, **styles[model], size=4)
    title, _, measure = head.partition("\n")
    axis.set_title(plain(title))
    axis.set_xlabel(plain(measure, longest=44))
    # The axis begins at 0, or below where a score is negative.
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    axis.set_ylim(-0.6, len(cells) - 0.4)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    grid(axis)


def standings(
    results: Iterable[Result], *, tier: str, seed: int = 0, comparison: Comparison | None = None
) -> dict[str, Ranking]:
    """Rank the models on each of a tier's tasks with per-query scores, and on their mean.

    The mean is over the tasks that most models have, by metric if they have several: models that
    lack one of them are not ranked but listed with the reason. A tier with benchmarks has a ranking
    per benchmark and type instead. Tasks with fewer than two models are left out.
    """
    if TIERS[tier].benchmarks:
        if comparison is None:
            comparison = compare(results, tier=tier, seed=seed)
        return _rankings_by_means(comparison, seed)
    tasks = TIERS[tier].task_keys
    records = [result for result in latest(results) if result.task.key in tasks]
    matrices, _ = pair_results(records)
    in_order_of_tier = sorted(matrices, key=lambda matrix: _position(matrix.task, tasks))
    rankings = _rankings_by_task(in_order_of_tier, records, seed)
    return rankings | _rankings_over_tasks(matrices, records, seed)


def _position(task: str, tier_tasks: Sequence[str]) -> int:
    """Return the position of a task, or a part of it, in a tier."""
    for index, key in enumerate(tier_tasks):
        if task.startswith(key):
            return index
    return len(tier_tasks)


def _rankings_by_task(
    matrices: Iterable[ScoreMatrix], records: Sequence[Result], seed: int
) -> dict[str, Ranking]:
    rankings = {}
    for matrix in matrices:
        if len(matrix.systems) > 1:
            data = _data_of([matrix], records)
            rankings[matrix.task] = rank_systems([matrix], seed=seed, data=data)
    return rankings


def _rankings_over_tasks(
    matrices: Iterable[ScoreMatrix], records: Sequence[Result], seed: int
) -> dict[str, Ranking]:
    """Rank the models on the mean over tasks, one for each metric."""
    by_metric = defaultdict(list)
    for matrix in matrices:
        by_metric[matrix.metric].append(matrix)
    rankings = {}
    for metric, matrices_of_metric in by_metric.items():
        # The tasks that most models have: a mean needs all of them.
        shared_tasks = benchmark_means.rankable(matrices_of_metric)
        if len(shared_tasks) < 2:
            continue
        title = ALL_TASKS
        if len(by_metric) > 1:
            title = f"{ALL_TASKS} by {metric}"
        data = _data_of(shared_tasks, records)
        rankings[title] = rank_systems(shared_tasks, seed=seed, data=data)
    return rankings


def _rankings_by_means(comparison: Comparison, seed: int) -> dict[str, Ranking]:
    """Rank the models on each mean of a tier with benchmarks."""
    rankings = {}
    for mean in comparison.means:
        tasks = [part.task for part in mean.parts]
        # The shares are the weights of the tasks; a group of tasks counts as one unit.
        rankings[mean.task] = rank_systems(
            mean.parts,
            seed=seed,
            weights=mean.shares,
            name=mean.task,
            units=benchmark_means.units_of(tasks, mean.task),
            p_values=mean.p_values,
            correction=mean.correction,
            data=comparison.data_used(mean.task),
        )
    return rankings


def _data_of(matrices: Sequence[ScoreMatrix], results: Iterable[Result]) -> DataUsed:
    """Return the data of tasks, or of parts of them."""
    # With a hyphen, the task "A" has the part "A-test", but "AB" is another task.
    tasks = tuple(f"{matrix.task}-" for matrix in matrices)
    records = []
    for result in results:
        key = f"{result.task.key}-"
        if any(task.startswith(key) for task in tasks):
            records.append(result)
    return DataUsed.of(records)


def rank_table(rankings: Mapping[str, Ranking]) -> Table | None:
    """Return a row per model and a column per ranking, best on the first of them first.

    A cell has the rank, its interval and the tie groups. Then follow the Borda rank in the ranking
    over most tasks, and statistics for other tasks like these. Models that are not ranked have a
    row with the reason. None without rankings, which need two models with scores per query on the
    same tasks.
    """
    if not rankings:
        return None
    # Keys of a dict are unique, and keep their order.
    systems: dict[str, None] = {}
    for ranking in rankings.values():
        systems |= dict.fromkeys(standing.system for standing in ranking.standings)
    rows: dict[str, dict[str, Cell | str]] = {}
    for system in systems:
        rows[system] = {"model": system}
    data = DataUsed()
    # The ranking over most tasks also says something about other tasks like these.
    widest = max(rankings.values(), key=lambda ranking: ranking.units)
    for title, ranking in rankings.items():
        data |= ranking.data
        head = _ranking_head(title, ranking)
        standing_by_system = {standing.system: standing for standing in ranking.standings}
        for system, row in rows.items():
            standing_of_system = standing_by_system.get(system)
            row[head] = _rank_cell(standing_of_system, system, ranking)
            if ranking is widest:
                row.update(_cells_over_tasks(standing_of_system, title, ranking))
    return Table.of(
        rows.values(),
        note=_note_on_ranks(rankings, widest),
        name="ranks",
        caption="Rank of each model with its interval, on each task or type of task. Models that "
        "share a letter in a column are not significantly different.",
        data=data,
    )


def _note_on_ranks(rankings: Mapping[str, Ranking], widest: Ranking) -> str:
    note = (
        "Only models with a score on every task are ranked; in a mean over tasks each has the same "
        "weight, a group that of one task. Intervals exclude the ranks of models that are "
        f"significantly better or worse. Letters and intervals: {_tests(rankings)}, alpha "
        f"{ALPHA:g}, and the interval of the difference.{_sentences_on_means(rankings)}"
    )
    if widest.units > 1:
        note += " Borda: as on MTEB's leaderboard."
    if widest.units >= FEWEST_TASKS:
        note += (
            " Tasks like these: the tasks as a sample, with Student's interval over their means, "
            "and the share of bootstrap draws of them in which a model has the best mean."
        )
    return note


def _ranking_head(title: str, ranking: Ranking) -> str:
    benchmark, _, kind = title.rpartition(": ")
    if not ranking.name and len(ranking.tasks) == 1:
        return f"{short_task(kind)}\nn = {ranking.queries[0]}"
    count = benchmark_means.counted_tasks(ranking.tasks, ranking.name)
    size = f"{benchmark}, {count}" if benchmark else f"mean of {count}"
    return f"{short_task(kind)}\n{size}"


def _cells_over_tasks(standing: Standing | None, title: str, ranking: Ranking) -> dict[str, Cell]:
    """Return the Borda rank and what the tasks say as a sample, if there are enough of them.

    A model without a standing has dashes.
    """
    borda_head = f"Borda\n{title}"
    mean_head = "mean\non tasks like these"
    # The share of random draws of the tasks in which a model has the best mean.
    share_head = "first\nin draws of tasks"
    shown_heads = []
    if ranking.units > 1:
        shown_heads.append(borda_head)
    if ranking.units >= FEWEST_TASKS:
        shown_heads += [mean_head, share_head]
    if standing is None:
        return {head: number(None) for head in shown_heads}
    cells = {
        borda_head: number(standing.borda, "d"),
        mean_head: number(standing.mean, interval=standing.like_these),
        share_head: number(standing.first, ".0%"),
    }
    return {head: cells[head] for head in shown_heads}


def _tests(rankings: Mapping[str, Ranking]) -> str:
    """Name the test behind rankings, and the pairs of each over which it is corrected."""
    corrections = dict.fromkeys(NAMES[ranking.correction] for ranking in rankings.values())
    sizes = dict.fromkeys(plural(ranking.family, "pair") for ranking in rankings.values())
    return (
        f"{TEST}, {' or '.join(corrections)} over all pairs of models of a column "
        f"({' or '.join(sizes)})"
    )


def _sentences_on_means(rankings: Mapping[str, Ranking]) -> str:
    """Name the tasks of each mean over tasks, and those that the other columns show besides."""
    sentences = []
    for title, ranking in rankings.items():
        missing_tasks = benchmark_means.missing_tasks(ranking.tasks, ranking.name)
        if missing_tasks:
            names = _short_names(missing_tasks)
            sentences.append(f" {ranking.name} without {names}: too few models have them.")
        # Titles such as "all tasks", or "all tasks by nDCG@10" if there are several metrics.
        if title.startswith(ALL_TASKS):
            sentences.append(_sentence_on_all_tasks(title, ranking, list(rankings)))
    return "".join(sentences)


def _sentence_on_all_tasks(title: str, ranking: Ranking, titles: Sequence[str]) -> str:
    """Name the tasks of the mean over a tier's tasks, and those of other columns."""
    title_of_sentence = title.replace(ALL_TASKS, "All tasks")
    sentence = f" {title_of_sentence}: the mean of {_short_names(ranking.tasks)}"
    # The other titles are those of single tasks, which are not part of this mean.
    further_tasks = [name for name in titles if name not in (*ranking.tasks, ALL_TASKS)]
    # A mean of one of several metrics also leaves out tasks with the other metrics.
    if title == ALL_TASKS and further_tasks:
        sentence += f"; without {_short_names(further_tasks)}, which fewer models have"
    return f"{sentence}."


def _short_names(tasks: Iterable[str]) -> str:
    return ", ".join(short_task(task) for task in tasks)


def _rank_cell(standing: Standing | None, system: str, ranking: Ranking) -> Cell:
    """Return a rank with its interval, or the reason why there is none."""
    if standing is None:
        tasks = ranking.unranked.get(system, ())
        reason = "no score"
        if tasks:
            reason += f" on {_short_names(tasks)}"
        return Cell("not ranked", reason)
    low, high = standing.rank_interval
    return Cell(
        str(standing.rank),
        f"{low} to {high}",
        value=standing.rank,
        interval=standing.rank_interval,
        # Models with a letter in common are not significantly different.
        mark=" ".join(_group_mark(group) for group in standing.groups),
    )


def _group_mark(group: int) -> str:
    """Return the letter of a tie group, or its number after the last letter."""
    letters = string.ascii_lowercase
    if group > len(letters):
        return str(group)
    return letters[group - 1]


class _Target(NamedTuple):
    """The data of an expected score."""

    metric: str
    revision: str  # MTEB's
    size: Mapping[str, int]  # checked, because a private hub may serve a sample


_TARGETS = {
    "STSBenchmark": _Target(
        "Spearman", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", {"pairs": 1379}
    ),
    "MSMARCO": _Target(
        "MRR@10",
        "c5a29a104738b98a9e76336939199e264163d4a0",
        {"documents": 8_841_823, "queries": 6980},
    ),
}
_MSMARCO_METRICS = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10")
_OURS = "ours"  # extracted models, expected to exceed the value
_EXPECTED = {
    "Qwen3-0.6B": {"STSBenchmark": 0.60, "MSMARCO": 0.20},
    _OURS: {"STSBenchmark": 0.75, "MSMARCO": 0.30},
    "e5-base-v2": {"STSBenchmark": 0.84, "MSMARCO": 0.35},
    "gte-base": {"STSBenchmark": 0.82, "MSMARCO": 0.33},
}


def expected_table(results: Iterable[Result]) -> Table | None:
    """Return expected and measured scores on STS-B and MS MARCO, a row per model.

    None if no model with an expected score was measured. A target is judged only on the full data
    it was set for; a missing score names the command that measures it.
    """
    records, _ = newest_records(result for result in latest(results) if result.task.key in _TARGETS)
    names = model_names(records)
    rows = []
    for label in _EXPECTED:
        records_of_label = _records_with_expectation(label, records)
        for identity, records_by_task in by_model(records_of_label).items():
            rows.append(_expected_row(label, names[identity], records_by_task))
    if not rows:
        return None
    return Table.of(
        rows,
        note="Expected: about the value for baselines, above it for extracted models. Judged only "
        "on the data that MTEB pins, in full; scores on substitutes are shown, but not judged.",
        kind="words",
        name="expected",
        caption="Scores expected on STS-B and MS MARCO, and measured.",
        data=DataUsed.of(records),
    )


def _records_with_expectation(label: str, records: Iterable[Result]) -> list[Result]:
    """Return the records of a model with an expected score, or of all extracted models."""
    if label != _OURS:
        return [record for record in records if label in (record.model.label, record.model.spec)]
    root = paths.root()
    return [record for record in records if read_provenance(root / record.model.spec) is not None]


def _expected_row(
    label: str, name: str, records_by_task: Mapping[str, Result]
) -> dict[str, object]:
    # "~": about the value; ">": above it.
    relation, remark = "~", ""
    if label == _OURS:
        relation, remark = ">", _OURS
    row: dict[str, object] = {"model": (name, remark)}
    for task, target in _TARGETS.items():
        row[f"{task}\n{target.metric}, expected"] = f"{relation} {_EXPECTED[label][task]:.2f}"
        row[f"{task}\n{target.metric}, measured"] = _measured_cell(label, records_by_task, task)
    return row


def _measured_cell(label: str, records_by_task: Mapping[str, Result], task: str) -> Cell:
    target = _TARGETS[task]
    score = None
    if task in records_by_task:
        score = records_by_task[task].metrics.get(target.metric)
    if score is None or score.value is None:
        folder = next(iter(records_by_task.values())).model.spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(_TARGETS)}")
    measured_on = records_by_task[task].task
    if measured_on.revision != target.revision or measured_on.size != target.size:
        return number(score.value, detail="other data, not judged")
    difference = score.value - _EXPECTED[label][task]
    # Only extracted models have to exceed the value.
    if label != _OURS:
        return number(score.value, detail=f"{difference:+.3f}")
    if difference > 0:
        return number(score.value, detail="above")
    return number(score.value, detail="BELOW", strong=True)


def sts_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and the metrics recorded on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of two such tasks.
    """
    records = [
        record
        for record in latest(results)
        if record.task.type == "STS" or record.task.key == "MSMARCO"
    ]
    if len({record.task.key for record in records}) < 2:
        return None
    tasks = sorted({record.task.key for record in records if "Spearman" in record.metrics})
    metrics = _metrics_on_msmarco(records)
    heads = ["model", *(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in metrics]
    names = model_names(records)
    rows = []
    for identity, records_by_task in by_model(records).items():
        correlations = [_metric_cell(records_by_task, task, "Spearman") for task in tasks]
        mean = _mean_of_cells(correlations)
        scores_on_msmarco = [_metric_cell(records_by_task, "MSMARCO", metric) for metric in metrics]
        rows.append((names[identity], *correlations, mean, *scores_on_msmarco))
    rows.sort(key=operator.itemgetter(0))  # by name
    return Table.of(
        rows,
        heads,
        best=True,
        note="95 % intervals over pairs or queries; best of each column in bold.",
        name="sts-msmarco",
        caption="Correlations on every STS task, and the metrics on MS MARCO dev.",
        data=DataUsed.of(records),
    )


def _metrics_on_msmarco(records: Iterable[Result]) -> list[str]:
    """Return the metrics that a record on MS MARCO has, in the order of their columns."""
    recorded: set[str] = set()
    for record in records:
        if record.task.key == "MSMARCO":
            recorded |= record.metrics.keys()
    return [metric for metric in _MSMARCO_METRICS if metric in recorded]


def _metric_cell(records_by_task: Mapping[str, Result], task: str, metric: str) -> Cell:
    if task not in records_by_task:
        return Cell("not run")
    return number(records_by_task[task].metrics.get(metric))


def _mean_of_cells(cells: Sequence[Cell]) -> float | str:
    """Return the mean of scores, or how many of them there are if some are missing."""
    scores = [cell.value for cell in cells if cell.value is not None]
    if scores and len(scores) == len(cells):
        return fmean(scores)
    return f"{len(scores)} of {len(cells)}"
