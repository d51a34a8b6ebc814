"""The page of one model: plan, results, means, checks, provenance and figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean
from qwen3nb.answers.all_results import Summary
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import _USES
from qwen3nb.report.render.figure import COLORS, Figure, MplFigure, panels, plain
from qwen3nb.report.render.home import command_again, formula_link, record_link, task_anchor
from qwen3nb.report.render.table import MANY, Cell, Table, number, short_task

if TYPE_CHECKING:
    from qwen3nb.evaluation.mteb.costs import Planned
    from qwen3nb.evaluation.mteb.plan import Preflight

_FEW_GAPS = 3  # below which the missing tasks of a mean are named


def results_table(results: Sequence[Result]) -> Table:
    """Return one model's results: a row per task and metric; for many tasks, main metrics only."""
    in_order = list(results)
    has_many = len(in_order) > MANY
    if has_many:
        in_order.sort(key=lambda result: str(result.task.type))
    rows = []
    for result in in_order:
        task = result.task
        for name, value in result.metrics.items():
            is_main = name == task.main_metric
            if is_main or not has_many:
                size = f"{value.n} {task.unit}"
                rows.append((task.key, name, number(value, strong=is_main), size))
    values = [value for result in results for value in result.metrics.values()]
    methods = interval_words(value.interval for value in values)
    return Table.of(
        rows,
        ("task", "metric", "value", "n"),
        note=f"Main metric in bold. Intervals: 95 %, {methods}, over n."
        f"{few_queries_sentence(values)}",
        name="metrics",
        caption="Scores of every task, each with its 95 % interval.",
        data=DataUsed.of(results),
    )


def parts_table(results: Sequence[Result]) -> Table | None:
    """Return a row per split and subset of the tasks that have several, with its languages.

    The first score of a task is the mean over its parts, as reported by MTEB. None if every task
    has one subset and one split.
    """
    in_parts = [result for result in results if result.parts]
    if not in_parts:
        return None
    rows: list[Sequence[object]] = []
    for result in in_parts:
        task = (result.task.key, result.task.main_metric)
        score = number(result.main, strong=True)
        rows.append((task, f"all {len(result.parts)}", None, None, score, result.main.n))
        for part in result.parts:
            languages = ", ".join(part.languages) or "not recorded"
            rows.append((task, part.subset, part.split, languages, part.score, part.score.n))
    return Table.of(
        rows,
        ("task\nmetric", "subset", "split", "languages", "value\n95 % interval", "n"),
        note="In bold: the value that MTEB reports, the mean over the parts. Queries are paired "
        "within one subset and split only.",
        name="parts",
        caption="Scores by language, subset and split.",
        data=DataUsed.of(in_parts),
    )


def _unsuited(preflight: Preflight) -> dict[str, list[str]]:
    """Return the tasks that the model does not support, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for task in preflight.planned:
        runs = task.status in ("to run", "there")
        if not runs and task.task not in preflight.left_out:
            by_reason.setdefault(task.status, []).append(task.task)
    return by_reason


def preflight_table(preflight: Preflight) -> Table:
    """Return the needs of a run compared with the machine, and the expected time."""
    rows = [
        {
            "what": check.name,
            "needed": check.needed,
            "there": check.available,
            "verdict": ("FAILED" if check.problem else "PASSED", check.problem),
        }
        for check in preflight.checks
    ]
    return Table.of(
        rows,
        note=_preflight_note(preflight),
        name="preflight",
        caption="Needs of the run, compared with the machine.",
    )


def _preflight_note(preflight: Preflight) -> str:
    """Count the tasks to run, say what is left out and why, and how long the run takes."""
    tasks = len(preflight.planned)
    to_run = sum(task.status == "to run" for task in preflight.planned)
    sentences = [f"{to_run} of {tasks} tasks to run."]
    for task, reason in preflight.left_out.items():
        sentences.append(f"Left out: {task} ({reason}).")
    unreadable = preflight.unreadable
    if unreadable:
        reasons = " ".join(unreadable.values())
        sentences.append(f"{len(unreadable)} of {tasks} tasks cannot be run: {reasons}.")
    for reason, names in _unsuited(preflight).items():
        text = f"Left out: {names[0]}"
        if len(names) > 1:
            text += f" and {len(names) - 1:,} more"
        sentences.append(f"{text} ({reason}).")
    if preflight.minutes is not None:
        sentences.append(
            f"They take about {preflight.minutes:,.0f} minutes here, from their sizes and the "
            "speed of short, medium and longest texts; less where vectors are stored."
        )
    return " ".join(sentences)


def sweep_table(planned: Sequence[tuple[str, Preflight | str]]) -> Table:
    """Return the needs of runs by model, and their sums, from `plan_runs`."""
    by_model: dict[str, list[Preflight | str]] = {}
    for model, needs in planned:
        by_model.setdefault(model, []).append(needs)
    rows = [_sweep_row(model, needs) for model, needs in by_model.items()]
    rows.append(_sweep_row("all", [needs for _, needs in planned], strong=True))
    return Table.of(
        rows,
        note="As if no record or vector were stored; tasks of unknown size are left out. Prepared "
        "data and indexes of BM25, which models share, count once.",
        name="sweep",
        caption="Needs of the runs by model.",
    )


def _sweep_row(
    name: str, needs: Sequence[Preflight | str], *, strong: bool = False
) -> dict[str, object]:
    """Return the needs of some runs; a text is the reason why a run cannot start."""
    ready = [run for run in needs if not isinstance(run, str)]
    reasons = [run for run in needs if isinstance(run, str)]
    memory = [sum(run.checks[0].parts.values()) for run in ready]
    vectors = sum(run.checks[1].parts["vectors"] for run in ready)
    shared = [sum(run.checks[1].parts.values()) - run.checks[1].parts["vectors"] for run in ready]
    disk = vectors + max(shared, default=0)
    too_large = dict.fromkeys(task for run in ready for task in run.left_out)
    problem = None
    if reasons:
        problem = reasons[0]
    elif too_large:
        problem = f"left out: {', '.join(too_large)}; too little memory"
    return {
        "model": Cell(name, strong=strong),
        "GPU hours": f"{sum(run.hours[0] for run in ready):,.1f}",
        "CPU hours": f"{sum(run.hours[1] for run in ready):,.1f}",
        "GB of memory\nof a run": f"{max(memory, default=0) / 1e9:,.1f}",
        "GB of disk\nof vectors": (f"{disk / 1e9:,.1f}", f"{vectors / 1e9:,.1f}"),
        "problem": problem,
    }


def plan_by_type_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run by type of task, with its totals."""
    by_type: dict[str, list[Planned]] = {}
    for task in planned:
        by_type.setdefault(task.type, []).append(task)
    rows = [_plan_row(kind, by_type[kind]) for kind in sorted(by_type)]
    rows.append(_plan_row("all", planned, strong=True))
    return Table.of(rows, name="plan-types", caption="The plan of the run by type of task.")


def _plan_row(name: str, tasks: Sequence[Planned], *, strong: bool = False) -> dict[str, object]:
    sizes = [task.texts for task in tasks if task.texts is not None]
    minutes = [task.minutes for task in tasks if task.minutes is not None]
    unknown = len(tasks) - len(sizes)
    return {
        "MTEB type": Cell(name, strong=strong),
        "tasks": len(tasks),
        "to run": sum(task.status == "to run" for task in tasks),
        "distinct texts": (
            f"{sum(sizes):,}" if sizes else "unknown",
            f"{unknown} unknown" if unknown else "",
        ),
        "minutes": f"{sum(minutes):,.1f}" if minutes else None,
    }


def provenance_table(results: Sequence[Result]) -> Table:
    """Return the provenance of scores: a row per record, with the anchor for links."""
    has_several_models = len({(result.model.identity, result.seed) for result in results}) > 1
    anchors: set[str] = set()
    rows = []
    for result in results:
        task, metric = result.task, result.task.main_metric
        anchor = task_anchor(task.key)
        if anchor in anchors:
            anchor += f"-{result.model.identity[:8]}"
        anchors.add(anchor)
        data = f"{task.dataset} at {task.revision[:12]}"
        if has_several_models:
            data = f"{result.model.label}; {data}"
        rows.append(
            {
                "score\nits data": Cell(task.key, data, id=anchor),
                "metric\nits formula": Cell(metric, link=formula_link(metric)),
                "value": result.main,
                "scores\nfile": Cell(f"{result.main.n} {task.unit}", link=record_link(result)),
                "make it again": Cell(command_again(result), code=True),
            }
        )
    return Table.of(
        rows,
        note="The file is the record, with the score of every query. The command measures again, "
        "into a separate folder.",
        empty="No records.",
        kind="words",
        name="provenance",
        caption="Provenance of these numbers, a row per score.",
        data=DataUsed.of(results),
    )


def model_and_run_table(results: Sequence[Result]) -> Table:
    """Return the identity of one model, and the run and software that measured it."""
    if not results:
        return Table(("what", "value"), (), kind="facts")
    last = newest(results)
    rows = [
        *_model_facts(last).items(),
        *_run_facts(results, last).items(),
        *_count_facts(results).items(),
    ]
    return Table.of(
        [(name, "none" if value == "" else value) for name, value in rows],
        ("what", "value"),
        kind="facts",
        name="model-and-run",
        caption=f"{last.model.label} and the software that measured it.",
    )


def _model_facts(last: Result) -> dict[str, object]:
    model, settings = last.model, last.model.settings
    facts: dict[str, object] = {"model": model.label, "identity (SHA-256)": model.identity}
    version = str(settings.get("fingerprint", "")).partition(",")[0]  # "none" without one
    if version:
        facts["content"] = f"cannot be verified; version by its user: {version}"
    facts["spec"] = model.spec
    facts["parameters"] = f"{model.parameters:,}" if model.parameters else ""
    for name in _USES:
        if name in settings:
            facts[name] = str(settings[name])
    return facts


def _run_facts(results: Sequence[Result], last: Result) -> dict[str, object]:
    environment = last.environment
    encoded = sum(result.cost.encoded for result in results)
    cached = sum(result.cost.cached for result in results)
    noun = "pairs" if "template" in last.model.settings else "vectors"
    facts: dict[str, object] = {
        "seed": last.seed,
        noun: f"{encoded:,} computed, {cached:,} from the cache",
    }
    if last.search.first is None:
        command = command_again(last, whole=True)
        if command:
            facts["make it again"] = Cell(command, code=True)
    facts["run"] = last.run
    facts["finished (UTC)"] = last.finished
    facts["device"] = f"{environment.device}, {environment.precision}"
    if environment.linear:
        facts["linear layers"] = environment.linear
    facts["Python"] = environment.python
    return {**facts, **environment.versions}


def _count_facts(results: Sequence[Result]) -> dict[str, object]:
    """Return what was counted in the data of tasks, such as duplicates."""
    facts: dict[str, object] = {}
    for result in results:
        counts = [f"{name}: {count:,}" for name, count in result.task.counts.items()]
        if counts:
            facts[f"data of {result.task.key}"] = "; ".join(counts)
    return facts


def suite_table(summary: Summary) -> Table:
    """Return the means: a row per benchmark or type; the note lists what is missing."""
    rows = [_benchmark_row(mean) for mean in summary.means] or _type_rows(summary)
    missing = [f"{name} ({reason})" for name, reason in sorted(summary.missing.items())]
    note = (
        f"Missing: {'; '.join(missing) or 'nothing'}. A mean of a benchmark needs a score on every "
        "task. Where it averages several metrics, it is MTEB's mean. Another mean only compares "
        "models on exactly the same tasks."
    )
    if not summary.means and len(summary.metrics) > 1:
        note += f" Unlike metrics are not averaged: {', '.join(summary.metrics)}."
    return Table.of(
        rows,
        ("mean", "metric", "tasks", "value\n95 % interval"),
        note=note,
        name="means",
        caption=f"Means of {summary.label} over benchmarks and types of task.",
        data=summary.data,
    )


def _benchmark_row(mean: BenchmarkMean) -> tuple[object, ...]:
    column = mean.column
    tasks = f"{mean.measured} of {column.tasks}" if mean.missing else column.tasks
    if mean.value is None:
        gaps = "; ".join(mean.gaps) if len(mean.gaps) < _FEW_GAPS else ""
        return column.name, column.measure, tasks, Cell("incomplete", gaps)
    cell = number(mean.value, interval=mean.interval)
    return column.name, column.measure, tasks, replace(cell, text=f"{mean.value:.4f}")


def _type_rows(summary: Summary) -> list[tuple[object, ...]]:
    """Return a row per type of task, and the means over all of them if they have one metric."""
    means: list[tuple[str, int, float | None]] = [
        (kind, count, summary.by_type.get(kind)) for kind, count in summary.tasks.items()
    ]
    if len(summary.metrics) <= 1:
        means.append(("mean over tasks", sum(summary.tasks.values()), summary.over_tasks))
        means.append(("mean over types", len(summary.by_type), summary.over_types))
    return [
        (name, "main score", count, number(value, ".4f", absent="undefined"))
        for name, count, value in means
    ]


def per_query_figure(results: Sequence[Result], *, metric: str = "nDCG@10") -> Figure | None:
    """Draw the distribution of a retrieval metric over queries, a panel per task.

    The metric is between 0 and 1. Only the tasks with most queries are shown. None if no record has
    the metric per query.
    """
    measured = [result for result in results if metric in result.per_query]
    if not measured:
        return None
    largest = sorted(measured, key=lambda result: -result.scores.counts[metric])[:MANY]
    shown = [result for result in measured if result in largest]
    scores = [(result.task.key, list(result.per_query[metric].values())) for result in shown]
    means = ", ".join(
        f"{short_task(task)} mean {np.mean(values):.3f}, n = {len(values)}"
        for task, values in scores
    )
    return Figure(
        name="per-query",
        draw=partial(_draw_histograms, scores, metric),
        caption=f"Queries by their {metric}: {means}. Peaks at both ends: the model either "
        "finds the document or misses it; a peak in the middle: it finds it, but ranks it low."
        f" Tasks with fewer queries that are not shown: {len(measured) - len(scores)}.",
        alt=f"Histograms of {metric} over queries: {means}.",
        data=DataUsed.of(shown),
        columns=2 if len(scores) > 1 else 1,
    )


def _draw_histograms(
    scores: Sequence[tuple[str, list[float]]], metric: str, width: float
) -> MplFigure:
    figure, axes, _ = panels(len(scores), width, height=1.9, sharey=True)
    for axis, (task, values) in zip(axes, scores, strict=True):
        mean = float(np.mean(values))
        axis.hist(values, bins=np.linspace(0, 1, 21).tolist(), color=COLORS[0])
        axis.axvline(mean, color=COLORS[1], linewidth=1.5)
        axis.set_title(f"{plain(short_task(task))}\nmean {mean:.3f}, n = {len(values)}")
        axis.set_xlabel(f"{metric} of a query")
        axis.set_ylabel("queries")
        axis.label_outer()
    return figure
