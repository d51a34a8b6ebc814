"""Every figure and table that results allow, for a paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.records.record import Result
from qwen3nb.records.richest_tier import richest_tier
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
from qwen3nb.report.render.table import Table, transposed
from qwen3nb.report.studies.reranking_figures import gain_figure
from qwen3nb.report.training.configurations import (
    configuration_differences_table,
    configurations_figure,
    configurations_table,
)
from qwen3nb.report.training.figures import conflict_figure, loss_figure, trajectory_figure
from qwen3nb.report.training.interference import (
    interference_figure,
    interference_report,
    interference_table,
)
from qwen3nb.report.training.tables import read_trainings
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of

__all__ = ["ALL", "Choice", "paper_figures", "paper_tables"]

METRIC = "nDCG@10"


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
        seed: of the draws.
    """

    tier: str
    tasks: tuple[str, ...]
    results: list[Result]
    seed: int

    @property
    def has_means(self) -> bool:
        """Whether means over benchmarks are shown, rather than tasks."""
        return bool(TIERS[self.tier].benchmarks) and not self.tasks

    def compare(self) -> Comparison:
        """Return the comparison that every figure and table shows."""
        return compare(self.results, tier=self.tier, tasks=self.tasks, seed=self.seed)


def paper_figures(results: Sequence[Result], choice: Choice = ALL) -> list[tuple[str, Figure]]:
    """Return every figure that the chosen records allow, each with the name of its file.

    Includes the figures of trainings and adapters, from all records and the logs below
    `paths.runs`. Figures that need a model (spectra, indexes, ablations) are only on their pages.

    Raises:
        ValueError: no records on the tier, or of a model or task; lists those there are.
    """
    trained = [(each.name, each) for each in _of_trainings(results, choice) if each]
    shown = _shown(results, choice, others=trained)
    if not shown.results:
        return trained
    figures = [
        comparison_figure(shown.results, tier=shown.tier, tasks=shown.tasks),
        bars_figure(shown.results, tier=shown.tier, tasks=shown.tasks),
    ]
    if not shown.tasks:
        figures.append(rank_figure(standings(shown.results, tier=shown.tier, seed=shown.seed)))
    comparison = shown.compare()
    for task in () if shown.has_means else _compared_tasks(comparison):
        figures.append(task_differences_figure(comparison, task=task))
        figures.append(wins_figure(comparison, task=task))
    figures += [differences_figure(comparison), pairs_figure(comparison)]
    named = [(figure.name, figure) for figure in figures if figure is not None]
    return named + trained + list(_per_model(shown.results))


def _of_trainings(results: Sequence[Result], choice: Choice) -> Iterator[Figure | None]:
    if choice.is_part:
        return
    trainings = read_trainings(results, tier=choice.tier, seed=choice.seed)
    yield from (trajectory_figure(trainings), loss_figure(trainings), conflict_figure(trainings))
    report = interference_report(seed=choice.seed)
    yield interference_figure(report)
    yield configurations_figure(report.scores)
    reranked = [result for result in results if f"gain {METRIC}" in result.per_query]
    if reranked:
        yield gain_figure(reranked)


def _per_model(results: Sequence[Result]) -> Iterator[tuple[str, Figure]]:
    for identity, name in model_names(results).items():
        own, _ = newest_records(each for each in results if each.model.identity == identity)
        for figure in (per_query_figure(own, metric=METRIC), similarity_figure(own)):
            if figure is not None:
                yield f"{figure.name}-{name}", figure


def paper_tables(results: Sequence[Result], choice: Choice = ALL) -> list[Table]:
    """Return every table of the chosen records and of trainings, each with name and caption.

    Raises:
        ValueError: as for `paper_figures`.
    """
    trained = [] if choice.is_part else _trained_tables(choice.seed)
    shown = _shown(results, choice, others=trained)
    if not shown.results:
        return trained
    comparison = shown.compare()
    board = leaderboard(shown.results, tier=shown.tier, tasks=shown.tasks, comparison=comparison)
    tables = [transposed(board, first="mean") if shown.has_means else board]
    if not shown.tasks:
        tables.append(_headline(shown))
    tables.append(replace(cost_table(shown.results), name="cost", caption="Cost of the results."))
    if shown.has_means:
        tables += _of_benchmarks(shown, comparison)
    else:
        tables += [differences_table(comparison, task=each) for each in _compared_tasks(comparison)]
    return tables + trained


def _headline(shown: _Shown) -> Table:
    table = headline_table(shown.results, tier=shown.tier)
    return replace(
        transposed(table, first="mean") if shown.has_means else table,
        name=f"headline-{shown.tier}",
        caption=f"The scores in front on the tier {shown.tier}.",
    )


def _trained_tables(seed: int) -> list[Table]:
    """Return the tables of trained adapters that have rows."""
    report = interference_report(seed=seed)
    tables = (
        configurations_table(report.scores),
        configuration_differences_table(report.differences),
        interference_table(report),
    )
    return [each for each in tables if each.rows]


def _of_benchmarks(shown: _Shown, comparison: Comparison) -> Iterator[Table]:
    """Yield the tables of all tasks by benchmark and type, and the differences by type."""
    tables = task_tables(shown.results, tier=shown.tier)
    if tables is None:
        return
    *sections, (title, missing) = tables.tables
    for name, table in sections:
        yield replace(transposed(table, first="task"), caption=f"{name}.")
    yield replace(missing, name="missing", caption=f"{title}.")
    yield replace(overview_table(comparison), caption="Tasks won and lost, by type.")
    for kind, tasks in tasks_by_type(comparison).items():
        if keys := [each.task for each in tasks if each.with_baseline]:
            table = differences_table(comparison, tasks=keys)
            caption = f"{kind}: paired differences from {comparison.baseline}."
            yield replace(table, name=f"differences-{kind}", caption=caption)


def _shown(results: Sequence[Result], choice: Choice, *, others: Sequence[object]) -> _Shown:
    """Return the records of a choice; none only if nothing is named and there are ``others``."""
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
    if not kept and (choice.is_part or choice.tier or not others):
        raise ValueError(f"no results on the tier {tier!r}; run `qwen3nb eval --tier {tier}` first")
    return _Shown(tier, choice.tasks, kept, choice.seed)


def _expect(kind: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name without records.

    Raises:
        ValueError: lists the names that have records.
    """
    for name in wanted:
        one_of(f"{kind} with results", name, sorted(set(known)))


def _compared_tasks(comparison: Comparison) -> list[str]:
    """Return the tasks on which models are compared query by query."""
    return list(dict.fromkeys(each.task for each in comparison.differences))
