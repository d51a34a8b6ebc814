"""Scores of one model on each task, with the paired difference from a baseline.

The baseline of a task is the one named, else the reference model with the best score on it, or
random vectors if no reference model has one (see `qwen3nb.analysis.comparison.alignment`).
Differences come from a `Comparison` of all models, as on every other page.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import (
    baselines,
    in_words,
    is_floor,
    reference_models,
)
from qwen3nb.analysis.comparison.benchmark_means import (
    MEAN,
    BenchmarkMean,
    column_mean,
    counted_tasks,
    ranked_columns,
)
from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.metrics.aggregate import REPORTED, Aggregate
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.records.store import latest
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings

NO_REFERENCE = "no record of a reference model"


@dataclass(frozen=True)
class AgainstBaseline:
    """A model's score on one task, and its paired difference from a baseline."""

    model: str
    task: str  # key of the task
    type: str  # MTEB's type of the task
    metric: str  # the main metric
    unit: str  # what ``n`` counts
    score: Aggregate  # the model's score
    baseline: str = ""  # label of the baseline; empty if there is none
    other: float | None = None  # the baseline's score; None without one
    difference: float | None = None  # model - baseline, or None
    interval: Interval | None = None  # of the difference, or None
    p_value: float | None = None  # corrected over all pairs of models on the task, or None
    family: int = 0  # number of these pairs
    correction: str = "none"  # over these pairs; one of `multiple_testing.CORRECTIONS`
    identical: bool = False  # whether both have the same score on every query
    missing: tuple[str, ...] = ()  # reference models without any record of the task
    why: str = ""  # why there is no difference; empty if there is one
    revision: str = ""  # of the data, or of their substitute; empty for a mean over tasks

    @property
    def significant(self) -> bool:
        """Whether the difference is significant; see `differences.significant`."""
        return significant(self.p_value, self.interval)

    @property
    def reference(self) -> str:
        """The baseline as shown: random vectors are called the floor."""
        return in_words(self.baseline)

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``not shown``; empty without a difference."""
        if self.difference is None:
            return ""
        if not self.significant:
            return "not shown"
        return "better" if self.difference > 0 else "worse"


def against_baseline(
    results: Iterable[Result],
    others: Iterable[Result],
    *,
    baseline: str = "",
    tier: str = "",
    seed: int = 0,
) -> list[AgainstBaseline]:
    """Return a model's score on every task, with its difference from a baseline.

    The mean of a ``tier`` that was run as a whole comes first, if it has one. The model's own
    records among ``others`` are ignored. By default, the baseline is the one in ``_config.yml`` or
    chosen by the rule.
    """
    records = list(results)
    if not records:
        return []
    tasks = {record.task.key for record in records}
    if tier and not tasks <= set(TIERS[tier].task_keys):
        tier = ""  # only some queries, such as a rehearsal
    everything = latest([*records, *others])
    # All models are compared, so that p-values are corrected as on every other page.
    compared = compare(everything, baseline=records[0].model.label, tier=tier, seed=seed)
    means: list[Result] = []
    if compared.means:
        means = compared.means[0].records(compared.records)  # the first represents the tier
    scored = [*_means_of_model(records, means, tier), *records]
    choice = _BaselineChoice(
        candidates=_records_of_other_models(scored, [*everything, *means]),
        compared=compared,
        named=baseline or book_settings().baseline,
    )
    return [_against(record, choice) for record in scored]


def _means_of_model(records: Sequence[Result], means: Sequence[Result], tier: str) -> list[Result]:
    """Return the means of the model that ``records`` are of, the last one first."""
    identities = {record.model.identity for record in records}
    means_of_model = [mean for mean in means if mean.model.identity in identities]
    if not means_of_model:
        return _mean_alone(records, tier)
    means_of_model.reverse()
    return means_of_model


def _records_of_other_models(
    records: Sequence[Result], everything: Sequence[Result]
) -> list[Result]:
    """Return the records of other models on the tasks of ``records``."""
    # A model may have been evaluated under several labels, or trained again under one.
    labels = {record.model.label for record in records}
    identities = {record.model.identity for record in records}
    tasks = {record.task.key for record in records}
    return [
        record
        for record in everything
        if record.task.key in tasks
        and record.model.label not in labels
        and record.model.identity not in identities
    ]


def _mean_alone(results: Sequence[Result], tier: str) -> list[Result]:
    """Return a record of the mean that represents a tier, for a model without another one."""
    if not tier:
        return []
    for title, column in ranked_columns(tier).items():
        mean = column_mean(column, results)
        if mean.value is not None:
            return [_mean_record(title, mean, mean.value, results)]
    return []


def _mean_record(
    title: str, mean: BenchmarkMean, value: float, results: Sequence[Result]
) -> Result:
    """Return a mean over tasks as a record of its own, without scores per query."""
    column = mean.column
    averaged = [record for record in results if record.task.key in column.weights]
    metric = f"mean {column.measure} of {counted_tasks(column.weights, title)}"
    low, high = mean.interval or (None, None)
    score = Aggregate(
        value,
        low,
        high,
        n=sum(record.main.n for record in averaged),
        how="mean",
        columns=(metric,),
        interval="",
    )
    # The record of one of the tasks gives the model.
    return replace(
        averaged[0],
        task=TaskInfo(title, MEAN, metric),
        metrics={metric: score},
        per_query={metric: {}},
        parts=(),
    )


def strongest(ordered: Sequence[Result], named: str) -> Result | None:
    """Return the baseline among records of one task, which are in the order of the rule.

    A ``named`` label comes first, else the reference model with the best score; random vectors are
    used without any.
    """
    if not ordered:
        return None
    first_choice = ordered[0]
    if first_choice.model.label == named:
        return first_choice
    # The floor, random vectors, is only a baseline without a reference model.
    references = [record for record in ordered if not is_floor(record)]
    if not references:
        return first_choice
    return max(references, key=lambda record: record.main.value or 0.0)


class _BaselineChoice:
    """The choice of a baseline on each task."""

    def __init__(self, candidates: Sequence[Result], compared: Comparison, named: str) -> None:
        self.candidates = candidates
        self.compared = compared
        self.named = named
        self.order = baselines(candidates, compared.names, named=named)

    def on(self, task: TaskInfo, metric: str) -> Result | None:
        """Return the record to compare with on a task: named, the best reference, or the floor."""
        usable = {}
        for record in self.candidates:
            has_same_data = (record.task.key, record.task.revision) == (task.key, task.revision)
            has_scores = record.main.value is not None and metric in record.per_query
            if has_same_data and has_scores:
                usable[self.compared.name(record)] = record
        ordered = [usable[name] for name in self.order if name in usable]
        return strongest(ordered, self.named)

    def missing(self, task: TaskInfo) -> tuple[str, ...]:
        """Return the reference models that no record of the task is of, in their order."""
        on_task = [record for record in self.candidates if record.task.key == task.key]
        # A reference model was loaded by its name or its id on the Hub, or has it as label.
        evaluated = {record.model.spec for record in on_task}
        evaluated |= {record.model.label for record in on_task}
        missing_models = []
        for name, hub_id in reference_models().items():
            if name not in evaluated and hub_id not in evaluated:
                missing_models.append(name)
        return tuple(missing_models)


def _against(result: Result, choice: _BaselineChoice) -> AgainstBaseline:
    """Return the score of a record, with its difference from the baseline of the task."""
    task = result.task
    # The correlation of a task is paired by the cosines of its pairs of texts.
    metric = "cosine" if "gold" in result.per_query else task.main_metric
    score = AgainstBaseline(
        model=result.model.label,
        task=task.key,
        type=str(task.type),
        metric=task.main_metric,
        unit=task.unit,
        score=result.main,
        missing=choice.missing(task),
        revision=task.substitute or task.revision,
    )
    baseline = None
    if metric in result.per_query:
        baseline = choice.on(task, metric)
    if baseline is None:
        return replace(score, why=_why_alone(result, metric))
    paired = choice.compared.between(result, baseline)
    # Outside the tasks of a benchmark, parts are compared one by one.
    if result.parts and paired is None:
        return replace(score, why="its subsets are paired one by one")
    score = replace(score, baseline=baseline.model.label, other=baseline.main.value)
    if paired is None:
        return replace(score, why="no query is shared")
    return replace(
        score,
        difference=paired.difference,
        interval=paired.interval,
        p_value=paired.corrected,
        family=paired.family,
        correction=paired.correction,
        identical=paired.identical,
    )


def _why_alone(result: Result, metric: str) -> str:
    """Return why a score has no baseline to compare with."""
    if result.task.unit == "draws":
        return "its draws are not paired"
    if result.main.how == REPORTED or metric not in result.per_query:
        return "no scores to pair"
    return NO_REFERENCE
