"""Scores of one model on each task, with the paired difference from a baseline.

Baselines are chosen by `qwen3nb.analysis.comparison.alignment`. Differences come from a
`Comparison` of all models, as on every other page.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import baselines, in_words
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.metrics.aggregate import REPORTED, Aggregate
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings


@dataclass(frozen=True)
class AgainstBaseline:
    """A model's score on one task, and its paired difference from a baseline."""

    model: str
    task: str  # key of the task
    type: str  # MTEB's type of the task
    metric: str  # the main metric
    unit: str  # what ``n`` counts
    score: Aggregate  # the model's score
    baseline: str = ""  # label of the baseline; empty if there is none
    other: float | None = None  # the baseline's score; None without one
    difference: float | None = None  # model - baseline, or None
    interval: Interval | None = None  # of the difference, or None
    p_value: float | None = None  # corrected over all pairs of models on the task, or None
    family: int = 0  # number of these pairs
    why: str = ""  # why there is no difference; empty if there is one

    @property
    def significant(self) -> bool:
        """Whether the difference is significant; see `differences.significant`."""
        return significant(self.p_value, self.interval)

    @property
    def reference(self) -> str:
        """The baseline as shown: random vectors are called the floor."""
        return in_words(self.baseline)

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``not shown``; empty without a difference."""
        if self.difference is None:
            return ""
        if not self.significant:
            return "not shown"
        return "better" if self.difference > 0 else "worse"


def against_baseline(
    results: Iterable[Result],
    others: Iterable[Result],
    *,
    baseline: str = "",
    tier: str = "",
    seed: int = 0,
) -> list[AgainstBaseline]:
    """Return a model's score on every task, with its difference from a baseline.

    The mean of a ``tier`` that was run as a whole comes first, if it has one. The model's own
    records among ``others`` are ignored. By default, the baseline is the one in ``_config.yml`` or
    chosen by the rule.
    """
    own = list(results)
    if not own:
        return []
    labels = {result.model.label for result in own}
    identities = {result.model.identity for result in own}
    every = latest([*own, *others])
    if tier and not {each.task.key for each in own} <= set(TIERS[tier].task_keys):
        tier = ""  # only some queries, such as a rehearsal
    compared = compare(every, baseline=own[0].model.label, tier=tier, seed=seed)
    means = compared.means[0].records(compared.records) if compared.means else []
    own = [*(each for each in reversed(means) if each.model.identity in identities), *own]
    tasks = {each.task.key for each in own}
    candidates = [
        each
        for each in (*every, *means)
        if each.model.label not in labels and each.model.identity not in identities
        if each.task.key in tasks
    ]
    named = baseline or book_settings().baseline
    order = baselines(candidates, compared.names, named=named)
    return [_against(each, candidates, compared, order) for each in own]


def _against(
    result: Result, candidates: Iterable[Result], compared: Comparison, order: Sequence[str]
) -> AgainstBaseline:
    task, column = result.task, "cosine" if "gold" in result.per_query else result.task.main_metric
    alone = AgainstBaseline(
        result.model.label, task.key, str(task.type), task.main_metric, task.unit, result.main
    )
    usable = {
        compared.name(each): each
        for each in candidates
        if (each.task.key, each.task.revision) == (task.key, task.revision)
        and each.main.value is not None
        and column in result.per_query
        and column in each.per_query
    }
    other = next((usable[name] for name in order if name in usable), None)
    if other is None:
        why = "no record of a reference model"
        if task.unit == "draws":
            why = "its draws are not paired"
        elif result.main.how == REPORTED or column not in result.per_query:
            why = "no scores to pair"
        return replace(alone, why=why)
    if result.parts:
        return replace(alone, why="its subsets are paired one by one")
    paired = compared.between(result, other)
    return replace(
        alone,
        baseline=other.model.label,
        other=other.main.value,
        difference=paired.difference if paired else None,
        interval=paired.interval if paired else None,
        p_value=paired.corrected if paired else None,
        family=paired.family if paired else 0,
        why="" if paired else "no query is shared",
    )
