"""The ranking of the models on each task, or type of task, and its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.comparison.benchmark_means import (
    column_matrices,
    counted_tasks,
    rankable,
    ranked_columns,
)
from qwen3nb.analysis.comparison.ranking import CategoryBoards, category_leaderboards, rank_systems
from qwen3nb.analysis.stats.multiple_testing import too_few_draws
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import GREY, SMALL, Figure, grid, plain
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.comparison.ranking import Ranking, Standing


def standings(
    results: Iterable[Result], *, tier: str, seed: int = 0, first_only: bool = False
) -> CategoryBoards | None:
    """Rank the models on each of a tier's tasks with per-query scores, and on their mean.

    Of more than `MANY` tasks, a ranking per type. The mean is over the tasks that most models
    have: a model that lacks one of them is listed with the reason, not ranked. A tier with
    benchmarks has a ranking per benchmark and type instead, the first of which stands for the
    tier; with ``first_only``, that one alone, as `rank_figure` shows it. None if fewer than two
    models can be ranked.
    """
    tasks = TIERS[tier].task_keys
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    if TIERS[tier].benchmarks:
        return _benchmark_boards(on_tier, tier, seed=seed, first_only=first_only)
    pairing = pair_results(on_tier)
    ranked = rankable(pairing.matrices)
    if not ranked:
        return None
    if len(pairing.matrices) > MANY:
        types = {result.task.key: result.task.type for result in on_tier}
        return category_leaderboards(ranked, types, seed=seed)
    boards = category_leaderboards(ranked, {}, seed=seed)
    by_task = {each.task: each for each in pairing.matrices if len(each.systems) > 1}

    def position(task: str) -> int:  # of a task, or a part of one, among the tier's
        return next((i for i, key in enumerate(tasks) if task.startswith(key)), len(tasks))

    on_each = {
        task: boards.boards.get(task) or rank_systems([by_task[task]], seed=seed)
        for task in sorted(by_task, key=position)
    }
    return replace(boards, boards=on_each)


def _benchmark_boards(
    results: Sequence[Result], tier: str, *, seed: int, first_only: bool
) -> CategoryBoards | None:
    """Rank the models within each benchmark, or each type of a benchmark that has several."""
    boards: dict[str, Ranking] = {}
    notes = []
    for title, column in ranked_columns(tier).items():
        if boards and first_only:
            break
        if ranked := column_matrices(results, column):
            weights = [column.weights[each.task] for each in ranked]
            boards[title] = rank_systems(ranked, seed=seed, weights=weights, name=title)
        else:
            notes.append(f"{title}: no two models have scores per query on the same tasks")
    if not boards:
        return None
    return CategoryBoards(next(iter(boards.values())), boards, (), (), tuple(notes))


def rank_table(boards: CategoryBoards | None) -> Table:
    """Return a row per model and a column per ranking, best on the first of them first.

    A cell has the rank, its interval and the tie groups. A model that
    is not ranked keeps its row, with the reason. Reversals of the order are in the note.
    """
    if boards is None:
        note = "Ranks need two or more models with scores per query on the same tasks."
        return Table(("model",), (), note, name="ranks")
    shown = dict(boards.boards) or {boards.overall.name: boards.overall}
    if not boards.overall.name and len(boards.overall.tasks) > 1:
        shown["all tasks"] = boards.overall
    systems = dict.fromkeys(each.system for board in shown.values() for each in board.standings)
    rows: list[dict[str, Any]] = [{"model": system} for system in systems]
    for name, board in shown.items():
        size = f"n = {board.queries[0]}"
        if board.name or len(board.tasks) > 1:
            size = f"mean of {counted_tasks(board.tasks, board.name)}"
        own = {each.system: each for each in board.standings}
        for row in rows:
            cell = _rank(own.get(row["model"]), row["model"], board)
            row[f"{short_task(name)}\n{size}"] = cell
    return Table.of(
        rows,
        note=_note(boards),
        name="ranks",
        caption="Rank of each model with its interval, on each task or type of task. Models that "
        "share a letter in a column are not significantly different.",
    )


def _rank(standing: Standing | None, system: str, board: Ranking) -> Cell:
    """Return a rank with its uncertainty, or why there is none."""
    if standing is None:
        start = f"{system} is not ranked: "
        reasons = (line.removeprefix(start) for line in board.left_out if line.startswith(start))
        return Cell("not ranked", _short(next(reasons, "no score")))
    return Cell(
        str(standing.rank),
        "{} to {}".format(*standing.rank_interval),
        value=standing.rank,
        interval=standing.rank_interval,
        mark=" ".join(map(_letter, standing.groups)),
    )


def _short(line: str) -> str:
    """Return a line with the names of tasks in it shortened."""
    return " ".join(map(short_task, line.split()))


def _letter(number: int) -> str:
    """Return the name of a tie group: a, b, …, z, then numbers."""
    return chr(ord("a") + number - 1) if number <= 26 else str(number)


def _note(boards: CategoryBoards) -> str:
    overall = boards.overall
    largest = max([overall, *boards.boards.values()], key=lambda each: len(each.standings))
    means = (
        "Means over tasks: a group counts as one task, "
        if overall.name
        else "Mean over tasks: each has the same weight, "
    )
    note = (
        f"{means}and only models with a score on every task are ranked. Intervals leave out the "
        "ranks of models that are significantly better or worse. Letters and intervals: paired "
        f"permutation test, Holm over all pairs of a column, alpha {overall.alpha:g}, and "
        f"the interval of the difference.{_too_many_models(largest)}"
    )
    if not overall.name:
        note += "".join(f" {_short(line)}." for line in overall.left_out)
        reversals = " ".join(f"{each.text}." for each in boards.reversals) or "none."
        note += f" Reversals of the order (Simpson's paradox): {reversals}"
    return note + "".join(f" {line}." for line in boards.notes)


def _too_many_models(board: Ranking) -> str:
    """Say that no two of so many models can be found to differ, if that is so."""
    return too_few_draws(math.comb(len(board.standings), 2), draws=DRAWS, alpha=board.alpha)


def rank_figure(boards: CategoryBoards | None) -> Figure | None:
    """Draw each model's rank and its interval, best on top; tie groups as bars at the right.

    On the first task, type or benchmark, as the rows of `rank_table` are sorted. None if fewer
    than two models can be ranked.
    """
    if boards is None:
        return None
    board = next(iter(boards.boards.values()), boards.overall)
    shown = board.standings[:MOST_MODELS]
    words = "; ".join("{}: {} ({} to {})".format(e.system, e.rank, *e.rank_interval) for e in shown)
    sizes = zip(board.tasks, board.queries, strict=True)
    tasks = ", ".join(f"{short_task(task)} (n = {n})" for task, n in sizes)
    if board.name:
        n = " to ".join(map(str, sorted({min(board.queries), max(board.queries)})))
        count = counted_tasks(board.tasks, board.name)
        tasks = f"{board.name} ({count} with scores of every model listed, n = {n})"
    return Figure(
        name="ranks",
        draw=lambda width: _draw_ranks(board, width),
        caption=f"Rank of each model on {tasks}, "
        "with its interval, which leaves out the ranks of models that are significantly better or "
        "worse. Bars at the right join models that are not significantly different (paired "
        f"permutation test, Holm over all pairs, alpha {board.alpha:g}, and the interval)."
        + _too_many_models(board)
        + not_shown(len(board.standings) - len(shown)),
        alt=f"Rank and interval of each model. {words}.",
    )


def _draw_ranks(board: Ranking, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    shown = board.standings[:MOST_MODELS]
    count = len(shown)
    rows = {each.system: count - 1 - index for index, each in enumerate(shown)}
    groups = [own for group in board.groups if len(own := [s for s in group if s in rows]) > 1]
    last = max(count, *(each.rank_interval[1] for each in shown))
    styles = model_styles(rows)
    figure, axis = plt.subplots(figsize=(width, 0.21 * count + 0.75))
    for each in shown:
        row, style = rows[each.system], styles[each.system]
        axis.plot(each.rank_interval, [row, row], color=style.color, linewidth=2)
        axis.plot([each.rank], [row], style.marker, color=style.color, markersize=4.5)
    for number, group in enumerate(groups):
        x = last + 0.6 + 0.45 * number
        ends = [rows[group[0]] + 0.3, rows[group[-1]] - 0.3]
        axis.plot([x, x], ends, color=GREY, linewidth=2.5, clip_on=False)
        text = _letter(number + 1)
        axis.annotate(text, (x, ends[0]), ha="center", va="bottom", fontsize=SMALL)
    axis.set_yticks(list(rows.values()), [plain(name, most=44) for name in rows])
    axis.set_xlim(0.5, last + 0.6 + 0.45 * max(1, len(groups)))
    axis.set_xticks(range(1, last + 1, 1 + (last - 1) // MOST_MODELS))
    axis.set_ylim(-0.6, count - 0.1)
    axis.tick_params(axis="y", length=0)
    grid(axis)
    axis.set_xlabel("rank (1 is best)")
    return figure
