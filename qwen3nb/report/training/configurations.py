"""Trained configurations: means and standard deviations over seeds, and tested differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.training.configuration_tests import QUERIES, ConfigurationDifference
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import GREY, Figure, grid, plain
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import Table, with_ranks
from qwen3nb.utils.format import interval_text, number_text, p_value_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

__all__ = ["configuration_differences_table", "configurations_figure", "configurations_table"]

Seeds = Mapping[int | None, float]


def configurations_table(scores: Iterable[Score]) -> Table:
    """A row per configuration, a column per task: mean over seeds, sample std as a subscript.

    Args:
        scores: of trained runs; of several for one run, task and metric, the newest is used.
    """
    cells = _by_seed(scores)
    systems = sorted({system for system, _ in cells})
    tasks = sorted({task for _, task in cells})
    rows = [
        [Cell(system), *(_cell(cells.get((system, task), {})) for task in tasks)]
        for system in systems
    ]
    heads = [f"{kind}\n{short_task(task)}, {metric}" for kind, task, metric in tasks]
    return Table(
        ("configuration", *heads),
        with_ranks(rows) if rows else (),
        "Mean over seeds; beside it, in small: sample standard deviation over seeds. Best of each "
        "task in bold, second best underlined, whether or not they differ significantly."
        if rows
        else "No scores of trained configurations.",
        name="configurations",
        caption="Scores of the trained configurations on each task, means over seeds.",
    )


def configuration_differences_table(
    differences: Sequence[ConfigurationDifference], *, alpha: float = 0.05
) -> Table:
    """A row per data set and pair of configurations: difference, interval and p-values.

    Args:
        differences: from `configuration_differences`.
        alpha: corrected p-values below it are in bold.
    """
    family = next((each.family for each in differences if each.family), 0)
    note = (
        f"95 % intervals and two-sided p-values, corrected by Holm over these {family}, below it "
        f"the raw p-value; corrected p < {alpha:g} in bold. With scores per query: permutation "
        "test over queries, each averaged over the seeds that both have, and the interval "
        f"({interval_words(['paired'])}) over queries; it says nothing about other seeds. "
        "Without: paired t-test and Student's interval over seeds."
    )
    return Table(
        (
            "first − second\ntask, metric", "Δ\n95 % interval", "p, corrected\nraw",
            "seeds\nΔ by seed", "paired over",
        ),
        tuple(_difference_row(each, alpha) for each in differences),
        note if differences else "No two configurations have a seed and a task in common.",
        name="configuration-differences",
        caption="Differences between every two trained configurations on each data set, tested.",
    )  # fmt: skip


def _difference_row(each: ConfigurationDifference, alpha: float) -> tuple[Cell, ...]:
    clear = significant(each.corrected, each.interval, alpha=alpha)
    raw = "" if each.p_value is None else p_value_text(each.p_value)
    where = f"{each.kind}: {short_task(each.task)}, {each.metric}"
    count = f"{each.n} queries" if each.test == QUERIES else _seeds_text(len(each.seeds))
    return (
        Cell(f"{each.first} − {each.second}", where),
        Cell(
            number_text(each.difference, sign=True),
            interval_text(each.interval, absent="no interval"),
            value=each.difference,
            interval=each.interval,
        ),
        Cell(p_value_text(each.corrected), raw or each.undefined, strong=clear),
        Cell(
            ", ".join(map(str, each.seeds)),
            ", ".join(number_text(value, sign=True) for value in each.by_seed),
        ),
        Cell(count, f"{each.unpaired} unpaired" if each.unpaired else ""),
    )


def configurations_figure(scores: Iterable[Score], *, metric: str = "nDCG@10") -> Figure | None:
    """Draw a bar per configuration with its standard deviation over seeds, a group per task.

    None if no score has the metric.

    Args:
        scores: as for `configurations_table`.
        metric: the metric of the bars.
    """
    cells = {key: seeds for key, seeds in _by_seed(scores).items() if key[1][2] == metric}
    if not cells:
        return None
    words = "; ".join(
        f"{system} on {short_task(task)}: {fmean(seeds.values()):.3f}"
        for (system, (_, task, _)), seeds in sorted(cells.items())
    )
    return Figure(
        name="configurations",
        draw=lambda width: _bars(cells, metric, width),
        caption=f"{metric} of each trained configuration: mean over seeds, with the sample "
        "standard deviation over seeds as a line where there are several.",
        alt=f"Bars of {metric} per configuration. {words}.",
    )


def _bars(
    cells: Mapping[tuple[str, tuple[str, str, str]], Seeds], metric: str, width: float
) -> MplFigure:
    import matplotlib.pyplot as plt

    systems = sorted({system for system, _ in cells})
    tasks = sorted({task for _, task in cells})
    columns = min(3 if width > 5 else 1, len(tasks))
    lines = -(-len(tasks) // columns)
    size = (width, lines * (0.21 * len(systems) + 0.8))
    figure, axes = plt.subplots(lines, columns, figsize=size, sharey=True, squeeze=False)
    colors, rows = model_colors(systems), systems[::-1]
    for axis, task in zip(axes.flat, tasks, strict=False):
        for row, system in enumerate(rows):
            values = list(cells.get((system, task), {}).values())
            if values:
                axis.barh(row, fmean(values), height=0.7, color=colors[system], alpha=0.85)
            if len(values) > 1:
                ends = [fmean(values) - stdev(values), fmean(values) + stdev(values)]
                axis.plot(ends, [row, row], color=GREY, linewidth=1.4)
        axis.set_title(plain(f"{short_task(task[1])} ({task[0]})", most=34))
        axis.set_xlabel(metric)
        grid(axis)
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    for line in axes:
        line[0].set_yticks(range(len(rows)), [plain(name, most=28) for name in rows])
    return figure


def _by_seed(
    scores: Iterable[Score],
) -> dict[tuple[str, tuple[str, str, str]], dict[int | None, float]]:
    """Newest value per seed, by system and (kind, task, metric)."""
    newest: dict[tuple[str, tuple[str, str, str]], dict[int | None, float]] = {}
    for score in sorted(scores, key=lambda each: each.finished):
        if score.main and score.value is not None:
            key = (score.system, (score.kind, score.task, score.metric))
            newest.setdefault(key, {})[score.seed] = score.value
    return newest


def _cell(seeds: Seeds) -> Cell:
    values: Sequence[float] = list(seeds.values())
    if not values:
        return Cell("not run")
    mean = fmean(values)
    spread = f"{stdev(values):.3f}" if len(values) > 1 else ""
    return Cell(f"{mean:.3f}", _seeds_text(len(values)), value=mean, std=spread)


def _seeds_text(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"
