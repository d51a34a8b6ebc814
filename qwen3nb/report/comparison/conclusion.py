"""What a comparison shows, in two or three sentences made from its differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qwen3nb.analysis.comparison.candidates import enough_queries
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import within
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
    """Say which differences from the baseline are shown, and how small the others may be.

    On the mean of a tier that has one first, then task by task.
    """
    every = comparison.differences
    if not every:
        return Conclusion(
            "Nothing was compared: no two models have scores on the same queries of these tasks."
        )
    alpha, parts = comparison.procedure.alpha, []
    for differences in (*(mean.with_baseline for mean in comparison.means[:1]), every):
        if differences:
            shown = [each for each in differences if each.significant(alpha)]
            parts += [_count(comparison, differences, shown), _largest(comparison, shown)]
    parts.append(_open(comparison, [each for each in every if not each.significant(alpha)]))
    parts.append(comparison.caution.strip())
    return Conclusion(" ".join(part for part in parts if part))


def _count(
    comparison: Comparison, every: Sequence[PairedDifference], shown: Sequence[PairedDifference]
) -> str:
    """Say how many differences are shown, and in which direction."""
    total, tasks = len(every), len({each.task for each in every})
    over = f"{tasks} tasks" if tasks > 1 else short_task(every[0].task)
    of = f"difference{'s' if total > 1 else ''} from {comparison.baseline} on {over}"
    method = NAMES[comparison.procedure.correction]
    corrected = (
        "without a correction"
        if comparison.procedure.correction == "none"
        else f"after correction ({method} over all pairs of models on each task)"
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


def _largest(comparison: Comparison, shown: Sequence[PairedDifference]) -> str:
    """Name the largest difference that is shown, and the largest gain if that is another."""
    if not shown:
        return ""
    largest = max(shown, key=lambda each: abs(each.difference))
    best = max(shown, key=lambda each: each.difference)
    text = f"The largest is {_named(largest)}"
    if best is not largest and best.difference > 0:
        text += f"; the largest gain is {_named(best)}"
    margin = comparison.procedure.minimum
    small = sum(within(each.interval, margin) for each in shown)
    if small:
        which = "It is" if len(shown) == 1 else f"Of these, {small} {'are' if small > 1 else 'is'}"
        text += f". {which} smaller than {margin:g}, the least that matters"
    return text + "."


def _named(each: PairedDifference) -> str:
    ends = interval_text(each.interval, absent="(a single query)")
    return (
        f"{each.difference:+.3f} {ends} ({each.metric} of {each.first} on {short_task(each.task)})"
    )


def _open(comparison: Comparison, open_ones: Sequence[PairedDifference]) -> str:
    """Say what is shown of the differences that are not significant, and what would show more."""
    if not open_ones:
        return ""
    verdicts = [comparison.verdict(each) for each in open_ones]
    undecided = [
        each for each, word in zip(open_ones, verdicts, strict=True) if word != "equivalent"
    ]
    margin = f"{comparison.procedure.minimum:g}"
    others = "other " * (len(open_ones) < len(comparison.differences))
    text = _verdicts(verdicts, others, margin)
    effects = [comparison.detectable(each) for each in undecided]
    known = [f"{each:.3f}" for each in sorted(each for each in effects if each is not None)]
    if known:
        size = known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"
        text += f"; these queries detect a difference of {size} in 80 % of samples"
    if len(undecided) == 1 and (more := enough_queries(comparison, undecided)):
        text += f"; {more}"
    if len(undecided) > 1:
        text += f"; the table says how many would show that they are within ±{margin}"
    return f"{text}."


def _verdicts(verdicts: Sequence[str], other: str, margin: str) -> str:
    """Say of how many differences each verdict is shown."""
    if len(verdicts) == 1:
        return {
            "equivalent": f"The {other}difference is within ±{margin}: equivalent",
            "no worse": f"The {other}difference is above −{margin}: no worse",
            "not shown": f"Whether the {other}difference is within ±{margin} is not shown",
        }[verdicts[0]]
    words = {
        "equivalent": f"equivalent (within ±{margin})",
        "no worse": f"no worse (above −{margin})",
        "not shown": "not shown to be either",
    }
    counts = {word: verdicts.count(verdict) for verdict, word in words.items()}
    listed = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"Of the {other}{len(verdicts)}: {listed}"
