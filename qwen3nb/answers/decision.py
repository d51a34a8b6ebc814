"""Which model to use: the model in use, or one of its candidates.

A candidate is taken if it is shown to be better than the model in use by more than the margin, and
nothing that was not found, and no document without a judgement, could turn that. Among the
candidates that cannot be told apart from the best of them, the cheapest is taken: by seconds per
query, then by bytes per document. Without one, the model in use stays, which so wins every tie.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.differences import PairedDifference, TaskComparison
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.unjudged import ADVICE
from qwen3nb.records.record import Result
from qwen3nb.utils.format import duration_text, interval_text, p_value_text

NO_VERDICT = "no candidate has a verdict"
_FLOAT = 4  # bytes of a dimension
_AS_FAST = 1.25  # times the seconds of the fastest, within which timings of a query agree


@dataclass(frozen=True)
class Cost:
    """What a model costs; None for what was not measured."""

    seconds: float | None = None  # median per query, one at a time
    size: int | None = None  # bytes of the vectors of a document; 0 without vectors

    @property
    def text(self) -> str:
        """The cost in words."""
        parts = []
        if self.seconds is not None:
            parts.append(f"{duration_text(self.seconds)} per query")
        if self.size is not None:
            parts.append(f"{self.size:,} bytes per document" if self.size else "no vectors")
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
    # What its queries are, with their number; empty for plain ones: ``30 generated queries``.
    questions: str = ""
    mark: str = ""  # the same after the title, such as ``on generated queries``
    unjudged: str = ""  # how much is unjudged, if that could turn every verdict

    @property
    def title(self) -> str:
        """``Keep X``, ``Take Y instead of X``, or ``No decision``, marked on generated queries."""
        return f"{self._plain_title} {self.mark}".strip()

    @property
    def _plain_title(self) -> str:
        if self.use != self.current:
            return f"Take {self.use} instead of {self.current}"
        if self.outcome == NO_VERDICT:
            return "No decision"
        return f"Keep {self.current}"

    @property
    def brief(self) -> str:
        """The decision and what it rests on, in two short sentences."""
        return f"{self.title}. {self._brief_evidence()}"

    def _brief_evidence(self) -> str:
        """Say in a sentence what the decision rests on."""
        if self.outcome == NO_VERDICT and self.unjudged:
            return f"{self.unjudged}, and their grades could turn every verdict: {ADVICE}."
        if self.outcome == NO_VERDICT:
            return (
                "Documents that nobody has judged, or found, could turn the verdict on every "
                "candidate."
            )
        candidate_mean, current_mean = self.best.means
        scores = (
            f"{self.best.first} has {self.best.metric} {candidate_mean:.3f}, {self.current} "
            f"{current_mean:.3f}, over {self.questions or f'{self.best.n} queries'}"
        )
        if self.use == self.current:
            return f"No candidate is shown to be better by more than the margin: {scores}."
        return f"{scores}."

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
            return self.outcome  # why it stays
        sentence = evidence(self.best)
        if self.also_better:
            names = ", ".join(self.also_better)
            sentence += f"; {names} would be better than {self.current} too"
        return sentence

    def _rival_sentences(self) -> list[str]:
        """Say which candidates cannot be told apart, and why this one of them is taken."""
        if not self.rivals:
            return []
        # A rival is the second of its difference: model taken - rival.
        rivals = "; ".join(f"{rival.second} ({short_evidence(rival)})" for rival in self.rivals)
        costs = "; ".join(f"{model}: {cost.text}" for model, cost in self.costs)
        reason = "They cost about the same, and it has the largest mean"
        if self.by_cost:
            reason = "It is the cheaper one"
        return [f"Not told apart from {self.use}: {rivals}", f"{reason} ({costs})"]


def evidence(difference: PairedDifference) -> str:
    """Describe a candidate's difference from the model in use, with interval and p-value."""
    candidate_mean, current_mean = difference.means
    interval = interval_text(difference.interval, absent="(no interval)")
    p_value = f"p {p_value_text(difference.corrected, relation=True)}"
    if difference.family > 1:
        p_value = f"corrected {p_value}"
    return (
        f"{difference.metric} {candidate_mean:.3f} against {current_mean:.3f}, a difference of "
        f"{difference.difference:+.3f} {interval} over {difference.n} queries, {p_value}"
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
    machines = set()
    for record in records.values():
        machines.add((record.environment.platform, record.environment.device))
    costs = {}
    for model, record in records.items():
        seconds = None
        # Times of different machines cannot be compared.
        if len(machines) == 1:
            seconds = record.search.seconds_per_query
        costs[model] = Cost(seconds, document_bytes(record))
    return costs


def document_bytes(record: Result) -> int | None:
    """Return the bytes of the vectors of a document; 0 without vectors, None if unknown."""
    if record.dimensions:
        return record.dimensions * _FLOAT
    if record.search.bytes_per_document is not None:
        return round(record.search.bytes_per_document)
    without_vectors = record.model.settings.get("model", {}).get("kind") == "bm25"
    return 0 if without_vectors else None


def cheapest(models: Sequence[str], costs: Mapping[str, Cost]) -> list[str]:
    """Return the cheapest models: the fastest, and of these those of the smallest vectors.

    A cost decides only if it is known of all.
    """
    seconds = {model: costs[model].seconds for model in models}
    fast = _lowest(seconds, tolerance=_AS_FAST)
    sizes = {model: costs[model].size for model in fast}
    return _lowest(sizes)


def _lowest(costs: Mapping[str, float | None], *, tolerance: float = 1.0) -> list[str]:
    """Return the models that cost at most ``tolerance`` times the minimum.

    These are all models if a cost is unknown.
    """
    known_costs = [cost for cost in costs.values() if cost is not None]
    if len(known_costs) < len(costs):
        return list(costs)
    limit = tolerance * min(known_costs)
    return [model for model, cost in costs.items() if cost is not None and cost <= limit]


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
    # Of each difference, the first is the candidate, the second the model in use.
    doubt_of = doubts or {}
    largest_first = sorted(differences, key=lambda difference: -difference.difference)
    without_doubt = [gain for gain in largest_first if gain.first not in doubt_of]
    winners = [gain for gain in without_doubt if _is_better(gain, comparison)]
    if winners:
        decision = _take_candidate(winners, task=task, comparison=comparison, costs=costs)
    elif without_doubt:
        decision = _keep_current(without_doubt[0], _why_kept(without_doubt, comparison))
    else:  # each candidate is in doubt
        decision = _keep_current(largest_first[0], NO_VERDICT)
    return replace(decision, undecided=_undecided(doubt_of), remarks=tuple(remarks))


def _keep_current(best: PairedDifference, reason: str) -> Decision:
    """Keep the model in use; ``best`` is the difference of the best candidate from it."""
    return Decision(use=best.second, current=best.second, best=best, outcome=reason)


def _undecided(doubts: Mapping[str, str]) -> tuple[str, ...]:
    """List the candidates without a verdict; those with one reason together."""
    models: dict[str, list[str]] = {}
    for model, reason in doubts.items():
        models.setdefault(reason, []).append(model)
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in models.items())


def _take_candidate(
    winners: Sequence[PairedDifference],
    *,
    task: TaskComparison,
    comparison: Comparison,
    costs: Mapping[str, Cost],
) -> Decision:
    """Take the cheapest of the candidates that cannot be told apart from the best one.

    ``winners`` are the differences of the better candidates from the model in use, best first.
    """
    gain_by_candidate = {winner.first: winner for winner in winners}
    leader = winners[0].first
    tied_with_leader = [leader]
    for winner in winners[1:]:
        difference = task.difference(leader, winner.first)
        # Candidates without shared queries cannot be told apart, either.
        if difference is None or not difference.significant(comparison.procedure.alpha):
            tied_with_leader.append(winner.first)
    cheapest_of_tied = cheapest(tied_with_leader, costs)
    choice = cheapest_of_tied[0]
    rivals = [task.difference(choice, name) for name in tied_with_leader if name != choice]
    return Decision(
        use=choice,
        current=gain_by_candidate[choice].second,
        best=gain_by_candidate[choice],
        outcome="",
        rivals=tuple(rival for rival in rivals if rival is not None),
        also_better=tuple(name for name in gain_by_candidate if name not in tied_with_leader),
        costs=tuple((name, costs[name]) for name in tied_with_leader),
        # Costs have decided if they left out some of those tied.
        by_cost=len(cheapest_of_tied) < len(tied_with_leader),
    )


def _is_better(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether a candidate is shown to be better by more than the margin."""
    procedure = comparison.procedure
    return difference.significant(procedure.alpha) and difference.difference > procedure.margin


def _why_kept(largest_first: Sequence[PairedDifference], comparison: Comparison) -> str:
    """Say why the model in use stays, from the differences of its candidates, best first."""
    procedure = comparison.procedure
    best = largest_first[0]
    is_single = len(largest_first) == 1
    tied_with_current = [
        difference.first
        for difference in largest_first
        if not difference.significant(procedure.alpha)
    ]
    is_each_worse = not tied_with_current and best.difference < 0
    is_best_better = best.first not in tied_with_current and best.difference > 0
    if is_each_worse:
        outcome = "the candidate is worse" if is_single else "every candidate is worse"
    elif is_best_better:  # but not by more than the margin, or it would be taken
        outcome = f"no candidate is better by more than {procedure.margin:g}"
    else:
        outcome = "no candidate is shown to be better"
    subject = best.first if is_single else f"the best, {best.first}"
    text = f"{outcome}; {subject}: {evidence(best)}"
    if tied_with_current:
        text += f". Not told apart from {best.second}: {', '.join(tied_with_current)}"
    return text
