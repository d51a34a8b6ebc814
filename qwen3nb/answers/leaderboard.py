"""Which model is best, and how certain is that? All models of a tier: scores, ranks, the lead.

For a tier with benchmarks, the means of each come first, then tasks and types.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from qwen3nb.analysis.comparison.benchmark_means import task_column
from qwen3nb.analysis.comparison.brackets import Ties, find_ties
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.board.cost_figure import cost_figure
from qwen3nb.answers.board.costs import cost_table
from qwen3nb.answers.board.expected import expected_table, sts_table
from qwen3nb.answers.board.grid import Grid, Links, busiest_task, is_of_benchmark, score_grid
from qwen3nb.answers.board.lead import first_place, how_sure_page, lead_figure
from qwen3nb.answers.board.models import is_toy, models_table
from qwen3nb.answers.board.overview import (
    OWN_DATA,
    Overview,
    RankedModel,
    mean_columns,
    task_columns,
    task_title,
)
from qwen3nb.answers.board.published import (
    PublishedModel,
    published_means,
    published_note,
    published_on_tasks,
    with_published,
)
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.board.references import not_measured, references_table
from qwen3nb.answers.board.scores import (
    NEAR_BEST,
    draw_scores,
    means_table,
    near_best_models,
    scores_table,
    shown_means,
    tasks_table,
    titles_and_tasks,
)
from qwen3nb.answers.board.won import difference_tables, won_tables
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.languages import language_sections
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    Figure,
)
from qwen3nb.report.render.html import styled, unstyled
from qwen3nb.report.render.table import (
    MOST_MODELS,
    Conclusion,
    Sections,
    Table,
    not_shown,
)
from qwen3nb.report.render.views import View, Views
from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.imports import DataFrame


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
    def grid(self) -> Grid:
        """The models, the best first, with their records and means."""
        return score_grid(self.results, self.tier, self.keys)

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
        """The model that is first, or those that share first place.

        Without results on the task, the tasks of the results are named.
        """
        conclusion = first_place(self.comparison, self.ties, task=self.task, results=self.results)
        return replace(conclusion, how_sure=how_sure_page(self.comparison))

    @cached_property
    def ties(self) -> Ties:
        """The models with a score on `task`, the best first, and which are not told apart."""
        shown = set(self._systems.values())
        scores = {}
        for record in self.comparison.scored(self.task):
            name = self.comparison.name(record)
            if name in shown:
                scores[name] = record.main.value or 0.0
        names = sorted(scores, key=lambda name: (-scores[name], name))
        on_task = self.comparison.on(self.task)
        if on_task is None:
            return find_ties(names, [])
        return self.comparison.ties_on(on_task, names)

    def overview(self) -> Overview:
        """The first table of the page: shared ranks, brackets, and a score per model and task."""
        columns = task_columns(self.grid, self.tasks, self.links)
        if self.grid.columns:
            columns = mean_columns(self.grid, self.links)
        shown = {column.task for column in columns}
        published = [model for model in self._published if shown & model.values.keys()]
        missing = not_measured(self._records())
        return Overview(
            self._ranked_models(),
            columns,
            self.ties,
            self.task,
            self._title,
            references_table(missing, tasks=self._task_options),
            published=published,
            files=self.table_with_published(name="scores").links_to_files(),
            data=DataUsed.of(self._records()),
        )

    @cached_property
    def _published(self) -> list[PublishedModel]:
        """The reference models with published scores in columns that they lack here."""
        if self.grid.columns:
            return published_means(self.grid, shown_means(self.grid))
        return published_on_tasks(self.grid, [task for task in self.tasks if self.grid.on(task)])

    def _records(self) -> Iterator[Result]:
        """The records of all models on these tasks."""
        for by_task in self.grid.records.values():
            yield from by_task.values()

    @property
    def _title(self) -> str:
        """The title of the task or mean that decides which model is best."""
        records = self.grid.on(self.task)
        return task_title(records[0]) if records else self.task

    @cached_property
    def _systems(self) -> dict[str, str]:
        """The name of each model in the comparison, by identity; of several seeds, the newest."""
        systems = {}
        for identity, by_task in self.grid.records.items():
            record = by_task.get(self.task) or self.grid.example(identity)
            systems[identity] = self.comparison.names.get((identity, record.seed), "")
        return systems

    def _ranked_models(self) -> list[RankedModel]:
        """Return a row per model: those with a rank first, in its order."""
        place = {name: row for row, name in enumerate(self.ties.models)}
        models = []
        for identity, name in self.grid.names.items():
            example = self.grid.example(identity)
            system = self._systems[identity]
            if system not in place:
                system = ""
            link = self.links.get(example.run, "")
            models.append(RankedModel(identity, name, system, link, is_toy(example)))
        # Sorting keeps the order of the grid among models without a rank.
        return sorted(models, key=lambda model: place.get(model.system, len(place)))

    @property
    def _task_options(self) -> str:
        """The options of a command that select these tasks."""
        if self.keys:
            return f"--tasks {','.join(self.keys)}"
        return f"--tier {self.tier}"

    def views(self) -> Views:
        """All tables of the page, of which a reader chooses one."""
        if not self.grid.names:
            return Views("leaderboard", [View("scores", [self.overview()])])
        several = len(self.grid.names) > 1
        views = [View("scores", [self.overview()])]
        intervals = self.table_with_published(name="intervals")
        views.append(View("± intervals", [intervals, self.figure()]))
        if several:
            differences = difference_tables(self.comparison, task=self.task)
            views.append(View("difference to …", [differences]))
            views.append(View("won / lost", [won_tables(self.comparison, task=self.task)]))
            ranks = self.rank_table(seed=self.comparison.procedure.seed)
            if ranks is not None:
                views.append(View("ranks", [ranks]))
        languages = self.languages()
        if languages is not None:
            views.append(View("languages", [languages]))
        views.append(View("cost", self._cost_parts()))
        views.append(View("models", [self.models_table()]))
        return Views("leaderboard", views)

    def _cost_parts(self) -> list[Figure | Table]:
        figure = self.cost_figure()
        parts: list[Figure | Table] = [figure] if figure is not None else []
        return [*parts, self.cost_table()]

    def __repr__(self) -> str:
        return f"{self.conclusion.text}\n{self.overview()!r}"

    def _repr_html_(self) -> str:
        fragments = [self.conclusion._repr_html_(), self.views()._repr_html_()]
        return styled("\n".join(map(unstyled, fragments)))

    def table(self, *, name: str = "") -> Table:
        """A row per model and a column per task; the two best of each column are marked.

        Models not significantly different from the best of a column also have a mark. A tier with
        benchmarks has a column per mean over a benchmark instead; the means by type and the tasks
        are in `task_tables`. ``name`` is that of its files, by default ``comparison-`` and the
        tier.
        """
        name = name or f"comparison-{'tasks' if self.keys else self.tier}"
        if self.grid.columns:
            return replace(means_table(self.grid, self.tier, self.links), name=name)
        scores = scores_table(self.grid, self._near_best, self.links)
        if any(self._near_best.values()):
            scores = replace(scores, legend=(("†", NEAR_BEST),))
        return replace(scores, name=name)

    def table_with_published(self, *, name: str = "") -> Table:
        """The table with published scores of reference models below it, where there are any.

        They are text without a value, and a column names the source of each row.
        """
        return self._above_published(self.table(name=name))

    def _above_published(self, table: Table) -> Table:
        columns = list(self.tasks)
        if self.grid.columns:
            columns = [column.name for column in shown_means(self.grid)]
        return with_published(table, self._published, columns)

    @cached_property
    def _near_best(self) -> dict[str, set[str]]:
        """The models of each task that are not told apart from its best, by identity."""
        return {key: near_best_models(self.grid.on(key), self.comparison) for key in self.tasks}

    def figure(self) -> Figure:
        """A panel per task, with a point and its 95 % interval per model, the best on top.

        A tier with benchmarks has a panel per mean over a benchmark. Models keep their row in
        every panel. The accent marks the best of a panel, and what is not told apart from it.
        """
        if self.grid.columns:
            scores = means_table(self.grid, self.tier, {})
        else:
            scores = scores_table(self.grid, self._near_best, {})
        best_scores = replace(scores, rows=scores.rows[:MOST_MODELS])
        title = scores.caption.removesuffix(".")
        first_head = " ".join(scores.columns[1].split())
        first_panel = ", ".join(f"{row[0].text} {row[1].text}" for row in best_scores.rows)
        return Figure(
            name="comparison-tasks" if self.keys else f"comparison-{self.tier}",
            draw=functools.partial(draw_scores, best_scores),
            caption=f"{title} over the n of each panel. A row without a point was not measured. "
            "Overlapping intervals say little about a difference."
            + not_shown(len(scores) - len(best_scores)),
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
        if most is not None and len(scores) > most:
            note = f"The best {most} of {len(scores)} models. {scores.note}"
            scores = replace(scores, rows=scores.rows[:most], note=note)
        return board._above_published(scores)

    def rank_table(self, *, seed: int = 0) -> Table | None:
        """A row per model and a column per ranking; None for fewer than two models."""
        comparison = self.compared
        # Of some tasks alone, a comparison has no means to rank on.
        if comparison is None and not self.keys and seed == self.comparison.procedure.seed:
            comparison = self.comparison
        return rank_table(standings(self.results, tier=self.tier, seed=seed, comparison=comparison))

    def languages(self) -> Sections | None:
        """The means by script, by language and by pair of languages; None for one language."""
        return language_sections(self.results, models=list(self.grid.names))

    def cost_table(self) -> Table:
        """The time, memory and size of each model's records."""
        return cost_table(self.results)

    def cost_figure(self) -> Figure | None:
        """The score of each model on `task` against its speed or size; None for fewer than two."""
        scores = {
            record.model.identity: record.main.value
            for record in self.comparison.scored(self.task)
            if record.main.value is not None
        }
        return cost_figure(
            scores,
            self.grid,
            best=self.ties.best,
            title=self._title,
            data=self.comparison.data_used(self.task),
        )

    def models_table(self) -> Table:
        """The type, size, dimensions, longest text and licence of each model."""
        return models_table(self.grid.names, self.grid.records, self.links)

    def expected_table(self) -> Table | None:
        """Scores expected on STS-B and MS MARCO, and measured; None if no such model was."""
        return expected_table(self.results)

    def sts_table(self) -> Table | None:
        """Every STS task with the mean, and MS MARCO; None for a tier with benchmarks."""
        if self.grid.columns:
            return None
        return sts_table(self.results)

    def task_tables(self, *, published: bool = True) -> Sections | None:
        """The means by type, and tables of tasks by benchmark and type.

        None for a tier without benchmarks, whose leaderboard shows its tasks. With ``published``,
        they have the published scores of reference models, too.
        """
        if not TIERS[self.tier].benchmarks:
            return None
        # All tasks of the tier, also if some are selected for the other tables.
        models = replace(self, keys=()).grid
        tables = []
        has_means_by_type = not all(is_of_benchmark(column) for column in models.columns)
        if has_means_by_type:
            by_type = means_table(models, self.tier, self.links, types=True)
            if published:
                by_type = _types_with_published(by_type, models)
            tables.append(("Means by type of task", by_type))
        for name in TIERS[self.tier].benchmarks:
            benchmark = BENCHMARKS[name]
            for title, tasks in titles_and_tasks(benchmark):
                table = tasks_table(models, benchmark, tasks, self.links, published=published)
                tables.append((title, table))
        about = "All tasks, by benchmark and type, with the models in the order of the table above."
        if published:
            columns = [task_column(BENCHMARKS[name], task) for name, task in self._benchmark_tasks]
            references = published_means(models, columns)
            if references:
                about = f"{about} {published_note(references)}"
        return Sections(tuple(tables), about)

    @property
    def _benchmark_tasks(self) -> Iterator[tuple[str, str]]:
        """The benchmarks of the tier, each with each of its tasks."""
        for name in TIERS[self.tier].benchmarks:
            for task in BENCHMARKS[name].tasks:
                yield name, task


def _types_with_published(table: Table, models: Grid) -> Table:
    columns = shown_means(models, types=True)
    return with_published(
        table, published_means(models, columns), [column.name for column in columns]
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
    keys = keys or _own_tasks_alone(records, tier)
    if comparison is None and (baseline or seed):
        comparison = compare(records, tier=tier, tasks=keys, baseline=baseline, seed=seed)
    return Leaderboard(records, tier, tuple(keys), comparison, links or {})


def _own_tasks_alone(records: Iterable[Result], tier: str) -> Sequence[str]:
    """Return the collections of own data, if nothing else was evaluated on the tier's tasks."""
    own_tasks: dict[str, None] = {}
    for record in records:
        if record.task.key in TIERS[tier].task_keys:
            return ()
        if record.task.dataset.startswith(OWN_DATA):
            own_tasks[record.task.key] = None
    return tuple(own_tasks)
