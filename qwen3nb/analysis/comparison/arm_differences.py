"""Differences of trainings, the arms, for new seeds and new queries.

How a difference is tested: `qwen3nb.analysis.stats.crossed_differences`. A difference over the
queries alone is about these very models, so it is no claim about a training. It is still required:
the p-value is the larger of both. P-values are corrected over all pairs of arms on a task (Holm).

Prompts of a set (`qwen3nb eval --prompts`) are averaged if that is asked for. As a ``fixed`` set,
the claim is about these prompts; as a ``sample``, it is about others like them, too.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from qwen3nb.analysis.comparison.alignment import (
    by_part,
    common_revision,
    newest_clusters,
    score_columns,
)
from qwen3nb.analysis.comparison.arms import Arm, Member
from qwen3nb.analysis.comparison.differences import HOLM, significant
from qwen3nb.analysis.comparison.seed_differences import seed_difference
from qwen3nb.analysis.stats.crossed_differences import Spread, spread_of_mean
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, join
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest


class PromptRole(StrEnum):
    """What the prompts of a set stand for."""

    OWN = "own"  # no set: each model has its own prompts
    FIXED = "fixed"
    SAMPLE = "sample"


class Claim(StrEnum):
    """What a difference is about."""

    TRAININGS = "new seeds of both"
    FIRST = "new seeds of the first"  # and this model of the second
    SECOND = "new seeds of the second"
    MODELS = "these two models"


@dataclass(frozen=True)
class ArmDifference:
    """The mean difference first − second of two arms on one task."""

    task: str
    metric: str
    first: str  # name of an arm
    second: str  # name of the other
    first_seeds: tuple[str, ...]  # with scores on this task
    second_seeds: tuple[str, ...]
    means: tuple[float, float]  # over seeds, prompts and queries
    difference: float
    interval: Interval | None  # None for a single query
    p_value: float  # uncorrected
    corrected: float  # over all pairs of arms on the task
    family: int  # number of these pairs
    of_queries: float  # p-value over the queries alone: of these very models
    n: int  # number of queries that all models answered
    unpaired: int  # number of queries that only some answered
    units: int  # number of clusters of queries; 0 if they were sampled one by one
    freedom: float | None  # degrees of freedom of the seeds, the smaller of two; None without
    from_seeds: float | None  # share of the squared length of the interval that is not from queries
    by_seed: tuple[tuple[float, ...], tuple[float, ...]]  # mean score of each model of both arms
    prompts: tuple[str, ...] = ()  # names of the prompts that are averaged; none: their own
    paired: bool = False  # whether models of one seed count as pairs

    @property
    def claim(self) -> Claim:
        """What the difference is about."""
        has_first = len(self.first_seeds) > 1
        has_second = len(self.second_seeds) > 1
        if has_first and has_second:
            return Claim.TRAININGS
        if has_first:
            return Claim.FIRST
        if has_second:
            return Claim.SECOND
        return Claim.MODELS

    @property
    def significant(self) -> bool:
        """Whether the difference is shown, for what it is about."""
        return significant(self.corrected, self.interval)


@dataclass(frozen=True, kw_only=True)
class ArmProcedure:
    """How arms are compared."""

    metric: str = ""  # by default the main metric of each task
    prompts: PromptRole = PromptRole.OWN
    paired: bool = False  # whether one seed moves the models of both arms alike
    draws: int = DRAWS  # of the test over queries
    seed: int = 0  # of these draws


def compare_arms(
    records: Iterable[Result],
    arms: Sequence[Arm],
    procedure: ArmProcedure,
    *,
    tasks: Sequence[str] = (),
    prompt_records: Iterable[Result] = (),
) -> tuple[list[ArmDifference], list[str]]:
    """Return the differences of all pairs of arms on every task that two have, and notes.

    Args:
        records: any records.
        arms: two or more; the first of a pair comes first here.
        procedure: how they are compared.
        tasks: by default all.
        prompt_records: those of sets of prompts, unless each model has its own prompts.

    Raises:
        ValueError: arms of one name, or a model in two arms.
    """
    _check_apart(arms)
    if procedure.prompts is not PromptRole.OWN:
        records = prompt_records
    differences: list[ArmDifference] = []
    notes: list[str] = []
    for task, newest in _newest_by_task(records, arms, tasks).items():
        table, notes_on_task = _score_table(task, newest, arms, procedure.metric)
        notes += notes_on_task
        if table is not None:
            differences += _differences_on(table, procedure)
    return differences, notes


def _check_apart(arms: Sequence[Arm]) -> None:
    """Refuse arms that share a name or a model.

    Raises:
        ValueError: names the model and both arms.
    """
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise ValueError(f"expected arms of different names; got {', '.join(names)}")
    for arm, other_arm in itertools.combinations(arms, 2):
        for member, other in itertools.product(arm.members, other_arm.members):
            if _are_one(member, other):
                raise ValueError(
                    f"{member.label} is in {arm.name} and in {other_arm.name}; expected each "
                    "model in one"
                )


def _are_one(member: Member, other: Member) -> bool:
    """Whether two members are the same model: folders of two trainings may share a label."""
    are_of_two_trainings = member.training and other.training and member.training != other.training
    return member.label == other.label and not are_of_two_trainings


class _Key(NamedTuple):
    """A model with a prompt."""

    arm: str
    member: Member
    prompt: str  # its text; empty for the model's own prompts

    @property
    def system(self) -> str:
        """The name in a score matrix."""
        name = self.member.label
        if self.member.training:
            name = f"{self.arm} (seed {self.member.seed})"
        if not self.prompt:
            return name
        return f"{name} with {self.prompt!r}"


_Newest: TypeAlias = dict[_Key, Result]


def _newest_by_task(
    records: Iterable[Result], arms: Sequence[Arm], tasks: Sequence[str]
) -> dict[str, _Newest]:
    """Return the newest record of each model and prompt, by task."""
    by_task: dict[str, _Newest] = {}
    for record in from_oldest(records):
        key = _key_of(record, arms)
        if key is None:
            continue
        for part in by_part([record]):
            if not tasks or {record.task.key, part.task.key} & set(tasks):
                by_task.setdefault(part.task.key, {})[key] = part
    return dict(sorted(by_task.items()))


def _key_of(record: Result, arms: Sequence[Arm]) -> _Key | None:
    """Return the model and prompt of a record; None if it is in no arm."""
    prompt = record.prompt.text if record.prompt is not None else ""
    for arm in arms:
        for member in arm.members:
            if member.has(record):
                return _Key(arm.name, member, prompt)
    return None


@dataclass(frozen=True)
class _ScoreTable:
    """Scores of all arms on a task."""

    matrix: ScoreMatrix  # a system per model and prompt
    arms: tuple[Arm, ...]  # with the models that have scores
    prompts: tuple[str, ...]  # texts, or one empty text
    prompt_names: tuple[str, ...]  # none for the models' own prompts

    def scores(self, arm: Arm) -> Array:
        """Return the scores of an arm: (S models, P prompts, n queries)."""
        names = [
            _Key(arm.name, member, prompt).system
            for member in arm.members
            for prompt in self.prompts
        ]
        flat = self.matrix.scores_of(names)
        return flat.reshape(len(arm.members), len(self.prompts), -1)

    def without_equal_models(self) -> tuple["_ScoreTable", list[str]]:
        """Leave out models that score as another of their arm on every query; say which."""
        arms, notes = [], []
        for arm in self.arms:
            kept: dict[bytes, Member] = {}  # by its scores
            for member, scores in zip(arm.members, self.scores(arm), strict=True):
                first = kept.setdefault(scores.tobytes(), member)
                if first != member:
                    notes.append(
                        f"{self.matrix.task}: seed {member.seed} of {arm.name} scores as seed "
                        f"{first.seed} on every query, and they count as one model"
                    )
            arms.append(replace(arm, members=tuple(kept.values())))
        return replace(self, arms=tuple(arms)), notes


def _score_table(
    task: str, newest: _Newest, arms: Sequence[Arm], metric: str
) -> tuple[_ScoreTable | None, list[str]]:
    """Join the scores of all arms on a task; None if no two arms have some, with notes."""
    records = list(newest.values())
    metric = metric or records[0].task.main_metric
    revision = common_revision(records)
    columns: dict[_Key, SystemScores] = {}
    notes: list[str] = []
    for key, record in newest.items():
        names = {(record.model.identity, record.seed): key.system}
        column, reasons = score_columns(task, [record], names, metric, revision)
        notes += reasons
        if column:
            columns[key] = column[key.system]
    used_arms = _arms_with_scores(arms, columns)
    if len(used_arms) < 2:
        notes += [f"{task}: {arm.name} has no other arm to compare with" for arm in used_arms]
        return None, notes
    prompts = _common_prompts(columns)
    if not prompts:
        return None, [*notes, f"{task}: the models have no prompt in common"]
    chosen = {key.system: column for key, column in columns.items() if key.prompt in prompts}
    try:
        matrix = join(chosen, task=task, metric=metric, clusters=newest_clusters(records))
    except ValueError as error:
        return None, [*notes, str(error)]
    table = _ScoreTable(matrix, used_arms, prompts, _prompt_names(prompts, records))
    table, notes_on_equals = table.without_equal_models()
    return table, [*notes, *notes_on_equals]


def _arms_with_scores(arms: Sequence[Arm], columns: Iterable[_Key]) -> tuple[Arm, ...]:
    """Return the arms with their models that have scores; those without any are left out."""
    found = {(key.arm, key.member) for key in columns}
    used_arms = []
    for arm in arms:
        members = tuple(member for member in arm.members if (arm.name, member) in found)
        if members:
            used_arms.append(replace(arm, members=members))
    return tuple(used_arms)


def _common_prompts(columns: Iterable[_Key]) -> tuple[str, ...]:
    """Return the prompts that all models have."""
    by_model: dict[tuple[str, Member], list[str]] = {}
    for key in columns:
        by_model.setdefault((key.arm, key.member), []).append(key.prompt)
    first_prompts, *others = by_model.values()
    return tuple(prompt for prompt in first_prompts if all(prompt in other for other in others))


def _prompt_names(prompts: Sequence[str], records: Iterable[Result]) -> tuple[str, ...]:
    """Return the names of prompts of a set."""
    names = {}
    for record in records:
        if record.prompt is not None:
            names[record.prompt.text] = record.prompt.name
    return tuple(names[prompt] for prompt in prompts if prompt in names)


def _differences_on(table: _ScoreTable, procedure: ArmProcedure) -> list[ArmDifference]:
    """Return the differences of all pairs of arms on a task, corrected."""
    differences = [
        _difference(table, first, second, procedure)
        for first, second in itertools.combinations(table.arms, 2)
    ]
    corrected = adjust([difference.p_value for difference in differences], how=HOLM)
    return [
        replace(difference, corrected=p_value, family=len(differences))
        for difference, p_value in zip(differences, corrected, strict=True)
    ]


def _difference(
    table: _ScoreTable, first: Arm, second: Arm, procedure: ArmProcedure
) -> ArmDifference:
    """Return the difference of two arms on a task."""
    matrix = table.matrix
    of_first, of_second = table.scores(first), table.scores(second)  # (S, P, n)
    is_paired = procedure.paired and first.seeds == second.seeds
    others: list[Spread] = []
    if procedure.prompts is PromptRole.SAMPLE and len(table.prompts) > 1:
        of_prompts = of_first.mean(axis=(0, 2)) - of_second.mean(axis=(0, 2))  # (P,)
        others.append(spread_of_mean(of_prompts))
    over_seeds = seed_difference(
        (first.name, second.name),
        of_first.mean(axis=1),
        of_second.mean(axis=1),
        matrix,
        paired=is_paired,
        others=others,
        draws=procedure.draws,
        seed=procedure.seed,
    )
    estimate = over_seeds.estimate
    by_seed = of_first.mean(axis=(1, 2)), of_second.mean(axis=(1, 2))
    return ArmDifference(
        task=matrix.task,
        metric=matrix.metric,
        first=first.name,
        second=second.name,
        first_seeds=first.seeds,
        second_seeds=second.seeds,
        means=estimate.means,
        difference=estimate.difference,
        interval=estimate.interval,
        p_value=estimate.p_value,
        corrected=estimate.corrected,
        family=1,
        of_queries=over_seeds.of_queries,
        n=estimate.n,
        unpaired=len({query for ids in matrix.unpaired.values() for query in ids}),
        units=estimate.units,
        freedom=over_seeds.freedom,
        from_seeds=over_seeds.from_seeds,
        by_seed=(tuple(by_seed[0].tolist()), tuple(by_seed[1].tolist())),
        prompts=table.prompt_names,
        paired=is_paired,
    )
