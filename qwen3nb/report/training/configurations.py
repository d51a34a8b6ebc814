"""Table of trained configurations: means and standard deviations over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table, with_ranks

__all__ = ["configurations_table"]

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
        "Mean over seeds; subscript: sample standard deviation over seeds. Best of each column in "
        "bold, second best underlined, whether or not they differ significantly."
        if rows
        else "No scores of trained configurations.",
        name="configurations",
        caption="Trained configurations, means over seeds.",
    )


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
    count = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
    return Cell(f"{mean:.3f}", count, value=mean, std=spread)
