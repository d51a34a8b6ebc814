"""What a model cannot do, as far as it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qwen3nb.analysis.comparison.alignment import comparable, paired_scores
from qwen3nb.analysis.stats.paired_tests import paired_bootstrap
from qwen3nb.records.record import Result

__all__ = ["limitations"]

# What any encoder should beat, and what searches without having learnt anything.
_FLOORS = ("random", "bm25")


def limitations(own: Sequence[Result], results: Iterable[Result], *, seed: int = 0) -> list[str]:
    """Sentences on where a model is no better than a floor, and on what nothing is known.

    A model is behind a floor, or not told apart from it, by the 95 % percentile bootstrap
    interval of the difference, paired over queries.

    Args:
        own: the model's records.
        results: others' too.
        seed: of the intervals.
    """
    others = list(results)
    found = []
    for result in sorted(own, key=lambda each: each.task.name):
        for floor in _FLOORS:
            reference = _of(floor, result, others)
            if reference is not None:
                found += _beside(result, reference, floor, seed=seed)
    if own:
        types = sorted({str(result.task.type) for result in own})
        found.append(
            f"Measured on {len(own)} tasks of the types {', '.join(types)} (see above); nothing is "
            "known of other tasks, domains or languages."
        )
    else:
        found.append("Not measured yet: nothing is known of what it is good for.")
    return found


def _of(label: str, like: Result, results: Iterable[Result]) -> Result | None:
    """The record of ``label`` on the same data, if its main metric is a mean over queries."""
    metric = like.task.main_metric
    return next(
        (
            each
            for each in results
            if each.model.label == label
            and comparable(like, each)
            and each.task.main_metric == metric
            and each.metrics[metric].how == "mean" == like.metrics[metric].how
        ),
        None,
    )


def _beside(result: Result, reference: Result, floor: str, *, seed: int) -> list[str]:
    metric = result.task.main_metric
    found = paired_bootstrap(*paired_scores(result, reference), seed=seed)
    if found.interval is None or found.interval[0] > 0:
        return []
    verdict = "behind" if found.interval[1] < 0 else "not told apart from"
    return [
        f"{result.task.name}: {verdict} {floor} ({metric} {found.difference:+.3f}, 95 % "
        f"interval {found.interval[0]:+.3f} to {found.interval[1]:+.3f}, n = {found.n})."
    ]
