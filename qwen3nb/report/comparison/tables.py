"""Tables of a comparison: differences, power, categories, correlations, counts, queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison.by_category import Breakdown, breakdown
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference, TaskComparison, significant
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.evaluation.mteb.search_texts import SearchTexts
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.comparison.explorer import (
    explorer_link,
    query_text,
    texts_at_hand,
    top_documents,
)
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.format import cut, not_shown, short_task
from qwen3nb.report.render.sections import MANY, MOST_MODELS, Sections
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, number_text, p_value_text

_SINGLE = "a single query"
_LACKS = re.compile(r"(\S+): (.+) has no (.+ per query)")
_MOST_ROWS = 1000  # of the tables of a page
_NEAREST, _CHANGES, _BEST = 4, 3, 5  # models, queries of each, documents of both that are listed


def difference_cells(difference: PairedDifference, *, alpha: float) -> tuple[Cell, Cell]:
    """Return a difference with its interval, and its corrected p-value above the raw one."""
    each = difference
    return (
        number(each.difference, "+.3f", interval=each.interval, detail=_SINGLE),
        Cell(
            p_value_text(each.corrected),
            f"raw {p_value_text(each.p_value)}",
            strong=each.significant(alpha),
            value=each.corrected,
        ),
    )


def _named(each: PairedDifference) -> tuple[str, str]:
    return each.first, f"{short_task(each.task)}, {each.metric}"


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
    rows = []
    for each in _shown(comparison, wanted, models):
        delta, p = difference_cells(each, alpha=comparison.procedure.alpha)
        won = f"{each.won} / {each.tied} / {each.lost}"
        unpaired = f"{each.unpaired} unpaired" if each.unpaired else ""
        d_z = number_text(each.d_z, sign=True, digits=2)
        rows.append((_named(each), delta, p, d_z, won, (each.n, unpaired)))
    note = _note(comparison, wanted)
    if left_out := not_shown(_left_out(comparison, wanted, models)):
        note += f"{left_out} `qwen3nb tables` writes the rows of all."
    heads = ("p\ncorrected", "d_z", "won / tied / lost", "queries")
    return Table.of(
        rows,
        ("model\ntask", f"Δ to {comparison.baseline}\n95 % interval", *heads),
        note=note,
        name=f"differences-{task}" if task else "paired-differences",
        caption=f"Paired differences from {comparison.baseline}"
        + (f" on {short_task(task)}" if task else "")
        + ", with 95 % intervals and corrected p-values.",
    )


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
    how, rows = comparison.procedure, []
    for each in _shown(comparison, tasks, models):
        least = comparison.detectable(each)
        turns = each.significant(how.alpha) and comparison.could_turn(each)
        shares = (100 * (count / each.n) for count in (each.won, each.tied, each.lost))
        rows.append(
            (
                _named(each),
                (comparison.verdict(each), "could turn" * turns),
                Cell(number_text(least), strong=least is not None and least > how.minimum),
                " / ".join(f"{share:.0f}" for share in shares),
                number(comparison.queries_needed(each) or None, ",d"),
                each.n,
            )
        )
    columns = (
        "model\ntask",
        f"verdict\nmargin {how.minimum:g}",
        "detectable\npower 0.8",
        "won / tied / lost\nin %",
        "queries\nto be equivalent",
        "queries",
    )
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
    empty = "Nothing was compared."
    return Table.of(rows, columns, note=note, empty=empty, name="power", caption=caption)


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


def breakdown_table(comparison: Comparison) -> Table | None:
    """Compare every model with the baseline within each category; None without categories."""
    how = comparison.procedure
    rows: list[dict[str, Any]] = []
    reversals: list[str] = []
    for each in comparison.differences:
        if not comparison.records[each.task, each.first].task.categories:
            continue
        parts = difference_by_category(comparison, each)
        task = short_task(each.task)
        reversals += [f"{each.first} on {task}: {reversal.text}." for reversal in parts.reversals]
        rows += [
            {
                "model": (each.first, task),
                "category": row.category,
                f"Δ to {comparison.baseline}\n95 % interval": (
                    f"{row.difference:+.3f}",
                    interval_text(row.interval, absent=_SINGLE),
                ),
                "p\ncorrected": Cell(
                    p_value_text(row.p_value),
                    strong=significant(row.p_value, row.interval, alpha=how.alpha),
                ),
                "queries": row.n,
            }
            for row in parts.rows
        ]
    if not rows:
        return None
    note = "p: Holm over the categories of a model. Reversals: " + (" ".join(reversals) or "none.")
    caption = f"Paired differences from {comparison.baseline} within each category of queries."
    return Table.of(rows, note=note, name="categories", caption=caption)


def correlations_table(comparison: Comparison) -> Table | None:
    """Compare every model with the baseline on tasks scored by a correlation, such as STS.

    None if no other model has such a score.
    """
    rows = [
        (_named(each), *difference_cells(each, alpha=comparison.procedure.alpha), each.n)
        for task in comparison.correlations
        for each in task.with_baseline
    ]
    if not rows:
        return None
    heads = ("model\ntask", f"Δ to {comparison.baseline}\n95 % interval", "p\ncorrected", "pairs")
    note = (
        "Difference of the correlations with the gold scores, paired by what each pair of texts "
        f"adds to them: interval ({interval_words(['paired'])}) and permutation test of its mean; "
        f"p corrected by {NAMES[comparison.procedure.correction]} over all pairs of the models "
        "compared on each task."
    )
    caption = f"Differences of correlations from {comparison.baseline}, paired over the same pairs."
    return Table.of(rows, heads, note=note, name="correlations", caption=caption)


def tasks_by_type(comparison: Comparison) -> dict[str, list[TaskComparison]]:
    """Return the tasks on which models were compared, by type."""
    kinds = {task: str(record.task.type) for (task, _), record in comparison.records.items()}
    types: dict[str, list[TaskComparison]] = {}
    for task in comparison.tasks:
        if task.outcomes:
            types.setdefault(kinds[task.task], []).append(task)
    return dict(sorted(types.items()))


def by_type_tables(comparison: Comparison, make: Callable[..., Table]) -> Table | Sections:
    """Return a table of a comparison, or of many tasks one per type.

    Args:
        comparison: the comparison to show.
        make: `differences_table` or `power_table`; it takes the ``tasks`` and ``models`` to show,
            of many models the best.
    """
    types = tasks_by_type(comparison)
    count = sum(map(len, types.values()))
    models = comparison.leaders(max(MANY, _MOST_ROWS // (count or 1)))
    if count <= MANY:
        return make(comparison, models=models)
    tables = []
    for kind, tasks in types.items():
        if keys := [each.task for each in tasks if each.with_baseline]:
            table = make(comparison, tasks=keys, models=models)
            name = "-".join([table.name, *kind.lower().split()])
            tables.append((f"{kind} ({len(keys)} tasks)", replace(table, name=name)))
    return Sections(tuple(tables))


def overview_table(comparison: Comparison, *, most: int = MOST_MODELS) -> Table:
    """Count the tasks of each type on which a model is better or worse than the baseline.

    If no type has several tasks, all tasks are counted together.

    Args:
        comparison: the comparison to show.
        most: how many models to show, of more the best.
    """
    how, models = comparison.procedure, comparison.leaders(most)
    types = tasks_by_type(comparison)
    if len(types) > 1 and all(len(tasks) == 1 for tasks in types.values()):
        types = {"all types": [task for tasks in types.values() for task in tasks]}
    rows = []
    for kind, tasks in types.items():
        differences = [each for task in tasks for each in task.with_baseline]
        for model in dict.fromkeys(each.first for each in differences if each.first in models):
            own = [each for each in differences if each.first == model]
            gains = [each.difference for each in own if each.significant(how.alpha)]
            better = sum(gain > 0 for gain in gains)
            counts = f"{better} / {len(own) - len(gains)} / {len(gains) - better}"
            rows.append(((model, kind), number(len(own), "d"), counts))
    counted = {each.task for each in comparison.differences}
    others = list(dict.fromkeys(task for task, _ in comparison.records if task not in counted))
    note = (
        f"Tasks on which a model is significantly better or worse than {comparison.baseline}: "
        f"two-sided paired permutation test, {NAMES[how.correction]}, p < {how.alpha:g}, and the "
        "interval leaves out 0. p is corrected over all pairs of models on each task, so that of "
        f"many tasks some differences are significant by chance.{comparison.caution}"
    )
    if others:
        note += (
            " Not counted, since their score is not a mean over queries or only one model has it "
            f"(for STS see the correlations): {', '.join(map(short_task, others))}."
        )
    return Table.of(
        rows,
        ("model\ntype of task", "tasks", "better / no difference / worse"),
        note=note + not_shown(len({each.first for each in comparison.differences}) - len(models)),
        empty="Nothing was compared.",
        name="overview",
        caption=f"Tasks on which a model is better or worse than {comparison.baseline}, by type.",
    )


def changes_table(
    comparison: Comparison,
    *,
    explorer: str = "",
    texts: SearchTexts | None = None,
) -> Table:
    """Return the queries on which models and the baseline differ most, on the first task.

    Of the models nearest to the baseline, with the top documents of both, if the records keep them
    and there is no link to the explorer, which shows them with their texts.

    Args:
        comparison: the comparison to show.
        explorer: the task that the explorer's page shows; its queries link there.
        texts: texts of the first task; by default read, if its data are at hand.
    """
    task = next((each.task for each in comparison.tasks if each.with_baseline), "")
    by_size = sorted(comparison.differences_on(task), key=lambda each: abs(each.difference))
    matrices = [comparison.matrix(each) for each in by_size[:_NEAREST]]
    why = ""
    if texts is None and matrices:
        texts, why = texts_at_hand(comparison.records[task, comparison.baseline])
    page = "explorer.html" if explorer == task else ""
    rows = [row for matrix in matrices for row in _changes(comparison, matrix, texts, page)]
    heads = ["model", "query", "Δ\nmodel, baseline", f"top {_BEST}\nmodel", "baseline"]
    # Without a document in any record, or where a link leads to all of them.
    if page or not any(row[3] for row in rows):
        rows, heads = [row[:3] for row in rows], heads[:3]
    caption = (
        f"{short_task(task)}: the queries on which the {len(matrices)} models nearest to "
        f"{comparison.baseline} and {comparison.baseline} itself differ most, at most {_CHANGES} "
        "each."
    )
    return Table.of(
        rows,
        heads,
        note=why,
        empty="No query changed.",
        kind="words",
        name="changes",
        caption=caption if rows else "",
    )


def _changes(
    comparison: Comparison, matrix: ScoreMatrix, texts: SearchTexts | None, page: str
) -> Iterator[tuple[Any, ...]]:
    records = [comparison.records[matrix.task, name] for name in matrix.systems]
    differences = matrix.scores[0] - matrix.scores[1]
    for i in map(int, np.argsort(-np.abs(differences), kind="stable")[:_CHANGES]):
        if differences[i]:
            query = matrix.queries[i]
            text = query_text(records[0], query, texts)
            link = explorer_link(query, *matrix.systems, page=page) if page else ""
            yield (
                matrix.systems[0],
                Cell(cut(text, 80), "" if text == query else query, link=link),
                (f"{differences[i]:+.3f}", "{:.3f}, {:.3f}".format(*matrix.scores[:, i])),
                *(", ".join(top_documents(each, query)[:_BEST]) for each in records),
            )
