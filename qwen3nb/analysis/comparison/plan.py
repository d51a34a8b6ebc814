"""A plan before the measurement: how many queries, seeds and prompts show a difference.

The standard error of a mean difference over n queries, S seeds and P prompts is
``sqrt(q² / n + s² / S + p² / P)``, where q, s and p are the standard deviations of the difference
between queries, seeds and prompts. The test has the degrees of freedom of Satterthwaite (1946), and
its level is alpha over the number of comparisons of a task: Holm's first step, which step-down MaxT
never exceeds.

A plan is written to ``plan.toml`` of the study before anything is measured; a comparison then says
what it does otherwise (`deviations`).
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy
from pydantic import ConfigDict, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import write_text

if TYPE_CHECKING:
    from qwen3nb.analysis.comparison.compare import Comparison

MOST = 1 << 24  # queries, and
_MOST_SEEDS = 100
_QUANTILE = 0.9  # of the deviations of other pairs, if the planned models have no records


class PlanError(ValueError):
    """A plan that cannot be made or read; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How the difference of two models varies, as standard deviations."""

    queries: float = 0.0  # between queries; 0 if not stated
    seeds: float = 0.0
    prompts: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be shown, and how; fields as in ``plan.toml``."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    baseline: str  # label of the model that the others are compared with
    models: tuple[str, ...]  # labels of the others: the hypotheses
    tasks: tuple[str, ...]
    margin: float  # smallest difference worth having
    metric: str = ""  # by default the main metric of each task
    alpha: float = 0.05  # family-wise error rate on a task
    power: float = 0.8  # probability that a difference of the margin is significant
    correction: str = "max-t"
    seeds: int = 1
    prompts: int = 1
    # needed on each task; a task is left out for which no number is enough, or no spread is known
    queries: Mapping[str, int] = field(default_factory=dict)
    made: str = ""  # date

    @property
    def family(self) -> int:
        """Number of pairs of models, which are tested together on a task."""
        return math.comb(len({self.baseline, *self.models}), 2)

    def needed(self, spread: Spread, *, seeds: int = 0) -> int | None:
        """How many queries show a difference of the margin; None if no number does."""

        def shown(queries: int) -> bool:
            return self.reached(self.margin, spread, queries, seeds=seeds) >= self.power

        if not shown(MOST):
            return None
        return bisect_left(range(MOST), True, lo=2, key=shown)

    def needed_seeds(self, spread: Spread) -> int | None:
        """The fewest seeds with which some number of queries is enough; None if none are."""
        every = range(2, _MOST_SEEDS + 1)
        return next((each for each in every if self.needed(spread, seeds=each)), None)

    def reached(self, effect: float, spread: Spread, queries: int, *, seeds: int = 0) -> float:
        """The power to show a difference of ``effect`` with so many queries (noncentral t)."""
        numbers = (queries, seeds or self.seeds, self.prompts)
        parts = [
            (deviation**2 / number, number - 1)
            for deviation, number in zip(asdict(spread).values(), numbers, strict=True)
            if deviation
        ]
        if not parts or any(not df for _, df in parts):  # of one seed, the spread is unknown
            return 0.0 if parts else 1.0
        variance = math.fsum(part for part, _ in parts)
        df = variance**2 / math.fsum(part**2 / df for part, df in parts)
        critical = scipy.stats.t.ppf(1 - self.alpha / self.family / 2, df)
        return float(scipy.stats.nct.sf(critical, df, effect / math.sqrt(variance)))

    def detectable(self, spread: Spread, queries: int) -> float | None:
        """The smallest difference shown with the planned power, to three digits; None above 1."""
        least = bisect_left(
            range(1001),
            True,
            key=lambda thousandths: self.reached(thousandths / 1000, spread, queries) >= self.power,
        )
        return least / 1000 if least <= 1000 else None


@dataclass(frozen=True)
class PlannedTask:
    """What a plan needs on a task."""

    task: str
    spread: Spread | None  # None if it is neither stated nor in earlier records
    pairs: int  # pairs of models in earlier records that it is taken from
    there: int  # queries of these records
    needed: int | None = None  # queries; None if no number is enough, or the spread is not known
    needed_seeds: int | None = None  # if no number is: with so many seeds, one would be
    detectable: float | None = None  # the smallest difference that the queries there can show

    @property
    def enough(self) -> bool:
        """Whether the queries there, if any, show a difference of the margin."""
        return not self.there or (self.needed is not None and self.needed <= self.there)


def make_plan(
    results: Iterable[Result], plan: Plan, *, stated: Spread | None = None
) -> tuple[Plan, list[PlannedTask]]:
    """Return a plan with the queries that each task needs, and why.

    The spread is as ``stated``, or that of earlier records: of the planned models, the largest of
    any two; if they have no records, that below which nine of ten pairs of other models are. The
    spread between seeds and prompts is as stated.
    """
    stated = stated or Spread()
    known = {
        task: PlannedTask(task, stated if stated.queries else None, 0, 0) for task in plan.tasks
    }
    matrices, _ = pair_results(results, metric=plan.metric or None, tasks=plan.tasks)
    for matrix in matrices:
        each = {
            # Of clusters, as independent queries with the same standard error of the mean.
            pair: float(differences.std(ddof=1)) * math.sqrt(len(matrix.queries) / len(differences))
            for pair in combinations(matrix.systems, 2)
            if len(differences := matrix.units(matrix.column(pair[0]) - matrix.column(pair[1]))) > 1
        }
        own = [each[pair] for pair in each if {*pair} <= {plan.baseline, *plan.models}]
        if values := own or list(each.values()):
            between = stated.queries or float(np.quantile(values, 1 if own else _QUANTILE))
            spread = replace(stated, queries=between)
            known[matrix.task] = PlannedTask(matrix.task, spread, len(values), len(matrix.queries))
    planned = [_planned(each, plan) for each in known.values()]
    queries = {each.task: each.needed for each in planned if each.needed is not None}
    today = datetime.now(UTC).date().isoformat()
    return replace(plan, queries=queries, made=today), planned


def _planned(task: PlannedTask, plan: Plan) -> PlannedTask:
    if task.spread is None:
        return task
    needed = plan.needed(task.spread)
    return replace(
        task,
        needed=needed,
        needed_seeds=None if needed else plan.needed_seeds(task.spread),
        detectable=plan.detectable(task.spread, task.there) if task.there else None,
    )


def plan_file() -> Path:
    """Return the plan of the study, which need not exist."""
    return paths.root() / "plan.toml"


def write_plan(plan: Plan, file: Path) -> Path:
    """Write a plan, with what it means as comments."""
    hypotheses = (f"#   {each} differs from {plan.baseline}" for each in plan.models)
    fields = {name: each for name, each in asdict(plan).items() if name != "queries" and each != ""}
    lines = [
        f"# The plan of a comparison, made on {plan.made} before it was measured. Hypotheses:",
        *hypotheses,
        f"# On each task, {plan.family} pairs are tested together; a difference of the margin is",
        "# then significant with the probability `power`.",
        *(f"{name} = {_toml(value)}" for name, value in fields.items()),
        "",
        "[queries] # needed",
        *(f"{_toml(task)} = {count}" for task, count in plan.queries.items()),
    ]
    return write_text(file, "\n".join(lines) + "\n")


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        PlanError: not such a file; names the field.
    """
    try:
        value = tomllib.loads(file.read_text(encoding="utf-8"))
        return TypeAdapter(Plan).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PlanError(f"{file}: {where}: {first['msg']}") from None
    except ValueError as error:
        raise PlanError(f"{file}: {error}") from None


def deviations(plan: Plan, comparison: Comparison) -> list[str]:
    """Say what a comparison does otherwise than planned; empty if nothing."""
    how = comparison.procedure
    names = {name: label for label, name in comparison.labels.items()}
    there = {names.get(name, name) for _, name in comparison.records}
    wanted = {plan.baseline, *plan.models}
    baseline = names.get(comparison.baseline, comparison.baseline)
    choices = (
        ("alpha", plan.alpha, how.alpha),
        ("margin", plan.margin, how.minimum),
        ("correction", plan.correction, how.correction),
        ("baseline", plan.baseline, baseline),
    )
    lines = [
        f"{what} {planned} was planned, {used} is used"
        for what, planned, used in choices
        if planned != used
    ]
    lines += _lists("models", sorted(wanted - there), "are missing")
    lines += _lists("models", sorted(there - wanted), "were not planned, and widen the family")
    tasks = {each.task: each for each in (*comparison.tasks, *comparison.correlations)}
    lines += _lists("tasks", [each for each in plan.tasks if each not in tasks], "are missing")
    lines += _lists("tasks", [each for each in tasks if each not in plan.tasks], "were not planned")
    for task, needed in plan.queries.items():
        shown = tasks[task].with_baseline if task in tasks else ()
        n = min((each.n for each in shown), default=needed)
        if n < needed:
            lines.append(f"{task}: {needed:,} queries were planned, {n:,} are there")
        if shown and plan.metric and plan.metric != tasks[task].metric:
            lines.append(f"{task}: {plan.metric} was planned, {tasks[task].metric} is compared")
    return lines


def plan_words(comparison: Comparison, file: Path | None = None) -> str:
    """Say whether a comparison is as the study planned it; empty without a plan."""
    file = file or plan_file()
    if not file.is_file():
        return ""
    plan = read_plan(file)
    otherwise = deviations(plan, comparison)
    what = "Otherwise than" if otherwise else "As"
    return f"{what} planned on {plan.made} ({file.name}){': ' * bool(otherwise)}" + (
        "; ".join(otherwise) + "."
    )


def _lists(what: str, names: Sequence[str], state: str) -> list[str]:
    return [f"{what} that {state}: {', '.join(names)}"] if names else []
