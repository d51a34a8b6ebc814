"""Differences between models as cells, sentences and drawings, the same on every page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.comparison.alignment import in_words
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
    correction_words,
    significant,
)
from qwen3nb.metrics.intervals import Interval
from qwen3nb.report.render import figure
from qwen3nb.report.render.figure import Axes, MplFigure
from qwen3nb.report.render.model_styles import rank_style
from qwen3nb.report.render.table import Cell, number, plural, short_task
from qwen3nb.utils.format import number_text, p_value_text

SINGLE_QUERY = "a single query"  # in place of an interval
# Inches of the matrix: room for the names of its rows, and of a row with a name on two lines.
_NAMES_WIDTH = 1.6
_TWO_LINES = 0.21


def difference_cells(difference: PairedDifference, *, alpha: float) -> tuple[Cell, Cell]:
    """Return cells for a difference with its interval, and for its corrected and raw p-values."""
    corrected = p_cell(difference.corrected, difference.interval, alpha=alpha)
    raw = f"raw {p_value_text(difference.p_value)}"
    return difference_cell(difference), replace(corrected, detail=raw, value=difference.corrected)


def difference_cell(
    difference: PairedDifference, *, strong: bool = False, spec: str = "+.3f"
) -> Cell:
    """Return the cell of a difference, with its interval or that all scores are identical."""
    # The detail is replaced by the interval, if there is one.
    cell = number(
        difference.difference,
        spec,
        interval=difference.interval,
        detail=SINGLE_QUERY,
        strong=strong,
    )
    if difference.identical and difference.n > 1:
        return replace(cell, detail="identical scores")
    return cell


def difference_text(difference: PairedDifference, *, p_value: bool = True, noun: str = "") -> str:
    """Return a difference with its interval and corrected p-value, as all sentences have it.

    With the correction and its family, if ``noun`` names the members, such as ``gains``.
    """
    text = f"{number_text(difference.difference, sign=True)} {difference.interval_text}"
    if not p_value:
        return text
    text += f", p {p_value_text(difference.corrected, relation=True)}"
    family = correction_words(difference.correction, difference.family, noun)
    if noun and family:
        return f"{text}, {family}"
    return text


def p_cell(p_value: float | None, interval: Interval | None, *, alpha: float) -> Cell:
    """Return a p-value, in bold where the difference is significant."""
    return Cell(p_value_text(p_value), strong=significant(p_value, interval, alpha=alpha))


def baseline_text(differences: Iterable[PairedDifference]) -> str:
    """Name the baseline, and the number of tasks with another one."""
    baseline_by_task = {difference.task: difference.second for difference in differences}
    if not baseline_by_task:
        return "no baseline"
    counts = Counter(baseline_by_task.values())
    baselines = [in_words(name) for name, _ in counts.most_common()]
    if len(baselines) == 1:
        return baselines[0]
    # The most frequent baseline comes first; all other tasks have another one.
    tasks_of_others = counts.total() - max(counts.values())
    other_baselines = ", ".join(baselines[1:])
    return f"{baselines[0]} (on {plural(tasks_of_others, 'task')}: {other_baselines})"


def best_and_tied(task: TaskComparison, *, alpha: float) -> frozenset[str]:
    """Return the model with the largest difference from the baseline, and what ties with it."""
    largest = task.with_baseline[0]  # they are sorted
    best = largest.first if largest.difference > 0 else task.baseline
    tied = {other.first for other in task.against(best) if not other.significant(alpha)}
    return frozenset({best, *tied})


@dataclass(frozen=True)
class DifferencePanels:
    """Forest plots of differences from the baseline: a panel per task, a row per model."""

    tasks: Sequence[TaskComparison]
    models: Sequence[str]  # rows, the first on top
    alpha: float  # filled markers are significant at this level
    margin: float  # differences below it are shaded

    def draw(self, width: float) -> MplFigure:
        """Draw the panels at a width in inches."""
        # Row 0 is at the bottom.
        upwards = self.models[::-1]
        height = figure.row_height(upwards) * len(upwards) + 0.8
        drawing, axes, left_axes = figure.panels(len(self.tasks), width, height=height, sharey=True)
        for axis, task in zip(axes, self.tasks, strict=True):
            self._draw_background(axis)
            self._draw_differences(axis, task)
            queries = task.with_baseline[0].n
            axis.set_title(figure.plain(short_task(task.task)))
            axis.set_xlabel(f"Δ {figure.plain(task.metric)}, n = {queries:,}")
            axis.set_ylim(-0.6, len(upwards) - 0.4)
        for axis in left_axes:
            figure.name_rows(axis, upwards)
        return drawing

    def _draw_differences(self, axis: Axes, task: TaskComparison) -> None:
        upwards = self.models[::-1]
        best = best_and_tied(task, alpha=self.alpha)
        for difference in task.with_baseline:
            model = difference.first
            if model not in upwards:
                continue
            figure.draw_estimate(
                axis,
                upwards.index(model),
                difference.difference,
                difference.interval,
                filled=difference.significant(self.alpha),
                **rank_style(model in best),
            )

    def _draw_background(self, axis: Axes) -> None:
        axis.axvspan(-self.margin, self.margin, color=figure.GREY, alpha=0.13, linewidth=0)
        axis.axvline(0, color=figure.GREY, linewidth=1)
        axis.tick_params(axis="y", length=0)
        figure.grid(axis)


@dataclass(frozen=True)
class PairMatrix:
    """A matrix of models: on how many tasks the row is significantly better than the column."""

    pairs: Sequence[PairedDifference]
    tasks: int  # number of tasks
    alpha: float

    def draw(self, width: float) -> MplFigure:
        """Draw the matrix at a width in inches, the model with most wins on top."""
        import matplotlib.pyplot as plt

        wins = self._wins()
        models = self._models_by_wins(wins)
        row_height = figure.row_height(models)
        drawing, axis = plt.subplots(figsize=(width, row_height * len(models) + 1.4))
        cells = np.full((len(models), len(models)), np.nan)  # no colour where no pair is tested
        for (better, worse), count in wins.items():
            cells[models.index(better), models.index(worse)] = count
        darkest = 1.6 * self.tasks  # all tasks have a medium grey, on which the count is legible
        axis.imshow(cells, cmap=figure.shades(), vmin=0, vmax=darkest)
        self._write_counts(axis, cells)
        self._name_models(axis, models, width)
        return drawing

    def _write_counts(self, axis: Axes, cells: NDArray[np.float64]) -> None:
        for (row, column), count in np.ndenumerate(cells):
            if np.isnan(count):
                continue
            axis.annotate(
                f"{count:.0f}",
                (column, row),  # x, y
                ha="center",
                va="center",
            )

    def _wins(self) -> Counter[tuple[str, str]]:
        """Return the number of significant wins of each ordered pair, 0 included."""
        wins: Counter[tuple[str, str]] = Counter()
        for pair in self.pairs:
            better, worse = pair.first, pair.second
            if pair.difference < 0:
                better, worse = worse, better
            wins[better, worse] += int(pair.significant(self.alpha))
            # Adds a 0 if there is no count: tested pairs without a win are shown, too.
            wins[worse, better] += 0
        return wins

    def _models_by_wins(self, wins: Counter[tuple[str, str]]) -> list[str]:
        """Return the models, those first that win more often than they lose."""
        balance: Counter[str] = Counter()
        for (better, worse), count in wins.items():
            balance[better] += count
            balance[worse] -= count
        return sorted(balance, key=lambda model: (-balance[model], model))

    def _name_models(self, axis: Axes, models: Sequence[str], width: float) -> None:
        column_width = (width - _NAMES_WIDTH) / max(1, len(models))
        lines = 2 if column_width > _TWO_LINES else 1
        labels = figure.row_names(models, lines=lines)
        positions = range(len(labels))
        axis.set_xticks(positions, labels, rotation=90, linespacing=1.0)
        axis.set_yticks(positions, labels, linespacing=1.0)
        axis.tick_params(length=0)
