"""Estimate from published scores how well a small tier predicts other tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.tiers import TIERS


@dataclass(frozen=True)
class Prediction:
    """Rank correlation, over models, of a tier's mean score with the mean of other tasks.

    Attributes:
        predictor: a tier, or one of its tasks.
        tasks: names of its tasks with published scores.
        target: description of the tasks to predict.
        targets: names of the tasks to predict.
        correlation: Spearman correlation, with an interval over models.
    """

    predictor: str
    tasks: tuple[str, ...]
    target: str
    targets: tuple[str, ...]
    correlation: Aggregate


def published_table() -> dict[str, dict[str, float]]:
    """Published score by model and task; the file gives the sources."""
    file = Path(__file__).parent / "published_models.tsv"
    lines = [x for x in file.read_text(encoding="utf-8").splitlines() if not x.startswith("#")]
    head = lines[0].split("\t")[1:]
    rows = (line.split("\t") for line in lines[1:])
    return {row[0]: dict(zip(head, map(float, row[1:]), strict=True)) for row in rows}


def predict_elsewhere(tier: str = "fast", *, seed: int = 0) -> list[Prediction]:
    """Correlate a tier, and each of its tasks alone, with the mean of all other tasks.

    The tier's own tasks are not among the tasks to predict, so nothing is correlated with
    itself.
    """
    table = published_table()
    known = list(next(iter(table.values())))
    own = tuple(task for task in TIERS[tier].task_keys if task in known)
    others = tuple(task for task in known if task not in own)
    whole = [_prediction(tier, own, others, table, seed=seed)]
    return whole + [_prediction(task, (task,), others, table, seed=seed) for task in own]


def _prediction(
    name: str,
    tasks: tuple[str, ...],
    targets: tuple[str, ...],
    table: dict[str, dict[str, float]],
    *,
    seed: int,
) -> Prediction:
    columns = {
        "predictor": {m: sum(s[t] for t in tasks) / len(tasks) for m, s in table.items()},
        "target": {m: sum(s[t] for t in targets) / len(targets) for m, s in table.items()},
    }
    correlation = aggregate(columns, how="spearman", columns=("predictor", "target"), seed=seed)
    target = f"mean of {len(targets)} other tasks"
    return Prediction(name, tasks, target, targets, correlation)
