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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis.comparison import differences
from qwen3nb.analysis.comparison.alignment import common_revision, newest_clusters, scores_by
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.score_matrix import SystemScores, join
from qwen3nb.checkpoints.folder import step_of
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest
from qwen3nb.utils.atomic_files import read_json

_CHECKPOINT = re.compile(r"(?P<name>.*?)[-_.]?(?:checkpoint[-_](?P<step>\d+)|init)")
_SEED = re.compile(r"[-_.]?seed[-_]?(\d+)")


@dataclass(frozen=True)
class Trajectory:
    """One training on one task."""

    training: str
    task: str
    metric: str
    records: dict[int, dict[int, Result]] = field(repr=False)  # record by seed, then step
    # cluster per query id, as in every comparison on the task; empty without clusters
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def scores(self) -> dict[int, dict[int, SystemScores]]:
        """Scores by seed and step; records without per-query scores are left out."""
        by = self.metric
        return {
            seed: {step: scores_by(by, r) for step, r in own.items() if by in r.per_query}
            for seed, own in self.records.items()
        }


def training_step(result: Result) -> tuple[str, int, int] | None:
    """Return training (without its seed), seed (or 0) and step of a record's model, or None."""
    training = result.config.get("training")
    if isinstance(training, dict) and isinstance(training.get("steps"), int):
        name = str(training.get("configuration") or training.get("mode") or result.model.label)
        return name, int(training.get("seed", result.seed)), training["steps"]
    if match := _CHECKPOINT.fullmatch(result.model.label):
        seed = _SEED.search(match["name"])
        name = _SEED.sub("", match["name"]) or "training"
        return name, int(seed[1]) if seed else 0, int(match["step"] or 0)
    folder = checkpoint_of(result)
    step = None if folder is None else step_of(folder)
    if folder is None or step is None:
        return None
    return paths.shown(folder.parent).removeprefix("runs/"), 0, step


def trajectories(
    results: Iterable[Result], *, tasks: Sequence[str], metric: str = ""
) -> list[Trajectory]:
    """Return trainings ordered by task, as in ``tasks``, and name.

    The revision of a task's data with most records is used.
    """
    given, ordered = from_oldest(results), []
    for task in dict.fromkeys(tasks):
        on_task = [each for each in given if each.task.key == task]
        steps = [(at, each) for each in on_task if (at := training_step(each))]
        if not steps:
            continue
        revision = common_revision([each for _, each in steps])
        by_name: dict[str, Trajectory] = {}
        for (training, seed, step), each in steps:
            wanted = metric or each.task.main_metric
            if str(each.task.revision) == revision and wanted in each.metrics:
                new = Trajectory(training, task, wanted, {})
                by_name.setdefault(training, new).records.setdefault(seed, {})[step] = each
        same = [each for each in on_task if str(each.task.revision) == revision]
        clusters = newest_clusters(same)
        for name in sorted(by_name):
            for own in by_name[name].records.values():
                # The checkpoint that a training started from is its step 0, if it has none.
                folders = () if 0 in own else filter(None, map(checkpoint_of, own.values()))
                start = next((starting_record(each.parent, same) for each in folders), None)
                if start is not None and by_name[name].metric in start.metrics:
                    own[0] = start
            ordered.append(replace(by_name[name], clusters=clusters))
    return ordered


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
    order = np.argsort(-matrix.scores.mean(axis=1), kind="stable")
    best, *others = (matrix.systems[row] for row in order)

    def difference(first: str, second: str) -> PairedDifference:
        pair = {first: columns[first], second: columns[second]}
        return differences.paired_difference(pair, clusters=clusters, seed=seed)

    over_others = differences.corrected([difference(best, other) for other in others])
    return difference(matrix.systems[-1], matrix.systems[0]), over_others[0]


@dataclass(frozen=True)
class TrainingSummary:
    """The gain and best checkpoint of one training on one task."""

    task: str
    metric: str  # its metric
    name: str  # the training, with the number of its seed if it has several
    gain: PairedDifference  # the first against the last step, p corrected over all summaries
    best: PairedDifference  # the best step against the next best


def training_summaries(
    trajectories: Sequence[Trajectory], *, seed: int
) -> tuple[TrainingSummary, ...]:
    """Summarise the trainings with two or more steps with scores per query."""
    seeds = Counter(each.training for each in trajectories for _ in each.records)
    tasks = Counter(each.training for each in trajectories)
    uncorrected = [
        TrainingSummary(
            each.task,
            each.metric,
            f"{each.training}, seed {number}"
            if seeds[each.training] > tasks[each.training]
            else each.training,
            *gain_and_best(steps, seed=seed, clusters=each.clusters),
        )
        for each in trajectories
        for number, steps in each.scores.items()
        if len(steps) > 1
    ]
    gains = differences.corrected([each.gain for each in uncorrected])
    return tuple(replace(each, gain=own) for each, own in zip(uncorrected, gains, strict=True))


def checkpoint_of(result: Result) -> Path | None:
    """Return the folder of the checkpoint that a record's model was extracted from, or None."""
    spec = result.model.spec
    provenance = read_provenance(paths.root() / spec) if spec else None
    folder = ((provenance or {}).get("source") or {}).get("folder")
    return paths.root() / folder if folder else None


def starting_record(training: Path, results: Iterable[Result]) -> Result | None:
    """Return the record of the checkpoint that a training started from, or None."""
    file = training / "training.json"
    about: Any = read_json(file) if file.is_file() else {}
    start = about.get("start") if isinstance(about, dict) else None
    if not start or not isinstance(start, str):
        return None
    bases = (paths.root(), training, training.parent)
    folder = next((base / start for base in bases if (base / start).is_dir()), None)
    if folder is None:
        return None
    for result in results:
        own = paths.root() / result.model.spec if result.model.spec else None
        if folder.resolve() in {each.resolve() for each in (own, checkpoint_of(result)) if each}:
            return result
    return None
