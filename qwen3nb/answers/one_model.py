"""The page of one model: plan, results, means, checks, provenance and figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean
from qwen3nb.answers.all_results import Summary
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.details import lacks_queries
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import _USES
from qwen3nb.report.render.figure import GREY, QUIET, Figure, MplFigure, panels, plain
from qwen3nb.report.render.home import command_again, formula_link, record_link, task_anchor
from qwen3nb.report.render.table import MANY, Cell, Table, number, short_task
from qwen3nb.utils.format import first_names

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
    scores: list[Aggregate] = []
    for result in in_order:
        task = result.task
        scores += result.metrics.values()
        for metric, score in result.metrics.items():
            # Of many tasks, only the main metric is shown.
            is_main = metric == task.main_metric
            if is_main or not has_many:
                size = f"{score.n} {task.unit}"
                rows.append((task.key, metric, number(score, strong=is_main), size))
    methods = interval_words(score.interval for score in scores)
    return Table.of(
        rows,
        ("task", "metric", "value", "n"),
        note="In bold: each task's main metric.",
        method=f"Intervals: 95 %, {methods}, over n.{few_queries_sentence(scores)}",
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


def _unsupported_tasks(preflight: Preflight) -> dict[str, list[str]]:
    """Return the tasks that the model does not support, by the reason."""
    names_by_reason = defaultdict(list)
    for task in preflight.planned:
        is_supported = task.status in ("to run", "there")
        if not is_supported and task.task not in preflight.left_out:
            names_by_reason[task.status].append(task.task)
    return names_by_reason


def preflight_table(preflight: Preflight) -> Table:
    """Return the needs of a run compared with the machine, and the expected time."""
    rows = []
    for check in preflight.checks:
        verdict = "FAILED" if check.problem else "PASSED"
        row = {
            "what": check.name,
            "needed": check.needed,
            "there": check.available,
            "verdict": (verdict, check.problem),
        }
        rows.append(row)
    return Table.of(
        rows,
        note=_preflight_note(preflight),
        name="preflight",
        caption="Needs of the run, compared with the machine.",
    )


def _preflight_note(preflight: Preflight) -> str:
    """Count the tasks to run, say what is left out and why, and how long the run takes."""
    all_tasks = len(preflight.planned)
    tasks_to_run = sum(task.status == "to run" for task in preflight.planned)
    sentences = [f"{tasks_to_run} of {all_tasks} tasks to run."]
    for task, reason in preflight.left_out.items():
        sentences.append(f"Left out: {task} ({reason}).")
    unreadable = preflight.unreadable
    if unreadable:
        reasons = " ".join(unreadable.values())
        sentences.append(f"{len(unreadable)} of {all_tasks} tasks cannot be run: {reasons}.")
    for reason, names in _unsupported_tasks(preflight).items():
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


@dataclass(frozen=True)
class PlannedRun:
    """What a run of ``eval.ipynb`` would need."""

    model: str  # its spec
    preflight: Preflight | None
    problem: str = ""  # why the run would fail; then without a preflight


def sweep_table(runs: Sequence[PlannedRun]) -> Table:
    """Return the needs of runs by model, and their sums, from `plan_runs`."""
    models = dict.fromkeys(run.model for run in runs)
    rows = []
    for model in models:
        rows.append(_sweep_row(model, [run for run in runs if run.model == model]))
    rows.append(_sweep_row("all", runs, strong=True))
    return Table.of(
        rows,
        note="As if no record or vector were stored; tasks of unknown size are left out. Prepared "
        "data and indexes of BM25, which models share, count once.",
        name="sweep",
        caption="Needs of the runs by model.",
    )


def _sweep_row(name: str, runs: Sequence[PlannedRun], *, strong: bool = False) -> dict[str, object]:
    """Return the needs of some runs, and the first problem of one."""
    preflights = [run.preflight for run in runs if run.preflight is not None]
    gpu_hours = cpu_hours = 0.0
    memory_bytes = vector_bytes = shared_bytes = 0.0
    for preflight in preflights:
        gpu_hours_of_run, cpu_hours_of_run = preflight.hours
        gpu_hours += gpu_hours_of_run
        cpu_hours += cpu_hours_of_run
        memory, disk = (check.parts for check in preflight.checks)  # the checks are in this order
        # Runs follow each other, so memory does not add up. Data and indexes are shared.
        memory_bytes = max(memory_bytes, sum(memory.values()))
        vector_bytes += disk["vectors"]
        shared_bytes = max(shared_bytes, sum(disk.values()) - disk["vectors"])
    disk_bytes = vector_bytes + shared_bytes
    return {
        "model": Cell(name, strong=strong),
        "GPU hours": f"{gpu_hours:,.1f}",
        "CPU hours": f"{cpu_hours:,.1f}",
        "GB of memory\nof a run": f"{memory_bytes / 1e9:,.1f}",
        "GB of disk\nof vectors": (f"{disk_bytes / 1e9:,.1f}", f"{vector_bytes / 1e9:,.1f}"),
        "problem": _first_problem(runs),
    }


def _first_problem(runs: Sequence[PlannedRun]) -> str | None:
    for run in runs:
        if run.preflight is None:
            return run.problem
    # Only if no run fails as a whole: tasks that do not fit into memory, each once.
    too_large_tasks: dict[str, None] = {}
    for run in runs:
        if run.preflight is not None:
            too_large_tasks |= dict.fromkeys(run.preflight.left_out)
    if too_large_tasks:
        return f"left out: {', '.join(too_large_tasks)}; too little memory"
    return None


def plan_by_type_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run by type of task, with its totals."""
    tasks_by_type = defaultdict(list)
    for task in planned:
        tasks_by_type[task.type].append(task)
    rows = [_plan_row(name, tasks_by_type[name]) for name in sorted(tasks_by_type)]
    rows.append(_plan_row("all", planned, strong=True))
    return Table.of(rows, name="plan-types", caption="The plan of the run by type of task.")


def _plan_row(name: str, tasks: Sequence[Planned], *, strong: bool = False) -> dict[str, object]:
    sizes = [task.texts for task in tasks if task.texts is not None]
    texts = "unknown"
    if sizes:
        texts = f"{sum(sizes):,}"
    remark = ""
    # Tasks whose number of texts is not known are only counted.
    if len(sizes) < len(tasks):
        remark = f"{len(tasks) - len(sizes)} unknown"
    minutes_of_tasks = [task.minutes for task in tasks if task.minutes is not None]
    minutes = None
    if minutes_of_tasks:
        minutes = f"{sum(minutes_of_tasks):,.1f}"
    return {
        "MTEB type": Cell(name, strong=strong),
        "tasks": len(tasks),
        "to run": sum(task.status == "to run" for task in tasks),
        "distinct texts": (texts, remark),
        "minutes": minutes,
    }


def small_sets_table(results: Sequence[Result]) -> Table | None:
    """Return how small sets were cut from whole ones; None without such a set."""
    cut = [result for result in results if result.data.nano]
    rows = []
    for result in cut:
        for part in result.data.nano or ():
            queries, all_queries = part["queries"]
            documents, all_documents = part["documents"]
            sources = {
                "relevant": part["relevant"],
                "candidates": part["candidates"],
                "judged zeros": part["judged_zeros"],
                "hard negatives": part["hard_negatives"],
                "others": part["others"],
            }
            names = [f"{count:,} {name}" for name, count in sources.items() if count]
            row = {
                "small set": Cell(short_task(result.task.key), part["part"]),
                "queries": f"{queries:,} of {all_queries:,}",
                "documents": Cell(f"{documents:,} of {all_documents:,}", ", ".join(names)),
                "rule\nseed": Cell(str(part["rule"]), str(part["seed"])),
                "this set\nthe whole set": Cell(part["sha256"][:12], part["source"][:12]),
            }
            rows.append(row)
    if not rows:
        return None
    short_of_queries = [
        result.task.key
        for result in cut
        if any(lacks_queries(part) for part in result.data.nano or ())
    ]
    note = (
        "A set has at most 50 queries and 5,000 documents. Its scores are not comparable with "
        "those of the whole set."
    )
    if short_of_queries:
        note += (
            f" Documents that must stay left no room for more queries: "
            f"{first_names(short_of_queries)}."
        )
    return Table.of(
        rows,
        note=note,
        name="small-sets",
        caption="Small sets, and the whole sets that a rule cut them from.",
        data=DataUsed.of(cut),
    )


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
    record = newest(results)
    rows: list[tuple[str, object]] = []
    for facts in (_model_facts(record), _run_facts(results, record), _count_facts(results)):
        for name, value in facts.items():
            text = "none" if value == "" else value
            rows.append((name, text))
    return Table.of(
        rows,
        ("what", "value"),
        kind="facts",
        name="model-and-run",
        caption=f"{record.model.label} and the software that measured it.",
    )


def _model_facts(record: Result) -> dict[str, object]:
    model, settings = record.model, record.model.settings
    facts: dict[str, object] = {"model": model.label, "identity (SHA-256)": model.identity}
    # Of an encoder in Python or behind an API: "2.1, …", or "none, run …" without a version.
    version, _, _ = str(settings.get("fingerprint", "")).partition(",")
    if version:
        facts["content"] = f"cannot be verified; version by its user: {version}"
    facts["spec"] = model.spec
    facts["parameters"] = f"{model.parameters:,}" if model.parameters else ""
    for name in _USES:
        if name in settings:
            facts[name] = str(settings[name])
    return facts


def _run_facts(results: Sequence[Result], record: Result) -> dict[str, object]:
    environment = record.environment
    computed = sum(result.cost.encoded for result in results)
    cached = sum(result.cost.cached for result in results)
    noun = "vectors"
    if "template" in record.model.settings:  # of a reranker
        noun = "pairs"
    facts: dict[str, object] = {
        "seed": record.seed,
        noun: f"{computed:,} computed, {cached:,} from the cache",
    }
    # A reranking is measured again data set by data set, not by one command.
    is_reranking = record.search.first is not None
    if not is_reranking:
        command = command_again(record, whole=True)
        if command:
            facts["make it again"] = Cell(command, code=True)
    facts["run"] = record.run
    facts["finished (UTC)"] = record.finished
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
    if summary.means:
        rows = [_benchmark_row(mean) for mean in summary.means]
    else:
        rows = _type_rows(summary)
    gaps = [f"{task} ({reason})" for task, reason in sorted(summary.missing.items())]
    note = f"Missing: {'; '.join(gaps) or 'nothing'}."
    if not summary.means and len(summary.metrics) > 1:
        note += f" Unlike metrics are not averaged: {', '.join(summary.metrics)}."
    return Table.of(
        rows,
        ("mean", "metric", "tasks", "value\n95 % interval"),
        note=note,
        method="A mean of a benchmark needs a score on every task. Where it averages several "
        "metrics, it is MTEB's mean. Another mean only compares models on exactly the same tasks.",
        name="means",
        caption=f"Means of {summary.label} over benchmarks and types of task.",
        data=summary.data,
    )


def _benchmark_row(mean: BenchmarkMean) -> tuple[object, ...]:
    column = mean.column
    tasks = str(column.tasks)
    if mean.missing:
        tasks = f"{mean.measured} of {column.tasks}"
    if mean.value is None:
        gaps = ""
        if len(mean.gaps) < _FEW_GAPS:
            gaps = "; ".join(mean.gaps)
        return column.name, column.measure, tasks, Cell("incomplete", gaps)
    # The mean has four digits, its interval three.
    cell = number(mean.value, interval=mean.interval)
    return column.name, column.measure, tasks, replace(cell, text=f"{mean.value:.4f}")


def _type_rows(summary: Summary) -> list[tuple[object, ...]]:
    """Return a row per type of task, and the means over all of them if they have one metric."""
    rows = []
    for task_type, count in summary.tasks.items():
        rows.append(_type_row(task_type, count, summary.by_type.get(task_type)))
    # Different metrics are not averaged.
    if len(summary.metrics) <= 1:
        count = sum(summary.tasks.values())
        rows.append(_type_row("mean over tasks", count, summary.over_tasks))
        rows.append(_type_row("mean over types", len(summary.by_type), summary.over_types))
    return rows


def _type_row(name: str, count: int, mean: float | None) -> tuple[object, ...]:
    return name, "main score", count, number(mean, ".4f", absent="undefined")


def per_query_figure(results: Sequence[Result], *, metric: str = "nDCG@10") -> Figure | None:
    """Draw the distribution of a retrieval metric over queries, a panel per task.

    The metric is between 0 and 1. Only the tasks with most queries are shown. None if no record has
    the metric per query.
    """
    with_metric = [result for result in results if metric in result.per_query]
    if not with_metric:
        return None
    by_size = sorted(with_metric, key=lambda result: result.scores.counts[metric], reverse=True)
    # The tasks with most queries, but in the order of the results.
    largest = [result for result in with_metric if result in by_size[:MANY]]
    means = []
    for result in largest:
        scores = list(result.per_query[metric].values())
        name = short_task(result.task.key)
        means.append(f"{name} mean {np.mean(scores):.3f}, n = {len(scores)}")
    summary = ", ".join(means)
    left_out = ""
    if len(with_metric) > len(largest):
        left_out = f" Tasks with fewer queries, not shown: {len(with_metric) - len(largest)}."
    return Figure(
        name="per-query",
        draw=partial(_draw_histograms, largest, metric),
        caption=f"Queries by their {metric}. Peaks at both ends: the model finds the document or "
        f"misses it. A peak in the middle: it finds it, but ranks it low.{left_out}",
        alt=f"Histograms of {metric} over queries: {summary}.",
        data=DataUsed.of(largest),
        columns=2 if len(largest) > 1 else 1,
    )


def _draw_histograms(results: Sequence[Result], metric: str, width: float) -> MplFigure:
    figure, axes, _ = panels(len(results), width, height=1.9, sharey=True)
    bin_edges = np.linspace(0, 1, 21).tolist()  # 20 bins of 0.05
    for axis, result in zip(axes, results, strict=True):
        scores = list(result.per_query[metric].values())
        mean = float(np.mean(scores))
        axis.hist(scores, bins=bin_edges, color=QUIET)
        axis.axvline(mean, color=GREY, linewidth=1.5)
        name = plain(short_task(result.task.key))
        axis.set_title(f"{name}\nmean {mean:.3f}, n = {len(scores)}")
        axis.set_xlabel(f"{metric} of a query")
        axis.set_ylabel("queries")
        axis.label_outer()
    return figure
