"""A plan before the measurement: how many queries show a difference that matters.

The power is that of a paired t-test (noncentral t), or, if that is lower, of a population in which
a few queries are won and none is lost (`paired_tests.power_of_rare_wins`). The level is alpha over
the number of comparisons of a task: Holm's first step, which step-down MaxT never exceeds. Seeds
and prompts have no part in it: no test here is of an average over them.

Plans of a study are numbered, ``plan-1.toml``, ``plan-2.toml``, and never replaced. A plan counts
for a comparison only if it was made before the measurement of every record that it covers began. A
digest in the file shows whether a field, such as its time, was changed later. What it cannot show:
a clock that was wrong, and a file that was written anew with a digest of its own. To convince
others, commit the plan where its time is on record.
"""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ConfigDict

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import pair_results, system_name, system_names
from qwen3nb.analysis.comparison.differences import Procedure, TaskComparison
from qwen3nb.analysis.stats import paired_tests
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.datasets.rows import DataError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import new_file, sha256_json
from qwen3nb.utils.schema import Moment, read_toml

MOST = 1 << 24  # queries
_NAMED = 3  # tasks or models that a sentence names, at most
_QUANTILE = 0.9  # of the deviations of other pairs, if the planned models have no records
_FILE = re.compile(r"plan-([1-9]\d*)\.toml")
_OLD = "plan.toml"  # of earlier versions, which replaced it
STATED = "stated"  # source of a deviation that is not from records


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be shown, and how; fields as in ``plan-1.toml``."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    baseline: str  # label of the model that the others are compared with
    models: tuple[str, ...]  # labels of the others: the hypotheses
    tasks: tuple[str, ...]
    margin: float  # smallest difference worth having
    metric: str = ""  # by default the main metric of each task
    alpha: float = 0.05  # family-wise error rate on a task
    power: float = 0.8  # probability that a difference of the margin is significant
    correction: str = "max-t"
    # standard deviation of the difference between queries; 0 for that of earlier records
    deviation: float = 0.0
    made: Moment = ""  # time, UTC, ISO 8601
    # needed on each task; a task is left out for which no number is enough, or no spread is known
    queries: Mapping[str, int] = field(default_factory=dict)
    # where the deviation on each task comes from: pilot records, or `STATED`
    sources: Mapping[str, str] = field(default_factory=dict)
    # planned models that had records on a task when the plan was made
    measured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        """Labels of the baseline and the models."""
        return {self.baseline, *self.models}

    @property
    def family(self) -> int:
        """Number of pairs of models, which are tested together on a task."""
        return math.comb(len(self.labels), 2)

    def needed(self, deviation: float) -> int | None:
        """How many queries show a difference of the margin; None if no number does."""

        def shown(queries: int) -> bool:
            return self.reached(self.margin, deviation, queries) >= self.power

        return bisect_left(range(MOST), True, lo=2, key=shown) if shown(MOST) else None

    def reached(self, effect: float, deviation: float, queries: int) -> float:
        """The power to show a difference of ``effect`` with so many queries."""
        by_t_test = self._by_t_test(effect, deviation, queries)
        if by_t_test < self.power:
            return by_t_test
        level = self.alpha / self.family
        of_wins = paired_tests.power_of_rare_wins(
            effect, deviation=deviation, n=queries, alpha=level
        )
        return min(by_t_test, of_wins)

    def _by_t_test(self, effect: float, deviation: float, queries: int) -> float:
        if queries < 2:
            return 0.0
        if not deviation:
            return 1.0
        level = self.alpha / self.family
        return paired_tests.power(effect, deviation=deviation, n=queries, alpha=level)

    def detectable(self, deviation: float, queries: int) -> float | None:
        """The smallest difference shown with the planned power, to three digits; None above 1."""

        def by_test(thousandths: int) -> bool:
            return self._by_t_test(thousandths / 1000, deviation, queries) >= self.power

        # Where wins are nearly all alike, larger ones are not always easier to show.
        least = bisect_left(range(1001), True, lo=1, key=by_test)
        shown = (
            thousandths
            for thousandths in range(least, 1001)
            if self.reached(thousandths / 1000, deviation, queries) >= self.power
        )
        found = next(shown, None)
        return None if found is None else found / 1000


@dataclass(frozen=True)
class PlannedTask:
    """What a plan needs on a task."""

    task: str
    there: int = 0  # queries of earlier records of two models
    deviation: float | None = None  # between queries; None if neither stated nor in such records
    needed: int | None = None  # queries; None if no number is enough, or the deviation is not known
    detectable: float | None = None  # the smallest difference that the queries there can show
    source: str = ""  # where the deviation comes from; empty if it is not known
    measured: tuple[str, ...] = ()  # planned models that have records already

    @property
    def enough(self) -> bool:
        """Whether the queries there, if any, show a difference of the margin."""
        return not self.there or (self.needed is not None and self.needed <= self.there)


def make_plan(results: Iterable[Result], plan: Plan) -> tuple[Plan, list[PlannedTask]]:
    """Return a plan with the queries that each task needs, and why.

    The deviation between queries, unless it is stated, is that of earlier records: of the planned
    models, the largest of any two; if they have no records, that below which nine of ten pairs of
    other models are. Labels may also be specs of models without records, such as folders.

    Raises:
        ValueError: a model that is neither in the records nor a known spec, a task that is neither
            in the records nor one of MTEB, or a model that is its own baseline.
    """
    records = list(results)
    plan = _resolved(plan, records)
    names = system_names(records)
    labels = {system_name(record, names): record.model.label for record in records}
    matrices, _ = pair_results(records, metric=plan.metric or None, tasks=plan.tasks, names=names)
    by_task = {matrix.task: matrix for matrix in matrices}
    tasks = []
    for name in plan.tasks:
        recorded = {record.model.label for record in records if record.task.key == name}
        measured = tuple(sorted(recorded & plan.labels))
        tasks.append(_planned_task(plan, name, by_task.get(name), labels, measured))
    completed = replace(
        plan,
        queries={task.task: task.needed for task in tasks if task.needed is not None},
        sources={task.task: task.source for task in tasks if task.source},
        measured={task.task: task.measured for task in tasks if task.measured},
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return completed, tasks


def _planned_task(
    plan: Plan,
    task: str,
    matrix: ScoreMatrix | None,
    labels: Mapping[str, str],
    measured: tuple[str, ...],
) -> PlannedTask:
    queries = 0 if matrix is None else len(matrix.queries)
    deviation, source = plan.deviation, STATED
    if not deviation:
        found = None if matrix is None else _deviation(matrix, plan, labels)
        if found is None:
            return PlannedTask(task, queries, measured=measured)
        deviation, source = found
    return PlannedTask(
        task,
        queries,
        deviation,
        plan.needed(deviation),
        plan.detectable(deviation, queries) if queries else None,
        source,
        measured,
    )


def plan_notes(planned: Iterable[PlannedTask]) -> list[str]:
    """Say where the deviations come from, and which models were measured before the plan."""
    tasks = list(planned)
    by_source: dict[str, set[str]] = {}
    for task in tasks:
        if task.source:
            by_source.setdefault(task.source, set()).add(task.task)
    sentences = [f"Deviation on {_some(names)}: {source}." for source, names in by_source.items()]
    measured = {model for task in tasks for model in task.measured}
    if measured:
        sentences.append(
            f"Measured before this plan: {_some(measured)}. For those records it does not count."
        )
    return sentences


def _resolved(plan: Plan, records: Sequence[Result]) -> Plan:
    """Return the plan with labels in place of specs, after checking models and tasks."""
    labels = {record.model.label for record in records}
    baseline = _label(plan.baseline, labels)
    models = [_label(model, labels) for model in plan.models]
    if baseline in models:
        raise ValueError(f"{baseline} is the baseline; expected other models to compare with it")
    tasks = {record.task.key for record in records}
    for tier in TIERS.values():
        tasks.update(tier.task_keys)
    unknown = [task for task in plan.tasks if task not in tasks]
    if unknown:
        from qwen3nb.evaluation.mteb.select import choose_tasks  # loads MTEB

        choose_tasks(tasks=unknown)
    return replace(plan, baseline=baseline, models=tuple(dict.fromkeys(models)))


def _label(name: str, labels: set[str]) -> str:
    """Return the label of a model that has records, or that can be evaluated."""
    if name in labels:
        return name
    try:
        return find_source(name).label
    except SpecError as error:
        with_records = ", ".join(sorted(labels)) or "none"
        raise ValueError(f"{error} Models with records: {with_records}") from None


def _deviation(
    matrix: ScoreMatrix, plan: Plan, labels: Mapping[str, str]
) -> tuple[float, str] | None:
    """Return the deviation between queries of models with these labels, and its source in words.

    None if all records are of seeds of one model.
    """
    pairs = [
        (first, second)
        for first, second in combinations(matrix.systems, 2)
        if labels[first] != labels[second]
    ]
    if not pairs:
        return None
    planned = [pair for pair in pairs if plan.labels.issuperset(map(labels.get, pair))]
    deviations = [_deviation_of(matrix, first, second) for first, second in planned or pairs]
    models = _some({labels[name] for pair in planned or pairs for name in pair})
    queries = f"on {len(matrix.queries):,} queries"
    if planned:
        return max(deviations), f"records of {models} {queries}"
    deviation = float(np.quantile(deviations, _QUANTILE))
    return deviation, f"records of other models, {models}, {queries}"


def _deviation_of(matrix: ScoreMatrix, first: str, second: str) -> float:
    """Return the deviation of a difference between queries.

    Of clusters, as independent queries with the same standard error of the mean.
    """
    units = matrix.units(matrix.column(first) - matrix.column(second))
    return float(units.std(ddof=1) * math.sqrt(len(matrix.queries) / len(units)))


def plan_files(folder: Path | None = None) -> list[Path]:
    """Return the plans of a study, by default this one, in the order of their numbers."""
    folder = folder or paths.root()
    numbered = [each for each in folder.glob("plan-*.toml") if _FILE.fullmatch(each.name)]
    old = folder / _OLD
    earliest = [old] if old.is_file() else []
    return earliest + sorted(numbered, key=_number)


def _number(file: Path) -> int:
    found = _FILE.fullmatch(file.name)
    return int(found[1]) if found else 0


def write_plan(plan: Plan, file: Path | None = None) -> Path:
    """Write a plan to a new file, by default the next of the study, with comments.

    Raises:
        DataError: the file exists. Plans are never replaced.
    """
    text = _text(plan)
    if file is not None:
        if not _written(file, text):
            raise DataError(f"{file} exists, and plans are never replaced; name a new file")
        return file
    last = max(map(_number, plan_files()), default=0)
    candidates = (paths.root() / f"plan-{number}.toml" for number in count(last + 1))
    return next(each for each in candidates if _written(each, text))


def _written(file: Path, text: str) -> bool:
    """Write a file unless it exists; of two writers at once, the second finds the first's."""
    if file.exists():
        return False
    with new_file(file, replace=False) as out:
        out.write(text.encode("utf-8"))
    return file.read_text(encoding="utf-8") == text


def _text(plan: Plan) -> str:
    values = _values(plan)
    tables = {name: values.pop(name, {}) for name in ("queries", "sources", "measured")}
    lines = [
        f"# The plan of a comparison, made {_minute(plan.made)}. Hypotheses:",
        *(f"#   {model} differs from {plan.baseline}" for model in plan.models),
        f"# Pairs tested together on each task: {plan.family}; a difference of the margin is then",
        "# significant with the probability `power`. The digest is of all fields.",
        *(f"{name} = {_toml(value)}" for name, value in values.items()),
        f"digest = {_toml(_digest(plan))}",
    ]
    comments = {"queries": "needed", "sources": "of the deviation", "measured": "before the plan"}
    for name, table in tables.items():
        lines += ["", f"[{name}] # {comments[name]}"]
        lines += [f"{_toml(task)} = {_toml(value)}" for task, value in table.items()]
    return "\n".join(lines) + "\n"


def _values(plan: Plan) -> dict[str, Any]:
    """Return the fields that are not empty, as in a file."""
    return {name: value for name, value in asdict(plan).items() if value}


def _digest(plan: Plan) -> str:
    return sha256_json(_values(plan))


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # of text, numbers and lists, the same as in TOML


@dataclass(frozen=True, kw_only=True)
class _PlanFile(Plan):
    """The fields of a file: those of a plan, its digest, and those of plans of earlier versions."""

    digest: str = ""
    seeds: int = 1
    seed_deviation: float = 0.0
    prompts: int = 1
    prompt_deviation: float = 0.0


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        DataError: not such a file; names the field.
    """
    return _read(file)[0]


def _read(file: Path) -> tuple[Plan, str]:
    """Return a plan, and why its time shows nothing; empty if it does."""
    content: _PlanFile = read_toml(file, _PlanFile, refusal=DataError)
    plan = Plan(**{each.name: getattr(content, each.name) for each in fields(Plan)})
    averaged = {"seeds": content.seeds, "prompts": content.prompts}
    promised = [f"{number} {name}" for name, number in averaged.items() if number > 1]
    if promised:
        return plan, f"plans an average over {' and '.join(promised)}, which no test here is of"
    if not content.digest:
        return plan, "has no digest, so that its time may have been changed"
    if content.digest != _digest(plan):
        return plan, "was changed after it was made: its digest is another"
    return plan, ""


class Comparison(Protocol):
    """What a plan is held against: the records, tasks and procedure of a comparison."""

    @property
    def baseline(self) -> str:
        """Name of the baseline."""

    @property
    def tasks(self) -> Sequence[TaskComparison]:
        """The tasks that were compared by a mean over queries."""

    @property
    def correlations(self) -> Sequence[TaskComparison]:
        """The tasks that were compared by a correlation."""

    @property
    def records(self) -> Mapping[tuple[str, str], Result]:
        """The records by task and name of the model."""

    @property
    def procedure(self) -> Procedure:
        """How differences are tested."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Names of the models by label."""


def deviations(plan: Plan, comparison: Comparison) -> list[str]:
    """Say what a comparison does otherwise than planned; empty if nothing."""
    models = {record.model.label for record in comparison.records.values()}
    tasks = {task.task: task for task in (*comparison.tasks, *comparison.correlations)}
    choices = _choices(plan, comparison)
    metrics = {task: record.task.main_metric for (task, _), record in comparison.records.items()}
    few_queries = []
    for name, task in tasks.items():
        choices[f"metric of {name}"] = (plan.metric or metrics[name], task.metric)
        if models == plan.labels:  # else the models say it
            choices[f"pairs tested on {name}"] = (plan.family, task.family)
        needed = plan.queries.get(name, 0)
        fewest = min((pair.n for pair in task.with_baseline), default=needed)
        if fewest < needed:
            few_queries.append(f"{name} ({fewest:,} instead of {needed:,})")
    lists = {
        "models missing": plan.labels - models,
        "models not planned, which widen the family": models - plan.labels,
        "tasks missing": set(plan.tasks) - set(tasks),
        "tasks not planned": set(tasks) - set(plan.tasks),
        "tasks with fewer queries than planned": few_queries,
        "measured before the plan, on the same tasks": _measured_before(plan, tasks, models),
    }
    sentences = []
    for noun, (planned, used) in choices.items():
        if planned != used:
            sentences.append(f"{noun}: {planned} planned, {used} used")
    for noun, names in lists.items():
        if names:
            sentences.append(f"{noun}: {_some(names)}")
    return sentences


def _choices(plan: Plan, comparison: Comparison) -> dict[str, tuple[object, object]]:
    """Return what was planned and what was used, by name."""
    procedure = comparison.procedure
    labels = {name: label for label, name in comparison.labels.items()}
    baseline = labels.get(comparison.baseline, comparison.baseline)
    return {
        "alpha": (plan.alpha, procedure.alpha),
        "margin": (plan.margin, procedure.margin),
        "correction": (plan.correction, procedure.correction),
        "baseline": (plan.baseline, baseline),
    }


def _measured_before(plan: Plan, tasks: Iterable[str], models: Container[str]) -> list[str]:
    """Name the planned models of a comparison that had records when the plan was made."""
    names = []
    for task in tasks:
        for model in plan.measured.get(task, ()):
            if model in models:
                names.append(f"{model} on {task}")
    return names


@dataclass(frozen=True)
class _Applicable:
    """A plan of the study, and the records of a comparison that it covers."""

    file: Path
    plan: Plan
    covered: tuple[Result, ...]
    objection: str  # why it does not count; empty if it does

    @property
    def hypotheses(self) -> set[tuple[str, str, str]]:
        """Pairs of the baseline and a model on a task."""
        baseline = self.plan.baseline
        return {
            (baseline, record.model.label, record.task.key)
            for record in self.covered
            if record.model.label != baseline
        }


def plan_words(comparison: Comparison, folder: Path | None = None) -> str:
    """Say whether a comparison is as the study planned it; empty if no plan is of its models.

    Of several plans, the last that is older than the measurement applies; others that are about
    the same models and tasks are named.
    """
    plans = []
    for file in plan_files(folder):
        applicable = _applicable(file, comparison)
        if applicable is not None:
            plans.append(applicable)
    if not plans:
        return ""
    sentences: list[str] = []
    replaced: list[str] = []
    hypotheses: set[tuple[str, str, str]] = set()  # those of later plans
    for plan in reversed(plans):
        if plan.objection:
            continue
        if plan.hypotheses <= hypotheses:
            replaced.append(plan.file.name)
        else:
            hypotheses |= plan.hypotheses
            sentences.append(_sentence(plan, comparison))
    sentences += _missing(folder)
    if replaced:
        sentences.append(f"Replaced by a later plan: {', '.join(replaced)}.")
    for plan in plans:
        if plan.objection:
            sentences.append(f"{plan.file.name} does not count: it {plan.objection}.")
    return " ".join(sentences)


def _missing(folder: Path | None) -> list[str]:
    """Name the plans that are gone, by the gaps in the numbers."""
    numbers = {_number(file) for file in plan_files(folder)}
    gone = sorted({*range(1, max(numbers))} - numbers)
    return [f"plan-{number}.toml is missing." for number in gone[:_NAMED]]


def _applicable(file: Path, comparison: Comparison) -> _Applicable | None:
    """Return a plan with what it covers; None if it is about other models or tasks."""
    plan, objection = _read(file)
    by_task: dict[str, list[Result]] = {}
    for (task, _), record in comparison.records.items():
        if task in plan.tasks and record.model.label in plan.labels:
            by_task.setdefault(task, []).append(record)
    covered: list[Result] = []
    for records in by_task.values():
        labels = {record.model.label for record in records}
        if len(labels) > 1 and plan.baseline in labels:
            covered += records
    if covered:
        return _Applicable(file, plan, tuple(covered), objection or _too_late(plan, covered))
    if objection and _mentions(plan, comparison):
        return _Applicable(file, plan, (), objection)
    return None


def _mentions(plan: Plan, comparison: Comparison) -> bool:
    """Whether a plan names two models of a comparison, or one model and a task of it.

    A changed plan may have been about others, so that what it covers now shows nothing.
    """
    models = {record.model.label for record in comparison.records.values()} & plan.labels
    tasks = {task for task, _ in comparison.records}.intersection(plan.tasks)
    return len(models) > 1 or bool(models and tasks)


def _too_late(plan: Plan, covered: Iterable[Result]) -> str:
    """Say which records are not younger than the plan; empty if all are."""
    planned = _moment(plan.made)
    early = {
        f"{record.model.label} on {record.task.key}"
        for record in covered
        if not record.finished or planned >= _begun(record)
    }
    if not early:
        return ""
    return f"was made {_minute(plan.made)}, not before the measurement of {_some(early)}"


def _begun(record: Result) -> datetime:
    """When the measurement of a record began: its end, less the time that it took."""
    return _moment(record.finished) - timedelta(seconds=record.cost.seconds)


def _moment(text: str) -> datetime:
    """Return a time of the ISO format; without a time zone, it is UTC."""
    moment = datetime.fromisoformat(text or "9999-12-31")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _minute(made: str) -> str:
    return f"{_moment(made):%Y-%m-%d %H:%M} UTC" if made else "at an unknown time"


def _sentence(applicable: _Applicable, comparison: Comparison) -> str:
    plan = applicable.plan
    tasks = {each.task.key for each in applicable.covered}
    sources = sorted({plan.sources[task] for task in tasks if task in plan.sources})
    made = f"made {_minute(plan.made)}, before the measurement"
    if sources:
        made += f"; its deviation: {'; '.join(sources[:_NAMED])}"
    otherwise = deviations(plan, comparison)
    if otherwise:
        return f"Deviations from {applicable.file.name} ({made}): {'; '.join(otherwise)}."
    return f"As planned in {applicable.file.name} ({made})."


def _some(names: Iterable[str]) -> str:
    some = sorted(names)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(some[:_NAMED]) + more
