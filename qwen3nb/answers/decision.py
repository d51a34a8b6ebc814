"""Which model to use: the model in use, or one of its candidates.

A candidate is taken if it is shown to be better than the model in use by more than the margin, and
nothing that was not found, and no document without a judgement, could turn that. Among the
candidates that cannot be told apart from the best of them, the cheapest is taken: by seconds per
query, then by bytes per vector. Without one, the model in use stays, which so wins every tie.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.differences import (
    TEST,
    PairedDifference,
    TaskComparison,
    correction_words,
)
from qwen3nb.answers.comparison import Comparison
from qwen3nb.records.record import Result
from qwen3nb.utils.format import duration_text, interval_text, p_value_text

NO_VERDICT = "no candidate has a verdict"
_FLOAT = 4  # bytes of a dimension
_AS_FAST = 1.25  # times the seconds of the fastest, within which timings of a query agree


@dataclass(frozen=True)
class Cost:
    """What a model costs; None for what was not measured."""

    seconds: float | None = None  # median per query, one at a time
    size: int | None = None  # bytes per vector; 0 without vectors

    @property
    def text(self) -> str:
        """The cost in words."""
        parts = []
        if self.seconds is not None:
            parts.append(f"{duration_text(self.seconds)} per query")
        if self.size is not None:
            parts.append(f"{self.size:,} bytes per vector" if self.size else "no vectors")
        return ", ".join(parts) or "not measured"


@dataclass(frozen=True)
class Decision:
    """The decision which model to use."""

    use: str  # name of the model to use
    current: str  # name of the model in use
    best: PairedDifference  # of the candidate that decides, from the model in use
    outcome: str  # why the model in use stays; empty if a candidate is taken
    # from the model taken: candidates that cannot be told apart from it
    rivals: tuple[PairedDifference, ...] = ()
    also_better: tuple[str, ...] = ()  # other candidates shown to be better than the model in use
    costs: tuple[tuple[str, Cost], ...] = ()  # of the model taken and its rivals
    by_cost: bool = False  # whether costs decided between them, or the largest mean
    undecided: tuple[str, ...] = ()  # candidates without a verdict, each with the reason
    remarks: tuple[str, ...] = ()  # what limits the verdict: other metrics, judgements, a ceiling

    @property
    def title(self) -> str:
        """``Keep X``, ``Take Y instead of X``, or ``No decision``."""
        if self.use != self.current:
            return f"Take {self.use} instead of {self.current}"
        if self.outcome == NO_VERDICT:
            return "No decision"
        return f"Keep {self.current}"

    @property
    def sentences(self) -> list[str]:
        """The reasons, with numbers: sentences without their full stops."""
        sentences = [self._first_sentence(), *self._rival_sentences()]
        sentences += [f"No verdict on {reason}" for reason in self.undecided]
        sentences += self.remarks
        return sentences

    @property
    def reason(self) -> str:
        """The reasons in one text, without the last full stop."""
        return ". ".join(self.sentences)

    @property
    def text(self) -> str:
        """The decision in words."""
        return f"{self.title}: {self.reason}."

    def __str__(self) -> str:
        return self.text

    def _first_sentence(self) -> str:
        if self.outcome == NO_VERDICT:
            return f"{self.outcome}, so {self.current} stays in use"
        if self.use == self.current:
            return self.outcome
        others = ""
        if self.also_better:
            names = ", ".join(self.also_better)
            others = f"; {names} would be better than {self.current} too"
        return evidence(self.best) + others

    def _rival_sentences(self) -> list[str]:
        """Say which candidates cannot be told apart, and why this one of them is taken."""
        if not self.rivals:
            return []
        shown = "; ".join(f"{each.second} ({short_evidence(each)})" for each in self.rivals)
        costs = "; ".join(f"{name}: {cost.text}" for name, cost in self.costs)
        why = "They cost about the same, and it has the largest mean"
        if self.by_cost:
            why = "It is the cheaper one"
        return [f"Not told apart from {self.use}: {shown}", f"{why} ({costs})"]


def evidence(difference: PairedDifference) -> str:
    """Describe a candidate's difference from the model in use, with interval and test."""
    correction = correction_words(
        difference.correction, difference.family, "pairs of the models compared"
    )
    corrected = f", {correction}" if correction else ""
    ends = interval_text(difference.interval, absent="(no interval)")
    first, second = difference.means
    return (
        f"{difference.metric} {first:.3f} against {second:.3f}, a difference of "
        f"{difference.difference:+.3f} {ends} over {difference.n} queries ({TEST}, "
        f"p {p_value_text(difference.corrected, relation=True)}{corrected})"
    )


def short_evidence(difference: PairedDifference) -> str:
    """Describe a difference by its value, interval and p-value."""
    return (
        f"{difference.metric} {difference.difference:+.3f} {interval_text(difference.interval)}, "
        f"p {p_value_text(difference.corrected, relation=True)}"
    )


def model_costs(records: Mapping[str, Result]) -> dict[str, Cost]:
    """Return the cost of each model by name.

    Seconds per query count only if all were measured on one machine and device.
    """
    machines = {
        (record.environment.platform, record.environment.device) for record in records.values()
    }
    comparable = len(machines) == 1
    costs = {}
    for name, record in records.items():
        seconds = None
        if comparable:
            seconds = record.search.seconds_per_query
        costs[name] = Cost(seconds, _vector_size(record))
    return costs


def _vector_size(record: Result) -> int | None:
    if record.dimensions:
        return record.dimensions * _FLOAT
    without_vectors = record.model.settings.get("model", {}).get("kind") == "bm25"
    return 0 if without_vectors else None


def cheapest(names: Sequence[str], costs: Mapping[str, Cost]) -> list[str]:
    """Return the cheapest models: the fastest, and of these those of the smallest vectors.

    A cost decides only if it is known of all.
    """
    left = list(names)
    seconds = [costs[name].seconds for name in left]
    measured = [value for value in seconds if value is not None]
    if len(measured) == len(left):
        limit = _AS_FAST * min(measured)
        left = [name for name, value in zip(left, measured, strict=True) if value <= limit]
    sizes = [costs[name].size for name in left]
    stated = [size for size in sizes if size is not None]
    if len(stated) == len(left):
        left = [name for name, size in zip(left, stated, strict=True) if size == min(stated)]
    return left


def decide(
    task: TaskComparison,
    differences: Sequence[PairedDifference],
    *,
    comparison: Comparison,
    costs: Mapping[str, Cost],
    doubts: Mapping[str, str] | None = None,
    remarks: Iterable[str] = (),
) -> Decision:
    """Choose between the model in use and its candidates.

    Args:
        task: the comparison on the deciding metric.
        differences: every candidate - the model in use, by that metric.
        comparison: with the procedure.
        costs: by model.
        doubts: by candidate, why there is no verdict on it.
        remarks: sentences on what limits the verdict.
    """
    doubted = doubts or {}
    by_gain = sorted(differences, key=lambda difference: -difference.difference)
    decided = [difference for difference in by_gain if difference.first not in doubted]
    current = by_gain[0].second
    by_reason: dict[str, list[str]] = {}
    for model, reason in doubted.items():
        by_reason.setdefault(reason, []).append(model)
    undecided = tuple(f"{', '.join(models)}: {reason}" for reason, models in by_reason.items())
    limits = tuple(remarks)
    winners = [difference for difference in decided if _is_better(difference, comparison)]
    if not winners:
        best = (decided or by_gain)[0]
        outcome = _why_kept(decided, comparison) if decided else NO_VERDICT
        return Decision(current, current, best, outcome, undecided=undecided, remarks=limits)
    leader = winners[0]
    alike = [leader.first]
    for winner in winners[1:]:
        between = task.difference(leader.first, winner.first)
        if between is None or not between.significant(comparison.procedure.alpha):
            alike.append(winner.first)
    cheap = cheapest(alike, costs)
    choice = cheap[0]
    compared = (task.difference(choice, name) for name in alike if name != choice)
    return Decision(
        choice,
        current,
        next(winner for winner in winners if winner.first == choice),
        "",
        rivals=tuple(difference for difference in compared if difference is not None),
        also_better=tuple(winner.first for winner in winners if winner.first not in alike),
        costs=tuple((name, costs[name]) for name in alike),
        by_cost=len(cheap) < len(alike),
        undecided=undecided,
        remarks=limits,
    )


def _is_better(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether a candidate is shown to be better by more than the margin."""
    procedure = comparison.procedure
    return difference.significant(procedure.alpha) and difference.difference > procedure.margin


def _why_kept(by_gain: Sequence[PairedDifference], comparison: Comparison) -> str:
    """Say why the model in use stays, from the differences of its candidates, best first."""
    procedure, best = comparison.procedure, by_gain[0]
    significant = [each for each in by_gain if each.significant(procedure.alpha)]
    single = len(by_gain) == 1
    if len(significant) == len(by_gain) and best.difference < 0:
        outcome = "the candidate is worse" if single else "every candidate is worse"
    elif best in significant and best.difference > 0:
        outcome = f"no candidate is better by more than {procedure.margin:g}"
    else:
        outcome = "no candidate is shown to be better"
    which = best.first if single else f"the best, {best.first}"
    alike = [each.first for each in by_gain if each not in significant]
    tied = f". Not told apart from {best.second}: {', '.join(alike)}" if alike else ""
    return f"{outcome}; {which}: {evidence(best)}{tied}"
