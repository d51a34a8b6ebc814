"""Figures of every model against one on a task, query by query (of several: comparison_figures)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.analysis.comparison.alignment import ScoreMatrix, pair_results
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import paired_bootstrap, permutation_test
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, model_colors, plain
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import short_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = ["task_differences_figure", "wins_figure"]

# Has a contrast of 5 with the colours of the bars, where white has 3.5. Not quite black, which
# an SVG leaves out and a page would draw in its own ink.
_ON_COLOR = "#010101"


def task_differences_figure(
    results: Iterable[Result], *, task: str, metric: str, baseline: str = "", seed: int = 0
) -> Figure | None:
    """Forest plot of each model's paired difference to one; None with fewer than two models.

    Args:
        results: any records.
        task: whose queries are paired.
        metric: the per-query metric.
        baseline: label of the model to compare with; by default that with the best mean.
        seed: of the tests.

    Raises:
        ValueError: the baseline has no record on this task.
    """
    matrix, reference = _against(results, task, metric, baseline)
    if matrix is None:
        return None
    rows = _rows(matrix, reference, seed)
    n = len(matrix.queries)
    return forest_figure(
        rows,
        xlabel=f"{metric} minus that of {reference}",
        name=f"differences-{task}",
        caption=f"{short_task(task)}: mean difference of {metric} to {reference} over the same "
        f"n = {n} queries, with its 95 % percentile bootstrap interval (10,000 resamples). "
        "A filled mark differs: two-sided paired permutation test, p < 0.05 after Holm over "
        f"these {len(rows)} comparisons.",
    )


def _against(
    results: Iterable[Result], task: str, metric: str, baseline: str
) -> tuple[ScoreMatrix | None, str]:
    """Scores by query, and the system to compare with: ``baseline``, or the best."""
    found = pair_results(latest(results), metric=metric, tasks=[task]).matrices
    if not found:
        return None, baseline
    matrix = found[0]
    if baseline:
        matrix.column(baseline)  # raises with the names there are
        return matrix, baseline
    return matrix, matrix.systems[int(np.argmax(matrix.scores.mean(axis=1)))]


def _rows(matrix: ScoreMatrix, reference: str, seed: int) -> list[ForestRow]:
    theirs = matrix.column(reference)
    others = [system for system in matrix.systems if system != reference]
    found = [paired_bootstrap(matrix.column(each), theirs, seed=seed) for each in others]
    tests = [permutation_test(matrix.column(each), theirs, seed=seed).p_value for each in others]
    colors = model_colors(matrix.systems)
    rows = [
        ForestRow(
            system,
            each.difference,
            each.interval[0] if each.interval else None,
            each.interval[1] if each.interval else None,
            color=colors[system],
            clear=p < 0.05,
        )
        for system, each, p in zip(others, found, holm(tests), strict=True)
    ]
    return sorted(rows, key=lambda row: -(row.value or 0.0))


@dataclass(frozen=True)
class _Count:
    name: str
    won: int
    tied: int
    lost: int


def wins_figure(
    results: Iterable[Result], *, task: str, metric: str, baseline: str = ""
) -> Figure | None:
    """On how many queries each model beats one, ties with it, loses; None with fewer than two.

    Raises:
        ValueError: the baseline has no record on this task.
    """
    matrix, reference = _against(results, task, metric, baseline)
    if matrix is None:
        return None
    theirs, n = matrix.column(reference), len(matrix.queries)
    counts = []
    for system in matrix.systems:
        if system != reference:
            ours = matrix.column(system)
            won, lost = int((ours > theirs).sum()), int((ours < theirs).sum())
            counts.append(_Count(system, won, n - won - lost, lost))
    counts.sort(key=lambda each: (each.won - each.lost, each.name))
    words = "; ".join(f"{c.name}: {c.won} won, {c.tied} tied, {c.lost} lost" for c in counts[::-1])
    return Figure(
        name=f"wins-{task}",
        draw=lambda width: _wins(counts, reference, metric, width),
        caption=f"{short_task(task)}: queries on which a model's {metric} is above that of "
        f"{reference}, the same, or below (n = {n}). Counts, not sizes: a model may win often "
        "by little; for the test see the paired differences.",
        alt=f"Bars of queries won, tied and lost against {reference}. {words}.",
    )


def _wins(counts: Sequence[_Count], reference: str, metric: str, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, 0.21 * len(counts) + 0.75))
    kinds = (("won", COLORS[2], 0.9), ("tied", GREY, 0.35), ("lost", COLORS[1], 0.9))
    total = max((c.won + c.tied + c.lost for c in counts), default=1)
    for row, each in enumerate(counts):
        left = 0
        for kind, color, alpha in kinds:
            size = getattr(each, kind)
            axis.barh(row, size, left=left, height=0.72, color=color, alpha=alpha)
            if size > 0.06 * total * (1 if width > 5 else 2):
                _inside(axis, left + size / 2, row, size, full=kind != "tied")
            left += size
    axis.set_yticks(range(len(counts)), [plain(c.name, most=30) for c in counts])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0, total)
    axis.set_xlabel(f"queries, by {metric} against {plain(reference, most=24)}")
    for place, (kind, _, _) in zip((0.0, 0.5, 1.0), kinds, strict=True):
        axis.annotate(
            kind, (place, 1.0), xycoords="axes fraction", xytext=(0, 2), fontsize=SMALL,
            textcoords="offset points", va="bottom",
            ha={0.0: "left", 0.5: "center", 1.0: "right"}[place],
        )  # fmt: skip
    return figure


def _inside(axis: Axes, x: float, y: float, size: int, *, full: bool) -> None:
    """A count on its bar: black on a full colour, the page's ink on a pale one."""
    said = axis.annotate(f"{size}", (x, y), ha="center", va="center", fontsize=SMALL)
    if full:
        said.set_color(_ON_COLOR)
