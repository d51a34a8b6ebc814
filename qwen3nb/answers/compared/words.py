"""What a comparison shows, in at most two short sentences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from qwen3nb.analysis.comparison.alignment import in_words
from qwen3nb.analysis.comparison.differences import PairedDifference, Procedure, TaskComparison
from qwen3nb.answers.unjudged import ADVICE, UnjudgedRange
from qwen3nb.metrics.intervals import within
from qwen3nb.report.render.table import plural, short_task
from qwen3nb.utils.format import first_names, names_in_words, number_text, number_word

_MOST_NAMED = 3  # models in a sentence
# By task and pair of models, the range of a difference whose verdict unjudged documents could turn.
Turned: TypeAlias = Mapping[tuple[str, frozenset[str]], UnjudgedRange]
NOTHING_TURNED: Turned = MappingProxyType({})


@dataclass(frozen=True)
class Verdicts:
    """Which differences from a baseline are shown, on one task."""

    better: tuple[PairedDifference, ...]
    worse: tuple[PairedDifference, ...]
    not_shown: tuple[PairedDifference, ...]
    turned: tuple[UnjudgedRange, ...] = ()  # of shown ones that unjudged documents could turn

    @classmethod
    def of(
        cls,
        differences: Sequence[PairedDifference],
        alpha: float,
        turned: "Turned" = NOTHING_TURNED,
    ) -> "Verdicts":
        """Sort differences by what they show."""
        shown = [difference for difference in differences if difference.significant(alpha)]
        ranges = [turned[key] for key in map(_pair_on_task, shown) if key in turned]
        decided = [difference for difference in shown if _pair_on_task(difference) not in turned]
        return cls(
            better=tuple(difference for difference in decided if difference.difference > 0),
            worse=tuple(difference for difference in decided if difference.difference <= 0),
            not_shown=tuple(
                difference for difference in differences if not difference.significant(alpha)
            ),
            turned=tuple(ranges),
        )

    @property
    def count(self) -> int:
        """The number of differences with a verdict."""
        return len(self.better) + len(self.worse) + len(self.not_shown)


NO_VERDICTS = Verdicts((), (), ())


def turned_pairs(ranges: Iterable[tuple[PairedDifference, UnjudgedRange]]) -> Turned:
    """Return ranges by task and pair of models."""
    return {_pair_on_task(difference): found for difference, found in ranges}


def _pair_on_task(difference: PairedDifference) -> tuple[str, frozenset[str]]:
    return difference.task, frozenset((difference.first, difference.second))


def comparison_sentences(
    first: TaskComparison,
    others: Sequence[TaskComparison],
    *,
    unit: str,
    turned: Turned = NOTHING_TURNED,
) -> list[str]:
    """Say which models are better than the baseline, or which of two models is better.

    Args:
        first: the task or mean that speaks for the others; it has a baseline.
        others: further tasks.
        unit: what the scores on the first task are of, such as ``queries``.
        turned: the differences without a verdict; see `qwen3nb.answers.unjudged`.
    """
    differences = first.with_baseline
    alpha, margin = first.procedure.alpha, first.procedure.margin
    if len(differences) == 1:
        return _sentences_on_two_models(
            differences[0], others, unit=unit, procedure=first.procedure, turned=turned
        )
    verdicts = Verdicts.of(differences, alpha, turned)
    unjudged = _unjudged_sentence(verdicts)
    counts = _counts(verdicts, unit, margin)
    task = short_task(first.task)
    if verdicts.better:
        names = [in_words(difference.first) for difference in verdicts.better]
        verb = "is" if len(names) == 1 else "are"
        better = f"{_and(names)} {verb} better than {in_words(first.baseline)} on {task}"
        return [f"{better}{_smallness(verdicts.better, margin)}.", _capitalized(counts), unjudged]
    elsewhere = sum(_may_be_better(compared, first.baseline, alpha, turned) for compared in others)
    none_better = f"No model is shown to be better than {in_words(first.baseline)} on"
    if others and not elsewhere:
        on_first = f"On {task}, {counts}" if counts else ""
        return [f"{none_better} any of {len(others) + 1} tasks.", on_first, unjudged]
    if elsewhere:
        task += f"; on {plural(elsewhere, 'other task')}, some are"
    return [f"{none_better} {task}.", _capitalized(counts), unjudged]


def _unjudged_sentence(verdicts: Verdicts) -> str:
    """Say how many differences have no verdict because of unjudged documents; empty without any."""
    if not verdicts.turned:
        return ""
    most = max(verdicts.turned, key=lambda found: found.unjudged)
    count = len(verdicts.turned)
    verb = "has" if count == 1 else "have"
    return (
        f"{_capitalized(number_word(count))} {verb} no verdict: up to {most.share_text}, and "
        f"{ADVICE}."
    )


def _may_be_better(compared: TaskComparison, baseline: str, alpha: float, turned: Turned) -> bool:
    """Whether a model is better than the baseline on a task, or the task has another one."""
    if compared.baseline != baseline:
        return True
    return bool(Verdicts.of(compared.with_baseline, alpha, turned).better)


def _counts(verdicts: Verdicts, unit: str, margin: float) -> str:
    """Count the models that are as good as the baseline, or worse; empty without any."""
    parts = []
    if verdicts.not_shown:
        count = len(verdicts.not_shown)
        queries = max(difference.n for difference in verdicts.not_shown)
        verb = "is" if count == 1 else "are"
        limit = f"as far as {queries:,} {unit} can tell"
        if all(within(difference.interval, margin) for difference in verdicts.not_shown):
            limit = f"within ±{margin:g}"
        parts.append(f"{number_word(count)} {verb} as good, {limit}")
    if verdicts.worse:
        count = len(verdicts.worse)
        verb = "is" if count == 1 else "are"
        smallness = _smallness(verdicts.worse, margin)
        parts.append(f"{number_word(count)} {verb} worse{smallness}")
    if not parts:
        return ""
    return f"{'; '.join(parts)}."


def _smallness(differences: Sequence[PairedDifference], margin: float) -> str:
    """Say how many shown differences are smaller than what matters; empty if none is."""
    small = sum(within(difference.interval, margin) for difference in differences)
    if not small:
        return ""
    if small == len(differences):
        return f", by less than {margin:g}"
    return f", {number_word(small)} of them by less than {margin:g}"


def _sentences_on_two_models(
    difference: PairedDifference,
    others: Sequence[TaskComparison],
    *,
    unit: str,
    procedure: Procedure,
    turned: Turned,
) -> list[str]:
    """Say which of two models is better, by how much, and how sure that is."""
    if difference.difference < 0:
        difference = difference.reversed()
    pairs = [compared.difference(difference.first, difference.second) for compared in others]
    alpha = procedure.alpha
    elsewhere = Verdicts.of([pair for pair in pairs if pair is not None], alpha, turned)
    first, second = in_words(difference.first), in_words(difference.second)
    first_mean, second_mean = (number_text(mean) for mean in difference.means)
    metric, task = difference.metric, short_task(difference.task)
    is_shown = difference.significant(alpha)
    found = turned.get(_pair_on_task(difference))
    if is_shown and found is not None:
        return [
            f"No decision between {first} and {second} on {task}: {metric} {first_mean} against "
            f"{second_mean}.",
            f"{found.share_text}, and their grades could turn it: {ADVICE}.",
            _elsewhere(elsewhere, first, second),
        ]
    # The other tasks say the same, or another sentence says what they say.
    agreeing = elsewhere.better if is_shown else elsewhere.not_shown
    values = f"on {task}: {metric} {first_mean} against {second_mean}."
    if elsewhere.count and len(agreeing) == elsewhere.count:
        any_or_all = "all" if is_shown else "any of"
        values = (
            f"on {any_or_all} {elsewhere.count + 1} tasks; on {task}, {metric} is {first_mean} "
            f"against {second_mean}."
        )
        elsewhere = NO_VERDICTS
    sentence = f"No difference between {first} and {second} is shown {values}"
    if is_shown:
        smallness = _smallness([difference], procedure.margin)
        if smallness:
            second += f"{smallness},"
        sentence = f"{first} is better than {second} {values}"
    counts = _elsewhere(elsewhere, first, in_words(difference.second))
    return [sentence, _range_sentence(difference, unit), counts]


def _range_sentence(difference: PairedDifference, unit: str) -> str:
    if difference.identical and difference.n > 1:
        return "Both have the same score on every query."
    if difference.interval is None:
        return "A single query says nothing about others."
    low, high = (number_text(end, sign=True) for end in difference.interval)
    change = number_text(difference.difference, sign=True)
    return (
        f"The difference is {change}; over all {unit} like these, it is likely between {low} and "
        f"{high}."
    )


def _elsewhere(verdicts: Verdicts, first: str, second: str) -> str:
    """Count the other tasks by which of two models is better; empty without any."""
    if not verdicts.count:
        return ""
    counts = {first: len(verdicts.better), second: len(verdicts.worse)}
    parts = [f"{name} is better on {count}" for name, count in counts.items() if count]
    if verdicts.not_shown:
        parts.append(f"no difference is shown on {len(verdicts.not_shown)}")
    return f"Of {plural(verdicts.count, 'other task')}, {', '.join(parts)}."


def _and(names: Sequence[str]) -> str:
    """Return names with "and" before the last; of many, the first and the number of others.

    >>> _and(["a"]), _and(["a", "b"]), _and(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    if len(names) > _MOST_NAMED:
        return first_names(names, most=_MOST_NAMED)
    return names_in_words(names)


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
