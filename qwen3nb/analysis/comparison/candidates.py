"""The rule that decides whether a candidate should replace the model in use, and whom it judges.

A candidate is called better (or worse) than the model in use if the corrected p-value is below
``alpha`` **and** the difference is larger than ``minimum``; otherwise there is no significant
difference. The best of the better ones should replace the model in use; without one, it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.comparison.task_comparison import Procedure, TaskComparison
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.utils.format import interval_text, p_value_text

__all__ = [
    "NO_DIFFERENCE",
    "Decision",
    "QueryChange",
    "Recommendation",
    "decide",
    "evidence",
    "family",
    "largest_changes",
    "recommend",
    "rule",
    "select_candidates",
    "task_of",
]

CUSTOM_DATA = "domain-"  # prefix of the data sets of `qwen3nb domain`

NO_DIFFERENCE = "no significant difference"


@dataclass(frozen=True)
class Recommendation:
    """The rule's verdict on one candidate.

    Attributes:
        model: its name.
        verdict: ``better``, ``worse`` or ``no significant difference``.
        text: the verdict with its reason.
    """

    model: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Decision:
    """Which model to use from now on.

    Attributes:
        use: its name.
        current: name of the model in use.
        reason: why, with the numbers.
    """

    use: str
    current: str
    reason: str

    @property
    def title(self) -> str:
        """``Keep X``, or ``Take Y instead of X``."""
        kept = self.use == self.current
        return f"Keep {self.current}" if kept else f"Take {self.use} instead of {self.current}"

    def __str__(self) -> str:
        return f"{self.title}: {self.reason}."


@dataclass(frozen=True)
class QueryChange:
    """A query on which a candidate and the model in use differ.

    Attributes:
        model: name of the candidate.
        query: id of the query.
        current: score of the model in use.
        score: score of the candidate.
        difference: candidate − model in use.
    """

    model: str
    query: str
    current: float
    score: float
    difference: float


def recommend(difference: PairedDifference, *, procedure: Procedure) -> Recommendation:
    """Apply the rule to a candidate's difference from the model in use."""
    significant = difference.corrected < procedure.alpha
    large = abs(difference.difference) > procedure.minimum
    verdict = NO_DIFFERENCE
    if significant and large:
        verdict = "better" if difference.difference > 0 else "worse"
    text = (
        f"{verdict}: {difference.metric} differs by {difference.difference:+.3f} "
        f"(corrected p {p_value_text(difference.corrected, relation=True)}, n = {difference.n})"
    )
    if significant and not large:
        text += f": significant, but not larger than {procedure.minimum:g}"
    if large and not significant:
        text += f": larger than {procedure.minimum:g}, but not significant"
    return Recommendation(difference.first, verdict, text)


def decide(differences: Sequence[PairedDifference], *, procedure: Procedure) -> Decision:
    """Take the best candidate that is better, or keep the model in use.

    Args:
        differences: of every candidate from the model in use, at least one.
        procedure: the parameters of the rule.
    """
    by_gain = sorted(differences, key=lambda each: -each.difference)
    verdicts = [recommend(each, procedure=procedure).verdict for each in by_gain]
    better = [each for each, verdict in zip(by_gain, verdicts, strict=True) if verdict == "better"]
    current, best = by_gain[0].second, by_gain[0]
    if better:
        names = ", ".join(each.first for each in better[1:])
        others = f"; {names} would be better than {current} too" if names else ""
        return Decision(better[0].first, current, evidence(better[0]) + others)
    if set(verdicts) == {"worse"}:
        outcome = "the candidate is worse" if len(by_gain) == 1 else "every candidate is worse"
    elif best.corrected < procedure.alpha and best.difference > 0:
        outcome = f"no candidate is better by more than {procedure.minimum:g}"
    else:
        outcome = "no candidate is shown to be better"
    which = best.first if len(by_gain) == 1 else f"the best, {best.first}"
    return Decision(current, current, f"{outcome}; {which}: {evidence(best)}")


def evidence(difference: PairedDifference) -> str:
    """A candidate's difference from the model in use with its interval and its test, in words."""
    each = difference
    over = f", corrected by Holm's method for {each.family} candidates" if each.family > 1 else ""
    ends = interval_text(each.interval, absent="(no interval)")
    return (
        f"{each.metric} {each.means[0]:.3f} against {each.means[1]:.3f}, a difference of "
        f"{each.difference:+.3f} {ends} over {each.n} queries (paired permutation test, "
        f"p {p_value_text(each.corrected, relation=True)}{over})"
    )


def rule(comparison: Comparison, deciding: TaskComparison) -> str:
    """The rule in words, with its parameters and the family of tests."""
    how = comparison.procedure
    return (
        f"Rule: better or worse if the corrected p-value of {deciding.metric} is below "
        f"{how.alpha:g} and the difference is larger than {how.minimum:g}; otherwise no "
        f"significant difference. Two-sided paired permutation test ({how.draws:,} sign flips), "
        f"{family(comparison, deciding)}."
    )


def family(comparison: Comparison, deciding: TaskComparison) -> str:
    """The family over which the p-values of one metric are corrected, in words."""
    method, count = NAMES[comparison.procedure.correction], deciding.compared_count
    return f"{method} over the {count} comparisons with {comparison.baseline} by that metric"


def largest_changes(matrix: ScoreMatrix, *, most: int) -> list[QueryChange]:
    """The queries on which the two systems differ most, largest change first.

    Args:
        matrix: scores of the candidate and the model in use, in this order.
        most: maximum number of queries; unchanged queries are never listed.
    """
    ours, theirs = matrix.scores
    changes: Sequence[QueryChange] = [
        QueryChange(matrix.systems[0], query, float(b), float(a), float(a - b))
        for query, a, b in zip(matrix.queries, ours, theirs, strict=True)
        if a != b
    ]
    return sorted(changes, key=lambda change: (-abs(change.difference), change.query))[:most]


def task_of(
    results: Sequence[Result], *, current: str, task: str = "", tested: Sequence[str] = ()
) -> str:
    """Return the key of the task to compare on; of several revisions, the one finished last.

    Args:
        results: any records.
        current: label of the model in use.
        task: name of the task or its data set; by default the only custom data set of the
            current model, else its only retrieval task, else its only task.
        tested: metrics that a record must have per query.

    Raises:
        ValueError: no such record, or several tasks; lists them.
    """
    fit = [r for r in results if all(metric in r.per_query for metric in tested)]
    if task:
        fit = [r for r in fit if task in (r.task.key, r.task.dataset, _custom_data(r))]
    mine = sorted((r for r in fit if r.model.label == current), key=lambda r: r.finished)
    if not task:
        custom = [r for r in mine if _custom_data(r)]
        mine = custom or [r for r in mine if r.task.type == "Retrieval"] or mine
    names = {r.task.key for r in mine}
    if not mine:
        labels = ", ".join(sorted({r.model.label for r in fit})) or "no model"
        raise ValueError(
            f"no record of {current!r} with {' and '.join(tested)} per query"
            f"{f' on {task!r}' if task else ''}; available: {labels}"
        )
    if not task and len({r.task.dataset or r.task.key for r in mine}) > 1:
        raise ValueError(f"choose a task: {', '.join(sorted(names))}")
    if len(names) > 1 and task not in names and len({r.task.type for r in mine}) > 1:
        raise ValueError(f"choose a task: {', '.join(sorted(names))}")
    return str(task if task in names else mine[-1].task.key)


def select_candidates(
    results: Sequence[Result],
    *,
    task: str,
    current: str,
    models: Sequence[str] = (),
    tested: Sequence[str] = (),
) -> tuple[list[Result], list[str]]:
    """Return the newest record per model, the model in use first, and why others are left out.

    Raises:
        ValueError: an unknown model, or none to compare with; lists those available.
    """
    newest = [result for result in latest(results) if result.task.key == task]
    labels = sorted({result.model.label for result in newest})
    if unknown := [label for label in models if label not in labels]:
        raise ValueError(f"no record of {unknown[0]!r} on {task}; available: {', '.join(labels)}")
    wanted = [r for r in newest if not models or r.model.label in (current, *models)]
    used = next(r for r in wanted if r.model.label == current)
    records, left_out = [used], []
    for result in wanted:
        label = result.model.label
        lacking = [metric for metric in tested if metric not in result.per_query]
        if result is used:
            continue
        if result.task.revision != used.task.revision:
            left_out.append(f"{label} was run on another revision of the data")
        elif lacking:
            left_out.append(f"{label} has no {lacking[0]} per query")
        elif result.model.identity == used.model.identity and result.seed == used.seed:
            left_out.append(f"{label} is the same model as {current}")
        else:
            records.append(result)
    if len(records) < 2:
        raise ValueError(
            f"no model to compare with {current!r} on {task}: {'; '.join(left_out) or 'no record'}"
        )
    return records, left_out


def _custom_data(result: Result) -> str:
    """Return the name of a record's custom data set without its prefix; empty for other data."""
    dataset = result.task.dataset or ""
    return dataset.removeprefix(CUSTOM_DATA) if dataset.startswith(CUSTOM_DATA) else ""
