"""Scores of other models as they were published, beside one's own; they cannot be paired.

They are read from ``published.toml`` in the study, an entry per score,

    [[score]]
    model = "e5-base-v2"
    task = "SciFact"
    value = 0.7194
    source = "MTEB results repository"

and from a folder ``published`` in the layout of MTEB's results repository,
``<model>/<revision>/<task>.json``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.benchmark_means import main_score
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json

__all__ = ["OtherScore", "other_scores_table", "read_published"]

_FIELDS: dict[str, tuple[type, ...]] = {
    "model": (str,), "task": (str,), "value": (int, float), "source": (str,),
}  # fmt: skip


@dataclass(frozen=True)
class OtherScore:
    """A published score: model, key of the task, main score from 0 to 1, and its source."""

    model: str
    task: str
    value: float
    source: str


def read_published(folder: Path | None = None) -> list[OtherScore]:
    """Return the published scores of a study; none if it has no such files.

    Args:
        folder: the study; by default `paths.root`.

    Raises:
        ValueError: an entry without a field, of a wrong type, or a value outside 0 to 1.
    """
    folder = folder or paths.root()
    file = folder / "published.toml"
    scores = []
    if file.is_file():
        try:
            listed = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: not TOML ({error})") from None
        scores = [_entry(each, file, number) for number, each in enumerate(listed.get("score", []))]
    files = sorted((folder / "published").glob("*/*/*.json"))
    return scores + [_mteb(each) for each in files if each.name != "model_meta.json"]


def _entry(entry: dict[str, Any], file: Path, number: int) -> OtherScore:
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind):
            raise ValueError(
                f"{file}, score {number + 1}: expected {name} of model, task, value and source, "
                f"got {entry.get(name)!r}"
            )
    value = float(entry["value"])
    if not 0 <= value <= 1:
        raise ValueError(
            f"{file}, score {number + 1}: expected a value from 0 to 1, got {value:g}; divide "
            "percentages by 100"
        )
    return OtherScore(entry["model"], entry["task"], value, entry["source"])


def _mteb(file: Path) -> OtherScore:
    """Read a file of MTEB's results repository; the score is the mean over splits and subsets."""
    content = read_json(file)
    model = file.parent.parent.name.replace("__", "/")
    try:
        scores = [float(row["main_score"]) for rows in content["scores"].values() for row in rows]
        return OtherScore(model, str(content["task_name"]), fmean(scores), "MTEB results")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file}: not a file of MTEB's results ({error!r})") from None


def other_scores_table(
    results: Iterable[Result], *, tier: str, scores: Sequence[OtherScore] | None = None
) -> Table | None:
    """Return one's own main scores beside published ones, a row per task.

    None if no task of the tier has a published score.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose tasks are the rows, if they have a published score.
        scores: published scores; by default those of the study.
    """
    others = read_published() if scores is None else list(scores)
    tasks = [key for key in TIERS[tier].task_keys if any(each.task == key for each in others)]
    if not tasks:
        return None
    on_tier = [r for r in latest(results) if r.task.key in tasks]
    names, (newest, _) = model_names(on_tier), newest_records(on_tier)
    own = {(names[r.model.identity], r.task.key): main_score(r) for r in newest}
    models = list(dict.fromkeys(name for name, _ in own))
    published = {(each.model, each.task): each for each in others}
    theirs = list(dict.fromkeys(each.model for each in others if each.task in tasks))
    rows = [
        (
            Cell(task),
            *(_value(own.get((model, task))) for model in models),
            *(_other(published.get((model, task))) for model in theirs),
        )
        for task in tasks
    ]
    heads = [*models, *(f"{model}\npublished, not paired" for model in theirs)]
    note = (
        "Main scores as MTEB defines them. Published scores are other people's numbers: without "
        "their scores per query there is no paired difference, no interval and no test."
    )
    return Table(("task", *heads), tuple(rows), note, name=f"published-{tier}",
                 caption="Main scores of one's own models beside published ones.")  # fmt: skip


def _value(value: float | None) -> Cell:
    return Cell("not run") if value is None else Cell(f"{value:.4f}", value=value)


def _other(score: OtherScore | None) -> Cell:
    return Cell("–") if score is None else Cell(f"{score.value:.4f}", score.source,
                                                value=score.value)  # fmt: skip
