"""What a comparison shows, and who leads, in two or three sentences made from its differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.candidates import enough_queries
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import within
from qwen3nb.records.record import Result
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import short_task
from qwen3nb.utils.format import interval_text


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


@dataclass(frozen=True)
class TopModel:
    """The best model on a task or benchmark, and the others that can be paired with it.

    Attributes:
        name: of the best model.
        record: its record; on a benchmark, with the mean as its score.
        ahead: its differences from the others, the best of them first.
        unpaired: whether there are models whose scores cannot be paired with the best one's.
        unranked: why others are not ranked, a line each.
    """

    name: str
    record: Result
    ahead: tuple[PairedDifference, ...]
    unpaired: bool
    unranked: tuple[str, ...]

    @property
    def score(self) -> str:
        """Its metric and value."""
        return f"{self.record.task.main_metric} {self.record.main.value or 0.0:.3f}"

    @property
    def queries(self) -> str:
        """What was paired, such as ``200 queries``."""
        return f"{self.record.main.n:,} {self.record.task.unit}"


def find_best(comparison: Comparison, *, task: str) -> TopModel | None:
    """Return who leads; None without results.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
    """
    records = comparison.scored(task)
    if not records:
        return None
    best, *others = sorted(records, key=lambda each: each.main.value or 0.0, reverse=True)
    gaps = [comparison.between(best, r) if comparable(best, r) else None for r in others]
    compared = comparison.on(best.task.key)
    left_out = compared.left_out if compared else ()
    return TopModel(
        comparison.names[best.model.identity, best.seed],
        best,
        tuple(gap for gap in gaps if gap is not None),
        None in gaps,
        tuple(line for line in left_out if " is not ranked: " in line),
    )


def leaderboard_conclusion(comparison: Comparison, *, task: str) -> Conclusion:
    """Say who leads, by how much, and whether these queries show it.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
    """
    best = find_best(comparison, task=task)
    if best is None:
        return Conclusion("No results yet; run `make demo` to make some.")
    main, where = best.record.main, short_task(best.record.task.key)
    ends = None if main.low is None or main.high is None else (main.low, main.high)
    score = f"{where}: {best.score} {interval_text(ends, sign=False, absent='')}".strip()
    if not best.ahead:
        why = "There is no other model to compare it with."
        if best.unpaired:
            why = "No other model has scores on the same queries, so no difference is tested."
        return Conclusion(f"{best.name} scores highest on {score}, over {best.queries}. {why}")
    alpha = comparison.procedure.alpha
    shown = next((each for each in best.ahead if each.significant(alpha)), None)
    ahead = f"ahead of {best.ahead[0].second} by {_lead(best.ahead[0])}"
    if shown is best.ahead[0]:
        text = f"{best.name} is best on {score}, {ahead}, a difference that these {best.queries} "
        text += "show."
    else:
        text = (
            f"{best.name} scores highest on {score}, {ahead}, not a difference that these "
            f"{best.queries} can show. "
        )
        text += (
            f"They do not show it to be ahead of any other model.{comparison.caution}"
            if shown is None
            else f"It is ahead of {shown.second} by {_lead(shown)}, which they do show."
        )
    unranked = best.unranked  # of many their number; the table of ranks has them all
    if len(unranked) > 2:
        unranked = (f"{len(unranked)} other models lack a task",)
    return Conclusion(" ".join([text, *(f"{line}." for line in unranked)]))


def _lead(each: PairedDifference) -> str:
    ends = interval_text(each.interval, sign=False, absent="(a single query)")
    return f"{each.difference:.3f} {ends}"
