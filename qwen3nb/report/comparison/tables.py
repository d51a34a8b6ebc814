"""How do models compare? Paired differences on a tier's tasks, with what they can show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from qwen3nb.analysis.comparison.alignment import (
    ScoreMatrix,
)
from qwen3nb.analysis.comparison.by_category import breakdown
from qwen3nb.analysis.comparison.compare import Compared, compare_results
from qwen3nb.analysis.comparison.correlation_tests import (
    CorrelationDifference,
    compare_correlations,
)
from qwen3nb.analysis.stats.multiple_testing import NAMES, adjust
from qwen3nb.analysis.stats.paired_tests import effect_size, equivalence, minimum_detectable_effect
from qwen3nb.records.record import Result
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.utils.markdown import number_text

__all__ = [
    "Compared",
    "breakdown_table",
    "changes_table",
    "compare_results",
    "correlations_table",
    "differences_table",
    "power_table",
]

_LACKS = re.compile(r"(\S+): (.+) has no (.+ per query)")


def differences_table(compared: Compared) -> Table:
    """Each model against the baseline: difference, interval, p, effect, queries won and lost."""
    rows = tuple(
        (
            Cell(pair.first, f"{short_task(pair.task)}, {matrix.metric}"),
            Cell(
                f"{pair.difference:+.3f}",
                _ends(pair.interval),
                value=pair.difference,
                interval=pair.interval,
            ),
            Cell(
                f"{pair.adjusted:.4f}", strong=pair.adjusted < compared.alpha, value=pair.adjusted
            ),
            Cell(number_text(pair.d_z, sign=True, digits=2)),
            Cell(f"{pair.won} / {pair.tied} / {pair.lost}"),
            Cell(str(pair.n)),
        )
        for pair, matrix in zip(compared.against.pairs, compared.matrices, strict=True)
    )
    columns = (
        "model\ntask", f"Δ to {compared.baseline}\n95 % interval", "p\nadjusted", "d_z",
        "won / tied / lost", "queries",
    )  # fmt: skip
    caption = f"Paired differences from {compared.baseline}."
    return Table(columns, rows, _note(compared), name="paired-differences", caption=caption)


def _note(compared: Compared) -> str:
    if not compared.against.pairs:
        left_out = "".join(f" {note}." for note in _grouped(compared.notes))
        return f"No two models have scores per query on the same task.{left_out}"
    family = compared.against
    left_out = "; ".join(_grouped(compared.notes))
    return (
        f"Paired over queries: percentile bootstrap, two-sided paired permutation test, "
        f"{family.n_resamples:,} resamples each; p adjusted by {NAMES[family.correction]} over "
        f"{family.family}; below {compared.alpha:g} in bold."
        + (f" Not paired: {left_out}." if left_out else "")
    )


def _grouped(notes: Iterable[str]) -> list[str]:
    """Notes that differ in the model only as one."""
    found: dict[str, list[str]] = {}
    for note in notes:
        match = _LACKS.fullmatch(note)
        key = f"{match[1]}: no {match[3]}" if match else note
        found.setdefault(key, []).append(match[2] if match else "")
    return [f"{key} of {', '.join(names)}" if all(names) else key for key, names in found.items()]


def _ends(interval: tuple[float, float] | None) -> str:
    return "a single query" if interval is None else "[{:+.3f}, {:+.3f}]".format(*interval)


def power_table(compared: Compared) -> Table:
    """What these queries could show: detectable effect, and whether "no worse" is shown."""
    rows = []
    for pair, matrix in zip(compared.against.pairs, compared.matrices, strict=True):
        ours, theirs = matrix.scores
        found = equivalence(ours, theirs, margin=compared.minimum, alpha=compared.alpha)
        least = minimum_detectable_effect(ours, theirs, alpha=compared.alpha)
        shares = effect_size(ours, theirs).shares
        said = "equivalent" if found.equivalent else "no worse" if found.no_worse else "not shown"
        rows.append(
            (
                Cell(pair.first, f"{short_task(pair.task)}, {matrix.metric}"),
                Cell(number_text(least), strong=least is not None and least > compared.minimum),
                Cell(" / ".join(f"{100 * share:.0f}" for share in shares)),
                Cell(said),
                Cell(number_text(found.p_no_worse, digits=4), found.undefined),
                Cell(str(pair.n)),
            )
        )
    columns = (
        "model\ntask", "detectable\npower 0.8", "won / tied / lost\nin %",
        f"within {compared.minimum:g}", "p\nno worse", "queries",
    )  # fmt: skip
    note = (
        f"Detectable: the smallest true difference from {compared.baseline} that a two-sided "
        f"paired t-test at {compared.alpha:g} finds in 80 % of such samples; in bold where that "
        f"is more than {compared.minimum:g}, so that these queries would miss differences that "
        "matter. Equivalent or no worse: two one-sided t-tests against that margin, not adjusted."
    )
    return Table(columns, tuple(rows), note if rows else "Nothing was compared.")


def breakdown_table(compared: Compared) -> Table:
    """Each model against the baseline within each category of queries, where there are any."""
    rows: list[tuple[Cell, ...]] = []
    said: list[str] = []
    for matrix in compared.matrices:
        first, second = matrix.systems
        categories = compared.records[matrix.task, first].task.categories or {}
        if not categories:
            continue
        columns = [dict(zip(matrix.queries, scores, strict=True)) for scores in matrix.scores]
        found = breakdown(
            columns[0], columns[1], categories, names=(first, second), alpha=compared.alpha,
            seed=compared.seed,
        )  # fmt: skip
        said += [f"{first}: {each.text}" for each in found.reversals]
        rows += [
            (
                Cell(first),
                Cell(row.category),
                Cell(f"{row.difference:+.3f}", _ends(row.interval)),
                Cell(f"{row.p_value:.4f}", strong=row.p_value < compared.alpha),
                Cell(str(row.n)),
            )
            for row in found.rows
        ]
    if not rows:
        return Table(("model",), (), "The queries of these tasks have no categories.")
    note = "Holm over the categories of a model. Orders that turn round: "
    note += " ".join(f"{line}." for line in said) or "none."
    heads = ("model", "category", f"Δ to {compared.baseline}\n95 % interval", "p\nHolm", "queries")
    return Table(heads, tuple(rows), note)


def changes_table(compared: Compared, *, models: int = 4, most: int = 3, best: int = 5) -> Table:
    """The queries on which a model and the baseline differ most, on the first task.

    Of the ``models`` nearest to the baseline; with the best documents of both, where the
    records keep them.
    """
    first_task = [m for m in compared.matrices if m.task == compared.tasks[0]]
    nearest = sorted(first_task, key=lambda m: abs(float((m.scores[0] - m.scores[1]).mean())))
    rows = [row for matrix in nearest[:models] for row in _changes(compared, matrix, most, best)]
    heads = ["model", "query", "Δ\nmodel, baseline", f"best {best}\nmodel", "baseline"]
    if not any(row[3].text for row in rows):  # no record keeps its documents
        rows, heads = [row[:3] for row in rows], heads[:3]
    note = (
        f"On {short_task(compared.tasks[0])}; the {models} models nearest to {compared.baseline}, "
        f"at most {most} queries each, the largest changes first."
        if rows
        else "No query changed."
    )
    return Table(tuple(heads), tuple(rows), note, kind="words")


def _changes(
    compared: Compared, matrix: ScoreMatrix, most: int, best: int
) -> Iterator[tuple[Cell, ...]]:
    records = [compared.records[matrix.task, name] for name in matrix.systems]
    differences = matrix.scores[0] - matrix.scores[1]
    for i in map(int, np.argsort(-np.abs(differences), kind="stable")[:most]):
        if differences[i]:
            query = matrix.queries[i]
            values = "{:.3f}, {:.3f}".format(*matrix.scores[:, i])
            yield (
                Cell(matrix.systems[0]),
                Cell(query_text(records[0], query)),
                Cell(f"{differences[i]:+.3f}", values),
                *(Cell(", ".join(top_documents(each, query)[:best])) for each in records),
            )


def correlations_table(compared: Compared) -> Table:
    """Tasks scored by a correlation, such as STS: each model against the best or the baseline."""
    found: list[tuple[str, str, CorrelationDifference]] = []
    groups: dict[str, dict[str, Result]] = {}
    for (task, name), result in compared.records.items():
        if {"gold", "cosine"} <= result.per_query.keys():
            groups.setdefault(task, {})[name] = result
    for task, models in groups.items():
        last = [n for n in models if models[n].model.label == compared.baseline][:1]
        found += [
            (task, name, _correlations(models[name], models[last[0]], compared))
            for name in models
            if last and name != last[0]
        ]
    known = [each.p_value for _, _, each in found if each.p_value is not None]
    adjusted = iter(adjust(known, how=compared.against.correction))
    rows = [
        _correlation_row(task, name, each, None if each.p_value is None else next(adjusted))
        for task, name, each in found
    ]
    heads = ("model\ntask", f"Δ to {compared.baseline}\n95 % interval", "p\nadjusted", "pairs")
    note = (
        "Difference of Spearman's correlations with the gold scores: bootstrap over pairs of "
        f"texts; exchange of the two models' ranks; p adjusted over these {len(rows)}."
        if rows
        else "No task is scored by a correlation."
    )
    return Table(heads, tuple(rows), note)


def _correlations(ours: Result, theirs: Result, compared: Compared) -> CorrelationDifference:
    return compare_correlations(
        ours.per_query["cosine"], theirs.per_query["cosine"], ours.per_query["gold"],
        n_resamples=2000, seed=compared.seed,
    )  # fmt: skip


def _correlation_row(
    task: str, name: str, found: CorrelationDifference, p: float | None
) -> tuple[Cell, ...]:
    ends = found.undefined or _ends(found.interval)
    return (
        Cell(name, f"{short_task(task)}, {found.how}"),
        Cell(number_text(found.difference, sign=True), ends),
        Cell(number_text(p, digits=4), strong=p is not None and p < 0.05),
        Cell(str(found.n)),
    )


def top_documents(result: Result, query: str) -> list[str]:
    """Ids of the best documents that a record keeps of a query; none if it keeps none."""
    kept = result.config.get("top")
    return [str(each) for each in kept.get(query, [])] if isinstance(kept, dict) else []


def query_text(result: Result, query: str) -> str:
    """A query's text, or its id where the record does not keep it."""
    kept = result.config.get("queries")
    return str(kept.get(query, query)) if isinstance(kept, dict) else query
