"""The limitations of a model, as far as it was measured."""

from __future__ import annotations

from collections.abc import Sequence

from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.records.record import Result

__all__ = ["limitations"]

# What any encoder should beat: random vectors, and lexical search, which is not trained.
_FLOORS = ("random", "bm25")
_MANY = 4  # tasks; more are listed in one sentence, without their numbers


def limitations(own: Sequence[Result], comparison: Comparison) -> list[str]:
    """Return sentences on where a model is no better than a floor and on what is unmeasured.

    Whether a model is behind a floor, or not significantly different from it, is read off the
    comparison of all models.

    Args:
        own: the model's records.
        comparison: comparison of these records with others on the same tasks.
    """
    against: dict[str, list[tuple[str, str]]] = {}
    for result in sorted(own, key=lambda each: each.task.key):
        for floor in _FLOORS:
            verdict, numbers = _against(floor, result, comparison)
            if verdict:
                against.setdefault(f"{verdict} {floor}", []).append((result.task.key, numbers))
    sentences = [line for verdict, tasks in against.items() for line in _lines(verdict, tasks)]
    if own:
        types = sorted({str(result.task.type) for result in own})
        sentences.append(
            f"Measured on {len(own)} tasks of the types {', '.join(types)} (see above); nothing is "
            "known about other tasks, domains or languages."
        )
    else:
        sentences.append("Not measured yet: nothing is known about its quality.")
    return sentences


def _lines(verdict: str, tasks: Sequence[tuple[str, str]]) -> list[str]:
    """Return a sentence per task with its numbers, or one that lists many tasks."""
    if len(tasks) > _MANY:
        return [f"{verdict[0].upper()}{verdict[1:]} on {', '.join(task for task, _ in tasks)}."]
    return [f"{task}: {verdict} ({numbers})." for task, numbers in tasks]


def _against(floor: str, result: Result, comparison: Comparison) -> tuple[str, str]:
    """Return a verdict and its numbers if a record is no better than a floor's, else empty."""
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
        return "", ""
    significant = difference.significant(comparison.procedure.alpha)
    if significant and difference.difference > 0:
        return "", ""
    verdict = "behind" if significant else "not significantly different from"
    return verdict, f"{difference.metric} {difference}"
