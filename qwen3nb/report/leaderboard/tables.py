"""Tables of records: every number with its interval, every missing one with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.record import Result
from qwen3nb.records.store import _USES, latest
from qwen3nb.report.leaderboard.benchmark_tables import benchmark_grid, means_table
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number, short_task
from qwen3nb.report.render.home import (
    command_again,
    formula_link,
    record_link,
    score_anchor,
    score_link,
)
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS

__all__ = [
    "checks_table",
    "cost_table",
    "failures_table",
    "headline_table",
    "headline_task",
    "model_and_run_table",
    "provenance_table",
    "results_table",
]


def results_table(results: Sequence[Result], *, skipped: Mapping[str, str] | None = None) -> Table:
    """Return one model's results: a row per task and metric."""
    rows = []
    for result in results:
        for name, value in result.metrics.items():
            main = name == result.task.main_metric
            rows.append(
                (
                    Cell(result.task.key, link=""),
                    Cell(name),
                    number(value, strong=main),
                    Cell(f"{value.n} {result.task.unit}"),
                )
            )
    used = (each.interval for result in results for each in result.metrics.values())
    for task, reason in (skipped or {}).items():
        rows.append((Cell(task), Cell("–"), Cell("not applicable", reason), Cell("–")))
    return Table(
        ("task", "metric", "value", "n"),
        tuple(rows),
        f"Main metric in bold. Intervals: 95 %, {interval_words(used)}, over n.",
        name="metrics",
        caption="Every metric of every task, each with its 95 % interval.",
    )


def _value(result: Result) -> float:
    return result.main.value if result.main.value is not None else float("-inf")


def checks_table(checks: Iterable[Any]) -> Table:
    """Return the sanity checks, one per row."""
    rows = tuple(
        (
            Cell(check.name),
            Cell(check.verdict, strong=check.verdict in ("WARNING", "FAILED")),
            Cell(check.observed, _interval(check)),
            Cell(check.expected, check.remark),
            Cell(check.n or "–"),
        )
        for check in checks
    )
    return Table(
        ("check", "verdict", "observed", "expected", "n"),
        rows,
        f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), over queries or "
        "pairs. On substitutes for the data "
        "a target was set for, a missed target only warns, unless the interval includes chance.",
        kind="words",
        name="checks",
        caption="Sanity checks: what was observed, what is expected, and the verdict.",
    )


def _interval(check: Any) -> str:
    return f"[{check.low:.3f}, {check.high:.3f}]" if check.low is not None else ""


def provenance_table(results: Sequence[Result], *, folder: str = "") -> Table:
    """Return where numbers come from: a row per record, with the anchor that links lead to.

    Args:
        results: records of a run, or of several.
        folder: folder of the records below ``results``.
    """
    several = len({(each.model.identity, each.seed) for each in results}) > 1
    taken: set[str] = set()
    rows = []
    for result in results:
        anchor = score_anchor(result)
        anchor = f"{anchor}-{result.model.identity[:8]}" if anchor in taken else anchor
        taken.add(anchor)
        named = [result.model.label] if several else []
        detail = "; ".join([*named, f"{result.task.dataset} at {result.task.revision[:12]}"])
        rows.append((Cell(result.task.key, detail, id=anchor), *_origin(result, folder=folder)))
    return Table(
        ("score\nits data", "metric\nits formula", "value", "scores\nfile", "make it again"),
        tuple(rows),
        "The file is the record, with the score of every query. The command measures again, into "
        "a folder beside the stored records."
        if rows
        else "No records.",
        kind="words",
        name="provenance",
        caption="Where these numbers come from, a row per score.",
    )


def _origin(result: Result, *, folder: str) -> tuple[Cell, ...]:
    """Return the cells of a record: its metric, value, file and command."""
    metric, task = result.task.main_metric, result.task
    return (
        Cell(metric, link=formula_link(metric)),
        number(result.main),
        Cell(f"{result.main.n} {task.unit}", link=record_link(result, folder=folder)),
        Cell(command_again(result), code=True),
    )


def model_and_run_table(results: Sequence[Result]) -> Table:
    """Return the identity of one model, and the run and software that measured it."""
    columns, kind = ("what", "value"), "facts"
    if not results:
        return Table(columns, (), kind=kind)
    last = max(results, key=lambda result: result.finished)
    facts = {
        "model": last.model.label,
        "identity (SHA-256)": last.model.identity,
        "spec": last.model.spec,
        "parameters": f"{last.model.parameters:,}" if last.model.parameters else "none",
        **{key: str(last.model.settings[key]) for key in _USES if key in last.model.settings},
        "seed": str(last.seed),
        ("pairs" if "template" in last.model.settings else "vectors"): _hits(results),
        "run": last.run,
        "finished (UTC)": last.finished,
        "device": f"{last.environment.device}, {last.environment.precision}",
        **({"linear layers": linear} if (linear := last.environment.linear) else {}),
        "Python": last.environment.python,
        **last.environment.versions,
    }
    facts |= {f"data of {each.task.key}": counts for each in results if (counts := _counts(each))}
    rows = tuple((Cell(key), Cell(value or "none")) for key, value in facts.items())
    caption = f"{last.model.label} and the software that measured it."
    return Table(columns, rows, kind=kind, name="model-and-run", caption=caption)


def _counts(result: Result) -> str:
    """Return what was counted in the data, such as queries without a relevant document."""
    return "; ".join(f"{name}: {count:,}" for name, count in result.task.counts.items())


def _hits(results: Sequence[Result]) -> str:
    """Return how many vectors were computed and how many came from the cache."""
    encoded = sum(result.cost.encoded for result in results)
    cached = sum(result.cost.cached for result in results)
    return f"{encoded:,} computed, {cached:,} from the cache"


def headline_table(
    results: Iterable[Result],
    *,
    tier: str,
    links: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Table:
    """Return the scores that the landing page shows, a row per model, best first.

    For a tier with benchmarks, the means over each; otherwise the scores on `headline_task`.

    Args:
        results: any records.
        tier: the tier whose tasks are shown.
        links: page of each run id.
        most: how many models to show; by default all.
    """
    table = _headline(results, tier=tier, links=links or {})
    if most is None or len(table) <= most:
        return table
    note = f"The best {most} of {len(table)} models. {table.note}"
    return replace(table, rows=table.rows[:most], note=note)


def _headline(results: Iterable[Result], *, tier: str, links: Mapping[str, str]) -> Table:
    newest = latest(results)
    if TIERS[tier].benchmarks:
        grid = benchmark_grid(newest, tier=tier, by_type=False)
        caption = f"The means over each benchmark of the tier {tier}, with 95 % intervals."
        means = means_table(grid, tier=tier, links=links)
        return replace(means, name="headline", caption=caption)
    task = headline_task(newest, tier=tier)
    on_task = [result for result in newest if result.task.key == task]
    names = model_names(on_task)
    on_task = sorted(newest_records(on_task)[0], key=_value, reverse=True)
    if not on_task:
        note = f"No results on the {tier} tier yet; run `make demo` to make some."
        return Table(("model",), (), note)
    metric = on_task[0].task.main_metric
    rows = tuple(
        (
            Cell(names[result.model.identity], link=links.get(result.run, "")),
            number(result.main, link=score_link(result, links)),
            Cell(f"{result.main.n} {result.task.unit}", value=result.main.n),
        )
        for result in on_task
    )
    note = f"{short_task(task)}: the task of the tier with most models, of several the first."
    caption = f"Scores on {short_task(task)}, best first, with 95 % intervals over n."
    heads = ("model", f"{short_task(task)}\n{metric}", "n")
    return Table(heads, rows, note, name="headline", caption=caption)


def headline_task(results: Iterable[Result], *, tier: str) -> str:
    """Return the task of a tier with scores per query of most models; of several, the first.

    A tier with benchmarks is summarised by its mean instead: the first of `Comparison.means`.
    """
    models: dict[str, set[str]] = {task: set() for task in TIERS[tier].task_keys}
    for result in results:
        if result.task.key in models and result.task.main_metric in result.per_query:
            models[result.task.key].add(result.model.identity)
    return max(models, key=lambda task: len(models[task]))


def cost_table(results: Iterable[Result], *, links: Mapping[str, str] | None = None) -> Table:
    """Return the cost of each model's records; ``links`` is the page of each run id."""
    by_model: dict[str, list[Result]] = {}
    newest = latest(results)
    names = model_names(newest)
    for result in newest_records(newest)[0]:
        by_model.setdefault(names[result.model.identity], []).append(result)
    rows = []
    for name, group in sorted(by_model.items()):
        encoded = sum(result.cost.encoded for result in group)
        peak = max(result.cost.peak_memory_bytes or 0 for result in group)
        speeds = [r.cost.texts_per_second for r in group if r.cost.texts_per_second]
        seconds = sum(result.cost.seconds for result in group)
        size = group[0].model.parameters
        page = (links or {}).get(max(group, key=lambda result: result.finished).run, "")
        rows.append(
            (
                Cell(name, link=page),
                Cell(f"{size:,}", value=size) if size else Cell("none"),
                Cell(f"{seconds:.1f}", value=seconds),
                Cell(f"{encoded:,}", value=encoded),
                Cell(f"{min(speeds):,.0f} to {max(speeds):,.0f}", value=max(speeds))
                if speeds
                else Cell("none encoded"),
                Cell(f"{peak / 2**20:,.0f}", value=peak / 2**20) if peak else Cell("not measured"),
                Cell(group[0].environment.device),
            )
        )
    columns = ("model", "parameters", "seconds", "texts encoded", "texts/s", "peak MiB", "device")
    return Table(
        columns,
        tuple(rows),
        "Seconds over all tasks, including loading data and scoring; cached texts do not count as "
        "encoded. Peak memory is that of the whole process.",
        name="cost",
        caption="What the results of each model cost.",
    )


def failures_table(failures: Mapping[str, str]) -> Table:
    """Return the tasks that failed and why; empty if none did."""
    rows = tuple((Cell(where), Cell(reason)) for where, reason in sorted(failures.items()))
    note = "" if rows else "No task failed."
    caption = "Runs that failed, and why."
    return Table(("run", "why"), rows, note, kind="words", name="failures", caption=caption)
