"""Whether a comparison of trainings keeps what a plan promises: its seeds and its prompts.

Who looks at two seeds, and trains a third one only if the difference is nearly shown, finds
differences where there are none. A comparison of planned arms therefore gives no verdict before all
promised seeds and prompts are there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qwen3nb.analysis.comparison.arm_differences import ArmDifference, ArmProcedure
from qwen3nb.analysis.comparison.arms import Arm, training_and_seed
from qwen3nb.analysis.comparison.plan import (
    Choice,
    Plan,
    agreement_sentences,
    deviation_words,
    plan_files,
    read_with_objection,
    why_too_late,
)
from qwen3nb.records.record import Result
from qwen3nb.utils.format import first_names


@dataclass(frozen=True)
class Promise:
    """What a plan says of a comparison."""

    file: Path
    missing: tuple[str, ...] = ()  # promised seeds and prompts that have no records
    differences: tuple[str, ...] = ()  # what is done otherwise than planned
    made: str = ""  # time of the plan
    objection: str = ""  # why the plan does not count; empty if it does

    @property
    def is_broken(self) -> bool:
        """Whether something promised is not there."""
        return bool(self.missing) and not self.objection

    @property
    def text(self) -> str:
        """What the plan says, in sentences."""
        name = self.file.name
        if self.objection:
            return f"{name} does not count: it {self.objection}."
        if self.missing:
            return (
                f"No verdict: {name} promises {first_names(sorted(self.missing))}, "
                "which is missing. Evaluate it first."
            )
        return " ".join(agreement_sentences(name, self.made, differences=self.differences))


@dataclass(frozen=True)
class ComparedArms:
    """A comparison of arms, as a plan is held against it."""

    arms: Sequence[Arm]
    differences: Sequence[ArmDifference]
    procedure: ArmProcedure
    alpha: float
    margin: float


def find_promises(
    compared: ComparedArms, records: Iterable[Result], folder: Path | None = None
) -> list[Promise]:
    """Return what the plans of a study, by default this one, promise of a comparison of arms.

    Plans without seeds, or about other models and tasks, promise nothing of it.
    """
    all_records = list(records)
    names = {arm.name for arm in compared.arms}
    promises = []
    for file in plan_files(folder):
        plan, objection = read_with_objection(file)
        tasks = {difference.task for difference in compared.differences} & set(plan.tasks)
        is_about = len(names & plan.labels) > 1 and bool(tasks)
        if not plan.training_seeds or not is_about:
            continue
        covered = [record for record in all_records if _is_covered(record, plan, compared.arms)]
        promises.append(
            Promise(
                file=file,
                missing=tuple(_missing(plan, compared)),
                differences=tuple(_deviations(plan, compared)),
                made=plan.made,
                objection=objection or why_too_late(plan, covered),
            )
        )
    return promises


def _is_covered(record: Result, plan: Plan, arms: Iterable[Arm]) -> bool:
    """Whether a record is of a promised seed. A model taken as it is may be older than the plan."""
    if record.task.key not in plan.tasks:
        return False
    found = training_and_seed(record)
    for arm in arms:
        if arm.name in plan.arms and arm.has(record):
            return found is not None and int(found[1]) in plan.training_seeds
    return False


def _planned_differences(plan: Plan, compared: ComparedArms) -> list[ArmDifference]:
    """Return the differences of two planned models on planned tasks."""
    return [
        difference
        for difference in compared.differences
        if {difference.first, difference.second} <= plan.labels and difference.task in plan.tasks
    ]


def _missing(plan: Plan, compared: ComparedArms) -> list[str]:
    """Name the promised seeds and prompts that no record is of."""
    missing: dict[str, None] = {}  # a set, in order
    for difference in _planned_differences(plan, compared):
        sides = (
            (difference.first, difference.first_seeds),
            (difference.second, difference.second_seeds),
        )
        for name, seeds in sides:
            if name not in plan.arms:
                continue
            for seed in plan.training_seeds:
                if str(seed) not in seeds:
                    missing[f"seed {seed} of {name} on {difference.task}"] = None
        if len(difference.prompts) < plan.prompt_count:
            missing[f"{plan.prompt_count} prompts on {difference.task}"] = None
    return list(missing)


def _deviations(plan: Plan, compared: ComparedArms) -> list[str]:
    """Say what a comparison does otherwise than planned."""
    procedure = compared.procedure
    choices = [
        Choice("alpha", plan.alpha, compared.alpha),
        Choice("margin", plan.margin, compared.margin),
        Choice("prompts as", plan.prompts_as or "own", str(procedure.prompts)),
        Choice("metric", plan.metric or "main metric", procedure.metric or "main metric"),
    ]
    arms = {arm.name for arm in compared.arms}
    return deviation_words(
        choices,
        {
            "trainings not planned, which widen the family": arms - plan.labels,
            "seeds not planned": _extra_seeds(plan, compared),
            "tasks with fewer queries than planned": _with_few_queries(plan, compared),
        },
    )


def _extra_seeds(plan: Plan, compared: ComparedArms) -> list[str]:
    """Name the seeds of planned trainings that are not promised."""
    promised = {str(seed) for seed in plan.training_seeds}
    names = []
    for arm in compared.arms:
        if arm.name in plan.arms:
            names += [f"{seed} of {arm.name}" for seed in arm.seeds if seed not in promised]
    return names


def _with_few_queries(plan: Plan, compared: ComparedArms) -> set[str]:
    """Name the tasks on which a difference has fewer queries than planned."""
    names = set()
    for difference in _planned_differences(plan, compared):
        planned_count = plan.queries.get(difference.task, 0)
        if difference.n < planned_count:
            names.add(f"{difference.task} ({difference.n:,} instead of {planned_count:,})")
    return names
