"""Tables of a comparison: differences, power, categories, correlations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from qwen3nb.analysis.comparison.by_category import breakdown
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference, significant
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, number_text, p_value_text

__all__ = [
    "breakdown_table",
    "correlations_table",
    "difference_cells",
    "differences_table",
    "power_table",
]

SINGLE = "a single query"
_LACKS = re.compile(r"(\S+): (.+) has no (.+ per query)")


def difference_cells(difference: PairedDifference, *, alpha: float) -> tuple[Cell, Cell]:
    """Return a difference with its interval, and its corrected p-value above the raw one."""
    return (
        Cell(
            f"{difference.difference:+.3f}",
            interval_text(difference.interval, absent=SINGLE),
            value=difference.difference,
            interval=difference.interval,
        ),
        Cell(
            p_value_text(difference.corrected),
            f"raw {p_value_text(difference.p_value)}",
            strong=difference.significant(alpha),
            value=difference.corrected,
        ),
    )


def differences_table(
    comparison: Comparison,
    *,
    task: str = "",
    tasks: Sequence[str] = (),
    models: Collection[str] = (),
) -> Table:
    """Compare every model with the baseline: difference, interval, p, effect size, queries won.

    Args:
        comparison: the comparison to show.
        task: the task to show; by default all.
        tasks: several tasks to show.
        models: names of the models to show; by default all.
    """
    wanted = [task] if task else list(tasks)
    shown = _shown(comparison, wanted, models)
    rows = tuple(_difference_row(each, comparison.procedure.alpha) for each in shown)
    columns = (
        "model\ntask", f"Δ to {comparison.baseline}\n95 % interval", "p\ncorrected", "d_z",
        "won / tied / lost", "queries",
    )  # fmt: skip
    caption = f"Paired differences from {comparison.baseline}"
    caption += f" on {short_task(task)}" if task else ""
    caption += ", with 95 % intervals and corrected p-values."
    name = f"differences-{task}" if task else "paired-differences"
    note = _note(comparison, wanted)
    if left_out := not_shown(_left_out(comparison, wanted, models)):
        note += f"{left_out} `qwen3nb tables` writes the rows of all."
    return Table(columns, rows, note, name=name, caption=caption)


def _shown(
    comparison: Comparison, tasks: Sequence[str], models: Collection[str]
) -> list[PairedDifference]:
    """Return the differences on some tasks, or all, of some models, or all."""
    every = comparison.differences_on(*tasks) if tasks else comparison.differences
    return [each for each in every if not models or each.first in models]


def _left_out(comparison: Comparison, tasks: Sequence[str], models: Collection[str]) -> int:
    """Return the number of models with differences that are not shown."""
    every = {each.first for each in _shown(comparison, tasks, ())}
    return len(every.difference(models)) if models else 0


def _difference_row(each: PairedDifference, alpha: float) -> tuple[Cell, ...]:
    return (
        Cell(each.first, f"{short_task(each.task)}, {each.metric}"),
        *difference_cells(each, alpha=alpha),
        Cell(number_text(each.d_z, sign=True, digits=2)),
        Cell(f"{each.won} / {each.tied} / {each.lost}"),
        Cell(str(each.n), f"{each.unpaired} unpaired" if each.unpaired else ""),
    )


def _note(comparison: Comparison, tasks: Sequence[str]) -> str:
    notes = [n for n in comparison.notes if not tasks or n.partition(": ")[0] in tasks]
    left_out = "; ".join(_grouped(notes))
    how = comparison.procedure
    if not _shown(comparison, tasks, ()):
        what = f"on {short_task(tasks[0])}" if len(tasks) == 1 else "on the same task"
        return f"No two models have per-query scores {what}.{f' {left_out}.' if left_out else ''}"
    family = (
        comparison.family(tasks[0] if tasks else "")
        if len(tasks) < 2
        else f"{NAMES[how.correction]} over all pairs of the models compared on each task"
    )
    every = [*comparison.tasks, *comparison.correlations, *comparison.means]
    draws = max(each.draws for each in every if not tasks or each.task in tasks)
    return (
        f"Paired over queries: 95 % interval ({interval_words(['paired'])}), two-sided paired "
        f"permutation test with {draws:,} draws; p corrected by {family}, below it the "
        f"raw p-value; in bold where the difference is significant: corrected p < {how.alpha:g}, "
        "and the interval leaves out 0."
        + (comparison.given(tasks[0]) if tasks else "")
        + comparison.caution
        + (f" Not paired: {left_out}." if left_out else "")
    )


def _grouped(notes: Iterable[str]) -> list[str]:
    """Merge notes that differ only in the model."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        match = _LACKS.fullmatch(note)
        key = f"{match[1]}: no {match[3]}" if match else note
        groups.setdefault(key, []).append(match[2] if match else "")
    return [f"{key} of {', '.join(names)}" if all(names) else key for key, names in groups.items()]


def power_table(
    comparison: Comparison, *, tasks: Sequence[str] = (), models: Collection[str] = ()
) -> Table:
    """Return what these queries show, and what they could: verdicts and detectable effects.

    Args:
        comparison: the comparison to show.
        tasks: the tasks to show; by default all.
        models: names of the models to show; by default all.
    """
    shown = _shown(comparison, tasks, models)
    rows = tuple(_power_row(comparison, each) for each in shown)
    how = comparison.procedure
    columns = (
        "model\ntask", f"verdict\nmargin {how.minimum:g}", "detectable\npower 0.8",
        "won / tied / lost\nin %", "queries\nto be equivalent", "queries",
    )  # fmt: skip
    note = (
        f"Better or worse than {comparison.baseline}: significant, as in the table of differences. "
        f"Equivalent: the interval of the difference lies within ±{how.minimum:g}, as it would on "
        f"so many queries like these as stated; no worse: it ends above −{how.minimum:g}. "
        "Detectable: the smallest true difference that is significant in 80 % of such samples, by "
        f"a paired t-test at {how.alpha:g} over the number of pairs and by the interval; in bold "
        f"above {how.minimum:g}: these queries may then miss differences that matter. Could turn: "
        "rare queries that are not among these could turn the sign of the difference."
        + not_shown(_left_out(comparison, tasks, models))
    )
    caption = f"What these queries show of the differences from {comparison.baseline}, and the "
    caption += "smallest that they can detect."
    return Table(
        columns, rows, note if rows else "Nothing was compared.", name="power", caption=caption
    )


def _power_row(comparison: Comparison, each: PairedDifference) -> tuple[Cell, ...]:
    how, least = comparison.procedure, comparison.detectable(each)
    needed = comparison.queries_needed(each)
    shares = [count / each.n for count in (each.won, each.tied, each.lost)]
    turns = each.significant(how.alpha) and comparison.could_turn(each)
    return (
        Cell(each.first, f"{short_task(each.task)}, {each.metric}"),
        Cell(comparison.verdict(each), "could turn" * turns),
        Cell(number_text(least), strong=least is not None and least > how.minimum),
        Cell(" / ".join(f"{100 * share:.0f}" for share in shares)),
        Cell(f"{needed:,}" if needed else "–", value=needed),
        Cell(str(each.n)),
    )


def breakdown_table(comparison: Comparison) -> Table | None:
    """Compare every model with the baseline within each category; None without categories."""
    how = comparison.procedure
    rows: list[tuple[Cell, ...]] = []
    reversals: list[str] = []
    for each in comparison.differences:
        categories = comparison.records[each.task, each.first].task.categories
        if not categories:
            continue
        matrix = comparison.matrix(each)
        columns = [dict(zip(matrix.queries, scores, strict=True)) for scores in matrix.scores]
        parts = breakdown(
            columns[0], columns[1], categories, names=(each.first, each.second),
            n_resamples=how.draws, alpha=how.alpha, seed=how.seed,
        )  # fmt: skip
        task = short_task(each.task)
        reversals += [f"{each.first} on {task}: {reversal.text}" for reversal in parts.reversals]
        rows += [
            (
                Cell(each.first, task),
                Cell(row.category),
                Cell(f"{row.difference:+.3f}", interval_text(row.interval, absent=SINGLE)),
                Cell(
                    p_value_text(row.p_value),
                    strong=significant(row.p_value, row.interval, alpha=how.alpha),
                ),
                Cell(str(row.n)),
            )
            for row in parts.rows
        ]
    if not rows:
        return None
    note = "p: Holm over the categories of a model. Reversals: "
    note += " ".join(f"{line}." for line in reversals) or "none."
    heads = (
        "model", "category", f"Δ to {comparison.baseline}\n95 % interval", "p\ncorrected", "queries"
    )  # fmt: skip
    caption = f"Paired differences from {comparison.baseline} within each category of queries."
    return Table(heads, tuple(rows), note, name="categories", caption=caption)


def correlations_table(comparison: Comparison) -> Table | None:
    """Compare every model with the baseline on tasks scored by a correlation, such as STS.

    None if no other model has such a score.
    """
    rows = tuple(
        (
            Cell(each.first, f"{short_task(each.task)}, {each.metric}"),
            *difference_cells(each, alpha=comparison.procedure.alpha),
            Cell(str(each.n)),
        )
        for task in comparison.correlations
        for each in task.with_baseline
    )
    heads = ("model\ntask", f"Δ to {comparison.baseline}\n95 % interval", "p\ncorrected", "pairs")
    note = (
        "Difference of the correlations with the gold scores, paired by what each pair of texts "
        f"adds to them: interval ({interval_words(['paired'])}) and permutation test of its mean; "
        f"p corrected by {NAMES[comparison.procedure.correction]} over all pairs of the models "
        "compared on each task."
    )
    caption = f"Differences of correlations from {comparison.baseline}, paired over the same pairs."
    return Table(heads, rows, note, name="correlations", caption=caption) if rows else None
