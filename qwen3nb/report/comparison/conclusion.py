"""What a comparison shows, in two or three sentences made from its differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
from qwen3nb.records.record import Result
from qwen3nb.report.comparison.candidates import compare_candidates
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import short_task
from qwen3nb.utils.format import interval_text

__all__ = ["candidates_conclusion", "comparison_conclusion"]


def candidates_conclusion(results: Iterable[Result], *, current: str, **options: Any) -> Conclusion:
    """Say whether a candidate should replace the model in use: ``Keep X`` or ``Take Y``.

    Args:
        results: records of the candidates and of the model in use, on one task.
        current: label of the model in use.
        options: as for `compare_candidates`, such as ``tested``, ``alpha`` and ``threshold``.

    Raises:
        ValueError: an unknown task or model, or nothing to compare; lists those available.
    """
    return Conclusion(compare_candidates(results, current=current, **options).headline)


def comparison_conclusion(comparison: Comparison) -> Conclusion:
    """Say which differences from the baseline are shown, and how small the others may be."""
    every = comparison.differences
    if not every:
        return Conclusion(
            "Nothing was compared: no two models have scores on the same queries of these tasks."
        )
    shown = [each for each in every if each.corrected < comparison.procedure.alpha]
    open_ones = [each for each in every if each.corrected >= comparison.procedure.alpha]
    parts = [_count(comparison, shown), _largest(shown), _power(comparison, open_ones)]
    return Conclusion(" ".join(part for part in parts if part))


def _count(comparison: Comparison, shown: Sequence[PairedDifference]) -> str:
    """Say how many differences are shown, and in which direction."""
    total = len(comparison.differences)
    tasks = len({each.task for each in comparison.differences})
    over = f"{tasks} tasks" if tasks > 1 else short_task(comparison.differences[0].task)
    of = f"difference{'s' if total > 1 else ''} from {comparison.baseline} on {over}"
    method = NAMES[comparison.procedure.correction]
    corrected = (
        "without a correction"
        if comparison.procedure.correction == "none"
        else f"after correction ({method}, on each task)"
    )
    if not shown:
        each = "The" if total == 1 else f"None of the {total}"
        verb = "is not" if total == 1 else "is"
        return f"{each} {of} {verb} significant {corrected}."
    better = sum(each.difference > 0 for each in shown)
    counts = f"{better} better, {len(shown) - better} worse"
    if total == 1:
        word = "better" if better else "worse"
        return f"The {of} is significant {corrected}: {word}."
    verb = "are" if len(shown) > 1 else "is"
    return f"{len(shown)} of {total} {of} {verb} significant {corrected}: {counts}."


def _largest(shown: Sequence[PairedDifference]) -> str:
    """Name the largest difference that is shown, and the largest gain if that is another."""
    if not shown:
        return ""
    largest = max(shown, key=lambda each: abs(each.difference))
    best = max(shown, key=lambda each: each.difference)
    text = f"The largest is {_named(largest)}"
    if best is not largest and best.difference > 0:
        text += f"; the largest gain is {_named(best)}"
    return text + "."


def _named(each: PairedDifference) -> str:
    ends = interval_text(each.interval, absent="(a single query)")
    return (
        f"{each.difference:+.3f} {ends} ({each.metric} of {each.first} on {short_task(each.task)})"
    )


def _power(comparison: Comparison, open_ones: Sequence[PairedDifference]) -> str:
    """Say which differences the queries would miss, for those that are not shown."""
    effects = [_detectable(comparison, each) for each in open_ones]
    known = [each for each in effects if each is not None]
    if not known:
        return ""
    low, high = f"{min(known):.3f}", f"{max(known):.3f}"
    size = high if low == high else f"{low} to {high}"
    least = comparison.procedure.minimum
    if max(known) <= least:
        verdict = f"fine enough for differences of {least:g}, the smallest that matters"
    else:
        verdict = f"too coarse to exclude a difference of {least:g}, the smallest that matters"
    rest = "The other" if len(open_ones) < len(comparison.differences) else "A"
    if len(open_ones) == 1:
        return (
            f"{rest} difference may be real but small: these queries detect one of {size} in 80 % "
            f"of samples, {verdict}."
        )
    return (
        f"The {'other ' * (rest == 'The other')}{len(open_ones)} may be real but small: these "
        f"queries detect differences of {size} in 80 % of samples, {verdict}."
    )


def _detectable(comparison: Comparison, each: PairedDifference) -> float | None:
    ours, theirs = comparison.matrix(each).scores
    return minimum_detectable_effect(ours, theirs, alpha=comparison.procedure.alpha)
