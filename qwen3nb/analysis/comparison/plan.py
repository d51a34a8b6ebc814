"""A plan before the measurement: how many queries show a difference that matters.

The power is that of a paired t-test (noncentral t), or, if that is lower, of a population in which
a few queries are won and none is lost (`paired_tests.power_of_rare_wins`). The level is alpha over
the number of comparisons of a task: Holm's first step, which step-down MaxT never exceeds.

A plan may promise seeds: its models, or some of them, are then trainings with these seeds, the arms
of `qwen3nb.analysis.comparison.arms`. Its power is that of their comparison, for new seeds and new
queries. See `qwen3nb.analysis.comparison.promises` for whether the promise is kept.

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
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from pydantic import ConfigDict

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import pair_results, system_name, system_names
from qwen3nb.analysis.comparison.arm_differences import PromptRole
from qwen3nb.analysis.comparison.arms import find_arms, training_and_seed
from qwen3nb.analysis.comparison.differences import Procedure, TaskComparison
from qwen3nb.analysis.stats import paired_tests
from qwen3nb.analysis.stats.crossed_differences import CrossedDesign
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.datasets.rows import DataError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import new_file, sha256_json
from qwen3nb.utils.format import first_names
from qwen3nb.utils.schema import Moment, read_toml

MOST = 1 << 24  # queries
_MOST_SEEDS = 64  # that a plan may advise
_MOST_NAMED = 3  # tasks or models in a sentence
_THOUSANDTHS = 1000
_QUANTILE = 0.9  # of the deviations of other pairs, if the planned models have no records
_FILE = re.compile(r"plan-(?P<number>[1-9]\d*)\.toml")
_OLD = "plan.toml"  # of earlier versions, which replaced it
_FAR_FUTURE = "9999-12-31"  # in place of an unknown time
STATED = "stated"  # source of a deviation that is not from records
# Tables by task, and what a file says of each.
_TABLES = {"queries": "needed", "sources": "of the deviation", "measured": "before the plan"}


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
    training_seeds: tuple[int, ...] = ()  # promised of each arm; none for models as they are
    arms: tuple[str, ...] = ()  # those of the models and the baseline that are trainings
    seed_deviation: float = 0.0  # standard deviation of the mean score between seeds
    prompt_count: int = 0  # promised prompts of a set; 0 for the models' own prompts
    prompts_as: str = ""  # ``fixed`` or ``sample``, if prompts are promised
    prompt_deviation: float = 0.0  # of the mean difference between prompts, of a sample
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

        def is_enough(queries: int) -> bool:
            return self.power_with(self.margin, deviation, queries) >= self.power

        if not is_enough(MOST):
            return None
        return bisect_left(range(MOST), True, lo=2, key=is_enough)  # a t-test needs two

    def power_with(self, effect: float, deviation: float, queries: int) -> float:
        """The power to show a difference of ``effect`` with so many queries."""
        power = self._power_by_deviation(effect, deviation, queries)
        # For new seeds, or too low already: without the slower computation.
        if self.training_seeds or power < self.power:
            return power
        of_rare_wins = paired_tests.power_of_rare_wins(
            effect, deviation=deviation, n=queries, alpha=self._alpha_of_pair
        )
        return min(power, of_rare_wins)

    def _power_by_deviation(self, effect: float, deviation: float, queries: int) -> float:
        """The power by how much queries, and seeds, vary: it grows with the effect."""
        if self.training_seeds:
            return self._power_for_new_seeds(effect, deviation, queries)
        if queries < 2:
            return 0.0
        if not deviation:
            return 1.0
        return paired_tests.power(effect, deviation=deviation, n=queries, alpha=self._alpha_of_pair)

    def _power_for_new_seeds(self, effect: float, deviation: float, queries: int) -> float:
        """The lowest power of a pair of arms, or of an arm and a model."""
        count = len(self.training_seeds)
        numbers = [count if label in self.arms else 1 for label in (self.baseline, *self.models)]
        first, *others = numbers
        sampled_prompts = 0
        if self.prompts_as == PromptRole.SAMPLE:
            sampled_prompts = self.prompt_count
        powers = []
        for other in set(others):
            design = CrossedDesign(
                seeds=(first, other),
                seed_deviation=self.seed_deviation,
                prompts=sampled_prompts,
                prompt_deviation=self.prompt_deviation,
            )
            powers.append(
                design.power(
                    effect, deviation=deviation, queries=queries, alpha=self._alpha_of_pair
                )
            )
        return min(powers)

    def seeds_needed(self, deviation: float) -> int | None:
        """The smallest number of seeds with which some number of queries is enough."""
        for count in range(2, _MOST_SEEDS + 1):
            with_more = replace(self, training_seeds=tuple(range(count)))
            if with_more.needed(deviation) is not None:
                return count
        return None

    @property
    def _alpha_of_pair(self) -> float:
        """The level of the first step of Holm's method."""
        return self.alpha / self.family

    def detectable(self, deviation: float, queries: int) -> float | None:
        """The smallest difference shown with the planned power, to three digits; None above 1."""

        def is_shown_by_deviation(thousandths: int) -> bool:
            effect = thousandths / _THOUSANDTHS
            return self._power_by_deviation(effect, deviation, queries) >= self.power

        # This power grows with the effect, so that halving finds the first.
        candidates = range(_THOUSANDTHS + 1)
        smallest = bisect_left(candidates, True, lo=1, key=is_shown_by_deviation)
        # One by one: where wins are nearly all alike, larger ones are not always easier to show.
        for thousandths in candidates[smallest:]:
            effect = thousandths / _THOUSANDTHS
            if self.power_with(effect, deviation, queries) >= self.power:
                return effect
        return None


_FIELDS = [each.name for each in fields(Plan)]


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
            in the records nor one of MTEB, a model that is its own baseline, or promised seeds
            without a known deviation between seeds.
    """
    records = list(results)
    plan = _checked_plan(plan, records)
    names = system_names(records)
    labels = {system_name(record, names): _name_in(plan, record) for record in records}
    if plan.training_seeds and not plan.seed_deviation:
        plan = replace(plan, seed_deviation=_recorded_seed_deviation(plan, records))
    matrices, _ = pair_results(
        records, metric=plan.metric or None, tasks=plan.tasks, names=names, whole=True
    )
    matrix_of = {matrix.task: matrix for matrix in matrices}
    tasks = []
    for task in plan.tasks:
        planned_task = PlannedTask(task, measured=_measured_models(plan, task, records))
        if task in matrix_of:
            planned_task = replace(planned_task, there=len(matrix_of[task].queries))
        deviation = _find_deviation(plan, matrix_of.get(task), labels)
        if deviation is not None:
            planned_task = _with_needs(planned_task, plan, deviation)
        tasks.append(planned_task)
    completed_plan = replace(
        plan,
        queries={task.task: task.needed for task in tasks if task.needed is not None},
        sources={task.task: task.source for task in tasks if task.source},
        measured={task.task: task.measured for task in tasks if task.measured},
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return completed_plan, tasks


def _measured_models(plan: Plan, task: str, records: Iterable[Result]) -> tuple[str, ...]:
    """Return the labels of the planned models that have records on a task already."""
    labels = {_name_in(plan, record) for record in records if record.task.key == task}
    return tuple(sorted(labels & plan.labels))


def _name_in(plan: Plan, record: Result) -> str:
    """Return the name of a record's model in a plan: of an arm, the training; else the label."""
    found = training_and_seed(record)
    if found is not None and found[0] in plan.arms:
        return found[0]
    return record.model.label


def _recorded_seed_deviation(plan: Plan, records: Sequence[Result]) -> float:
    """Return the largest deviation between seeds on a planned task, of planned arms or others.

    Raises:
        ValueError: no training in the records has two seeds on one of these tasks.
    """
    deviations: dict[bool, list[float]] = {True: [], False: []}  # by whether an arm is planned
    for task in plan.tasks:
        on_task = [record for record in records if record.task.key == task]
        for arm in find_arms(on_task).values():
            means = [
                record.main.value
                for record in on_task
                if arm.has(record) and record.main.value is not None
            ]
            if len(means) > 1:
                deviations[arm.name in plan.arms].append(float(np.std(means, ddof=1)))
    found = deviations[True] or deviations[False]
    if not found:
        raise ValueError(
            "no training in the records has two seeds on these tasks; state how much seeds vary, "
            "such as --seed-deviation 0.01"
        )
    return max(found)


class _Deviation(NamedTuple):
    """The standard deviation of a difference between queries."""

    value: float
    source: str  # in words


def _find_deviation(
    plan: Plan, matrix: ScoreMatrix | None, labels: Mapping[str, str]
) -> _Deviation | None:
    """Return the deviation that a plan states, or that of earlier records on a task."""
    if plan.deviation:
        return _Deviation(plan.deviation, STATED)
    if matrix is None:
        return None
    return _recorded_deviation(matrix, plan, labels)


def _with_needs(task: PlannedTask, plan: Plan, deviation: _Deviation) -> PlannedTask:
    """Add the number of queries that a task needs, and what those there can show."""
    detectable = None
    if task.there:
        detectable = plan.detectable(deviation.value, task.there)
    return replace(
        task,
        deviation=deviation.value,
        needed=plan.needed(deviation.value),
        detectable=detectable,
        source=deviation.source,
    )


def plan_notes(planned: Iterable[PlannedTask]) -> list[str]:
    """Say where the deviations come from, and which models were measured before the plan."""
    tasks_by_source: dict[str, set[str]] = {}
    measured_models: set[str] = set()
    for task in planned:
        measured_models.update(task.measured)
        if task.source:
            tasks_by_source.setdefault(task.source, set()).add(task.task)
    sentences = [
        f"Deviation on {first_names(sorted(tasks))}: {source}."
        for source, tasks in tasks_by_source.items()
    ]
    if measured_models:
        sentences.append(
            f"Measured before this plan: {first_names(sorted(measured_models))}. "
            "For those records it does not count."
        )
    return sentences


def _checked_plan(plan: Plan, records: Sequence[Result]) -> Plan:
    """Return the plan with labels in place of specs, after checking models and tasks."""
    labels = {record.model.label for record in records}
    arms = _planned_arms(plan, records)
    labels |= set(arms)
    baseline = _known_label(plan.baseline, labels)
    models = [_known_label(model, labels) for model in plan.models]
    if baseline in models:
        raise ValueError(f"{baseline} is the baseline; expected other models to compare with it")
    known_tasks = {record.task.key for record in records}
    for tier in TIERS.values():
        known_tasks.update(tier.task_keys)
    unknown_tasks = [task for task in plan.tasks if task not in known_tasks]
    if unknown_tasks:
        from qwen3nb.evaluation.mteb.select import choose_tasks  # loads MTEB

        choose_tasks(tasks=unknown_tasks)  # for its error, if MTEB has no such task
    return replace(plan, baseline=baseline, models=tuple(dict.fromkeys(models)), arms=arms)


def _planned_arms(plan: Plan, records: Sequence[Result]) -> tuple[str, ...]:
    """Return which models of a plan are trainings with the promised seeds.

    A name that is neither a label nor a model is that of a training which has not begun.

    Raises:
        ValueError: no model of a plan with seeds is a training, too few seeds, or prompts without
            seeds or without their deviation.
    """
    if not plan.training_seeds:
        if plan.prompt_count:
            raise ValueError("prompts are promised of trainings; expected seeds, too")
        return ()
    if plan.prompts_as == PromptRole.SAMPLE and not plan.prompt_deviation:
        raise ValueError("state how much prompts as a sample vary, such as --prompt-deviation 0.01")
    if min(plan.training_seeds) < 0:
        raise ValueError(f"expected seeds of 0 or more; got {min(plan.training_seeds)}")
    if len(set(plan.training_seeds)) < 2:
        raise ValueError("expected two seeds or more: one shows nothing about other seeds")
    trainings = find_arms(records, at_least=1)
    labels = {record.model.label for record in records}
    arms = []
    for name in (plan.baseline, *plan.models):
        is_model = name in labels or _is_known_model(name)
        if name in trainings or not is_model:
            arms.append(name)
    if not arms:
        raise ValueError(
            f"{', '.join(sorted(plan.labels))}: these are models, not trainings; expected the name "
            f"of a training without its seed, such as {next(iter(trainings), 'joint_r8')}"
        )
    return tuple(dict.fromkeys(arms))


def _is_known_model(name: str) -> bool:
    """Whether a name is that of a model that can be evaluated: a folder or a registered one."""
    try:
        find_source(name)
    except SpecError:
        return False
    return True


def _known_label(name: str, labels: set[str]) -> str:
    """Return the label of a model that has records, or that can be evaluated."""
    if name in labels:
        return name
    try:
        return find_source(name).label
    except SpecError as error:
        with_records = ", ".join(sorted(labels)) or "none"
        raise ValueError(f"{error} Models with records: {with_records}") from None


def _recorded_deviation(
    matrix: ScoreMatrix, plan: Plan, labels: Mapping[str, str]
) -> _Deviation | None:
    """Return the deviation between queries of models with these labels.

    None if all records are of seeds of one model.
    """
    pairs, planned_pairs = [], []
    for first_system, second_system in combinations(matrix.systems, 2):
        labels_of_pair = {labels[first_system], labels[second_system]}
        if len(labels_of_pair) == 2:  # not two seeds of one model
            pairs.append((first_system, second_system))
            if labels_of_pair <= plan.labels:
                planned_pairs.append((first_system, second_system))
    if not pairs:
        return None
    chosen_pairs = planned_pairs or pairs
    deviations = [
        query_deviation(matrix, first_system, second_system)
        for first_system, second_system in chosen_pairs
    ]
    labels_in_pairs = {labels[name] for pair in chosen_pairs for name in pair}
    models = first_names(sorted(labels_in_pairs))
    queries = f"on {len(matrix.queries):,} queries"
    if planned_pairs:  # the largest, so that the plan is enough for each
        return _Deviation(max(deviations), f"records of {models} {queries}")
    # Other models may differ more than those of the plan: nine of ten pairs are below this.
    deviation = float(np.quantile(deviations, _QUANTILE))
    return _Deviation(deviation, f"records of other models, {models}, {queries}")


def query_deviation(matrix: ScoreMatrix, first: str, second: str) -> float:
    """Return the deviation of a difference between queries.

    Of clusters, as independent queries with the same standard error of the mean.
    """
    units = matrix.unit_values(matrix.column(first) - matrix.column(second))
    return float(units.std(ddof=1) * math.sqrt(len(matrix.queries) / len(units)))


def plan_files(folder: Path | None = None) -> list[Path]:
    """Return the plans of a study, by default this one, in the order of their numbers."""
    folder = folder or paths.root()
    numbered_files = [file for file in folder.glob("plan-*.toml") if _FILE.fullmatch(file.name)]
    plans = sorted(numbered_files, key=_number)
    unnumbered = folder / _OLD
    if unnumbered.is_file():
        plans.insert(0, unnumbered)
    return plans


def _number(file: Path) -> int:
    """Return the number of a plan; 0 for one without."""
    match = _FILE.fullmatch(file.name)
    if match is None:
        return 0
    return int(match["number"])


def write_plan(plan: Plan, file: Path | None = None) -> Path:
    """Write a plan to a new file, by default the next of the study, with comments.

    Raises:
        DataError: the file exists. Plans are never replaced.
    """
    text = _file_text(plan)
    if file is not None:
        if not _write_once(file, text):
            raise DataError(f"{file} exists, and plans are never replaced; name a new file")
        return file
    number = max(map(_number, plan_files()), default=0)
    while True:  # until no other has written a plan of this number
        number += 1
        file = paths.root() / f"plan-{number}.toml"
        if _write_once(file, text):
            return file


def _write_once(file: Path, text: str) -> bool:
    """Write a file unless it exists, and return whether it has this text.

    Of two writers at once, the second finds the file of the first.
    """
    if file.exists():
        return False
    with new_file(file, replace=False) as out:
        out.write(text.encode("utf-8"))
    return file.read_text(encoding="utf-8") == text


def _file_text(plan: Plan) -> str:
    values = _filled_fields(plan)
    # In TOML, tables have to come after all other fields.
    tables = {name: values.pop(name, {}) for name in _TABLES}
    lines = [
        f"# The plan of a comparison, made {_minute_text(plan.made)}. Hypotheses:",
        *(f"#   {model} differs from {plan.baseline}" for model in plan.models),
        *_promise_lines(plan),
        f"# Pairs tested together on each task: {plan.family}; a difference of the margin is then",
        "# significant with the probability `power`. The digest is of all fields.",
        *(f"{name} = {_toml_value(value)}" for name, value in values.items()),
        f"digest = {_toml_value(_digest(plan))}",
    ]
    for name, table in tables.items():
        lines += ["", f"[{name}] # {_TABLES[name]}"]
        lines += [f"{_toml_value(task)} = {_toml_value(value)}" for task, value in table.items()]
    return "\n".join(lines) + "\n"


def _promise_lines(plan: Plan) -> list[str]:
    """Return comments on the seeds and prompts that a plan promises."""
    if not plan.training_seeds:
        return []
    arms = ", ".join(plan.arms)
    seeds = ", ".join(map(str, plan.training_seeds))
    lines = [
        f"# Trainings: {arms}, each with the seeds {seeds}. For new seeds and new queries;",
        "# there is no verdict before all of these have records.",
    ]
    if plan.prompt_count:
        lines.append(f"# Prompts averaged: {plan.prompt_count}, {plan.prompts_as}.")
    return lines


def _filled_fields(plan: Plan) -> dict[str, Any]:
    """Return the fields that are not empty, as in a file."""
    return {name: value for name, value in asdict(plan).items() if value}


def _digest(plan: Plan) -> str:
    return sha256_json(_filled_fields(plan))


def _toml_value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # of text, numbers and lists, the same as in TOML


@dataclass(frozen=True, kw_only=True)
class _PlanFile(Plan):
    """The fields of a file: those of a plan, its digest, and those of plans of earlier versions."""

    digest: str = ""
    seeds: int = 1
    prompts: int = 1


def read_plan(file: Path) -> Plan:
    """Read a plan.

    Raises:
        DataError: not such a file; names the field.
    """
    return read_with_objection(file)[0]


def read_with_objection(file: Path) -> tuple[Plan, str]:
    """Return a plan, and why its time shows nothing; empty if it does."""
    content: _PlanFile = read_toml(file, _PlanFile, refusal=DataError)
    plan = Plan(**{name: getattr(content, name) for name in _FIELDS})
    averages = []  # plans of earlier versions
    if content.seeds > 1:
        averages.append(f"{content.seeds} seeds")
    if content.prompts > 1:
        averages.append(f"{content.prompts} prompts")
    if averages:
        return plan, f"plans an average over {' and '.join(averages)}, which no test here is of"
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
    models = _models_in(comparison)
    tasks = [task.task for task in _compared_tasks(comparison)]
    names_by_noun: dict[str, Collection[str]] = {
        "models missing": plan.labels - models,
        "models not planned, which widen the family": models - plan.labels,
        "tasks missing": set(plan.tasks) - set(tasks),
        "tasks not planned": set(tasks) - set(plan.tasks),
        "tasks with fewer queries than planned": _with_few_queries(plan, comparison),
        "measured before the plan, on the same tasks": _measured_before(plan, tasks, models),
    }
    return deviation_words(_choices(plan, comparison), names_by_noun)


def _compared_tasks(comparison: Comparison) -> list[TaskComparison]:
    return [*comparison.tasks, *comparison.correlations]


def _models_in(comparison: Comparison) -> set[str]:
    """Return the labels of the models of a comparison."""
    return {record.model.label for record in comparison.records.values()}


def _with_few_queries(plan: Plan, comparison: Comparison) -> list[str]:
    """Name the tasks on which a difference has fewer queries than planned."""
    names = []
    for task in _compared_tasks(comparison):
        planned_count = plan.queries.get(task.task, 0)
        # A model may have answered only some of the queries.
        fewest = min((difference.n for difference in task.with_baseline), default=planned_count)
        if fewest < planned_count:
            names.append(f"{task.task} ({fewest:,} instead of {planned_count:,})")
    return names


class Choice(NamedTuple):
    """What was planned, and what was used."""

    name: str
    planned: object
    used: object


def deviation_words(
    choices: Iterable[Choice], names_by_noun: Mapping[str, Collection[str]]
) -> list[str]:
    """Say which choices are not as planned, and name what else is not, by what it is."""
    sentences = []
    for choice in choices:
        if choice.planned != choice.used:
            sentences.append(f"{choice.name}: {choice.planned} planned, {choice.used} used")
    for noun, names in names_by_noun.items():
        if names:
            sentences.append(f"{noun}: {first_names(sorted(names))}")
    return sentences


def _choices(plan: Plan, comparison: Comparison) -> Iterator[Choice]:
    """Yield what a plan settles, besides the models and tasks."""
    procedure = comparison.procedure
    label_of = {name: label for label, name in comparison.labels.items()}
    baseline = label_of.get(comparison.baseline, comparison.baseline)
    yield Choice("alpha", plan.alpha, procedure.alpha)
    yield Choice("margin", plan.margin, procedure.margin)
    yield Choice("correction", plan.correction, procedure.correction)
    yield Choice("baseline", plan.baseline, baseline)
    # By default, a plan is of the main metric of each task.
    metric_of = {task: record.task.main_metric for (task, _), record in comparison.records.items()}
    has_planned_models = _models_in(comparison) == plan.labels
    for task in _compared_tasks(comparison):
        planned_metric = plan.metric or metric_of[task.task]
        yield Choice(f"metric of {task.task}", planned_metric, task.metric)
        if has_planned_models:  # else the list of models says it
            yield Choice(f"pairs tested on {task.task}", plan.family, task.family)


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
    applicable = [_applicable_plan(file, comparison) for file in plan_files(folder)]
    plans = [plan for plan in applicable if plan is not None]
    if not plans:
        return ""
    sentences: list[str] = []
    replaced_names: list[str] = []
    hypotheses_of_later: set[tuple[str, str, str]] = set()
    for plan in reversed(plans):  # the last one first, because it replaces earlier ones
        if plan.objection:
            continue
        if plan.hypotheses <= hypotheses_of_later:
            replaced_names.append(plan.file.name)
        else:
            hypotheses_of_later |= plan.hypotheses
            sentences.append(_agreement_words(plan, comparison))
    sentences += _missing_plans(folder)
    if replaced_names:
        sentences.append(f"Replaced by a later plan: {', '.join(replaced_names)}.")
    for plan in plans:
        if plan.objection:
            sentences.append(f"{plan.file.name} does not count: it {plan.objection}.")
    return " ".join(sentences)


def _missing_plans(folder: Path | None) -> list[str]:
    """Name the plans that are gone, by the gaps in the numbers."""
    numbers = {_number(file) for file in plan_files(folder)}
    missing_numbers = [number for number in range(1, max(numbers)) if number not in numbers]
    return [f"plan-{number}.toml is missing." for number in missing_numbers[:_MOST_NAMED]]


def _applicable_plan(file: Path, comparison: Comparison) -> _Applicable | None:
    """Return a plan with what it covers; None if it is about other models or tasks."""
    plan, objection = read_with_objection(file)
    records_on: dict[str, list[Result]] = {}
    for (task, _), record in comparison.records.items():
        if task in plan.tasks and record.model.label in plan.labels:
            records_on.setdefault(task, []).append(record)
    covered_records: list[Result] = []
    for records in records_on.values():
        labels = {record.model.label for record in records}
        # A hypothesis is about the baseline and another model.
        if len(labels) > 1 and plan.baseline in labels:
            covered_records += records
    if covered_records:
        return _Applicable(
            file, plan, tuple(covered_records), objection or why_too_late(plan, covered_records)
        )
    # A changed plan may have covered these records before.
    if objection and _is_about(plan, comparison):
        return _Applicable(file, plan, (), objection)
    return None


def _is_about(plan: Plan, comparison: Comparison) -> bool:
    """Whether a plan names two models of a comparison, or one model and a task of it.

    A changed plan may have been about others, so that what it covers now shows nothing.
    """
    models = _models_in(comparison) & plan.labels
    tasks = {task for task, _ in comparison.records if task in plan.tasks}
    return len(models) > 1 or bool(models and tasks)


def why_too_late(plan: Plan, covered: Iterable[Result]) -> str:
    """Say which records are not younger than the plan; empty if all are."""
    time_of_plan = _utc_time(plan.made)
    earlier_measurements = set()
    for record in covered:
        # Unknown times count against the plan.
        if not record.finished or _start_of_measurement(record) <= time_of_plan:
            earlier_measurements.add(f"{record.model.label} on {record.task.key}")
    if not earlier_measurements:
        return ""
    return (
        f"was made {_minute_text(plan.made)}, not before the measurement of "
        f"{first_names(sorted(earlier_measurements))}"
    )


def _start_of_measurement(record: Result) -> datetime:
    """When the measurement of a record began: its end, less the time that it took."""
    return _utc_time(record.finished) - timedelta(seconds=record.cost.seconds)


def _utc_time(text: str) -> datetime:
    """Return a time of the ISO format; without a time zone, it is UTC."""
    moment = datetime.fromisoformat(text or _FAR_FUTURE)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def _minute_text(made: str) -> str:
    if not made:
        return "at an unknown time"
    return f"{_utc_time(made):%Y-%m-%d %H:%M} UTC"


def agreement_sentences(name: str, made: str, *, differences: Sequence[str]) -> list[str]:
    """Say whether a comparison is as in a plan of this name, made then, and how it differs."""
    plan = f"{name} (made {_minute_text(made)}, before the measurement)"
    if not differences:
        return [f"As planned in {plan}."]
    # A sentence each, so that none is long.
    sentences = [f"{text[:1].upper()}{text[1:]}." for text in differences]
    return [f"Not as planned in {plan}.", *sentences]


def _agreement_words(applicable: _Applicable, comparison: Comparison) -> str:
    """Say whether a comparison is as planned, and how it deviates."""
    plan = applicable.plan
    tasks = {record.task.key for record in applicable.covered}
    sources = sorted({plan.sources[task] for task in tasks if task in plan.sources})
    sentences = agreement_sentences(
        applicable.file.name, plan.made, differences=deviations(plan, comparison)
    )
    if sources:
        sentences.append(f"The plan's deviation: {'; '.join(sources[:_MOST_NAMED])}.")
    return " ".join(sentences)
