"""The page of a comparison: differences as tables and figures, and what they show in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.baseline import in_words
from qwen3nb.analysis.comparison.candidates import enough_queries
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    PairOutcome,
    TaskComparison,
    significant,
)
from qwen3nb.analysis.comparison.ranking import Breakdown, breakdown
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import Interval, interval_words, within
from qwen3nb.records.record import Result
from qwen3nb.report.render.cell import Cell, number, score_text
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import (
    GREY,
    SMALL,
    Figure,
    draw_estimate,
    grid,
    panels,
    plain,
)
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import not_shown, plural, short_task
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS, Sections
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, number_text, p_value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

_SINGLE = "a single query"
_LACKS = re.compile(r"(\S+): (.+) has no (.+ per query)")
_MOST_NAMED = 3  # tasks in a sentence; more are counted
_MOST_COLUMNS = 5  # of differences with their intervals, which fit a page
_MOST_BEHIND = 8  # models in the figure of the landing page, next to the best
# Has a contrast of 5 with the colours of the bars, where white has 3.5. Not pure black, which
# matplotlib omits from an SVG, so that the page would apply its own text colour.
_ON_COLOR = "#010101"


# Tables.


def difference_cells(difference: PairedDifference, *, alpha: float) -> tuple[Cell, Cell]:
    """Return a difference with its interval, and its corrected p-value above the raw one."""
    each = difference
    p = p_cell(each.corrected, each.interval, alpha=alpha)
    return (
        number(each.difference, "+.3f", interval=each.interval, detail=_SINGLE),
        replace(p, detail=f"raw {p_value_text(each.p_value)}", value=each.corrected),
    )


def p_cell(p_value: float | None, interval: Interval | None, *, alpha: float) -> Cell:
    """Return a p-value, in bold where the difference is significant."""
    return Cell(p_value_text(p_value), strong=significant(p_value, interval, alpha=alpha))


def baseline_text(differences: Iterable[PairedDifference]) -> str:
    """Name what models are compared with, and on which tasks, or how many, it is another one."""
    tasks: dict[str, dict[str, None]] = {}
    for each in differences:
        tasks.setdefault(each.second, {})[short_task(each.task)] = None
    first, *others = sorted(tasks, key=lambda name: -len(tasks[name])) or ["no baseline"]
    where = {
        name: ", ".join(on) if len(on) <= _MOST_NAMED else f"{len(on)} tasks"
        for name, on in tasks.items()
    }
    instead = "; ".join(f"on {where[name]}: {in_words(name)}" for name in others)
    return in_words(first) + (f" ({instead})" if instead else "")


def differences_table(
    comparison: Comparison, *, task: str = "", tasks: Sequence[str] = ()
) -> Table:
    """Compare every model with the baseline: difference, interval, p, effect size, queries won.

    On one ``task``, on several ``tasks``, or on all.
    """
    wanted = [task] if task else list(tasks)
    shown = comparison.differences_on(*wanted) if wanted else comparison.differences
    rows, named = [], baseline_text(shown)
    for each in shown:
        won = f"{each.won} / {each.tied} / {each.lost}"
        unpaired = f"{each.unpaired} unpaired" if each.unpaired else ""
        d_z = number_text(each.d_z, sign=True, digits=2)
        cells = difference_cells(each, alpha=comparison.procedure.alpha)
        name = (each.first, f"{short_task(each.task)}, {each.metric}")
        rows.append((name, *cells, d_z, won, (each.n, unpaired)))
    heads = ("p\ncorrected", "d_z", "won / tied / lost", "queries")
    return Table.of(
        rows,
        ("model\ntask", f"Δ to {named}\n95 % interval", *heads),
        note=_note(comparison, wanted, bool(rows)),
        name=f"differences-{task}" if task else "paired-differences",
        caption=f"Paired differences from {named}"
        + (f" on {short_task(task)}" if task else "")
        + ", with 95 % intervals and corrected p-values.",
    )


def _note(
    comparison: Comparison, tasks: Sequence[str], compared: bool, *, p_values: bool = True
) -> str:
    """Say how differences are tested and what is not paired; merge lines but for the model."""
    groups: dict[str, list[str]] = {}
    for note in comparison.notes:
        if not tasks or note.partition(": ")[0] in tasks:
            match = _LACKS.fullmatch(note)
            key = f"{match[1]}: no {match[3]}" if match else note
            groups.setdefault(key, []).append(match[2] if match else "")
    left_out = "; ".join(
        f"{short_task(key)} of {', '.join(names) if len(names) < 4 else f'{len(names)} models'}"
        if all(names)
        else key
        for key, names in groups.items()
    )
    if not compared:
        what = f"on {short_task(tasks[0])}" if len(tasks) == 1 else "on the same task"
        return f"No two models have per-query scores {what}.{f' {left_out}.' if left_out else ''}"
    how = comparison.procedure
    family = f"{NAMES[how.correction]} over all pairs of the models compared on each task"
    if len(tasks) < 2:
        family = comparison.family(*tasks)
    every = [*comparison.tasks, *comparison.correlations, *comparison.means]
    draws = max(each.draws for each in every if not tasks or each.task in tasks)
    return (
        f"Paired over queries: 95 % interval ({interval_words(['paired'])}), two-sided paired "
        f"permutation test with {draws:,} draws; p corrected by {family}"
        + ", below it the raw p-value"
        * p_values
        + f"; in bold where the difference is significant: corrected p < {how.alpha:g}, and the "
        "interval leaves out 0."
        + (comparison.given(tasks[0]) if tasks else "")
        + comparison.caution
        + (f" Not paired: {left_out}." if left_out else "")
    )


def compared_tables(comparison: Comparison) -> Table | Sections:
    """Show the differences from the baseline: a row per model, a column per task.

    Of a tier with benchmarks, a column per mean; of many columns, a row each and a column per
    model. Many tasks follow in a folded table per type. A model none of whose differences is
    significant or larger than the smallest that matters is counted below the table.
    """
    tasks = [each for each in (*comparison.tasks, *comparison.correlations) if each.with_baseline]
    if len(tasks) <= MANY:
        return _compared(comparison, comparison.means or tasks, name="differences")
    tables = []
    if comparison.means:
        table = _compared(comparison, comparison.means, name="differences")
        tables.append(("Means", table))
    for kind, every in tasks_by_type(comparison).items():
        own = [each for each in every if each.with_baseline]
        title = f"{kind} ({plural(len(own), 'task')})"
        tables.append((title, _compared(comparison, own, name=f"differences-{kind}")))
    return Sections(tuple(tables), unfolded=1)


def _compared(comparison: Comparison, tasks: Sequence[TaskComparison], *, name: str) -> Table:
    how = comparison.procedure
    columns = [each for each in tasks if each.with_baseline]
    cells: dict[tuple[str, int], PairedDifference] = {
        (each.first, i): each for i, task in enumerate(columns) for each in task.with_baseline
    }
    models = {name: [each for (own, _), each in cells.items() if own == name] for name, _ in cells}
    trivial = [
        name
        for name, own in models.items()
        if not any(
            each.significant(how.alpha) or abs(each.difference) > how.minimum for each in own
        )
    ]
    order = sorted(
        (name for name in models if name not in trivial),
        key=lambda name: (-len(models[name]), -fmean(e.difference for e in models[name])),
    )
    wide = len(columns) > _MOST_COLUMNS
    kept = order[: _MOST_COLUMNS if wide else MANY]
    named = baseline_text(cells.values())
    several = len({each.second for each in cells.values()}) > 1

    def head(task: TaskComparison) -> tuple[str, str]:
        n = max(each.n for each in task.with_baseline)
        to = f", to {in_words(task.baseline)}" if several else ""
        return short_task(task.task), f"{task.metric}, n = {n:,}{to}"

    def cell(model: str, i: int) -> Cell:
        each = cells.get((model, i))
        if each is None:
            return Cell("baseline" if model == columns[i].baseline else "–")
        strong = each.significant(how.alpha)
        return number(each.difference, "+.3f", interval=each.interval, strong=strong)

    heads: list[Any] = [head(task) for task in columns]
    if wide:
        rows = [(heads[i], *(cell(name, i) for name in kept)) for i in range(len(columns))]
        titles = ("mean" if columns[0] in comparison.means else "task", *kept)
    else:
        rows = [(name, *(cell(name, i) for i in range(len(columns)))) for name in kept]
        titles = ("model", *map("\n".join, heads))
    wanted = [task.task for task in columns] if name != "differences" or comparison.means else []
    note = _note(comparison, wanted, bool(cells), p_values=False)
    if trivial:
        most = max(abs(each.difference) for name in trivial for each in models[name])
        note += (
            f" {plural(len(trivial), 'more model')}: no difference larger than {most:.3f}, none "
            f"significant ({', '.join(trivial)})."
        )
    return Table.of(
        rows,
        titles if rows else (),
        note=note + not_shown(len(order) - len(kept)),
        name=name,
        caption=f"Difference of each model from {named}, with its 95 % interval.",
    )


def power_table(comparison: Comparison) -> Table:
    """Say what the queries of each task, or of many the tasks of each type, can show.

    A row counts the verdicts on all models and has the range of the smallest differences that these
    queries detect.
    """
    how, rows = comparison.procedure, []
    types = tasks_by_type(comparison)
    if sum(map(len, types.values())) <= MANY:
        types = {short_task(each.task): [each] for own in types.values() for each in own}
    every = [each for tasks in types.values() for task in tasks for each in task.with_baseline]
    for kind, tasks in types.items():
        own = [each for task in tasks for each in task.with_baseline]
        if not own:
            continue
        words = Counter(comparison.verdict(each).split(",")[0] for each in own)
        least = [e for each in own if (e := comparison.detectable(each)) is not None]
        needed = [n for each in own if (n := comparison.queries_needed(each))]
        ends = dict.fromkeys(number_text(end(least)) for end in (min, max) if least)
        size = f"{len(tasks)} tasks" if len(tasks) > 1 else tasks[0].metric
        sizes = sorted({min(each.n for each in own), max(each.n for each in own)})
        rows.append(
            (
                (kind, size),
                " / ".join(str(words[word]) for word in ("better", "worse")),
                " / ".join(str(words[word]) for word in ("equivalent", "no worse", "not shown")),
                Cell(" to ".join(ends) or "–", strong=max(least, default=0) > how.minimum),
                number(max(needed, default=None), ",d"),
                " to ".join(f"{n:,}" for n in sizes),
            )
        )
    named = baseline_text(every)
    return Table.of(
        rows,
        (
            "task\nmetric",
            "better / worse",
            "equivalent / no worse / not shown",
            "detectable\npower 0.8",
            "queries\nto be equivalent",
            "queries",
        ),
        note=f"Models by what is shown of their difference from {named}. Better, worse: "
        f"significant. Equivalent: the interval lies within ±{how.minimum:g}, as it would on so "
        f"many queries like these as stated; no worse: it ends above −{how.minimum:g}. Detectable: "
        "the smallest true difference that is significant in 80 % of such samples, from the least "
        "to the most variable pair (by a paired t-test at "
        f"{how.alpha:g} over the number of pairs, and by the interval); in bold above "
        f"{how.minimum:g}: these queries may then miss differences that matter.",
        empty="Nothing was compared.",
        name="power",
        caption=f"What these queries show of the differences from {named}, and the smallest that "
        "they can detect.",
    )


def difference_by_category(comparison: Comparison, difference: PairedDifference) -> Breakdown:
    """Return a difference within each category of queries."""
    how, each, matrix = comparison.procedure, difference, comparison.matrix(difference)
    first, second = (dict(zip(matrix.queries, scores, strict=True)) for scores in matrix.scores)
    ours, theirs = (comparison.records[each.task, name].task for name in (each.first, each.second))
    return breakdown(
        first,
        second,
        ours.categories or theirs.categories,
        names=(each.first, each.second),
        n_resamples=how.draws,
        alpha=how.alpha,
        seed=how.seed,
    )


def tasks_by_type(comparison: Comparison) -> dict[str, list[TaskComparison]]:
    """Return the tasks on which models were compared, by type."""
    kinds = {task: str(record.task.type) for (task, _), record in comparison.records.items()}
    types: dict[str, list[TaskComparison]] = {}
    for task in (*comparison.tasks, *comparison.correlations):
        if task.outcomes:
            types.setdefault(kinds[task.task], []).append(task)
    return dict(sorted(types.items()))


# Figures.


def differences_figure(comparison: Comparison) -> Figure | None:
    """Draw forest plots: a panel per task, a row per model with its difference and interval.

    Of more than `MANY` tasks, a panel per model with a row per task, by type. Filled markers are
    significant after correction; the grey band contains differences that do
    not matter. None if nothing was compared.
    """
    tasks = [task for task in comparison.tasks if task.with_baseline]
    if not tasks:
        return None
    how, every = comparison.procedure, {each.first for each in comparison.differences}
    many = len(tasks) > MANY
    models = comparison.leaders(MANY if many else MOST_MODELS)
    words = "; ".join(
        f"{each.first} on {short_task(each.task)}: {each}"
        for each in comparison.differences
        if each.first in models
    )
    return Figure(
        name="differences",
        draw=lambda width: _draw_differences(comparison, models, width),
        caption=f"Difference of each model's mean from that of "
        f"{baseline_text(comparison.differences)}, paired over "
        f"{'the same queries' if many else 'the n queries below each panel'}, with "
        f"95 % intervals ({interval_words(['paired'])}). "
        "Filled: significantly different by the two-sided paired permutation test, corrected p < "
        f"{how.alpha:g}, {comparison.family()}, and by the interval; open: not significantly "
        f"different. Shaded: differences below {how.minimum:g}."
        + not_shown(len(every) - len(models)),
        alt=f"Forest plots of differences from {comparison.baseline}. {words}.",
    )


def _draw_differences(comparison: Comparison, models: Sequence[str], width: float) -> MplFigure:
    """Draw a forest plot per task, or of many tasks per model, with lines between the types."""
    listed = [task for task in comparison.tasks if task.with_baseline]
    how, margin = comparison.procedure, comparison.procedure.minimum
    styles = model_styles([*models, comparison.baseline])
    look: dict[str, float] = {}
    if many := len(listed) > MANY:
        types = tasks_by_type(comparison).items()
        kinds = [(kind, each) for kind, own in types for each in own if each.with_baseline]
        rows = {(each.task, each.metric): i for i, (_, each) in enumerate(reversed(kinds))}
        names = [plain(short_task(each.task), most=30) for _, each in reversed(kinds)]
        label, look = "Δ to the baseline", {"linewidth": 1.3, "size": 3}
        drawn = [
            (
                plain(model, most=26),
                label,
                [(rows[e.task, e.metric], e) for e in comparison.differences if e.first == model],
            )
            for model in models
        ]
    else:
        order = models[::-1]
        names = [plain(name, most=28) for name in order]
        drawn = [
            (
                plain(short_task(task.task), most=24),
                f"Δ {task.metric}, n = {task.with_baseline[0].n}",
                [(order.index(e.first), e) for e in task.with_baseline if e.first in order],
            )
            for task in listed
        ]
    height = (0.125 if many else 0.21) * len(names) + 0.8
    figure, axes, first = panels(len(drawn), width, height=height, sharex=many, sharey=True)
    for axis, (title, label, own) in zip(axes, drawn, strict=True):
        axis.axvspan(-margin, margin, color=GREY, alpha=0.13, linewidth=0)
        axis.axvline(0, color=GREY, linewidth=1)
        axis.tick_params(axis="y", length=0)
        grid(axis)
        for row, each in own:
            shown = asdict(styles[each.first]) | look
            filled = each.significant(how.alpha)
            draw_estimate(axis, row, each.difference, each.interval, filled=filled, **shown)
        axis.set_title(title)
        axis.set_xlabel(label)
        if many:
            axis.set_ylim(-0.7, len(rows) - 0.3)
            _divide(axis, [kind for kind, _ in kinds], named=width > 5)
            axis.tick_params(labelbottom=True)
    for axis in first:
        axis.set_yticks(range(len(names)), names)
        if many:
            axis.tick_params(axis="y", labelsize=SMALL)
    return figure


def _divide(axis: Axes, kinds: Sequence[str], *, named: bool) -> None:
    """Draw a line above each type of task, with its name at the right."""
    below: dict[str, Any] = {"xytext": (0, -1), "textcoords": "offset points", "va": "top"}
    look = below | {"fontsize": SMALL - 1, "ha": "right", "alpha": 0.8}
    for i, kind in enumerate(kinds):
        if i == 0 or kind != kinds[i - 1]:
            height = len(kinds) - i - 0.5
            axis.axhline(height, color=GREY, linewidth=0.7)
            if named:
                axis.annotate(kind, (1, height), xycoords=("axes fraction", "data"), **look)


def pairs_figure(comparison: Comparison) -> Figure | None:
    """Draw every pair of models: on how many tasks the row is significantly above the column.

    None if nothing was compared.
    """
    tasks = [each for own in tasks_by_type(comparison).values() for each in own]
    if not tasks:
        return None
    pairs = [each for task in tasks for each in task.outcomes]
    undecided = sum(not each.significant for each in pairs)
    how, count = comparison.procedure, plural(len(tasks), "task")
    test = f"{NAMES[how.correction]} over these pairs on each task"
    return Figure(
        name="pairs",
        draw=lambda width: _draw_pairs(pairs, width, tasks=len(tasks)),
        caption=f"Every pair of models: on how many of {count} the row is significantly above the "
        "column, paired over the queries that both answered (two-sided paired permutation test, "
        f"corrected p < {how.alpha:g}, {test}, and an interval that leaves out 0)."
        + comparison.caution
        + not_shown(len({name for each in tasks for name in each.columns}) - MOST_MODELS),
        alt=f"A matrix of counts of {count}. "
        f"{undecided} of {len(pairs)} pairs are not significantly different.",
    )


def _draw_pairs(pairs: Sequence[PairOutcome], width: float, *, tasks: int) -> MplFigure:
    """Draw a matrix of the numbers of tasks; of more than `MOST_MODELS`, those that win most."""
    import matplotlib.pyplot as plt

    won = _totals((each, float(np.sign(each.difference)) * each.significant) for each in pairs)
    names = sorted(won, key=lambda name: (-won[name], name))[:MOST_MODELS]
    figure, axis = plt.subplots(figsize=(width, 0.19 * len(names) + 1.4))
    table = np.full((len(names), len(names)), np.nan)
    for each, i, j in _within(pairs, names):
        for row, column, sign in ((i, j, 1), (j, i, -1)):
            above = each.significant and sign * each.difference > 0
            table[row, column] = np.nan_to_num(table[row, column]) + above
    axis.imshow(table, cmap="Blues", vmin=0, vmax=1.6 * tasks)
    for (i, j), value in np.ndenumerate(table):
        if not np.isnan(value):
            _write(axis, f"{value:.0f}", j, i).set_color(_ON_COLOR)
    labels = [plain(name, most=26) for name in names]
    axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=SMALL)
    axis.set_yticks(range(len(labels)), labels, fontsize=SMALL)
    axis.tick_params(length=0)
    return figure


def _totals(gains: Iterable[tuple[PairOutcome, float]]) -> dict[str, float]:
    """Return the sum of each system's gains over the others."""
    total: dict[str, float] = {}
    for pair, gain in gains:
        total[pair.first] = total.get(pair.first, 0.0) + gain
        total[pair.second] = total.get(pair.second, 0.0) - gain
    return total


def _within(
    pairs: Iterable[PairOutcome], names: Sequence[str]
) -> Iterator[tuple[PairOutcome, int, int]]:
    """Yield the pairs of some systems, with the positions of both."""
    rows = {name: row for row, name in enumerate(names)}
    for pair in pairs:
        if pair.first in rows and pair.second in rows:
            yield pair, rows[pair.first], rows[pair.second]


def _write(axis: Axes, text: str, x: float, y: float) -> Any:
    """Write a small text at the middle of a point."""
    return axis.annotate(text, (x, y), ha="center", va="center", fontsize=SMALL)


def lead_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    The task may be a benchmark, whose mean it then is.
    """
    best = find_best(comparison, task=task)
    if best is None or not best.ahead:
        return None
    shown = [each.reversed() for each in best.ahead[:_MOST_BEHIND]]
    styles = model_styles([best.name, *(each.first for each in shown)])
    start = ForestRow(best.name, 0.0, **asdict(styles[best.name]))
    rows = (
        ForestRow(
            each.first,
            each.difference,
            each.interval,
            clear=each.significant(comparison.procedure.alpha),
            **asdict(styles[each.first]),
        )
        for each in shown
    )
    where, how = short_task(best.record.task.key), comparison.procedure
    test = f"{comparison.family(best.record.task.key)}, corrected p < {how.alpha:g}"
    ends = "; ".join(
        f"{each.first}: {each.difference:+.3f} {interval_text(each.interval, absent='')}"
        for each in shown
    )
    left_out = f" Not shown: {len(best.ahead) - len(shown)} more."
    return forest_figure(
        [start, *rows],
        xlabel=f"{best.record.task.main_metric} minus the best model's",
        name="lead",
        caption=f"{where}: how far each model is from the best, {best.name} ({best.score}), "
        f"paired over the same {best.queries}, with the 95 % interval of the difference. Filled: "
        f"different by the test (paired permutation test, {test}) and by the interval; open: "
        f"not.{comparison.given(task)}" + left_out * (len(best.ahead) > len(shown)),
        alt=f"Forest plot of differences from {best.name} on {where}. {ends}.",
        columns=1,
    )


# Conclusions.


def comparison_conclusion(comparison: Comparison) -> Conclusion:
    """Say which differences from the baseline are shown, and how small the others may be.

    On the mean of a tier that has one first, then task by task.
    """
    every = [
        each
        for task in (*comparison.tasks, *comparison.correlations)
        for each in task.with_baseline
    ]
    if not every:
        return Conclusion(
            "Nothing was compared: no two models have scores on the same queries of these tasks."
        )
    alpha, parts = comparison.procedure.alpha, []
    means = [each.with_baseline for each in comparison.means[:1] if each.with_baseline]
    for differences in (*means, every):
        shown = [each for each in differences if each.significant(alpha)]
        parts.append(_count(comparison, differences, shown))
        if differences is not every or not means:
            parts.append(_largest(comparison, shown))
    rest = [each for each in every if not each.significant(alpha)]
    parts.append(_open(comparison, rest, other=len(rest) < len(every)))
    parts.append(comparison.caution.strip())
    return Conclusion(" ".join(part for part in parts if part))


def _count(
    comparison: Comparison, every: Sequence[PairedDifference], shown: Sequence[PairedDifference]
) -> str:
    """Say how many differences are shown, and in which direction."""
    total, tasks = len(every), len({each.task for each in every})
    over = f"{tasks} tasks" if tasks > 1 else short_task(every[0].task)
    of = f"difference{'s' if total > 1 else ''} from {baseline_text(every)} on {over}"
    method = NAMES[comparison.procedure.correction]
    corrected = f"after correction ({method} over all pairs of models on each task)"
    if comparison.procedure.correction == "none":
        corrected = "without a correction"
    better = sum(each.difference > 0 for each in shown)
    if total == 1:
        word = f": {'better' if better else 'worse'}" if shown else ""
        return f"The {of} is {'' if shown else 'not '}significant {corrected}{word}."
    if not shown:
        return f"None of the {total} {of} is significant {corrected}."
    verb = "are" if len(shown) > 1 else "is"
    counts = f"{better} better, {len(shown) - better} worse"
    return f"{len(shown)} of {total} {of} {verb} significant {corrected}: {counts}."


def _largest(comparison: Comparison, shown: Sequence[PairedDifference]) -> str:
    """Name the largest difference that is shown, and the largest gain if that is another."""
    if not shown:
        return ""

    def words(each: PairedDifference) -> str:
        where = f"({each.metric} of {each.first} on {short_task(each.task)})"
        return f"{each.difference:+.3f} {_ends(each)} {where}"

    largest = max(shown, key=lambda each: abs(each.difference))
    best = max(shown, key=lambda each: each.difference)
    text = f"The largest is {words(largest)}"
    if best is not largest and best.difference > 0:
        text += f"; the largest gain is {words(best)}"
    margin = comparison.procedure.minimum
    if small := sum(within(each.interval, margin) for each in shown):
        which = "It is" if len(shown) == 1 else f"Of these, {small} {'are' if small > 1 else 'is'}"
        text += f". {which} smaller than {margin:g}, the least that matters"
    return text + "."


def _ends(each: PairedDifference, *, sign: bool = True) -> str:
    return interval_text(each.interval, sign=sign, absent="(a single query)")


def _open(comparison: Comparison, differences: Sequence[PairedDifference], *, other: bool) -> str:
    """Say what is shown of the differences that are not significant, and what would show more."""
    if not differences:
        return ""
    verdicts = [comparison.verdict(each) for each in differences]
    margin = f"{comparison.procedure.minimum:g}"
    others = "other " * other
    if len(verdicts) == 1:
        text = {
            "equivalent": f"The {others}difference is within ±{margin}: equivalent",
            "no worse": f"The {others}difference is above −{margin}: no worse",
            "not shown": f"Whether the {others}difference is within ±{margin} is not shown",
        }[verdicts[0]]
    else:
        words = {
            "equivalent": f"equivalent (within ±{margin})",
            "no worse": f"no worse (above −{margin})",
            "not shown": "not shown to be either",
        }
        counts = ((verdicts.count(verdict), word) for verdict, word in words.items())
        listed = ", ".join(f"{count} {word}" for count, word in counts if count)
        text = f"Of the {others}{len(verdicts)}: {listed}"
    pairs = zip(differences, verdicts, strict=True)
    undecided = [each for each, word in pairs if word != "equivalent"]
    effects = [comparison.detectable(each) for each in undecided]
    if known := [each for each in effects if each is not None]:
        size = " to ".join(dict.fromkeys((f"{min(known):.3f}", f"{max(known):.3f}")))
        text += f"; these queries detect a difference of {size} in 80 % of samples"
    if len(undecided) == 1 and (more := enough_queries(comparison, undecided)):
        text += f"; {more}"
    if len(undecided) > 1:
        text += f"; the table says how many would show that they are within ±{margin}"
    return f"{text}."


@dataclass(frozen=True)
class TopModel:
    """The best model on a task or benchmark, and the others that can be paired with it."""

    name: str
    record: Result  # on a benchmark, with the mean as its score
    ahead: tuple[PairedDifference, ...]  # of the others, the best of them first
    unpaired: bool  # whether others' scores cannot be paired with its own
    unranked: tuple[str, ...]  # why others are not ranked, a line each

    @property
    def score(self) -> str:
        """Its metric and value."""
        return f"{self.record.task.main_metric} {self.record.main.value or 0.0:.3f}"

    @property
    def queries(self) -> str:
        """What was paired, such as ``200 queries``."""
        return f"{self.record.main.n:,} {self.record.task.unit}"


def find_best(comparison: Comparison, *, task: str) -> TopModel | None:
    """Return who leads on a task, or on the mean of a benchmark; None without results."""
    records = comparison.scored(task)
    if not records:
        return None
    best, *others = sorted(records, key=lambda each: each.main.value or 0.0, reverse=True)
    gaps = [comparison.between(best, r) if comparable(best, r) else None for r in others]
    compared = comparison.on(best.task.key)
    left_out = compared.left_out if compared else ()
    return TopModel(
        comparison.names[best.model.identity, best.seed],
        best,
        tuple(gap for gap in gaps if gap is not None),
        None in gaps,
        tuple(line for line in left_out if " is not ranked: " in line),
    )


def leaderboard_conclusion(comparison: Comparison, *, task: str) -> Conclusion:
    """Say who leads, by how much, and whether these queries show it.

    On a task, or on the mean of a benchmark, by the comparison that all pages show.
    """
    best = find_best(comparison, task=task)
    if best is None:
        return Conclusion(
            "No results yet on whole tasks: `qwen3nb eval` makes some. A run with `--limit` has a "
            "page of its own."
        )
    where = short_task(best.record.task.key)
    score = f"{where}: {best.record.task.main_metric} {score_text(best.record.main)}"
    if not best.ahead:
        why = "There is no other model to compare it with."
        if best.unpaired:
            why = "No other model has scores on the same queries, so no difference is tested."
        return Conclusion(f"{best.name} scores highest on {score}, over {best.queries}. {why}")

    def lead(each: PairedDifference) -> str:
        return f"ahead of {each.second} by {each.difference:.3f} {_ends(each, sign=False)}"

    alpha, first = comparison.procedure.alpha, best.ahead[0]
    shown = next((each for each in best.ahead if each.significant(alpha)), None)
    if shown is first:
        text = f"{best.name} is best on {score}, {lead(first)}, a difference that these "
        text += f"{best.queries} show."
    else:
        text = f"{best.name} scores highest on {score}, {lead(first)}, not a difference that these "
        text += f"{best.queries} can show. " + (
            f"They do not show it to be ahead of any other model.{comparison.caution}"
            if shown is None
            else f"It is {lead(shown)}, which they do show."
        )
    unranked = best.unranked  # of many their number; the table of ranks has them all
    if len(unranked) > 2:
        unranked = (f"{len(unranked)} other models lack a task",)
    return Conclusion(" ".join([text, *(f"{line}." for line in unranked)]))
