"""The page of a comparison: tables, figures and conclusions on differences."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison.alignment import comparable, in_words
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
    best_first,
    correction_words,
    significant,
)
from qwen3nb.analysis.comparison.plan import plan_words
from qwen3nb.metrics.intervals import Interval, interval_words, within
from qwen3nb.records.record import Result
from qwen3nb.report.render import figure, table
from qwen3nb.report.render.figure import Figure, ForestRow, MplFigure
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import Cell, Conclusion, Sections, Table, TableChoice
from qwen3nb.utils.format import interval_text, number_text, p_value_text

_SINGLE = "a single query"
_FEW = 50  # queries below which corrections err more often if differences are skewed
_MOST_NAMED = 3  # notes below a table; more are counted
_MOST_ROWS = 700  # maximum rows in tables for all baselines, to limit the size of a page
_MOST_COLUMNS = 5  # maximum columns of differences with intervals on a page
_OTHERS = 4  # tasks named
_MOST_BEHIND = 8  # models in the figure of the landing page, next to the best
# Has a contrast of 5 with the colours of the matrix (white: 3.5). Not pure black, which matplotlib
# omits from an SVG, where the page would then apply its own text colour.
_ON_COLOR = "#010101"
# Inches of the matrix: room for the names of its rows, and of a row with a name on two lines.
_NAMES = 1.6
_TWO_LINES = 0.21


def difference_cells(difference: PairedDifference, *, alpha: float) -> tuple[Cell, Cell]:
    """Return cells for a difference with its interval, and for its corrected and raw p-values."""
    each = difference
    p = p_cell(each.corrected, each.interval, alpha=alpha)
    raw = f"raw {p_value_text(each.p_value)}"
    return difference_cell(each), replace(p, detail=raw, value=each.corrected)


def difference_cell(
    difference: PairedDifference, *, strong: bool = False, spec: str = "+.3f"
) -> Cell:
    """Return the cell of a difference, with its interval or that all scores are identical."""
    cell = table.number(
        difference.difference, spec, interval=difference.interval, detail=_SINGLE, strong=strong
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
    return f"{text}, {family}" if noun and family else text


def p_cell(p_value: float | None, interval: Interval | None, *, alpha: float) -> Cell:
    """Return a p-value, in bold where the difference is significant."""
    return Cell(p_value_text(p_value), strong=significant(p_value, interval, alpha=alpha))


def baseline_text(differences: Iterable[PairedDifference]) -> str:
    """Name the baseline, and the number of tasks with another one."""
    tasks = {each.task: each.second for each in differences}
    (first, count), *others = Counter(tasks.values()).most_common() or [("no baseline", 0)]
    names = ", ".join(in_words(name) for name, _ in others)
    more = f" (on {table.plural(len(tasks) - count, 'task')}: {names})" if others else ""
    return in_words(first) + more


def differences_table(
    comparison: Comparison, *, task: str | Sequence[str] = "", baseline: str = ""
) -> Table:
    """Compare every model with the baseline: difference, interval, p, effect size, queries won.

    For one, several or all tasks; for one task, optionally with another ``baseline``.
    """
    wanted = [task] if task and isinstance(task, str) else list(task)
    shown = comparison.differences_on(*wanted) if wanted else comparison.differences
    if baseline and (compared := comparison.on(*wanted)):
        shown = compared.against(baseline)
    rows, named = list[dict[str, Any]](), baseline_text(shown)
    like_these = any(each.like_these for each in shown)
    for each in shown:
        delta, p = difference_cells(each, alpha=comparison.procedure.alpha)
        row: dict[str, Any] = {
            "model\ntask": (each.first, f"{table.short_task(each.task)}, {each.metric}"),
            f"Δ to {named}\n95 % interval": delta,
        }
        if like_these:
            row["on tasks like these\n95 % interval"] = interval_text(each.like_these)
        row["p\ncorrected"] = p
        row["d_z"] = number_text(each.d_z, sign=True, digits=2)
        row["won / tied / lost"] = f"{each.won} / {each.tied} / {each.lost}"
        row["queries"] = (each.n, f"{each.unpaired} unpaired" if each.unpaired else "")
        rows.append(row)
    return Table.of(
        rows,
        note=_note(comparison, wanted) + " Below a corrected p-value: the raw one.",
        empty=_note(comparison, wanted),
        name="-".join(["differences", *wanted]) if len(wanted) == 1 else "paired-differences",
        caption=f"Paired differences from {named}, with 95 % intervals and corrected p-values.",
        data=comparison.data_used(*wanted),
    )


def baseline_tables(comparison: Comparison, *, task: str) -> Table | TableChoice:
    """Return `differences_table` on a task, with a baseline that can be changed on the page.

    All variants are based on the same tests; with many models, only the best can be baselines.
    """
    compared = comparison.on(task)
    if compared is None or len(compared.columns) < 2:
        return differences_table(comparison, task=task)
    best = sorted(compared.columns, key=lambda name: -compared.columns[name].scores.mean())
    names, tables = list(dict.fromkeys([compared.baseline or best[0], *best])), {}
    for name in names[: max(1, _MOST_ROWS // len(names))]:
        own = differences_table(comparison, task=task, baseline=name)
        caption = own.caption.replace(in_words(name), "the baseline")
        tables[name] = replace(own, caption=caption)
    return TableChoice(tables, "Baseline")


def _note(comparison: Comparison, tasks: Sequence[str]) -> str:
    """Describe how differences are tested, and what is not paired."""
    how = comparison.procedure
    every = (*comparison.tasks, *comparison.correlations, *comparison.means)
    shown = [each for each in every if (not tasks or each.task in tasks) and each.with_baseline]
    notes = [each for each in comparison.notes if not tasks or each.partition(": ")[0] in tasks]
    listed = f"{len(notes)} records" if len(notes) > _MOST_NAMED else "; ".join(notes)
    left_out = f" Not paired: {listed}." * bool(notes)
    if not shown:
        return f"No two models have per-query scores on the same task.{left_out}"
    clusters = [(table.short_task(each.task), each.clustered) for each in shown if each.clustered]
    clustered = [", ".join(each) for each in clusters]
    if len(clustered) > _MOST_NAMED:
        clustered = [f"on {table.plural(len(clustered), 'task')}"]
    family = f"{comparison.method} over all pairs of the models compared on each task"
    if len(tasks) < 2:
        family = comparison.family(*tasks)
    return (
        f"Paired over queries: 95 % interval ({interval_words(['paired'])}), {comparison.test} "
        f"with {max(each.draws for each in shown):,} draws; p corrected by "
        f"{family}{_condition(shown)}; in bold where the difference is significant: corrected p < "
        f"{how.alpha:g}, and the interval excludes 0."
        + (
            f" Queries of a cluster are treated as dependent: {'; '.join(clustered)}."
            if clustered
            else " The records have no clusters: queries are treated as independent."
        )
        + (comparison.given(tasks[0]) if tasks else "")
        + left_out
    )


def _condition(tasks: Sequence[TaskComparison]) -> str:
    """Say what the correction presumes, where few queries may hide that it does not hold."""
    families = [task.with_baseline for task in tasks if task.family > 1]
    fewest = min((pair.units or pair.n for pairs in families for pair in pairs), default=_FEW)
    if fewest >= _FEW:
        return ""
    return f" (of fewer than {_FEW} queries, .05 presumes that differences are not skewed)"


def compared_tables(comparison: Comparison) -> Table | Sections:
    """Show the differences from the baseline: a row per model, a column per task.

    For a tier with benchmarks, there is a column per mean; a table with many columns is transposed.
    Many tasks follow in folded tables by type.
    """
    tasks = [each for each in (*comparison.tasks, *comparison.correlations) if each.with_baseline]
    if len(tasks) <= table.MANY:
        return _compared(comparison, comparison.means or tasks, name="differences")
    tables = []
    if comparison.means:
        tables.append(("Means", _compared(comparison, comparison.means, name="differences")))
    for kind, own in tasks_by_type(comparison).items():
        title = f"{kind} ({table.plural(len(own), 'task')})"
        tables.append((title, _compared(comparison, own, name=f"differences-{kind}")))
    return Sections(tuple(tables))


def _compared(comparison: Comparison, tasks: Sequence[TaskComparison], *, name: str) -> Table:
    columns = [each for each in tasks if each.with_baseline]
    cells = {(each.first, i): each for i, task in enumerate(columns) for each in task.with_baseline}
    wide = len(columns) > _MOST_COLUMNS
    models = best_first(cells.values())
    kept = models[: _MOST_COLUMNS if wide else table.MANY]
    several = len({task.baseline for task in columns}) > 1
    named = baseline_text(cells.values())

    def head(task: TaskComparison) -> str:
        to = f", to {in_words(task.baseline)}" if several else ""
        n = max(each.n for each in task.with_baseline)
        return f"{table.short_task(task.task)}\n{task.metric}, n = {n:,}{to}"

    def cell(model: str, i: int) -> Cell:
        each = cells.get((model, i))
        if each is None:
            return Cell("baseline" if model == columns[i].baseline else "–")
        strong = each.significant(comparison.procedure.alpha)
        return difference_cell(each, strong=strong)

    made = Table.of(
        ((name, *(cell(name, i) for i in range(len(columns)))) for name in kept),
        ("model", *map(head, columns)) if columns else (),
        note=_note(comparison, [task.task for task in columns])
        + table.not_shown(len(models) - len(kept)),
        name=name,
        caption=f"Difference of each model from {named}, with its 95 % interval.",
        data=comparison.data_used(*(task.task for task in columns)),
    )
    return table.transposed(made, first="task") if wide else made


def power_table(comparison: Comparison) -> Table:
    """Return verdicts by task, and the difference that its queries detect of every model.

    The detectable difference is the largest over all pairs with the baseline.
    """
    how, rows = comparison.procedure, []
    shown: list[PairedDifference] = []
    for task in (*comparison.tasks, *comparison.correlations):
        own = task.with_baseline
        if not own:
            continue
        shown += own
        words = Counter(comparison.verdict(each).split(",")[0] for each in own)
        least = max(comparison.detectable(each) or 0.0 for each in own)
        most = max(comparison.queries_needed(each) or 0 for each in own)
        row: dict[str, Any] = {"task\nmetric": (table.short_task(task.task), task.metric)}
        for several in (("better", "worse"), ("equivalent", "no worse", "not shown")):
            row[" / ".join(several)] = " / ".join(str(words[word]) for word in several)
        row["detectable\npower 0.8"] = table.number(least or None, strong=least > how.minimum)
        row["queries\nto be equivalent"] = table.number(most or None, ",d")
        row["queries"] = max(each.n for each in own)
        rows.append(row)
    named = baseline_text(shown)
    return Table.of(
        rows,
        note=f"Numbers of models by verdict; differences are from {named}. Equivalent: the "
        f"interval is within ±{how.minimum:g}; no worse: it is above −{how.minimum:g}. Detectable: "
        "the true difference that is significant in 80 % of such samples whichever the model, "
        f"the largest over the models (by a paired t-test at {how.alpha:g} over the number of "
        "pairs, and by the interval); in bold "
        f"above {how.minimum:g}: these queries may then miss differences that matter.",
        empty="Nothing was compared.",
        name="power",
        caption=f"Verdicts on the differences from {named}, and the difference that these queries "
        "detect, whichever the model.",
        data=comparison.data_used(),
    )


def tasks_by_type(comparison: Comparison) -> dict[str, list[TaskComparison]]:
    """Return the tasks on which models were compared, by type."""
    kinds = {task: str(record.task.type) for (task, _), record in comparison.records.items()}
    types: dict[str, list[TaskComparison]] = {}
    for task in (*comparison.tasks, *comparison.correlations):
        if task.family:
            types.setdefault(kinds[task.task], []).append(task)
    return dict(sorted(types.items()))


def differences_figure(comparison: Comparison) -> Figure | None:
    """Draw forest plots: a panel per task, a row per model with its difference and interval.

    For a tier with benchmarks, a panel per mean; otherwise at most `MANY` tasks. Filled markers are
    significant after correction; the grey band contains differences that do not matter. None if
    nothing was compared.
    """
    every = [task for task in comparison.means or comparison.tasks if task.with_baseline]
    tasks = every[: table.MANY]
    if not tasks:
        return None
    how, best = comparison.procedure, best_first(comparison.differences)[: table.MOST_MODELS]
    models = [*dict.fromkeys(each.first for each in comparison.differences if each.first in best)]
    differences = [each for task in tasks for each in task.with_baseline]
    words = "; ".join(
        f"{each.first} on {table.short_task(each.task)}: {each}"
        for each in differences
        if each.first in models
    )
    return Figure(
        name="differences",
        draw=lambda width: _draw_differences(comparison, tasks, models, width),
        caption=f"Difference of each model's mean from that of {baseline_text(differences)}, "
        f"paired over the n queries below each panel, with 95 % intervals "
        f"({interval_words(['paired'])}). Filled: significantly different by the "
        f"{comparison.test}, corrected p < {how.alpha:g}, {comparison.family()}, and by the "
        "interval; open: not significantly different. Shaded: differences below "
        f"{how.minimum:g}."
        + f" {len(every) - len(tasks)} tasks are not shown." * (len(every) > len(tasks))
        + table.not_shown(len({each.first for each in differences}) - len(models)),
        alt=f"Forest plots of differences from {comparison.baseline}. {words}.",
        data=comparison.data_used(*(task.task for task in tasks)),
    )


def _draw_differences(
    comparison: Comparison, tasks: Sequence[TaskComparison], models: Sequence[str], width: float
) -> MplFigure:
    how, order, styles = comparison.procedure, models[::-1], model_styles(models)
    height = 0.22 * len(order) + 0.8
    drawn, axes, first = figure.panels(len(tasks), width, height=height, sharey=True)
    for axis, task in zip(axes, tasks, strict=True):
        axis.axvspan(-how.minimum, how.minimum, color=figure.GREY, alpha=0.13, linewidth=0)
        axis.axvline(0, color=figure.GREY, linewidth=1)
        axis.tick_params(axis="y", length=0)
        figure.grid(axis)
        for each in task.with_baseline:
            if each.first in order:
                look = {"filled": each.significant(how.alpha), **styles[each.first]}
                row = order.index(each.first)
                figure.draw_estimate(axis, row, each.difference, each.interval, **look)
        axis.set_title(figure.plain(table.short_task(task.task)))
        axis.set_xlabel(f"Δ {figure.plain(task.metric)}, n = {task.with_baseline[0].n:,}")
    for axis in axes:
        axis.set_ylim(-0.6, len(order) - 0.4)
    for axis in first:
        figure.name_rows(axis, order)
    return drawn


def pairs_figure(comparison: Comparison) -> Figure | None:
    """Draw a matrix of models: the number of tasks on which the row is significantly better.

    Of more than `MOST_MODELS` models, the baseline and those most above it are shown; p-values are
    corrected over the pairs of all models. None if nothing was compared.
    """
    tasks = [each for own in tasks_by_type(comparison).values() for each in own]
    if not tasks:
        return None
    shown = every = {name for each in tasks for name in each.columns}
    if len(every) > table.MOST_MODELS:
        above = best_first(each for task in tasks for each in task.with_baseline)
        shown = {comparison.baseline, *above[: table.MOST_MODELS - 1]}
    pairs = [each for task in tasks for each in task.among(shown)]
    alpha, count = comparison.procedure.alpha, table.plural(len(tasks), "task")
    undecided = sum(not each.significant(alpha) for each in pairs)
    test = f"{comparison.method} over all pairs of the models compared on each task"
    return Figure(
        name="pairs",
        draw=lambda width: _draw_pairs(pairs, alpha, len(tasks), width),
        caption=f"Every pair of models: on how many of {count} the row is significantly above the "
        f"column, paired over the queries that both answered ({comparison.test}, "
        f"corrected p < {alpha:g}, {test}, and an interval that excludes 0)."
        + f" Shown are the baseline and the {len(shown) - 1} models most above it on average; of "
        f"the {len(every)} models compared, comparison.difference(first, second, task=name) in "
        "this notebook gives any pair, corrected alike." * (len(shown) < len(every)),
        alt=f"A matrix of counts of {count}. "
        f"{undecided} of {len(pairs)} pairs are not significantly different.",
        data=comparison.data_used(*(each.task for each in tasks)),
    )


def _draw_pairs(
    pairs: Iterable[PairedDifference], alpha: float, tasks: int, width: float
) -> MplFigure:
    import matplotlib.pyplot as plt

    above: Counter[tuple[str, str]] = Counter()
    won: Counter[str] = Counter()
    for each in pairs:
        better = each if each.difference >= 0 else each.reversed()
        above[better.first, better.second] += each.significant(alpha)
        above[better.second, better.first] += 0
        won[better.first] += each.significant(alpha)
        won[better.second] -= each.significant(alpha)
    names = sorted(won, key=lambda name: (-won[name], name))
    pitch = 0.24 if max(map(len, names), default=0) > figure.MOST_IN_LINE else 0.19
    drawn, axis = plt.subplots(figsize=(width, pitch * len(names) + 1.4))
    counts = [[above.get((row, column), np.nan) for column in names] for row in names]
    axis.imshow(counts, cmap="Blues", vmin=0, vmax=1.6 * tasks)
    for (i, j), value in np.ndenumerate(counts):
        if not np.isnan(value):
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": figure.SMALL}
            axis.annotate(f"{value:.0f}", (j, i), color=_ON_COLOR, **look)
    room = (width - _NAMES) / max(1, len(names))
    labels = figure.row_names(names, lines=2 if room > _TWO_LINES else 1)
    small: dict[str, Any] = {"fontsize": figure.SMALL, "linespacing": 1.0}
    axis.set_xticks(range(len(labels)), labels, rotation=90, **small)
    axis.set_yticks(range(len(labels)), labels, **small)
    axis.tick_params(length=0)
    return drawn


def lead_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    For a benchmark as task, its mean is shown.
    """
    best = find_best(comparison, task=task)
    if best is None or not best.ahead:
        return None
    shown = [each.reversed() for each in best.ahead[:_MOST_BEHIND]]
    styles = model_styles([best.name, *(each.first for each in shown)])
    rows = [ForestRow(best.name, 0.0, **styles[best.name])]
    alpha, key, main = comparison.procedure.alpha, best.record.task.key, best.record.main
    for each in shown:
        look = {"clear": each.significant(alpha), **styles[each.first]}
        rows.append(ForestRow(each.first, each.difference, each.interval, **look))
    where, metric = table.short_task(key), best.record.task.main_metric
    return figure.forest_figure(
        rows,
        xlabel=f"{metric} minus the best model's",
        name="lead",
        caption=f"{where}: how far each model is from the best, {best.name} ({metric} "
        f"{main.value or 0.0:.3f}), paired over the same {best.queries}, with the 95 % interval of "
        f"the difference. Filled: different by the test ({comparison.test}, "
        f"{comparison.family(key)}, corrected p < {alpha:g}) and by the interval; open: not."
        + comparison.given(task)
        + table.not_shown(len(best.ahead) - len(shown)),
        columns=1,
        data=comparison.data_used(task),
    )


def comparison_conclusion(comparison: Comparison) -> Conclusion:
    """State which differences from the baseline are significant, and what is known of the others.

    First for the mean of a tier, if it has one, then by task; last, deviations from the plan.
    """
    tasks = (*comparison.tasks, *comparison.correlations)
    every = [each for task in tasks for each in task.with_baseline]
    if not every:
        return Conclusion(
            "Nothing was compared: no two models have scores on the same queries of these tasks."
        )
    means = [each.with_baseline for each in comparison.means[:1] if each.with_baseline]
    parts = [_counted(comparison, differences) for differences in (*means, every)]
    if rest := [each for each in every if not each.significant(comparison.procedure.alpha)]:
        parts.append(_open(comparison, rest))
    text = " ".join(filter(None, [*parts, plan_words(comparison)]))
    return Conclusion(text, data=comparison.data_used())


def _counted(comparison: Comparison, every: Sequence[PairedDifference]) -> str:
    """State the number of significant differences, their directions, and the largest."""
    how = comparison.procedure
    shown = [each for each in every if each.significant(how.alpha)]
    tasks = {each.task for each in every}
    over = table.short_task(every[0].task)
    if len(tasks) > 1:
        others = sorted({task for task, _ in comparison.records} - tasks)
        names = ", ".join(map(table.short_task, others[:_MOST_NAMED]))
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        over = f"{len(tasks)} tasks" + (f" (not on {names}{more})" if others else "")
    corrected = f"after correction ({comparison.method} over all pairs of models on each task)"
    if how.correction == "none":
        corrected = "without a correction"
    text = (
        f"{len(shown)} of {table.plural(len(every), 'difference')} from {baseline_text(every)} on "
        f"{over} {'is' if len(shown) == 1 else 'are'} significant {corrected}"
    )
    if not shown:
        return f"{text}."
    better = sum(each.difference > 0 for each in shown)
    largest = max(shown, key=lambda each: abs(each.difference))
    small = sum(within(each.interval, how.minimum) for each in shown)
    effect = table.effect_text(largest.difference, largest.interval, absent=f"({_SINGLE})")
    return (
        f"{text}: {better} better, {len(shown) - better} worse"
        + f", {small} by less than {how.minimum:g}, the least that matters" * bool(small)
        + f". The largest is {effect} ({largest.metric} of {largest.first} on "
        f"{table.short_task(largest.task)})."
    )


def _open(comparison: Comparison, differences: Sequence[PairedDifference]) -> str:
    """State the verdicts on differences that are not significant."""
    verdicts = Counter(map(comparison.verdict, differences))
    margin = f"{comparison.procedure.minimum:g}"
    words = {
        "equivalent": f"equivalent (within ±{margin})",
        "no worse": f"no worse (above −{margin})",
        "not shown": "not shown to be either",
    }
    listed = ", ".join(f"{verdicts[each]} {word}" for each, word in words.items() if verdicts[each])
    largest = max(comparison.detectable(each) or 0.0 for each in differences)
    detect = f"; a difference of {largest:.3f} is detected in 80 % of samples, whichever the model"
    return f"Not significant: {listed}{detect * bool(largest)}."


@dataclass(frozen=True)
class TopModel:
    """The best model on a task or benchmark, and the others that can be paired with it."""

    name: str
    record: Result  # for a benchmark, with the mean as its score
    ahead: tuple[PairedDifference, ...]  # differences from the others, the best of them first
    queries: str  # number of paired queries, such as ``200 queries``
    unpaired: int  # number of models whose scores cannot be paired with it


def find_best(comparison: Comparison, *, task: str) -> TopModel | None:
    """Return the best model on a task or on the mean of a benchmark; None without results."""
    records = comparison.scored(task)
    if not records:
        return None
    best, *others = sorted(records, key=lambda each: each.main.value or 0.0, reverse=True)
    name, compared = comparison.name(best), comparison.on(best.task.key)
    against = compared.against(name) if compared else ()
    ahead = {each.first: each.reversed() for each in against}
    gaps = [ahead.get(comparison.name(r)) if comparable(best, r) else None for r in others]
    unranked = [line for line in compared.left_out if " not ranked: " in line] if compared else []
    return TopModel(
        name,
        best,
        tuple(gap for gap in gaps if gap is not None),
        f"{best.main.n:,} {best.task.unit}",
        gaps.count(None) + len(unranked),
    )


def leaderboard_conclusion(
    comparison: Comparison, *, task: str, results: Iterable[Result] = ()
) -> Conclusion:
    """State the best model, its lead, and whether the lead is significant.

    For a task, or the mean of a benchmark, from the comparison used on all pages. Without results
    on it, the tasks of ``results`` are named.
    """
    best = find_best(comparison, task=task)
    if best is None:
        others = sorted({table.short_task(each.task.key) for each in results})
        text = f"No results yet on {'the tasks of this page' if others else 'whole tasks'}: "
        text += "`qwen3nb eval` writes some. A run with `--limit` has a separate page."
        if others:
            more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
            text += f" There are results on {', '.join(others[:_OTHERS])}{more}; the reading guide "
            text += "of the first page links their pages."
        return Conclusion(text)
    alpha = comparison.procedure.alpha
    shown = next((each for each in best.ahead if each.significant(alpha)), None)
    next_shown = shown is not None and shown is best.ahead[0]
    open_ = [each.second for each in best.ahead if not each.significant(alpha)]
    score = f"{best.record.task.main_metric} {table.score_text(best.record.main)}"
    text = f"{best.name} {'is best' if shown and not open_ else 'scores highest'} on "
    text += f"{table.short_task(best.record.task.key)}: {score}"

    def lead(each: PairedDifference) -> str:
        if each.identical and each.n > 1:
            return f"level with {each.second} on every query"
        ends = interval_text(each.interval, sign=False, absent=f"({_SINGLE})")
        return f"ahead of {each.second} by {each.difference:.3f} {ends}"

    if best.ahead:
        text += f", {lead(best.ahead[0])}, {'' if next_shown else 'not '}a difference that these "
        text += f"{best.queries} show."
        if shown and not next_shown:
            text += f" It is {lead(shown)}, which they do show."
        if next_shown and open_:
            names = ", ".join(open_[:_MOST_NAMED])
            more = f" and {len(open_) - _MOST_NAMED} more" if len(open_) > _MOST_NAMED else ""
            text += f" It is not shown to be ahead of {names}{more}."
    else:
        text += f", over {best.queries}; no other model can be compared with it."
    if best.unpaired:
        text += f" Not compared for lack of scores: {table.plural(best.unpaired, 'model')}."
    return Conclusion(text, data=comparison.data_used(task))
