"""A plan before the measurement: how many queries, seeds and prompts show a difference.

The standard error of a mean difference over n queries, S seeds and P prompts is
``sqrt(q² / n + s² / S + p² / P)``, where q, s and p are the standard deviations of the difference
between queries, seeds and prompts. The test has the degrees of freedom of Satterthwaite (1946), and
its level is alpha over the number of comparisons of a task: Holm's first step, which step-down MaxT
never exceeds.

A plan is written to ``plan.toml`` of the study before anything is measured; a comparison then says
what it does otherwise (`deviations`).
"""

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np
import scipy
from pydantic import ConfigDict

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import pair_results, system_names
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.datasets.rows import DataError
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.schema import read_toml

MOST = 1 << 24  # queries, and
_MOST_SEEDS = 100
_NAMED = 3  # tasks or models that a deviation from the plan names, at most
_QUANTILE = 0.9  # of the deviations of other pairs, if the planned models have no records


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be shown, and how; fields as in ``plan.toml``.

    Deviations are standard deviations of the difference of two models.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    baseline: str  # label of the model that the others are compared with
    models: tuple[str, ...]  # labels of the others: the hypotheses
    tasks: tuple[str, ...]
    margin: float  # smallest difference worth having
    metric: str = ""  # by default the main metric of each task
    alpha: float = 0.05  # family-wise error rate on a task
    power: float = 0.8  # probability that a difference of the margin is significant
    correction: str = "max-t"
    deviation: float = 0.0  # between queries; 0 for that of earlier records
    seeds: int = 1
    seed_deviation: float = 0.0
    prompts: int = 1
    prompt_deviation: float = 0.0
    # needed on each task; a task is left out for which no number is enough, or no spread is known
    queries: Mapping[str, int] = field(default_factory=dict)
    made: str = ""  # date

    @property
    def family(self) -> int:
        """Number of pairs of models, which are tested together on a task."""
        return math.comb(len({self.baseline, *self.models}), 2)

    def needed(self, deviation: float) -> int | None:
        """How many queries show a difference of the margin; None if no number does."""

        def shown(queries: int) -> bool:
            return self.reached(self.margin, deviation, queries) >= self.power

        return bisect_left(range(MOST), True, lo=2, key=shown) if shown(MOST) else None

    def needed_seeds(self, deviation: float) -> int | None:
        """The fewest seeds with which some number of queries is enough; None if none are."""
        plans = (replace(self, seeds=each) for each in range(2, _MOST_SEEDS + 1))
        return next((each.seeds for each in plans if each.needed(deviation)), None)

    def reached(self, effect: float, deviation: float, queries: int) -> float:
        """The power to show a difference of ``effect`` with so many queries (noncentral t)."""
        sources = (
            (deviation, queries),
            (self.seed_deviation, self.seeds),
            (self.prompt_deviation, self.prompts),
        )
        parts = [(own**2 / number, number - 1) for own, number in sources if own]
        if not parts or any(not df for _, df in parts):  # of one seed, the spread is unknown
            return 0.0 if parts else 1.0
        variance = math.fsum(part for part, _ in parts)
        df = variance**2 / math.fsum(part**2 / df for part, df in parts)
        critical = scipy.stats.t.ppf(1 - self.alpha / self.family / 2, df)
        return float(scipy.stats.nct.sf(critical, df, effect / math.sqrt(variance)))

    def detectable(self, deviation: float, queries: int) -> float | None:
        """The smallest difference shown with the planned power, to three digits; None above 1."""

        def shown(thousandths: int) -> bool:
            return self.reached(thousandths / 1000, deviation, queries) >= self.power

        return bisect_left(range(1000), True, key=shown) / 1000 if shown(1000) else None


@dataclass(frozen=True)
class PlannedTask:
    """What a plan needs on a task."""

    task: str
    there: int = 0  # queries of earlier records of two models
    deviation: float | None = None  # between queries; None if neither stated nor in such records
    needed: int | None = None  # queries; None if no number is enough, or the deviation is not known
    needed_seeds: int | None = None  # if no number is: with so many seeds, one would be
    detectable: float | None = None  # the smallest difference that the queries there can show

    @property
    def enough(self) -> bool:
        """Whether the queries there, if any, show a difference of the margin."""
        return not self.there or (self.needed is not None and self.needed <= self.there)


def make_plan(results: Iterable[Result], plan: Plan) -> tuple[Plan, list[PlannedTask]]:
    """Return a plan with the queries that each task needs, and why.

    The deviation between queries, unless it is stated, is that of earlier records: of the planned
    models, the largest of any two; if they have no records, that below which nine of ten pairs of
    other models are.
    """
    records = list(results)
    names = system_names(records)
    labels = {names[each.model.identity, each.seed]: each.model.label for each in records}
    paired, _ = pair_results(records, metric=plan.metric or None, tasks=plan.tasks, names=names)
    there = {matrix.task: matrix for matrix in paired}
    planned = []
    for task in plan.tasks:
        count = len(there[task].queries) if task in there else 0
        deviation = plan.deviation or (_deviation(there[task], plan, labels) if count else None)
        if deviation is None:
            planned.append(PlannedTask(task))
            continue
        needed = plan.needed(deviation)
        seeds = None if needed else plan.needed_seeds(deviation)
        least = plan.detectable(deviation, count) if count else None
        planned.append(PlannedTask(task, count, deviation, needed, seeds, least))
    queries = {each.task: each.needed for each in planned if each.needed is not None}
    return replace(plan, queries=queries, made=f"{datetime.now(UTC):%Y-%m-%d}"), planned


def _deviation(matrix: ScoreMatrix, plan: Plan, labels: Mapping[str, str]) -> float | None:
    """The deviation between queries of models with these labels; None of one model's seeds."""
    wanted = {plan.baseline, *plan.models}
    pairs = [each for each in combinations(matrix.systems, 2) if len({*map(labels.get, each)}) > 1]
    own = [each for each in pairs if {*map(labels.get, each)} <= wanted]
    values = []
    for first, second in own or pairs:
        # Of clusters, as independent queries with the same standard error of the mean.
        differences = matrix.units(matrix.column(first) - matrix.column(second))
        values.append(differences.std(ddof=1) * math.sqrt(len(matrix.queries) / len(differences)))
    return float(np.quantile(values, 1 if own else _QUANTILE)) if values else None


def plan_file() -> Path:
    """Return the plan of the study, which need not exist."""
    return paths.root() / "plan.toml"


def write_plan(plan: Plan, file: Path) -> Path:
    """Write a plan, with what it means as comments."""
    fields = {name: each for name, each in asdict(plan).items() if name != "queries" and each}
    lines = [
        f"# The plan of a comparison, made on {plan.made} before it was measured. Hypotheses:",
        *(f"#   {each} differs from {plan.baseline}" for each in plan.models),
        f"# Pairs tested together on each task: {plan.family}; a difference of the margin is then",
        "# significant with the probability `power`.",
        *(f"{name} = {_toml(value)}" for name, value in fields.items()),
        "",
        "[queries] # needed",
        *(f"{_toml(task)} = {count}" for task, count in plan.queries.items()),
    ]
    return write_text(file, "\n".join(lines) + "\n")


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # of text, numbers and lists, the same as in TOML


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        DataError: not such a file; names the field.
    """
    return read_toml(file, Plan, refusal=DataError)


def deviations(plan: Plan, comparison: Comparison) -> list[str]:
    """Say what a comparison does otherwise than planned; empty if nothing."""
    how = comparison.procedure
    names = {name: label for label, name in comparison.labels.items()}
    models = {names.get(name, name) for _, name in comparison.records}
    wanted = {plan.baseline, *plan.models}
    tasks = {each.task: each for each in (*comparison.tasks, *comparison.correlations)}
    choices: dict[str, tuple[object, object]] = {
        "alpha": (plan.alpha, how.alpha),
        "margin": (plan.margin, how.minimum),
        "correction": (plan.correction, how.correction),
        "baseline": (plan.baseline, names.get(comparison.baseline, comparison.baseline)),
    }
    lists: dict[str, set[str]] = {
        "models missing": wanted - models,
        "models not planned, which widen the family": models - wanted,
        "tasks missing": {*plan.tasks} - {*tasks},
        "tasks not planned": {*tasks} - {*plan.tasks},
        "tasks with fewer queries than planned": (fewer := set()),
    }
    for task, each in tasks.items():
        choices[f"metric of {task}"] = (plan.metric or each.metric, each.metric)
        needed = plan.queries.get(task, 0)
        if (least := min((pair.n for pair in each.with_baseline), default=needed)) < needed:
            fewer.add(f"{task} ({least:,} instead of {needed:,})")
    return [
        *(
            f"{what}: {planned} planned, {used} used"
            for what, (planned, used) in choices.items()
            if planned != used
        ),
        *(f"{what}: {_some(each)}" for what, each in lists.items() if each),
    ]


def plan_words(comparison: Comparison, file: Path | None = None) -> str:
    """Say whether a comparison is as the study planned it; empty without a plan."""
    file = file or plan_file()
    if not file.is_file():
        return ""
    plan = read_plan(file)
    if otherwise := deviations(plan, comparison):
        return f"Deviations from the plan of {plan.made} ({file.name}): {'; '.join(otherwise)}."
    return f"As planned on {plan.made} ({file.name})."


def _some(names: Iterable[str]) -> str:
    some = sorted(names)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(some[:_NAMED]) + more
