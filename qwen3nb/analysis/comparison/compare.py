"""The comparison behind every page: systems on the queries they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.comparison.alignment import (
    ScoreMatrix,
    pair_against,
    pair_results,
    system_names,
)
from qwen3nb.analysis.comparison.pairwise import Family, Pair, compare_pairs
from qwen3nb.evaluation.mteb.select import listed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.tiers import TIERS


@dataclass(frozen=True)
class Compared:
    """Models on the same tasks, query by query.

    Attributes:
        baseline: name of the model the others are compared with; empty without results.
        against: each model against the baseline, p-values adjusted over all of these.
        matrices: the scores behind them, in the same order; the baseline comes second.
        pairs: every pair of models, p-values adjusted over all of these.
        records: the records that were compared, by task and model.
        alpha: level of the tests.
        minimum: smallest difference that matters.
        seed: of the draws.
        notes: what did not pair.
    """

    baseline: str
    against: Family
    matrices: tuple[ScoreMatrix, ...]
    pairs: Family
    records: dict[tuple[str, str], Result]
    alpha: float
    minimum: float
    seed: int
    notes: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks on which something was compared."""
        return tuple(dict.fromkeys(matrix.task for matrix in self.matrices))

    def by_task(self) -> Iterator[tuple[str, list[tuple[Pair, ScoreMatrix]]]]:
        """Task by task, the comparisons with the baseline and their scores."""
        both = list(zip(self.against.pairs, self.matrices, strict=True))
        for task in self.tasks:
            yield task, [(pair, matrix) for pair, matrix in both if pair.task == task]


def compare_results(
    results: Iterable[Result],
    *,
    tier: str,
    task: str = "",
    baseline: str = "",
    metric: str = "",
    alpha: float = 0.05,
    minimum: float = 0.05,
    correction: str = "holm",
    seed: int = 0,
) -> Compared:
    """Compare all models that have records of the same tasks.

    Args:
        results: any records; the newest of each model and task is taken.
        tier: whose tasks are compared.
        task: names with commas, instead of the tier's.
        baseline: label of a model; empty: the best one on the first task.
        metric: by default each task's main metric.
        alpha: level of the tests.
        minimum: smallest difference that matters.
        correction: one of `corrections.CORRECTIONS`.
        seed: of the draws.

    Raises:
        ValueError: no record of the baseline; lists the models there are.
    """
    tasks = listed(task) or list(TIERS[tier].tasks)
    chosen = [result for result in latest(results) if result.task.name in tasks]
    label = baseline or _best(chosen, tasks, metric)
    labels = sorted({result.model.label for result in chosen})
    if label and label not in labels:
        raise ValueError(f"no result of {label!r}; there are: {', '.join(labels) or 'none'}")
    matrices, notes = _against(chosen, tasks, label, metric)
    pairing = pair_results(chosen, metric=metric or None)
    notes += pairing.notes
    by_value = {r.task.name for r in chosen if "gold" in r.per_query}  # correlations_table
    notes = [note for note in notes if not note.startswith(tuple(f"{t}: " for t in by_value))]
    names = system_names(chosen)
    return Compared(
        baseline=label,
        against=compare_pairs(matrices, correction=correction, seed=seed),
        matrices=tuple(matrices),
        pairs=compare_pairs(pairing.matrices, correction=correction, seed=seed),
        records={(r.task.name, names[r.model.identity, r.seed]): r for r in chosen},
        alpha=alpha,
        minimum=minimum,
        seed=seed,
        notes=tuple(dict.fromkeys(notes)),
    )


def _best(results: Sequence[Result], tasks: Sequence[str], metric: str) -> str:
    """Label of the best on the first task, of the models with scores on most; or empty."""
    scored = [r for r in results if (metric or r.task.main_metric) in r.per_query]
    counts = Counter(result.model.label for result in scored)
    for task in tasks:
        means = {
            (counts[result.model.label], float(np.mean(list(values.values())))): result
            for result in scored
            if result.task.name == task
            and (values := result.per_query[metric or result.task.main_metric])
        }
        if len(means) > 1:
            return str(means[max(means)].model.label)
    return ""


def _against(
    results: Sequence[Result], tasks: Sequence[str], baseline: str, metric: str
) -> tuple[list[ScoreMatrix], list[str]]:
    matrices: list[ScoreMatrix] = []
    notes: list[str] = []
    for task in tasks:
        records = [result for result in results if result.task.name == task]
        reference = next((r for r in records if r.model.label == baseline), None)
        if reference is None:
            notes += [f"{task}: no record of {baseline}"] if records else []
            continue
        pairing = pair_against(records, reference, metric=metric or None)
        notes += pairing.notes
        matrices += sorted(
            pairing.matrices, key=lambda m: -float((m.scores[0] - m.scores[1]).mean())
        )
    return matrices, notes
