"""The few tasks of a tier that tell most of its means, and what they tell while they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qwen3nb.analysis.forecasting.fitted import fitted_moments
from qwen3nb.analysis.forecasting.forecast import telling_order
from qwen3nb.analysis.forecasting.published import PublishedBenchmark, published_benchmarks
from qwen3nb.analysis.forecasting.replay import within
from qwen3nb.answers.forecast import Forecast, forecast_results, published_names
from qwen3nb.records.record import Result
from qwen3nb.tiers import GROUP_OF, GROUPS
from qwen3nb.utils.format import number_text

BUDGET = 0.05  # share of a benchmark's cost that a preview may take


def preview_keys(keys: Iterable[str], *, budget: float = BUDGET) -> list[str]:
    """Return the tasks to run for a forecast of each benchmark, the most telling ones first.

    Args:
        keys: of the tasks that may run, with groups split into their parts.
        budget: share of the cost of each benchmark that may be spent.

    Raises:
        ValueError: the tasks are no whole benchmark with published scores.
    """
    available = set(keys)
    chosen: dict[str, None] = {}
    benchmarks = whole_benchmarks(available)
    if not benchmarks:
        known = ", ".join(published_benchmarks())
        raise ValueError(
            f"expected all tasks of a benchmark with published scores, {known}, for a preview; "
            "such as --tier full or --benchmark"
        )
    for benchmark in benchmarks:
        parts = tasks_in_order(benchmark, available)
        for task in within(list(parts), benchmark, budget):
            chosen |= dict.fromkeys(parts[task])
    return list(chosen)


def whole_benchmarks(keys: set[str]) -> list[PublishedBenchmark]:
    """Return the benchmarks with published scores of which all tasks are among ``keys``."""
    found = []
    for benchmark in published_benchmarks().values():
        parts = _parts_by_task(benchmark, keys)
        if all(task in parts for task in benchmark.tasks):
            found.append(benchmark)
    return found


def _parts_by_task(benchmark: PublishedBenchmark, keys: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the keys to run for each task of a benchmark that may run, by its published name."""
    parts = {}
    for key, name in published_names(benchmark).items():
        keys_to_run = GROUPS.get(key, (key,))
        if keys.issuperset(keys_to_run):
            parts[name] = keys_to_run
    return parts


def tasks_in_order(benchmark: PublishedBenchmark, keys: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the keys to run for each task that may run, the most telling for its cost first."""
    parts = _parts_by_task(benchmark, keys)
    order = telling_order(
        fitted_moments(benchmark.name), benchmark.costs, mean_tasks=benchmark.tasks
    )
    return {task: parts[task] for task in order if task in parts}


def forecasts(results: Sequence[Result], benchmarks: Iterable[str]) -> list[Forecast]:
    """Return the forecast of each benchmark by name; without those that no record is of."""
    answers = [forecast_results(results, benchmark=name) for name in benchmarks]
    return [answer for answer in answers if answer is not None]


def progress_line(results: Sequence[Result], benchmarks: Iterable[str]) -> str:
    """Return what the last record tells, on a line, such as ``BEIR 0.512 ± 0.031``.

    Empty while a group of tasks, such as CQADupstack, is not complete.
    """
    last = results[-1].task.key
    group = GROUPS.get(GROUP_OF.get(last, last), ())
    done = {record.task.key for record in results}
    if not done.issuperset(group):
        return ""
    texts = []
    for answer in forecasts(results, benchmarks):
        low, high = answer.interval
        margin = number_text((high - low) / 2)
        run = sum(task in answer.measured for task in answer.benchmark.tasks)
        texts.append(
            f"{answer.benchmark.name}: {number_text(answer.mean)} ± {margin} "
            f"after {run} of {len(answer.benchmark.tasks)} tasks"
        )
    return "; ".join(texts)
