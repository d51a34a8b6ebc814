"""The ranking of the models and its uncertainty: rank intervals, tie groups, task types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.analysis.comparison.alignment import Pairing, ScoreMatrix, pair_results
from qwen3nb.analysis.comparison.benchmark_means import MeanColumn, type_column
from qwen3nb.analysis.comparison.ranking import rank_systems
from qwen3nb.analysis.comparison.ranking_by_type import CategoryBoards, category_leaderboards
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import GREY, SMALL, Figure, grid, plain
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.comparison.ranking import Ranking, Standing

__all__ = ["categories_table", "rank_figure", "rank_table", "standings"]

GROUPED = tuple(name for name, each in BENCHMARKS.items() if {*GROUPS} & {*each.tasks})
TOO_FEW = "Ranks need two or more models with scores per query on the same tasks."


def standings(
    results: Iterable[Result], *, tier: str, alpha: float = 0.05, seed: int = 0
) -> CategoryBoards | None:
    """Rank the models over a tier's tasks with per-query scores, and by type of task.

    The tasks are those that most models have: a model that lacks one of them is reported, not
    ranked. A tier with benchmarks has a ranking per benchmark and type instead, the first of
    which stands for the tier. None if fewer than two models can be ranked.
    """
    tasks = TIERS[tier].task_keys
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    if TIERS[tier].benchmarks:
        return _benchmark_boards(on_tier, tier, alpha=alpha, seed=seed)
    pairing = pair_results(on_tier)
    ranked = _rankable(pairing)
    if not ranked:
        return None
    types = {result.task.key: result.task.type for result in on_tier}
    return category_leaderboards(ranked, types, alpha=alpha, seed=seed)


def _benchmark_boards(
    results: Sequence[Result], tier: str, *, alpha: float, seed: int
) -> CategoryBoards | None:
    """Rank the models within each benchmark, or each type of a benchmark that has several."""
    boards, notes = {}, []
    for name in TIERS[tier].benchmarks:
        benchmark = BENCHMARKS[name]
        for kind in benchmark.types:
            title = name if len(benchmark.types) == 1 else f"{name}: {kind}"
            column = type_column(benchmark, kind)
            pairing = pair_results(
                results, metric=benchmark.metric or None, tasks=list(column.weights)
            )
            ranked = _whole_groups(column, _rankable(pairing))
            if not ranked:
                notes.append(f"{title}: no two models have scores per query on the same tasks")
                continue
            weights = [column.weights[each.task] for each in ranked]
            boards[title] = rank_systems(
                ranked, alpha=alpha, seed=seed, weights=weights, name=title
            )
    if not boards:
        return None
    return CategoryBoards(next(iter(boards.values())), boards, (), (), tuple(notes))


def _whole_groups(column: MeanColumn, matrices: Sequence[ScoreMatrix]) -> list[ScoreMatrix]:
    """Return the tasks to rank on, without groups that lack a part."""
    have = {matrix.task for matrix in matrices}
    whole = {key for keys in column.entries().values() if have >= {*keys} for key in keys}
    return [matrix for matrix in matrices if matrix.task in whole]


def _rankable(pairing: Pairing) -> list[ScoreMatrix]:
    """Return the tasks to rank on, without the sparsest until two systems have them all."""
    matrices = list(pairing.matrices)
    while matrices:
        common = set.intersection(*(set(matrix.systems) for matrix in matrices))
        if len(common) > 1:
            return matrices
        matrices.remove(min(matrices, key=lambda matrix: len(matrix.systems)))
    return []


def rank_table(boards: CategoryBoards | None) -> Table:
    """Return a row per model: rank with interval, mean, share of first ranks, tie groups."""
    columns = ("model", "rank\n95 % interval", "mean\n95 % interval", "first in", "tie groups")
    if boards is None:
        return Table(columns, (), TOO_FEW)
    board = boards.overall
    rows = tuple(
        (
            Cell(each.system),
            Cell(
                str(each.rank),
                "{} to {}".format(*each.rank_interval),
                value=each.rank,
                interval=each.rank_interval,
            ),
            Cell(
                f"{each.mean:.3f}",
                interval_text(each.interval, sign=False),
                value=each.mean,
                interval=each.interval,
            ),
            Cell(f"{100 * each.best:.1f} %", value=each.best),
            Cell(" ".join(map(_letter, each.groups)) or "–"),
        )
        for each in board.standings
    )
    caption = "Ranks with intervals; models that share a letter are not significantly different."
    return Table(columns, rows, _note(board), name="ranks", caption=caption)


def _letter(number: int) -> str:
    """Return the name of a tie group: a, b, …, z, then numbers."""
    return chr(ord("a") + number - 1) if number <= 26 else str(number)


def _tasks(board: Ranking) -> str:
    if board.name:
        low, high = min(board.queries), max(board.queries)
        n = f"n = {low}" if low == high else f"n = {low} to {high}"
        return f"{board.name} ({_few(board)} with scores of every model listed, {n})"
    sizes = zip(board.tasks, board.queries, strict=True)
    return ", ".join(f"{short_task(task)} (n = {n})" for task, n in sizes)


def _weights(board: Ranking) -> str:
    return "a group counting as one task" if board.name else "each task with the same weight"


def _note(board: Ranking) -> str:
    pairs = len(board.standings) - 1
    left_out = "".join(f" {reason}." for reason in board.left_out)
    return (
        f"Mean over {_tasks(board)}, {_weights(board)}; 95 % intervals of means from "
        f"those of the tasks, ranks from {DRAWS:,} resamples of the queries. Models that share a "
        "letter are not significantly different (paired permutation test, Holm over all pairs, "
        "alpha "
        f"{board.alpha:g}): {board.adjacent_separable} of {pairs} neighbouring pairs differ."
        f"{left_out}"
    )


def rank_figure(boards: CategoryBoards | None) -> Figure | None:
    """Draw each model's rank and its 95 % interval, best on top; tie groups as bars at the right.

    None if fewer than two models can be ranked.
    """
    if boards is None:
        return None
    board = boards.overall
    words = "; ".join("{}: {} ({} to {})".format(e.system, e.rank, *e.rank_interval)
                      for e in board.standings)  # fmt: skip
    return Figure(
        name="ranks",
        draw=lambda width: _draw_ranks(board, width),
        caption="Rank of each model by its mean over "
        f"{_tasks(board)}, with the 95 % percentile interval over {DRAWS:,} resamples of the "
        "queries. Bars at the right join models that are not significantly different (paired "
        f"permutation test, Holm over all pairs, alpha {board.alpha:g}).",
        alt=f"Rank and interval of each model. {words}.",
    )


def _draw_ranks(board: Ranking, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    count = len(board.standings)
    rows = {each.system: count - 1 - index for index, each in enumerate(board.standings)}
    colors = model_colors(rows)
    figure, axis = plt.subplots(figsize=(width, 0.21 * count + 0.75))
    for each in board.standings:
        row, color = rows[each.system], colors[each.system]
        axis.plot(each.rank_interval, [row, row], color=color, linewidth=2)
        axis.plot([each.rank], [row], "o", color=color, markersize=4.5)
    for number, group in enumerate(board.groups):
        x = count + 0.6 + 0.45 * number
        ends = [rows[group[0]] + 0.3, rows[group[-1]] - 0.3]
        axis.plot([x, x], ends, color=GREY, linewidth=2.5, clip_on=False)
        text = _letter(number + 1)
        axis.annotate(text, (x, ends[0]), ha="center", va="bottom", fontsize=SMALL)
    axis.set_yticks(list(rows.values()), [plain(name, most=44) for name in rows])
    axis.set_xlim(0.5, count + 0.6 + 0.45 * max(1, len(board.groups)))
    axis.set_xticks(range(1, count + 1))
    axis.set_ylim(-0.6, count - 0.1)
    axis.tick_params(axis="y", length=0)
    grid(axis)
    axis.set_xlabel("rank (1 is best)")
    return figure


def categories_table(boards: CategoryBoards | None) -> Table:
    """Return means and ranks by type of task; reversals of the order are listed below."""
    if boards is None:
        return Table(("model",), (), TOO_FEW)
    whole = {} if boards.overall.name else {"all tasks": boards.overall}
    shown = {**whole, **boards.boards}
    columns = ("model", *(f"{name}\n{_few(board)}".strip() for name, board in shown.items()))
    by_type = [{each.system: each for each in board.standings} for board in shown.values()]
    systems = dict.fromkeys(name for standings in by_type for name in standings)
    rows = tuple(
        (Cell(name), *(_mean_and_rank(group.get(name)) for group in by_type)) for name in systems
    )
    if boards.overall.name:
        text = "Means over the tasks on which every model listed has scores per query, with the "
        text += "rank in brackets; 95 % intervals from those of the tasks."
        return Table(columns, rows, text + "".join(f" {note}." for note in boards.notes))
    reversals = " ".join(f"{each.text}." for each in boards.reversals) or "None."
    notes = "".join(f" {note}." for note in boards.notes)
    text = "Mean, with the rank in brackets; 95 % intervals from those of the tasks. "
    text += f"Reversals of the order (Simpson's paradox): {reversals}{notes}"
    return Table(columns, rows, text)


def _few(board: Ranking) -> str:
    """Return the number of tasks of a benchmark; a group counts as one."""
    if not board.name:
        return ""
    group_of = {part: name for name, parts in GROUPS.items() for part in parts}
    grouped = board.name in GROUPED
    count = len({group_of.get(task, task) if grouped else task for task in board.tasks})
    return f"{count} task{'s' if count > 1 else ''}"


def _mean_and_rank(standing: Standing | None) -> Cell:
    if standing is None:
        return Cell("not ranked")
    ends = interval_text(standing.interval, sign=False)
    return Cell(
        f"{standing.mean:.3f} ({standing.rank})", ends, value=standing.mean,
        interval=standing.interval,
    )  # fmt: skip
