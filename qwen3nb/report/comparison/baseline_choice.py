"""Every model against a baseline that the reader of a page chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qwen3nb.analysis.comparison.baseline import in_words
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference, TaskComparison
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.comparison.compare import p_cell
from qwen3nb.report.render.cell import Cell, Drawing, number
from qwen3nb.report.render.choice import TableChoice
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.sections import MOST_MODELS, Sections
from qwen3nb.report.render.table import Table

_MOST_ROWS = 700  # of all variants together, which bounds the size of a page
_MOST_LINES = 2  # models that are not compared and are named with the reason


def baseline_tables(comparison: Comparison, *, task: str) -> TableChoice | Sections | None:
    """Return the differences of all models from a baseline, which a reader of the page may change.

    On one task or mean; of a tier with several means, those on the others are folded below it. All
    variants are made here, by the tests that all pages show: of many models, those of the best as
    the baseline. None if no two models can be compared.
    """
    first = comparison.on(task)
    if first is None or len(first.columns) < 2:
        return None
    means = [each for each in comparison.means if len(each.columns) > 1]
    if first not in means or len(means) == 1:
        return _choice(comparison, first, tables=1)
    means.sort(key=lambda each: each is not first)
    tables = ((each.task, _choice(comparison, each, tables=len(means))) for each in means)
    return Sections(tuple(tables), unfolded=1)


def _choice(comparison: Comparison, compared: TaskComparison, *, tables: int) -> TableChoice:
    """Return a table per baseline, that of the comparison first, then the best models."""
    best = sorted(compared.columns, key=lambda name: (-_mean(compared, name), name))
    default = compared.baseline or best[0]
    shown = [name for name in best if name in best[:MOST_MODELS] or name == default]
    most = max(1, _MOST_ROWS // (tables * len(shown)))
    choices = list(dict.fromkeys([default, *shown[:most]]))[:most]
    variants = {name: _table(comparison, compared, name, shown) for name in choices}
    return TableChoice(variants, "Baseline")


def _mean(compared: TaskComparison, name: str) -> float:
    return float(compared.columns[name].scores.mean())


def _table(
    comparison: Comparison, compared: TaskComparison, baseline: str, shown: Sequence[str]
) -> Table:
    """Return a row per model, best first: its difference from the baseline, drawn and tested."""
    own = {each.first: each for each in compared.against(baseline) if each.first in shown}
    ends = [0.0, *(end for e in own.values() for end in e.interval or (e.difference,))]
    low, wide = min(ends), (max(ends) - min(ends)) or 1.0
    sizes = sorted({each.n for each in own.values()})
    several = len(sizes) > 1
    alpha = comparison.procedure.alpha

    def drawing(each: PairedDifference) -> Drawing:
        points = (*(each.interval or (each.difference,) * 2), each.difference, 0.0)
        first, last, value, zero = (100 * (point - low) / wide for point in points)
        return Drawing(first, value, last, zero, each.significant(alpha))

    rows: list[tuple[Any, ...]] = []
    for name in shown:
        if (each := own.get(name)) is None:
            why = "the baseline" if name == baseline else "no query in common"
            rows.append((name, Cell(why), *[None] * (3 if several else 2)))
            continue
        gap = number(each.difference, "+.3f", interval=each.interval, drawing=drawing(each))
        p = p_cell(each.corrected, each.interval, alpha=alpha)
        won = f"{each.won} / {each.tied} / {each.lost}"
        rows.append((name, gap, p, won, *[number(each.n, ",d")] * several))
    heads = ("model", f"Δ to {in_words(baseline)}\n95 % interval", "p\ncorrected")
    queries = "the queries of both" if several or not sizes else f"the same {sizes[0]:,} queries"
    return Table.of(
        rows,
        (*heads, "queries\nwon / tied / lost", *["n\nof both"] * several),
        note=_note(comparison, compared, len(compared.columns) - len(shown)),
        name=f"differences-{compared.task}",
        caption=f"{short_task(compared.task)}: {compared.metric} of each model minus that of the "
        f"baseline, paired over {queries}, with its 95 % interval.",
    )


def _note(comparison: Comparison, compared: TaskComparison, hidden: int) -> str:
    how, lines = comparison.procedure, [*compared.left_out]
    if len(lines) > _MOST_LINES:
        lines = [f"{len(lines)} other models lack scores on these queries"]
    return (
        f"Filled, p in bold: significant, that is corrected p < {how.alpha:g} and an interval "
        f"({interval_words(['paired'])}) that leaves out 0. Two-sided paired permutation test, "
        f"{comparison.family(compared.task)}.{comparison.given(compared.task)}"
        f"{comparison.caution}{not_shown(hidden)}" + "".join(f" {line}." for line in lines)
    )
