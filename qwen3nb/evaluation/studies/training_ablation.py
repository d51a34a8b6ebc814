"""Ablate the components of a training, by checkpoints of trainings that differ in one of them.

A training is a folder with ``checkpoint-N`` folders and a ``training.json``, which says what
it was: ``objective``, ``data``, ``mixture``, ``denoisers``, and under ``settings`` everything
else, such as ``learning_rate``. Its last checkpoint is evaluated. The effects are computed by
`qwen3nb.analysis.comparison.ablation_effects.component_effects`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import select_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.models.load import load_encoder
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import canonical, read_json

__all__ = ["TrainingOutcome", "TrainingVariant", "ablate_trainings", "find_trainings"]

FILE = "training.json"
_COMPONENTS = ("objective", "data", "mixture", "denoisers")


@dataclass(frozen=True)
class TrainingVariant:
    """A training of a series.

    Attributes:
        name: of its folder.
        folder: with its checkpoints.
        components: what it was, by name.
    """

    name: str
    folder: Path
    components: Mapping[str, str]

    def difference(self, other: TrainingVariant) -> str:
        """The one component in which the trainings differ; empty if there are none or several."""
        names = sorted({*self.components, *other.components})
        differ = [n for n in names if self.components.get(n) != other.components.get(n)]
        return differ[0] if len(differ) == 1 else ""


@dataclass(frozen=True)
class TrainingOutcome:
    """A training and the record of its last checkpoint on one task."""

    training: TrainingVariant
    result: Result


def find_trainings(folder: Path | str) -> list[TrainingVariant]:
    """Return the trainings in the folders below ``folder``, by name.

    Raises:
        CheckpointError: fewer than two, or one without checkpoints.
    """
    files = sorted(Path(folder).expanduser().glob(f"*/{FILE}"))
    if len(files) < 2:
        raise CheckpointError(
            f"{folder}: expected two or more folders, each with checkpoint-N folders and a {FILE}; "
            f"got {len(files)}"
        )
    return [TrainingVariant(f.parent.name, f.parent, _components(read_json(f))) for f in files]


def _components(training: Mapping[str, Any]) -> dict[str, str]:
    own = {name: training[name] for name in _COMPONENTS if name in training}
    values = {**own, **training.get("settings", {})}
    return {n: v if isinstance(v, str) else canonical(v).decode() for n, v in values.items()}


def ablate_trainings(
    trainings: Sequence[TrainingVariant],
    *,
    tier: str = "smoke",
    types: Sequence[str] = ("Retrieval",),
    output: Path | None = None,
    seed: int = 0,
    **options: Any,
) -> list[TrainingOutcome]:
    """Evaluate the last checkpoint of each training; stored records are reused.

    Records go to ``results/ablation``, apart from those of the leaderboard.

    Args:
        trainings: from `find_trainings`.
        tier: tier whose tasks to use.
        types: MTEB task types to keep.
        output: folder for records.
        seed: seed of the confidence intervals.
        options: options of `load_encoder`.
    """
    tasks = [task for task in tier_tasks(tier) if task.metadata.type in types]
    output = output or paths.results() / "ablation"
    outcomes = []
    for training in trainings:
        (checkpoint,) = select_checkpoints(training.folder, last=1).folders
        run = evaluate(
            load_encoder(checkpoint, show_progress=False, **options),
            tasks=tasks,
            output=output,
            seed=seed,
            config={"training_components": dict(training.components)},
            show_progress=False,
        )
        outcomes += [TrainingOutcome(training, result) for result in run.results]
    return outcomes
