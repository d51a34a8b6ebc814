"""Scores of several systems aligned by task and query.

Anything that cannot be paired is reported: queries that a system did not answer, tasks of a single
system, records of another revision of the data, metrics without per-query scores.

The baseline that the others are compared with is named by a parameter or by ``baseline:`` below
``qwen3nb:`` in ``_config.yml``. Otherwise it is a reference model: bm25, a published model of the
registry, or one with ``baseline = true`` in a study's ``models.toml``; the one with scores on most
of the tasks shown, then the first in this order. For a task without it, the next reference model is
used. Random vectors are a floor, used for tasks without any reference model.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, join, system_scores
from qwen3nb.metrics.retrieval import NOTHING_FOUND, PART_FOUND_NOTHING
from qwen3nb.models.kinds.source import registry
from qwen3nb.records.record import ModelInfo, Result
from qwen3nb.records.results import from_oldest

Names = Mapping[tuple[str, int], str]  # of systems, by identity and seed


def pair_results(
    results: Iterable[Result],
    *,
    metric: str | None = None,
    tasks: Sequence[str] | None = None,
    names: Names | None = None,
) -> tuple[list[ScoreMatrix], list[str]]:
    """Join records into one matrix per task, by name; return notes on records left out.

    A model that was run with several seeds counts as one system per seed. The last finished of
    several records of the same model, seed and task is used, and the revision of a task's data with
    most records (if tied, the newer). The defaults are each task's main metric, all tasks and the
    `system_names` of these records.
    """
    given = [result for result in results if tasks is None or result.task.key in tasks]
    records, replaced = newest_records(given)
    left_out = [str(note) for note in replaced]
    newest = by_part(records)
    names = names or system_names(newest)
    by_task: dict[str, list[Result]] = {}
    for result in sorted(newest, key=lambda each: names[each.model.identity, each.seed]):
        by_task.setdefault(result.task.key, []).append(result)
    missing = sorted(set(tasks or ()) - {result.task.key for result in given})
    left_out += [f"{task}: no record of any system" for task in missing]
    matrices: list[ScoreMatrix] = []
    for task, records in sorted(by_task.items()):
        wanted = metric or records[0].task.main_metric
        columns, reasons = score_columns(task, records, names, wanted, common_revision(records))
        left_out += reasons
        if len(columns) < 2:
            left_out += [f"{task}: {name} has no other system to pair with" for name in columns]
        else:
            try:
                clusters = newest_clusters(records)
                matrices.append(join(columns, task=task, metric=wanted, clusters=clusters))
            except ValueError as error:
                left_out.append(str(error))
    return matrices, left_out


@dataclass(frozen=True)
class Note:
    """Why something of a task is not compared."""

    task: str
    reason: str

    def __str__(self) -> str:
        return f"{self.task}: {self.reason}"


def newest_records(results: Iterable[Result]) -> tuple[list[Result], list[Note]]:
    """Return the newest record per model identity, seed and task, and a note on each older one.

    Records of the same content under another label get no note: `model_names` shows the label.
    """
    newest: dict[tuple[str, int, str], Result] = {}
    replaced = []
    for result in from_oldest(results):
        key = (result.model.identity, result.seed, result.task.key)
        if key in newest and newest[key].model.label == result.model.label:
            replaced.append(
                Note(
                    result.task.key,
                    f"an earlier record of {result.model.label} (seed {result.seed}), finished "
                    f"{newest[key].finished}",
                )
            )
        newest[key] = result
    return list(newest.values()), replaced


def by_part(results: Iterable[Result]) -> list[Result]:
    """Replace records of tasks with several splits or subsets by one record per part.

    Queries are paired within a split and subset. The key of a part is that of a restricted task:
    ``STS17-en-en``, or ``PoemSentiment-test``.
    """
    records = []
    for result in results:
        subsets = len({part.subset for part in result.parts}) > 1
        splits = len({part.split for part in result.parts}) > 1
        splits |= result.task.selection.endswith(tuple(f"-{part.split}" for part in result.parts))
        for part in result.parts:
            start = f"{part.split}/{part.subset}/"
            columns = {name: _within(start, each) for name, each in result.per_query.items()}
            task = replace(
                result.task,
                selection="-".join([part.subset] * subsets + [part.split] * splits),
                splits=(part.split,),
                subsets=(part.subset,),
                languages=part.languages,
                mteb=None,
                clusters=_within(start, result.task.clusters),
            )
            metrics = {result.task.main_metric: part.score}
            records.append(replace(result, task=task, metrics=metrics, per_query=columns, parts=()))
        if not result.parts:
            records.append(result)
    return records


def _within(start: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {q.removeprefix(start): value for q, value in values.items() if q.startswith(start)}


def newest_clusters(records: Iterable[Result]) -> Mapping[str, str]:
    """Return the clusters by query id of the newest record that has them."""
    clustered = from_oldest(record for record in records if record.task.clusters)
    return clustered[-1].task.clusters if clustered else {}


def clusters_of(result: Result, others: Iterable[Result] = ()) -> Mapping[str, str]:
    """Return the clusters of a record's queries; of an older record, those of its data.

    Records of rerankings once had none: then those of the newest of the ``others`` on the same
    data set that has one for each query.
    """
    if result.task.clusters:
        return result.task.clusters
    collection = result.data.collection or result.task.key
    queries = set(result.scores.queries)
    same = [
        other
        for other in by_part(others)
        if collection in (other.task.key, other.task.name, other.task.dataset)
        and queries <= other.task.clusters.keys()
    ]
    return newest_clusters(same)


def comparable(one: Result, other: Result) -> bool:
    """Return whether both records score the same queries and data by the first's main metric."""
    metric = one.task.main_metric
    return (
        one.task.key == other.task.key
        and one.task.revision == other.task.revision
        and metric in one.per_query
        and metric in other.per_query
        and one.per_query[metric].keys() == other.per_query[metric].keys()
    )


def model_names(results: Iterable[Result]) -> dict[str, str]:
    """Return names by model identity: the newest label, with what differs if it is not unique.

    Models of one label are named by their pooling or dtype, else by digest. A model with
    several labels shows the others as well: ``demo-average (= runs-ul2-best)``.
    """
    newest = from_oldest(results)
    models = {result.model.identity: result.model for result in newest}
    by_label: dict[str, list[ModelInfo]] = {}
    for model in models.values():
        by_label.setdefault(model.label, []).append(model)
    names = {}
    for label, same in by_label.items():
        marks: list[Any] = [model.identity[:8] for model in same]
        for values in ([model.settings.get(key) for model in same] for key in ("dtype", "pooling")):
            if None not in values and len(set(values)) == len(same):
                marks = values
        for model, mark in zip(same, marks, strict=True):
            names[model.identity] = f"{label} ({mark})" if len(same) > 1 else label
    aliases: dict[str, set[str]] = {}
    for result in newest:
        aliases.setdefault(result.model.identity, set()).add(result.model.label)
    for identity, model in models.items():
        if others := sorted(aliases[identity] - {model.label}):
            names[identity] += f" (= {', '.join(others)})"
    return names


def system_names(results: Iterable[Result]) -> dict[tuple[str, int], str]:
    """Return names by identity and seed: the model's name, with the seed if there are several."""
    given = list(results)
    names = model_names(given)
    systems = dict.fromkeys((result.model.identity, result.seed) for result in given)
    identities = [identity for identity, _ in systems]
    return {
        (identity, seed): f"{names[identity]} (seed {seed})"
        if identities.count(identity) > 1
        else names[identity]
        for identity, seed in systems
    }


def score_columns(
    task: str, records: Iterable[Result], names: Names, metric: str, revision: str
) -> tuple[dict[str, SystemScores], list[str]]:
    """Return scores per query of the systems that can be compared, and notes on the others.

    Records of another revision of the data, without the metric per query, or of a search that found
    nothing at all are left out.
    """
    columns: dict[str, SystemScores] = {}
    reasons = []
    for result in records:
        name = names[result.model.identity, result.seed]
        if result.task.revision != revision:
            reasons.append(
                f"{task}: {name} was run on revision {result.task.revision} of the data, "
                f"the others on {revision}"
            )
        elif not result.scores.counts.get(metric):
            reasons.append(f"{task}: {name} has no {metric} per query")
        elif reason := without_result(result, metric):
            reasons.append(f"{task}: {name} {reason}, so there is no verdict")
        else:
            columns[name] = scores_by(metric, result)
    return columns, reasons


def nothing_found(result: Result, metric: str) -> tuple[str, ...]:
    """Return the ids of the scored queries for which a search found nothing.

    A record with their number alone gives as many of its queries with a score of 0.
    """
    scores = result.per_query.get(metric, {})
    top = result.top
    if top is not None:
        return tuple(query for query in scores if query in top and not top[query])
    count = result.task.counts.get(NOTHING_FOUND, 0)
    return tuple(query for query, score in scores.items() if score == 0)[:count]


def without_result(result: Result, metric: str) -> str:
    """Return why a search gives no verdict, as if it never ran; empty if it found something.

    It found nothing for any of its queries, or is a fusion of which a part did.
    """
    scores = result.per_query.get(metric, {})
    if not scores:
        return ""
    if len(nothing_found(result, metric)) == len(scores):
        return "found nothing for any query"
    for what, count in result.task.counts.items():
        if what.endswith(PART_FOUND_NOTHING) and count >= len(scores):
            part = what.removesuffix(PART_FOUND_NOTHING).rpartition(" ")[2]
            return f"is a fusion of which {part} found nothing for any query"
    return ""


def scores_by(metric: str, result: Result) -> SystemScores:
    """Return the scores of a record by a metric, on the queries that have one."""
    queries, array = result.scores.queries, result.scores.array(metric)
    if result.scores.counts[metric] < len(array):
        queries, array = tuple(itertools.compress(queries, there := ~np.isnan(array))), array[there]
    return system_scores(queries, array)


def common_revision(records: Sequence[Result]) -> str:
    """Return the revision of the data with most records; if tied, the newer."""
    counts: dict[str, tuple[int, str]] = {}
    for result in records:
        count, last = counts.get(str(result.task.revision), (0, ""))
        counts[str(result.task.revision)] = (count + 1, max(last, result.finished))
    return max(counts, key=lambda revision: counts[revision])


FLOOR = "random"


def in_words(baseline: str) -> str:
    """Return the name of a baseline as shown on pages.

    >>> in_words("bm25"), in_words("random")
    ('bm25', 'random (the floor)')
    """
    of_random = re.fullmatch(rf"{FLOOR}(-\d+)?( \(.*\))?", baseline)
    return f"{baseline} (the floor)" if of_random else baseline


def is_floor(result: Result) -> bool:
    """Return whether a record is of random vectors."""
    return result.model.spec.partition(":")[0] == FLOOR


def reference_models() -> dict[str, str]:
    """Return the hub ids of the reference models by name, in the order of the rule."""
    known = {name: each for name, each in registry().items() if each.get("baseline", True)}
    return {"bm25": "bm25", **{name: str(each.get("id", name)) for name, each in known.items()}}


def possible_baselines(results: Iterable[Result], *, named: str = "") -> list[Result]:
    """Return the records of models that `baselines` may choose."""
    ids = reference_models()
    specs = {FLOOR, *ids, *ids.values()}
    return [
        each
        for each in results
        if each.model.label == named or each.model.spec.partition(":")[0] in specs
    ]


def baselines(results: Iterable[Result], names: Names, *, named: str = "") -> list[str]:
    """Return the names of possible baselines, the first choice first.

    ``results`` have scores on the tasks shown; a label ``named`` by the user comes first.
    """
    ids = reference_models()
    order, of_id = list(ids), {each: name for name, each in ids.items()}
    tasks: dict[str, set[str]] = {}
    ranks: dict[str, int] = {}
    first, floors = [], []
    for result in results:
        name = names[result.model.identity, result.seed]
        tasks.setdefault(name, set()).add(result.task.key)
        if result.model.label == named:
            first.append(name)
        spec = of_id.get(result.model.spec, result.model.spec)
        if spec in order:  # but not results of a training, which are in a folder
            ranks[name] = order.index(spec)
        elif spec.partition(":")[0] == FLOOR:
            floors.append(name)
    references = sorted(ranks, key=lambda name: (-len(tasks[name]), ranks[name], name))
    return list(dict.fromkeys([*first[:1], *references, *floors]))
