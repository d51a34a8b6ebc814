"""The limitations of a model, as far as it was measured."""

from __future__ import annotations

from collections.abc import Sequence

from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.records.record import Result

__all__ = ["limitations"]

# What any encoder should beat: random vectors, and lexical search, which is not trained.
_FLOORS = ("random", "bm25")


def limitations(own: Sequence[Result], comparison: Comparison) -> list[str]:
    """Return sentences on where a model is no better than a floor and on what is unmeasured.

    Whether a model is behind a floor, or not significantly different from it, follows from the
    corrected p-value of their paired difference.

    Args:
        own: the model's records.
        comparison: comparison of these records with others on the same tasks.
    """
    sentences = [
        sentence
        for result in sorted(own, key=lambda each: each.task.key)
        for floor in _FLOORS
        if (sentence := _against(floor, result, comparison))
    ]
    if own:
        types = sorted({str(result.task.type) for result in own})
        sentences.append(
            f"Measured on {len(own)} tasks of the types {', '.join(types)} (see above); nothing is "
            "known about other tasks, domains or languages."
        )
    else:
        sentences.append("Not measured yet: nothing is known about its quality.")
    return sentences


def _against(floor: str, result: Result, comparison: Comparison) -> str:
    """Say that a record is no better than a floor's; empty if it is better."""
    task = result.task.key
    reference = next(
        (
            each
            for (name, _), each in comparison.records.items()
            if name == task and each.model.label == floor and comparable(result, each)
        ),
        None,
    )
    difference = None if reference is None else comparison.between(result, reference)
    if difference is None:
        return ""
    significant = difference.corrected < comparison.procedure.alpha
    if significant and difference.difference > 0:
        return ""
    verdict = "behind" if significant else "not significantly different from"
    return f"{task}: {verdict} {floor} ({difference.metric} {difference})."
