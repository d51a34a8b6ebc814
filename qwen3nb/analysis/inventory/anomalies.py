"""Anomalies in collected scores, to be reviewed: contradictions, and scores that are too equal.

Kinds of flags::

    inconsistent   files that disagree on a run's score or on the revision of a task's data, or a
                   mean that differs from that of its queries
    same scores    identical scores of different weights: a stale cache, or a file copied
    unreadable     a broken file
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qwen3nb.analysis.inventory.scores import Score

_ROUNDING = 1e-5  # MTEB rounds some of its scores to five decimals
_FEWEST_QUERIES = 10  # so many equal per-query scores, unless constant, are no coincidence
_FEWEST_TASKS = 2  # nor are equal means on this many tasks


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
        # Files of the same run and measure have to agree.
        run = (score.system, score.seed, score.facts.get("use"), score.identity)
        measure = (score.task, score.kind, score.metric, score.revision)
        groups.setdefault((run, measure), []).append(score)
    for same_measurement in groups.values():
        values = [score.value for score in same_measurement if score.value is not None]
        if not values:
            continue
        is_any_undefined = len(values) < len(same_measurement)
        if is_any_undefined or max(values) - min(values) > _ROUNDING:
            first_score = same_measurement[0]
            texts = ", ".join(_value_text(score) for score in same_measurement)
            text = (
                f"{first_score.run}, {first_score.task}, {first_score.metric}: "
                f"{len(same_measurement)} files give"
            )
            yield Flag("inconsistent", f"{text} {texts}", _files(same_measurement))


def _value_text(score: Score) -> str:
    if score.value is None:
        return "undefined"
    return f"{score.value:.6f}"


def _files(scores: Iterable[Score]) -> tuple[str, ...]:
    return tuple(score.source for score in scores)


def _revisions(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs on different revisions of a task's data."""
    scores_on: dict[str, list[Score]] = {}
    for score in scores:
        if score.revision and score.main:
            scores_on.setdefault(score.task, []).append(score)
    for task, on_task in scores_on.items():
        by_revision: dict[str, list[Score]] = {}
        for score in on_task:
            by_revision.setdefault(score.revision, []).append(score)
        if len(by_revision) < 2:
            continue
        runs_by_revision = []
        files: list[str] = []
        for revision, on_revision in by_revision.items():
            runs = sorted({score.run for score in on_revision})
            runs_by_revision.append(f"{revision}: {', '.join(runs)}")
            files += _files(on_revision)
        text = f"{task}: on different revisions of its data ({'; '.join(runs_by_revision)})"
        yield Flag("inconsistent", text, tuple(dict.fromkeys(files)))


class _Fingerprint(NamedTuple):
    """Numbers of a run that no other weights should have."""

    family: tuple[str, str]
    tasks: str  # in words
    values: tuple[tuple[str, float], ...]  # by task, or by query


def _same_scores(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs of different weights with identical scores.

    Scores agree either on ten or more queries of a task, if they vary, or, without per-query
    scores, in the means of two or more tasks.
    """
    scores_with: dict[_Fingerprint, list[Score]] = {}
    for fingerprint, score in _fingerprints(scores):
        scores_with.setdefault(fingerprint, []).append(score)
    for fingerprint, equal in scores_with.items():
        weights = {score.identity or score.run for score in equal}  # of an unknown digest, the run
        if len(weights) > 1:
            names = ", ".join(score.run for score in equal)
            text = (
                f"{names}: identical scores on {fingerprint.tasks} although the weights differ; "
                "at most one of them was measured"
            )
            yield Flag("same scores", text, _files(equal))


def _fingerprints(scores: Sequence[Score]) -> Iterator[tuple[_Fingerprint, Score]]:
    """Yield the means of each run, and its scores per query where another has the same mean."""
    main_scores = [score for score in scores if score.main]  # other metrics may agree by chance
    runs: dict[Hashable, list[Score]] = {}
    for score in main_scores:
        run = (_family(score), score.system, score.identity, score.seed)
        runs.setdefault(run, []).append(score)
    frequency_of_mean = Counter(_rounded_mean(score) for score in main_scores)
    for scores_of_run in runs.values():
        of_means = _fingerprint_of_means(scores_of_run)
        if of_means is not None:
            yield of_means, scores_of_run[0]  # any score names the run
        for score in scores_of_run:
            # Equal scores have equal means: where a mean is unique, no queries have to be read.
            has_unique_mean = frequency_of_mean[_rounded_mean(score)] == 1
            if not has_unique_mean and _is_varied(score):
                values = tuple(sorted(score.per_query.items()))
                yield _Fingerprint(_family(score), score.task, values), score


def _fingerprint_of_means(scores: Sequence[Score]) -> _Fingerprint | None:
    """Return the means of a run without scores per query; None if they are too few."""
    means = {}
    for score in scores:
        if score.value and not score.per_query:  # means of 0 may well be equal
            means[score.task] = score.value
    if len(means) < _FEWEST_TASKS:
        return None
    tasks = ", ".join(sorted(means))
    return _Fingerprint(_family(scores[0]), tasks, tuple(sorted(means.items())))


def _family(score: Score) -> tuple[str, str]:
    """Return the origin and the kind of a score; only those of one family are compared."""
    return score.origin, score.kind


def _rounded_mean(score: Score) -> tuple[tuple[str, str], str, float]:
    """Return family, task and mean, the latter up to the rounding of sums in another order."""
    return _family(score), score.task, round(score.value or 0.0, 9)


def _is_varied(score: Score) -> bool:
    """Return whether the scores per query are so many and so different that none is like them."""
    values = score.per_query.values()
    return len(values) >= _FEWEST_QUERIES and len(set(values)) > _FEWEST_TASKS
