"""All models of a tier in one table, with the best, the second best and the contenders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.benchmark_tables import (
    benchmark_grid,
    means_table,
    why_missing,
)
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number, short_task
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.table import Table, with_ranks
from qwen3nb.tiers import TIERS

__all__ = ["contenders", "leaderboard", "record_list"]

NEAR = (
    "not significantly different from the best of its column: two-sided paired permutation test "
    "over queries, p corrected as in the table of paired differences, and the interval; only for "
    "metrics that are a mean over queries"
)


def leaderboard(
    results: Iterable[Result],
    *,
    tier: str = "smoke",
    tasks: Sequence[str] = (),
    comparison: Comparison | None = None,
    links: Mapping[str, str] | None = None,
    name: str = "",
) -> Table:
    """Return all models on a tier: a row per model, a column per task, the two best marked.

    Models that are not significantly different from the best of a column carry a mark. A tier with
    benchmarks has a column per mean over a benchmark or type instead; its tasks are in
    `task_tables`.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose tasks are the columns.
        tasks: keys of the tasks to show in place of the tier's.
        comparison: comparison of these results; computed if None.
        links: page of each run id.
        name: name of the table, of its files and its link; by default ``comparison-`` and the tier.
    """
    name = name or f"comparison-{'tasks' if tasks else tier}"
    if TIERS[tier].benchmarks and not tasks:
        means = means_table(benchmark_grid(results, tier=tier), tier=tier, links=links or {})
        return replace(means, name=name)
    wanted, tasks = tasks, list(tasks or TIERS[tier].task_keys)
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    names = model_names(on_tier)
    tested = comparison or compare(on_tier, tier=tier, tasks=wanted)
    table: dict[str, dict[str, Result]] = {}
    for result in newest_records(on_tier)[0]:
        table.setdefault(result.model.identity, {})[result.task.key] = result
    order = sorted(
        table, key=lambda identity: (-_sort_key(table[identity], tasks), names[identity])
    )
    columns = {task: [table[each].get(task) for each in order] for task in tasks}
    near = {task: contenders([r for r in columns[task] if r], tested) for task in tasks}
    rows = []
    for index, identity in enumerate(order):
        example = next(iter(table[identity].values()))
        cells = [
            _score(record, links or {}, near[task])
            if (record := columns[task][index])
            else Cell(why_missing(example, [task]))
            for task in tasks
        ]
        rows.append((Cell(names[identity], link=(links or {}).get(example.run, "")), *cells))
    what = "these tasks" if wanted else f"the tasks of the tier {tier}"
    heads = [_head(task, [each for each in columns[task] if each]) for task in tasks]
    return Table(
        ("model", *heads),
        with_ranks(rows),
        f"95 % intervals over n ({interval_words(r.main.interval for r in on_tier)}); best of "
        "each column in bold, second best underlined, whether or not they differ significantly "
        "(see the paired differences).",
        name=name,
        caption=f"Scores of all models on {what}, with 95 % intervals.",
        legend=(("†", NEAR + tested.caution.replace(":", ";")),) if any(near.values()) else (),
    )


def _score(result: Result, links: Mapping[str, str], near: Collection[str]) -> Cell:
    """Return a main score linked to its run, marked if the model is a contender for the best."""
    cell = number(result.main, link=score_link(result, links))
    return replace(cell, mark="†" if result.model.identity in near else "")


def contenders(results: Sequence[Result], comparison: Comparison) -> set[str]:
    """Return the identities of models not significantly different from the best on one task.

    Only models that can be paired with the best over queries.
    """
    means = [r for r in results if r.main.how == "mean" and r.main.value is not None]
    if len(means) < 2:
        return set()
    best = max(means, key=_value)
    return {
        other.model.identity
        for other in means
        if other is not best
        and (difference := comparison.between(other, best)) is not None
        and not difference.significant(comparison.procedure.alpha)
    }


def record_list(results: Iterable[Result]) -> Table:
    """Return a row per record: model, task, main metric with its interval, and n."""
    listed = list(results)
    rows = tuple(
        (
            Cell(each.model.label, each.model.identity[:8]),
            Cell(each.task.key),
            Cell(each.task.main_metric),
            number(each.main),
            Cell(f"{each.main.n} {each.task.unit}"),
        )
        for each in listed
    )
    used = interval_words(each.main.interval for each in listed)
    return Table(
        ("model", "task", "metric", "value", "n"),
        rows,
        f"Intervals: 95 %, {used}, over n." if listed else "no records",
        kind="words",
    )


def _head(task: str, results: Sequence[Result]) -> str:
    if not results:
        return short_task(task)
    first = results[0]
    return f"{short_task(task)}\n{first.task.main_metric}, n = {first.main.n}"


def _value(result: Result) -> float:
    return result.main.value if result.main.value is not None else float("-inf")


def _sort_key(row: Mapping[str, Result], tasks: Sequence[str]) -> float:
    """Return the score that rows are sorted by, that on the first task of the tier."""
    return _value(row[tasks[0]]) if tasks[0] in row else float("-inf")
