"""All models of a tier in one table: the best, the second, and who is not told from the best."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import permutation_test
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.tables import model_names
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number, short_task
from qwen3nb.report.render.table import Table, with_ranks
from qwen3nb.tiers import TIERS

__all__ = ["comparison_table", "contenders"]

MISSING = "not run"
NEAR = (
    "not told from the best of its column: paired permutation test over queries, two-sided, "
    "Holm over the models of the column, p ≥ 0.05; where the metric is a mean over queries"
)


def comparison_table(
    results: Iterable[Result],
    *,
    tier: str,
    links: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Table:
    """All models on a tier: a row per model, a column per task, the best and the second marked.

    Models that the paired test does not tell from the best of a column carry a mark.

    Args:
        results: any records; those of other tiers' tasks are left out.
        tier: whose tasks are the columns.
        links: page per run id.
        seed: of the tests.
    """
    tasks = list(TIERS[tier].tasks)
    chosen = [result for result in latest(results) if result.task.name in tasks]
    names = model_names(chosen)
    table: dict[str, dict[str, Result]] = {}
    for result in chosen:
        table.setdefault(result.model.identity, {})[result.task.name] = result
    order = sorted(
        table, key=lambda identity: (-_sort_key(table[identity], tasks), names[identity])
    )
    columns = {task: [table[each].get(task) for each in order] for task in tasks}
    near = {task: contenders([r for r in columns[task] if r], seed=seed) for task in tasks}
    rows = []
    for index, identity in enumerate(order):
        found = [columns[task][index] for task in tasks]
        why = _why_missing(next(iter(table[identity].values())))
        cells = [_score(r, links or {}, near[r.task.name]) if r else Cell(why) for r in found]
        rows.append((Cell(names[identity]), *cells))
    heads = [_head(task, [each for each in columns[task] if each]) for task in tasks]
    return Table(
        ("model", *heads),
        with_ranks(rows),
        "95 % percentile bootstrap intervals over n; best of each column in bold, second "
        "underlined, which says nothing of whether they differ (see the paired differences).",
        name=f"comparison-{tier}",
        caption=f"All models on the tasks of the tier {tier}.",
        legend=(("†", NEAR),) if any(near.values()) else (),
    )


def _score(result: Result, links: Mapping[str, str], near: Collection[str]) -> Cell:
    """A main value that leads to its run, marked if it may be as good as the best."""
    cell = number(result.main, link=links.get(result.run, ""))
    return replace(cell, mark="†" if result.model.identity in near else "")


def contenders(results: Sequence[Result], *, seed: int, alpha: float = 0.05) -> set[str]:
    """Identities of models that a paired test does not tell from the best on one task.

    Two-sided paired permutation test over the queries that all have, Holm over the models.
    Only where the metric is a mean over queries; of one revision of the data.
    """
    means = [r for r in results if r.main.how == "mean" and r.main.value is not None]
    if len(means) < 2:
        return set()
    best = max(means, key=_value)
    others = [r for r in means if r is not best and r.task.revision == best.task.revision]
    tests = []
    for other in others:
        ours, theirs = (each.per_query[each.main.columns[0]] for each in (other, best))
        shared = sorted(ours.keys() & theirs.keys())
        pairs = [ours[query] for query in shared], [theirs[query] for query in shared]
        tests.append(permutation_test(*pairs, seed=seed).p_value if shared else 0.0)
    return {
        other.model.identity for other, p in zip(others, holm(tests), strict=True) if p >= alpha
    }


def _why_missing(other: Result) -> str:
    """Why a model has no result on a task, judging by one it has."""
    searches = ("bm25", "fusion")
    return "no vectors" if other.model.settings["model"].get("kind") in searches else MISSING


def _head(task: str, results: Sequence[Result]) -> str:
    if not results:
        return short_task(task)
    first = results[0]
    return f"{short_task(task)}\n{first.task.main_metric}, n = {first.main.n}"


def _value(result: Result) -> float:
    return result.main.value if result.main.value is not None else float("-inf")


def _sort_key(row: Mapping[str, Result], tasks: Sequence[str]) -> float:
    """The first task of the tier decides the order of the rows."""
    return _value(row[tasks[0]]) if tasks[0] in row else float("-inf")
