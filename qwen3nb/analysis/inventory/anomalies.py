"""Anomalies in a set of scores.

Kinds:
    duplicate      the same run, task and metric in two files that agree
    inconsistent   the same in two files that disagree; or runs on different revisions of a
                   task's data
    same scores    identical scores of different weights: a stale cache, or a file copied over
                   another
    stale          results older than the weights they claim to evaluate
    superseded     an older record of a label whose weights have since changed
    nameless       MTEB's cache stores every local folder under one name
    unreadable     a broken file (detected while reading)
    empty          a file without scores, or with means that have none (likewise)
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qwen3nb.analysis.inventory.score import Score

_T = TypeVar("_T")
_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
_QUERIES = 10  # this many equal per-query scores, unless constant, are no coincidence
_TASKS = 2  # nor are equal means on this many tasks


@dataclass(frozen=True)
class Flag:
    """An anomaly for a person to check."""

    kind: str  # one of the kinds listed in the module's docstring
    text: str  # description with names and numbers
    files: tuple[str, ...] = ()  # the files concerned


def find_flags(scores: Sequence[Score]) -> list[Flag]:
    """All anomalies in ``scores``, by kind."""
    finders: tuple[Callable[[Sequence[Score]], Iterator[Flag]], ...] = (
        _doubles,
        _revisions,
        _same_scores,
        _stale,
        _superseded,
        _nameless,
    )
    return [flag for finder in finders for flag in finder(scores)]


def _doubles(scores: Sequence[Score]) -> Iterator[Flag]:
    def key(score: Score) -> Hashable:
        run = (score.system, score.seed, score.facts.get("use"))
        return (*run, score.task, score.kind, score.metric, score.revision)

    for group in _groups(scores, key):
        files = _files(group)
        if len(files) < 2 or len({score.identity for score in group} - {""}) > 1:
            continue  # different weights under one name, see _superseded
        first = group[0]
        what = f"{first.run}, {first.task}, {first.metric}"
        values = [score.value for score in group]
        if _equal(values):
            yield Flag("duplicate", f"{what}: in {len(files)} files", files)
        else:
            shown = ", ".join("undefined" if v is None else f"{v:.6f}" for v in values)
            yield Flag("inconsistent", f"{what}: {len(files)} files give {shown}", files)


def _revisions(scores: Sequence[Score]) -> Iterator[Flag]:
    named = [score for score in scores if score.revision and score.main]
    for group in _groups(named, lambda score: score.task):
        revisions: dict[str, list[str]] = defaultdict(list)
        for score in group:
            revisions[score.revision].append(score.run)
        if len(revisions) > 1:
            parts = "; ".join(f"{r}: {', '.join(sorted(set(s)))}" for r, s in revisions.items())
            text = f"{group[0].task}: runs on different revisions of its data ({parts})"
            yield Flag("inconsistent", text, _files(group))


def _same_scores(scores: Sequence[Score]) -> Iterator[Flag]:
    """Runs of different weights whose scores agree to the last digit.

    They agree either on ten or more queries of a task, with scores that vary, or, without
    per-query scores, in the means of two or more tasks.
    """
    runs: dict[tuple[Hashable, ...], dict[tuple[str, str], Score]] = defaultdict(dict)
    for score in scores:
        if not score.main:  # Recall@100 of 100 candidates is the same for every model
            continue
        where = (score.origin, score.system, score.identity, score.seed, score.kind)
        runs[where].setdefault((score.task, score.metric), score)
    for group in _groups(list(runs.values()), lambda run: (_first(run).origin, _first(run).kind)):
        clusters: list[list[dict[tuple[str, str], Score]]] = []
        for run in group:
            alike = next((c for c in clusters if _agreeing(c[0], run)), None)
            if alike is None:
                clusters.append([run])
            else:
                alike.append(run)
        for cluster in clusters:
            if len(cluster) > 1:
                names = ", ".join(_first(run).run for run in cluster)
                tasks = ", ".join(_agreeing(cluster[0], cluster[1]))
                text = (
                    f"{names}: identical scores on {tasks} although the weights differ; "
                    "at most one of them was measured"
                )
                yield Flag("same scores", text, tuple(_first(run).source for run in cluster))


def _first(run: dict[tuple[str, str], Score]) -> Score:
    return next(iter(run.values()))


def _agreeing(one: dict[tuple[str, str], Score], other: dict[tuple[str, str], Score]) -> list[str]:
    """Tasks on which two runs agree more than by chance."""
    if _same_weights(_first(one), _first(other)):
        return []
    pairs = [(score, other[key]) for key, score in one.items() if key in other]
    by_query = {s.task for s, t in pairs if _same_queries(s, t)}
    means = [(s, t) for s, t in pairs if not (s.per_query and t.per_query)]
    equal = {s.task for s, t in means if s.value is not None and s.value == t.value != 0}
    if len(equal) >= _TASKS and len(equal) == len({s.task for s, _ in means}):
        by_query |= equal
    return sorted(by_query)


def _same_weights(one: Score, other: Score) -> bool:
    """Whether two runs have, or may have, the same weights."""
    if one.identity and other.identity:
        return one.identity == other.identity
    return (one.system, one.seed) == (other.system, other.seed)


def _same_queries(one: Score, other: Score) -> bool:
    if len(one.per_query) != len(other.per_query):
        return False
    if None not in (means := [one.value, other.value]) and not _equal(means):
        return False  # equal scores have equal means, so most runs differ without a look at them
    values = dict(one.per_query)
    return (
        len(values) >= _QUERIES
        and len(set(values.values())) > _TASKS
        and values == dict(other.per_query)
    )


def _stale(scores: Sequence[Score]) -> Iterator[Flag]:
    for source, group in itertools.groupby(scores, key=lambda score: score.source):
        ended = next((score.facts.get("ended") for score in group), None)
        if ended is None or not Path(source).is_file():
            continue
        written = Path(source).stat().st_mtime
        if written < ended - 1:
            hours = (ended - written) / 3600
            text = f"{source}: written {hours:.1f} hours before its training ended"
            yield Flag("stale", text, (source,))


def _superseded(scores: Sequence[Score]) -> Iterator[Flag]:
    dated = [score for score in scores if score.finished and score.main]

    def key(score: Score) -> Hashable:
        return score.system, score.seed, score.task, score.facts.get("use")

    for group in _groups(dated, key):
        newest = max(group, key=lambda score: score.finished)
        for score in group:
            if score.identity != newest.identity:
                text = (
                    f"{score.run}, {score.task}: {score.identity[:8]}, finished {score.finished}; "
                    f"{newest.identity[:8]} has the same label and is newer"
                )
                yield Flag("superseded", text, (score.source, newest.source))


def _nameless(scores: Sequence[Score]) -> Iterator[Flag]:
    for score in scores:
        if score.origin == "mteb" and "no_model_name" in score.system.replace("/", "__"):
            text = (
                f"{score.source}: MTEB had no name for this model; its cache stores every local "
                "folder here, so the scores may be another model's"
            )
            yield Flag("nameless", text, (score.source,))


def _groups(items: Sequence[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Groups of two or more items with equal keys, in order of first appearance."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [group for group in groups.values() if len(group) > 1]


def _files(scores: Iterable[Score]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(score.source for score in scores))


def _equal(values: Sequence[float | None]) -> bool:
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return not numbers
    return all(math.isclose(numbers[0], v, rel_tol=0, abs_tol=_AGREEMENT) for v in numbers)
