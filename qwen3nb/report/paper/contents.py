"""Every figure and table that results allow, for a paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.comparison.by_type import overview_table, tasks_by_type
from qwen3nb.report.comparison.figures import differences_figure, pairs_figure
from qwen3nb.report.comparison.tables import differences_table
from qwen3nb.report.comparison.task_figures import task_differences_figure, wins_figure
from qwen3nb.report.leaderboard.benchmark_tables import task_tables
from qwen3nb.report.leaderboard.figures import (
    bars_figure,
    comparison_figure,
    per_query_figure,
    similarity_figure,
)
from qwen3nb.report.leaderboard.ranking import rank_figure, standings
from qwen3nb.report.leaderboard.score_table import leaderboard
from qwen3nb.report.leaderboard.tables import cost_table, headline_table
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.format import not_shown
from qwen3nb.report.render.sections import MANY
from qwen3nb.report.render.table import Table, transposed
from qwen3nb.report.studies.reranking_figures import gain_figure
from qwen3nb.report.training.configurations import (
    configuration_differences_table,
    configurations_figure,
    configurations_table,
)
from qwen3nb.report.training.figures import conflict_figure, loss_figure, trajectory_figure
from qwen3nb.report.training.interference import (
    InterferenceReport,
    interference_figure,
    interference_report,
    interference_table,
)
from qwen3nb.report.training.tables import read_trainings
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of

__all__ = ["ALL", "Choice", "PaperContents"]

METRIC = "nDCG@10"
_OF_MANY = 4  # of more than `MANY` models that are not named, how many have figures of their own


@dataclass(frozen=True)
class Choice:
    """What of the results a paper is about.

    Attributes:
        tier: by default the richest with results; where none has, only trainings are shown.
        models: names of the models to show; by default all.
        tasks: keys of the tasks to show in place of the tier's.
        seed: of the draws.
    """

    tier: str = ""
    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    seed: int = 0

    @property
    def is_part(self) -> bool:
        """Whether models or tasks are named; trainings and adapters are then left out."""
        return bool(self.models or self.tasks)


ALL = Choice()


@dataclass(frozen=True)
class _Shown:
    """The records of a choice, newest per model and task.

    Attributes:
        tier: whose tasks the columns are.
        tasks: the tasks that replace the tier's; may be empty.
        results: may be empty.
        named: whether the choice names the models.
    """

    tier: str
    tasks: tuple[str, ...]
    results: list[Result]
    named: bool

    @property
    def has_means(self) -> bool:
        """Whether means over benchmarks are shown, rather than tasks."""
        return bool(TIERS[self.tier].benchmarks) and not self.tasks


@dataclass(frozen=True, repr=False)
class PaperContents:
    """Every figure and table that the chosen records, trainings and adapters allow.

    Trainings and adapters are shown from all records and the logs below `paths.runs`. What needs a
    model (spectra, indexes, ablations) is only on its page. Figures and tables show one
    comparison, which is computed once.

    Attributes:
        results: any records.
        choice: what of them the paper is about.
    """

    results: Sequence[Result]
    choice: Choice = ALL

    @cached_property
    def _records(self) -> _Shown:
        return _shown(self.results, self.choice)

    @cached_property
    def _comparison(self) -> Comparison:
        shown = self._records
        return compare(shown.results, tier=shown.tier, tasks=shown.tasks, seed=self.choice.seed)

    @cached_property
    def _interference(self) -> InterferenceReport:
        return interference_report(seed=self.choice.seed)

    def figures(self) -> list[tuple[str, Figure]]:
        """Return every figure, each with the name of its file.

        Raises:
            ValueError: no records on the tier, or of a model or task; lists those there are.
        """
        trained = [(each.name, each) for each in self._of_trainings() if each]
        shown = self._shown_beside(trained)
        if not shown.results:
            return trained
        figures = [
            comparison_figure(shown.results, tier=shown.tier, tasks=shown.tasks),
            bars_figure(shown.results, tier=shown.tier, tasks=shown.tasks),
        ]
        if not shown.tasks:
            boards = standings(
                shown.results, tier=shown.tier, seed=self.choice.seed, first_only=True
            )
            figures.append(rank_figure(boards))
        comparison = self._comparison
        for task in () if shown.has_means else _compared_tasks(comparison):
            figures.append(task_differences_figure(comparison, task=task))
            figures.append(wins_figure(comparison, task=task))
        figures += [differences_figure(comparison), pairs_figure(comparison)]
        named = [(figure.name, figure) for figure in figures if figure is not None]
        return named + trained + list(_per_model(shown))

    def tables(self) -> list[Table]:
        """Return every table, each with name and caption.

        Raises:
            ValueError: as for `figures`.
        """
        trained = [] if self.choice.is_part else self._trained_tables()
        shown = self._shown_beside(trained)
        if not shown.results:
            return trained
        comparison = self._comparison
        board = leaderboard(
            shown.results, tier=shown.tier, tasks=shown.tasks, comparison=comparison
        )
        tables = [transposed(board, first="mean") if shown.has_means else board]
        if not shown.tasks:
            tables.append(_headline(shown))
        cost = cost_table(shown.results)
        tables.append(replace(cost, name="cost", caption="Cost of the results."))
        if shown.has_means:
            tables += _of_benchmarks(shown, comparison)
        else:
            tasks = _compared_tasks(comparison)
            tables += [differences_table(comparison, task=each) for each in tasks]
        return tables + trained

    def _shown_beside(self, others: Sequence[object]) -> _Shown:
        """Return the records; none only if nothing is named and there are ``others``."""
        shown = self._records
        needed = self.choice.is_part or self.choice.tier or not others
        if not shown.results and needed:
            tier = shown.tier
            raise ValueError(
                f"no results on the tier {tier!r}; run `qwen3nb eval --tier {tier}` first"
            )
        return shown

    def _of_trainings(self) -> Iterator[Figure | None]:
        if self.choice.is_part:
            return
        trainings = read_trainings(self.results, tier=self.choice.tier, seed=self.choice.seed)
        yield from (trajectory_figure(trainings), loss_figure(trainings))
        yield conflict_figure(trainings)
        yield interference_figure(self._interference)
        yield configurations_figure(self._interference.scores)
        reranked = [result for result in self.results if f"gain {METRIC}" in result.per_query]
        if reranked:
            yield gain_figure(reranked)

    def _trained_tables(self) -> list[Table]:
        """Return the tables of trained adapters that have rows."""
        tables = (
            configurations_table(self._interference.scores),
            configuration_differences_table(self._interference.differences),
            interference_table(self._interference),
        )
        return [each for each in tables if each.rows]


def _per_model(shown: _Shown) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of each model; of many that are not named, of the best alone."""
    models: dict[str, list[Result]] = {}
    for each in shown.results:
        models.setdefault(each.model.identity, []).append(each)
    names = model_names(shown.results)
    best = sorted(models, key=lambda identity: _rank(models[identity]))
    kept = best if shown.named or len(best) <= MANY else best[:_OF_MANY]
    left_out = len(names) - len(kept)
    for identity, name in names.items():
        if identity in kept:
            own, _ = newest_records(models[identity])
            for figure in (per_query_figure(own, metric=METRIC), similarity_figure(own)):
                if figure is not None:
                    caption = figure.caption + not_shown(left_out)
                    yield f"{figure.name}-{name}", replace(figure, caption=caption)


def _rank(results: Sequence[Result]) -> tuple[int, float]:
    """Return what models are sorted by: their number of results, then the mean of their scores."""
    scores = [each.main.value for each in results if each.main.value is not None]
    return -len(scores), -fmean(scores or [0.0])


def _headline(shown: _Shown) -> Table:
    table = headline_table(shown.results, tier=shown.tier)
    return replace(
        transposed(table, first="mean") if shown.has_means else table,
        name=f"headline-{shown.tier}",
        caption=f"The scores in front on the tier {shown.tier}.",
    )


def _of_benchmarks(shown: _Shown, comparison: Comparison) -> Iterator[Table]:
    """Yield the tables of all tasks by benchmark and type, and the differences by type."""
    tables = task_tables(shown.results, tier=shown.tier)
    if tables is None:
        return
    *sections, (title, missing) = tables.tables
    for name, table in sections:
        yield replace(transposed(table, first="task"), caption=f"{name}.")
    yield replace(missing, name="missing", caption=f"{title}.")
    yield replace(
        overview_table(comparison, most=len(comparison.names)),
        caption="Tasks won and lost, by type.",
    )
    for kind, tasks in tasks_by_type(comparison).items():
        if keys := [each.task for each in tasks if each.with_baseline]:
            table = differences_table(comparison, tasks=keys)
            caption = f"{kind}: paired differences from {comparison.baseline}."
            yield replace(table, name=f"differences-{kind}", caption=caption)


def _shown(results: Sequence[Result], choice: Choice) -> _Shown:
    # Adapters are repeated runs of one training, which have tables of their own.
    newest = latest(r for r in results if choice.models or "training" not in r.config)
    tier = choice.tier or richest_tier(results)
    names = model_names(newest)
    kept = [
        each for each in newest if not choice.models or names[each.model.identity] in choice.models
    ]
    _expect("model", choice.models, names.values())
    _expect("task", choice.tasks, (each.task.key for each in kept))
    keys = choice.tasks or TIERS[tier].task_keys
    kept = [each for each in kept if each.task.key in keys]
    return _Shown(tier, choice.tasks, kept, bool(choice.models))


def _expect(kind: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name without records.

    Raises:
        ValueError: lists the names that have records.
    """
    for name in wanted:
        one_of(f"{kind} with results", name, sorted(set(known)))


def _compared_tasks(comparison: Comparison) -> list[str]:
    """Return the tasks on which models are compared query by query."""
    return list(dict.fromkeys(each.task for each in comparison.tasks if each.with_baseline))
