"""Records by training, seed and step; the best checkpoint and the gain of a training.

Checkpoints are recognised by their label: ``demo-checkpoint-400`` is step 400 of ``demo``, and
``demo-init`` its step 0; ``seed_7`` or ``seed-7`` in a label is the seed of the training. The
record of an adapter states all three (``config.training``: configuration, seed, steps). With other
labels, training and step follow from the folder of the checkpoint, which an extracted model stores.
An average of checkpoints has no step.

The step 0 of a training is the checkpoint it started from, if ``training.json`` next to its
checkpoints names one as ``start``.

The mean of the best of several checkpoints is biased upwards by the selection; a checkpoint is
called the best only if it differs significantly from the next.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis.comparison import differences
from qwen3nb.analysis.comparison.alignment import common_revision, newest_clusters, scores_by
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.comparison.seed_differences import SeedDifference, seed_difference
from qwen3nb.analysis.stats.score_matrix import SystemScores, join
from qwen3nb.checkpoints.folder import step_of, trainer_state
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest
from qwen3nb.utils.atomic_files import read_json

# Labels such as ``demo-checkpoint-400`` and ``demo-init``, and the seed in ``demo-seed_7``.
_CHECKPOINT = re.compile(r"(?P<name>.*?)[-_.]?(?:checkpoint[-_](?P<step>\d+)|init)")
_SEED = re.compile(r"[-_.]?seed[-_]?(?P<seed>\d+)")


@dataclass(frozen=True)
class Trajectory:
    """One training on one task."""

    training: str
    task: str
    metric: str
    records: dict[int, dict[int, Result]] = field(repr=False)  # record by seed, then step
    # cluster per query id, as in every comparison on the task; empty without clusters
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def scores(self) -> dict[int, dict[int, SystemScores]]:
        """Scores by seed and step; records without per-query scores are left out."""
        by_seed: dict[int, dict[int, SystemScores]] = {}
        for seed, records in self.records.items():
            by_seed[seed] = {
                step: scores_by(self.metric, record)
                for step, record in records.items()
                if self.metric in record.per_query
            }
        return by_seed


class TrainingStep(NamedTuple):
    """Where in which training a model was saved."""

    training: str  # without its seed
    seed: int  # 0 if it is not known
    step: int


def training_step(result: Result) -> TrainingStep | None:
    """Return the step of a record's model, or None if it is not known to be of a training."""
    return _stated_step(result) or _step_in_label(result) or _step_in_folder(result)


def _stated_step(result: Result) -> TrainingStep | None:
    """Return the step that the record of an adapter states."""
    training = result.training
    if training is None or not isinstance(training.steps, int):
        return None
    seed = result.seed if training.seed is None else training.seed
    name = training.name or result.model.label
    return TrainingStep(name, int(seed), training.steps)


def _step_in_label(result: Result) -> TrainingStep | None:
    """Return the step of a label such as ``demo-seed_7-checkpoint-400``."""
    label = _CHECKPOINT.fullmatch(result.model.label)
    if label is None:
        return None
    name = _SEED.sub("", label["name"]) or "training"  # of ``demo-seed_7-checkpoint-400``: demo
    seed = _SEED.search(label["name"])
    step = int(label["step"] or 0)  # that of ``init`` is 0
    if seed is None:
        return TrainingStep(name, seed=0, step=step)
    return TrainingStep(name, seed=int(seed["seed"]), step=step)


def _step_in_folder(result: Result) -> TrainingStep | None:
    """Return the step of the folder that a model was extracted from."""
    folder = checkpoint_of(result)
    if folder is None:
        return None
    step = step_of(folder)
    if step is None:
        return None
    training = paths.shown(folder.parent).removeprefix("runs/")
    return TrainingStep(training, seed=0, step=step)


def trajectories(
    results: Iterable[Result], *, tasks: Sequence[str], metric: str = ""
) -> list[Trajectory]:
    """Return trainings ordered by task, as in ``tasks``, and name.

    The revision of a task's data with most records is used.
    """
    records = from_oldest(results)
    all_trajectories = []
    for task in dict.fromkeys(tasks):
        on_task = [record for record in records if record.task.key == task]
        all_trajectories += _trajectories_on(on_task, task, metric)
    return all_trajectories


def _trajectories_on(records: Sequence[Result], task: str, metric: str) -> list[Trajectory]:
    """Return the trainings among the records of one task, by name."""
    checkpoints = []
    for record in records:
        step = training_step(record)
        if step is not None:
            checkpoints.append((step, record))
    if not checkpoints:
        return []
    revision = common_revision([record for _, record in checkpoints])
    # Also records of no checkpoint, such as of the model that a training started from.
    same_data = [record for record in records if str(record.task.revision) == revision]
    trainings: dict[str, Trajectory] = {}
    for step, record in checkpoints:
        by_metric = metric or record.task.main_metric
        if str(record.task.revision) != revision or by_metric not in record.metrics:
            continue
        if step.training not in trainings:
            trainings[step.training] = Trajectory(step.training, task, by_metric, records={})
        by_seed = trainings[step.training].records
        by_seed.setdefault(step.seed, {})[step.step] = record
    for trajectory in trainings.values():
        for by_step in trajectory.records.values():
            _add_start(by_step, same_data, trajectory.metric)
    clusters = newest_clusters(same_data)
    return [replace(trainings[name], clusters=clusters) for name in sorted(trainings)]


def _add_start(by_step: dict[int, Result], records: Sequence[Result], metric: str) -> None:
    """Add the checkpoint that a training started from as its step 0, if it has none."""
    if 0 in by_step:
        return
    # Any checkpoint leads to the folder of the training.
    checkpoints = (checkpoint_of(record) for record in by_step.values())
    checkpoint = next((folder for folder in checkpoints if folder is not None), None)
    if checkpoint is None:
        return
    start = starting_record(checkpoint.parent, records)
    if start is not None and metric in start.metrics:
        by_step[0] = start


def tokens_by_step(records: Mapping[int, Result]) -> dict[int, int] | None:
    """Return the tokens that a training had read by each of its steps.

    transformers' Trainer counts them with ``include_num_input_tokens_seen``. None if they are not
    known of every checkpoint, or do not increase. No tokens are read by step 0.
    """
    tokens: dict[int, int] = {}
    for step, record in sorted(records.items()):
        if step == 0:
            tokens[step] = 0
            continue
        count = _tokens_of(record)
        if count is None:
            return None
        tokens[step] = count
    counts = list(tokens.values())
    if any(later <= earlier for earlier, later in pairwise(counts)):
        return None
    return tokens


def _tokens_of(record: Result) -> int | None:
    """Return the tokens that a checkpoint's trainer had read; None if it does not say."""
    folder = checkpoint_of(record)
    if folder is None:
        folder = paths.root() / record.model.spec  # a checkpoint may be evaluated as it is
    try:
        count = trainer_state(folder).get("num_input_tokens_seen")
    except (CheckpointError, OSError):
        return None  # the page of trainings names files that cannot be read
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        return None
    return count


PerStep = Mapping[int, SystemScores | Mapping[str, float]]


def gain_and_best(
    scores: PerStep, *, seed: int, clusters: Mapping[str, str] | None = None
) -> tuple[PairedDifference, PairedDifference]:
    """Return the last of two or more steps against the first, and the best against the next best.

    The earliest of equal means is the best; its mean is slightly biased upwards by the selection.
    Its p-values are corrected for the number of checkpoints it is compared with, but not for its
    selection as the best.

    Raises:
        ValueError: no query is shared by all.
    """
    columns = {f"step {step}": scores[step] for step in sorted(scores)}
    matrix = join(columns, task="checkpoints")
    means = matrix.scores.mean(axis=1)
    # Of equal means, the earliest step comes first.
    best, *rivals = (matrix.systems[row] for row in np.argsort(-means, kind="stable"))
    first_step, last_step = matrix.systems[0], matrix.systems[-1]

    def difference(system: str, reference: str) -> PairedDifference:
        pair = {system: columns[system], reference: columns[reference]}
        return differences.paired_difference(pair, clusters=clusters, seed=seed)

    # The p-value of the next best, corrected for all rivals.
    over_next_best, *_ = differences.corrected([difference(best, rival) for rival in rivals])
    return difference(last_step, first_step), over_next_best


def common_steps(courses: Iterable[Mapping[int, object]]) -> list[int]:
    """Return the steps that all of several trainings, or tasks, have."""
    return sorted(set.intersection(*map(set, courses)))


def gain_and_best_over_seeds(
    scores: Mapping[int, PerStep], *, seed: int, clusters: Mapping[str, str] | None = None
) -> tuple[PairedDifference, PairedDifference] | None:
    """Return what `gain_and_best` does, of the means over two or more seeds, for new seeds.

    Each seed's last step is compared with its own first. None without two steps that all have, or
    if the seeds score alike on every query.
    """
    steps = common_steps(scores.values())
    if len(steps) < 2:
        return None
    columns = {}
    for number, by_step in scores.items():
        for step in steps:
            columns[f"seed {number}, step {step}"] = by_step[step]
    matrix = join(columns, task="checkpoints", clusters=clusters)
    of_step = {
        step: matrix.scores_of(f"seed {number}, step {step}" for number in scores) for step in steps
    }
    means = {step: float(of_step[step].mean()) for step in steps}
    best, *rivals = sorted(steps, key=lambda step: -means[step])  # of equal means, the earliest

    def difference(step: int, reference: int) -> SeedDifference:
        names = (f"step {step}", f"step {reference}")
        return seed_difference(
            names, of_step[step], of_step[reference], matrix, paired=True, seed=seed
        )

    gain = difference(steps[-1], steps[0])
    if gain.freedom is None:
        return None
    over_rivals = [difference(best, rival).estimate for rival in rivals]
    over_next_best, *_ = differences.corrected(over_rivals)
    return gain.estimate, over_next_best


@dataclass(frozen=True)
class TrainingSummary:
    """The gain and best checkpoint of one training on one task."""

    task: str
    metric: str  # its metric
    name: str  # the training, with the number of its seed if it has several
    gain: PairedDifference  # the first against the last step, p corrected over all summaries
    best: PairedDifference  # the best step against the next best
    seeds: int = 1  # number of seeds; with several, gain and best are for new seeds, too


def names_by_seed(trajectories: Sequence[Trajectory]) -> dict[tuple[str, int], str]:
    """Return a name per training and seed: with the number of its seed if it has several."""
    with_seeds = {trajectory.training for trajectory in trajectories if len(trajectory.records) > 1}
    names = {}
    for trajectory in trajectories:
        training = trajectory.training
        for seed in trajectory.records:
            names[training, seed] = training
            if training in with_seeds:
                names[training, seed] = f"{training}, seed {seed}"
    return names


def training_summaries(
    trajectories: Sequence[Trajectory], *, seed: int
) -> tuple[TrainingSummary, ...]:
    """Summarise the trainings with two or more steps with scores per query."""
    names = names_by_seed(trajectories)
    summaries = []
    for trajectory in trajectories:
        summaries += _summaries_over_seeds(trajectory, seed=seed)
        for training_seed, steps in trajectory.scores.items():
            if len(steps) < 2:
                continue
            name = names[trajectory.training, training_seed]
            gain, best = gain_and_best(steps, seed=seed, clusters=trajectory.clusters)
            summaries.append(TrainingSummary(trajectory.task, trajectory.metric, name, gain, best))
    # The gains of all trainings are one family of tests.
    gains = differences.corrected([summary.gain for summary in summaries])
    return tuple(
        replace(summary, gain=gain) for summary, gain in zip(summaries, gains, strict=True)
    )


def _summaries_over_seeds(trajectory: Trajectory, *, seed: int) -> list[TrainingSummary]:
    """Return the summary of a training over its seeds, if two have the same steps."""
    with_steps = {number: steps for number, steps in trajectory.scores.items() if len(steps) > 1}
    if len(with_steps) < 2:
        return []
    found = gain_and_best_over_seeds(with_steps, seed=seed, clusters=trajectory.clusters)
    if found is None:
        return []
    gain, best = found
    name = f"{trajectory.training}, {len(with_steps)} seeds"
    return [
        TrainingSummary(trajectory.task, trajectory.metric, name, gain, best, seeds=len(with_steps))
    ]


def checkpoint_of(result: Result) -> Path | None:
    """Return the folder of the checkpoint that a record's model was extracted from, or None."""
    if not result.model.spec:
        return None
    # What the model's folder says of where it was extracted from.
    provenance = read_provenance(paths.root() / result.model.spec) or {}
    source = provenance.get("source") or {}
    if not source.get("folder"):
        return None
    return paths.root() / source["folder"]


def starting_record(training: Path, results: Iterable[Result]) -> Result | None:
    """Return the record of the checkpoint that a training started from, or None."""
    folder = _start_folder(training)
    if folder is None:
        return None
    for result in results:
        # A model's own folder, or the checkpoint that it was extracted from.
        folders = [checkpoint_of(result)]
        if result.model.spec:
            folders.append(paths.root() / result.model.spec)
        if any(path is not None and path.resolve() == folder for path in folders):
            return result
    return None


def _start_folder(training: Path) -> Path | None:
    """Return the folder that ``training.json`` names as the start, or None."""
    file = training / "training.json"
    if not file.is_file():
        return None
    content = read_json(file)
    start = content.get("start") if isinstance(content, dict) else None
    if not start or not isinstance(start, str):
        return None
    # The path may be relative to any of these.
    for base in (paths.root(), training, training.parent):
        if (base / start).is_dir():
            return (base / start).resolve()
    return None
