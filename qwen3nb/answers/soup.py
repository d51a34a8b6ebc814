"""A greedy soup of candidates, and the scores of all of them as matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from qwen3nb.analysis.comparison.alignment import (
    clusters_across_parts,
    parts_of_queries,
    scores_by,
)
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.analysis.training.choosing import Halves, SoupStep, greedy_soup, mean_scores
from qwen3nb.checkpoints.averaging import Selection, averaged
from qwen3nb.checkpoints.types import SpecError
from qwen3nb.evaluation.studies.choosing import EvaluationOptions, evaluate_candidate
from qwen3nb.models.options import ModelOptions
from qwen3nb.records.record import Result
from qwen3nb.utils.progress import tqdm


@dataclass(frozen=True)
class Soup:
    """A greedy soup: the trials in their order, and the scores of the final mean."""

    steps: tuple[SoupStep, ...]
    candidates: tuple[str, ...]  # names, by the places in `SoupStep`
    results: tuple[Result, ...]  # of the final mean; none if it is a single model

    @property
    def members(self) -> tuple[str, ...]:
        """The models of the final mean."""
        return tuple(self.candidates[place] for place in _members(self.steps))

    @property
    def name(self) -> str:
        """The name of the final mean among the models; empty if it is a single model."""
        count = len(self.members)
        return f"soup of {count}" if count > 1 else ""


def score_matrices(records: Mapping[str, Iterable[Result]]) -> list[ScoreMatrix]:
    """Return the scores of all models on each task that all of them have, by its main metric.

    A task in parts counts once, with its mean over the parts.

    Raises:
        ValueError: no task that all models have.
    """
    by_task: dict[str, dict[str, Result]] = {}
    for name, results in records.items():
        for result in results:
            by_task.setdefault(result.task.key, {})[name] = result
    matrices = []
    for task, result_by_model in by_task.items():
        if len(result_by_model) < len(records):
            continue
        metric = next(iter(result_by_model.values())).task.main_metric
        columns = {}
        for name, result in result_by_model.items():
            columns[name] = scores_by(metric, result)
        on_task = list(result_by_model.values())
        clusters = clusters_across_parts(on_task)
        part_of = parts_of_queries(on_task)
        matrix = join(columns, task=task, metric=metric, clusters=clusters, part_of=part_of)
        matrices.append(matrix)
    if not matrices:
        raise ValueError(
            f"no task has scores of all {len(records)} models; see the failures above, or "
            "leave out the model that lacks them"
        )
    return matrices


def soup_of(
    models: Sequence[str],
    records: Mapping[str, Sequence[Result]],
    halves: Halves,
    *,
    options: ModelOptions,
    seed: int = 0,
    show_progress: bool = True,
    **evaluation: Unpack[EvaluationOptions],
) -> Soup:
    """Average the models greedily, from the best on; only the selecting half decides.

    Args:
        models: folders of checkpoints of one training, or of models with one configuration.
        records: their records, of `evaluate_candidates`, in the same order.
        halves: the queries that decide, and those that do not.
        options: as of `evaluate_candidates`.
        seed: of the evaluation, as of `evaluate_candidates`.
        show_progress: whether to show a bar of the trials.
        evaluation: as of `evaluate_candidates`.

    Raises:
        SpecError: a model that is no folder.
        CheckpointError: models that have no mean; the message names the first difference.
    """
    folders = [_folder_of(spec) for spec in models]
    selecting = [halves.parts(matrix)[0] for matrix in score_matrices(records)]
    trials: dict[tuple[int, ...], list[Result]] = {}
    bar = tqdm(total=len(models) - 1, desc="soup", unit="trial", disable=not show_progress)

    def score_of(members: tuple[int, ...]) -> float:
        mean = averaged(Selection(tuple(folders[place] for place in members), "soup", metrics={}))
        trials[members] = evaluate_candidate(str(mean), options, seed, evaluation)
        bar.update()
        # The trial as one more model beside the first, on the same queries of the same half.
        first_name = next(iter(records))
        pair = {first_name: records[first_name], "soup": trials[members]}
        parts = []
        for matrix in score_matrices(pair):
            parts.append(halves.parts(matrix)[0])
        return float(mean_scores(parts)[1])

    with bar:
        steps = greedy_soup(mean_scores(selecting), score_of)
    return Soup(
        steps=tuple(steps),
        candidates=tuple(records),
        results=tuple(trials.get(_members(steps), ())),
    )


def _members(steps: Sequence[SoupStep]) -> tuple[int, ...]:
    """Return the models of the final mean, by their places."""
    last_kept = [step for step in steps if step.is_kept][-1]
    return last_kept.members


def _folder_of(spec: str) -> Path:
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        raise SpecError(
            f"{spec}: not a folder, and a soup averages the weights of folders. Leave it out, or "
            "choose without a soup"
        )
    return folder
