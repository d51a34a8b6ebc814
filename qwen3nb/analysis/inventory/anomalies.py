"""Anomalies in collected scores, to be reviewed: contradictions, and scores that are too equal.

Kinds of flags::

    inconsistent   files that disagree on a run's score or on the revision of a task's data, or a
                   mean that differs from that of its queries
    same scores    identical scores of different weights: a stale cache, or a file copied
    unreadable     a broken file
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qwen3nb.analysis.inventory.scores import Score

_ROUNDING = 1e-5  # MTEB rounds some of its scores to five decimals
_QUERIES = 10  # so many equal per-query scores, unless constant, are no coincidence
_TASKS = 2  # nor are equal means on this many tasks


@dataclass(frozen=True)
class Flag:
    """An anomaly to review."""

    kind: str  # one of the kinds listed in the module's docstring
    text: str  # description with names and numbers
    files: tuple[str, ...] = ()  # the files concerned


def find_anomalies(scores: Sequence[Score]) -> list[Flag]:
    """Return what contradicts itself, and what cannot be a coincidence."""
    return [*_disagreements(scores), *_revisions(scores), *_same_scores(scores)]


def _disagreements(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag files with different scores of one run by the same metric."""
    groups: dict[Hashable, list[Score]] = {}
    for score in scores:
        run = (score.system, score.seed, score.facts.get("use"), score.identity)
        measure = (score.task, score.kind, score.metric, score.revision)
        groups.setdefault((run, measure), []).append(score)
    for group in groups.values():
        numbers = [score.value for score in group if score.value is not None]
        if not numbers:
            continue
        if len(numbers) < len(group) or max(numbers) - min(numbers) > _ROUNDING:
            values = ", ".join(_value_text(score) for score in group)
            first = group[0]
            text = f"{first.run}, {first.task}, {first.metric}: {len(group)} files give {values}"
            yield Flag("inconsistent", text, tuple(score.source for score in group))


def _value_text(score: Score) -> str:
    if score.value is None:
        return "undefined"
    return f"{score.value:.6f}"


def _revisions(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs on different revisions of a task's data."""
    tasks: dict[str, dict[str, list[Score]]] = {}
    for score in scores:
        if score.revision and score.main:
            revisions = tasks.setdefault(score.task, {})
            revisions.setdefault(score.revision, []).append(score)
    for task, revisions in tasks.items():
        if len(revisions) < 2:
            continue
        parts = []
        files: dict[str, None] = {}
        for revision, group in revisions.items():
            parts.append(f"{revision}: {', '.join(sorted({score.run for score in group}))}")
            files |= dict.fromkeys(score.source for score in group)
        text = f"{task}: on different revisions of its data ({'; '.join(parts)})"
        yield Flag("inconsistent", text, tuple(files))


class _Numbers(NamedTuple):
    """Numbers of a run that no other weights should have."""

    family: tuple[str, str]
    tasks: str
    values: tuple[tuple[str, float], ...]  # by task, or by query


def _same_scores(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs of different weights with identical scores.

    Scores agree either on ten or more queries of a task, if they vary, or, without per-query
    scores, in the means of two or more tasks.
    """
    runs: dict[_Numbers, list[Score]] = {}
    for numbers, score in _numbers_of_runs(scores):
        runs.setdefault(numbers, []).append(score)
    for numbers, group in runs.items():
        if len({score.identity or score.run for score in group}) > 1:
            names = ", ".join(score.run for score in group)
            text = (
                f"{names}: identical scores on {numbers.tasks} although the weights differ; "
                "at most one of them was measured"
            )
            yield Flag("same scores", text, tuple(score.source for score in group))


def _numbers_of_runs(scores: Sequence[Score]) -> Iterator[tuple[_Numbers, Score]]:
    """Yield the means of each run, and its scores per query where another has the same mean."""
    runs: dict[Hashable, list[Score]] = {}
    for score in scores:
        if score.main:  # Recall@100 of 100 candidates is the same for every model
            run = (_family(score), score.system, score.identity, score.seed)
            runs.setdefault(run, []).append(score)
    frequency = Counter((_family(score), _mean_on(score)) for score in scores if score.main)
    for group in runs.values():
        means = {score.task: score.value for score in group if not score.per_query and score.value}
        if len(means) >= _TASKS:
            values = tuple(sorted(means.items()))
            yield _Numbers(_family(group[0]), ", ".join(sorted(means)), values), group[0]
        for score in group:
            is_unique = frequency[_family(score), _mean_on(score)] < 2  # no need to read its scores
            if not is_unique and _is_varied(score):
                values = tuple(sorted(score.per_query.items()))
                yield _Numbers(_family(score), score.task, values), score


def _family(score: Score) -> tuple[str, str]:
    """Return the origin and the kind of a score; only those of one family are compared."""
    return score.origin, score.kind


def _mean_on(score: Score) -> tuple[str, float]:
    """Return the task and the mean, up to the rounding of sums in another order."""
    return score.task, round(score.value or 0.0, 9)


def _is_varied(score: Score) -> bool:
    """Return whether the scores per query are so many and so different that none is like them."""
    return len(score.per_query) >= _QUERIES and len(set(score.per_query.values())) > _TASKS
