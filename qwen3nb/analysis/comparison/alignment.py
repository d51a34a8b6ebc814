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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, by_id, join
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.query_scores import QueryScores, rows_of_parts
from qwen3nb.metrics.retrieval import NOTHING_FOUND, PART_FOUND_NOTHING, find_measure
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
    whole: bool = False,
) -> tuple[list[ScoreMatrix], list[str]]:
    """Join records into one matrix per task, by name; return notes on records left out.

    A model that was run with several seeds counts as one system per seed. The last finished of
    several records of the same model, seed and task is used, and the revision of a task's data with
    most records (if tied, the newer). The defaults are each task's main metric, all tasks and the
    `system_names` of these records. A task in parts is one matrix per part, or a single one if it
    is taken ``whole``.
    """
    results_on_tasks = [result for result in results if tasks is None or result.task.key in tasks]
    newest, notes_on_older = newest_records(results_on_tasks)
    records = newest if whole else by_part(newest)
    names = names or system_names(records)
    notes = [str(note) for note in notes_on_older]
    recorded_tasks = {result.task.key for result in results_on_tasks}
    # Tasks that were asked for, and have no record.
    for task in sorted(set(tasks or ()) - recorded_tasks):
        notes.append(f"{task}: no record of any system")
    by_task: dict[str, list[Result]] = {}  # systems of a task in the order of their names
    for record in sorted(records, key=lambda record: system_name(record, names)):
        by_task.setdefault(record.task.key, []).append(record)
    matrices: list[ScoreMatrix] = []
    for task in sorted(by_task):
        matrix, notes_on_task = _pair_on_task(task, by_task[task], names, metric)
        notes += notes_on_task
        if matrix is not None:
            matrices.append(matrix)
    return matrices, notes


def _pair_on_task(
    task: str, records: Sequence[Result], names: Names, metric: str | None
) -> tuple[ScoreMatrix | None, list[str]]:
    """Join the records of one task; return None if no two pair, and notes on what is left out."""
    metric = metric or records[0].task.main_metric
    columns, notes = score_columns(task, records, names, metric, common_revision(records))
    if len(columns) < 2:
        notes += [f"{task}: {name} has no other system to pair with" for name in columns]
        return None, notes
    clusters = clusters_across_parts(records)
    part_of = parts_of_queries(records)
    try:
        matrix = join(columns, task=task, metric=metric, clusters=clusters, part_of=part_of)
        return matrix, notes
    except ValueError as error:
        return None, [*notes, str(error)]


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
    notes = []
    for result in from_oldest(results):
        label = result.model.label
        key = (result.model.identity, result.seed, result.task.key)
        earlier_record = newest.get(key)
        if earlier_record is not None and earlier_record.model.label == label:
            reason = (
                f"an earlier record of {label} (seed {result.seed}), "
                f"finished {earlier_record.finished}"
            )
            notes.append(Note(result.task.key, reason))
        newest[key] = result
    return list(newest.values()), notes


def by_part(results: Iterable[Result]) -> list[Result]:
    """Replace records of tasks with several splits or subsets by one record per part.

    Queries are paired within a split and subset. The key of a part is that of a restricted task:
    ``STS17-en-en``, or ``PoemSentiment-test``.
    """
    records = []
    for result in results:
        if result.parts:
            records += _parts_of(result)
        else:
            records.append(result)
    return records


def _parts_of(result: Result) -> list[Result]:
    """Return a record per part, with the scores of its queries and the key of the whole task."""
    subsets = {part.subset for part in result.parts}
    splits = {part.split for part in result.parts}
    has_subsets = len(subsets) > 1
    # A task that is restricted to one split has it in its key already.
    names_split = result.task.selection.endswith(tuple(f"-{split}" for split in splits))
    has_splits = len(splits) > 1 or names_split
    scores = result.scores
    rows_by_prefix = rows_of_parts(scores.queries, [part.prefix for part in result.parts])
    records = []
    for part in result.parts:
        selection = []
        if has_subsets:
            selection.append(part.subset)
        if has_splits:
            selection.append(part.split)
        rows = np.sort(rows_by_prefix[part.prefix])
        queries = {}  # by the id of the whole task, such as ``test/en-en/12``
        for row in rows:
            query = scores.queries[row]
            queries[query] = query.removeprefix(part.prefix)
        task = replace(
            result.task,
            selection="-".join(selection),  # such as ``en-en-test``
            splits=(part.split,),
            subsets=(part.subset,),
            languages=part.languages,
            mteb=None,  # which is of all parts
            clusters=_renamed(queries, result.task.clusters),
            part_of=result.task.key,
        )
        columns = {name: scores.array(name)[rows] for name in scores}
        per_query = QueryScores(tuple(queries.values()), columns)
        metrics = {result.task.main_metric: part.score}
        records.append(replace(result, task=task, metrics=metrics, per_query=per_query, parts=()))
    return records


def _renamed(names: Mapping[str, str], by_query: Mapping[str, str]) -> dict[str, str]:
    """Return what some queries have, by their new names."""
    return {name: by_query[query] for query, name in names.items() if query in by_query}


def parts_of_queries(records: Iterable[Result]) -> dict[str, str]:
    """Return the part of each query of whole tasks, such as ``test/en/``; none without parts."""
    # Most records of a task have the same queries, which are looked through once.
    parts_by_queries = {record.scores.queries: record.parts for record in records if record.parts}
    part_of: dict[str, str] = {}
    for queries, parts in parts_by_queries.items():
        prefixes = [part.prefix for part in parts]
        for prefix, rows in rows_of_parts(queries, prefixes).items():
            part_of |= dict.fromkeys((queries[row] for row in rows), prefix)
    return part_of


def clusters_across_parts(records: Sequence[Result]) -> Mapping[str, str]:
    """Return the clusters by query id, in which a task in parts has each query once.

    Parts often have the same queries, such as translations, and scores on these are not
    independent. So queries with one id in several parts are a cluster, unless the records say which
    are. Where only the ids are the same, such as numbers of rows, the test and the interval hold
    as well: a cluster of independent queries varies as much as they do.
    """
    clusters = newest_clusters(records)
    part_of = parts_of_queries(records)
    if clusters or not part_of:
        return clusters
    return {query: query.removeprefix(part) for query, part in part_of.items()}


def newest_clusters(records: Iterable[Result]) -> Mapping[str, str]:
    """Return the clusters by query id of the newest record that has them."""
    records_with_clusters = from_oldest(record for record in records if record.task.clusters)
    if not records_with_clusters:
        return {}
    return records_with_clusters[-1].task.clusters


def clusters_of(result: Result, others: Iterable[Result] = ()) -> Mapping[str, str]:
    """Return the clusters of a record's queries; of an older record, those of its data.

    Records of rerankings once had none: then those of the newest of the ``others`` on the same
    data set that has one for each query.
    """
    if result.task.clusters:
        return result.task.clusters
    # A reranking has the queries of the task whose documents it reranks.
    collection = result.data.collection or result.task.key
    queries = set(result.scores.queries)
    on_same_data = []
    for other_record in by_part(others):
        names = (other_record.task.key, other_record.task.name, other_record.task.dataset)
        has_every_cluster = queries <= other_record.task.clusters.keys()
        if collection in names and has_every_cluster:
            on_same_data.append(other_record)
    return newest_clusters(on_same_data)


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
    records = from_oldest(results)
    newest = {record.model.identity: record.model for record in records}  # later ones replace
    by_label: dict[str, list[ModelInfo]] = {}
    for model in newest.values():
        by_label.setdefault(model.label, []).append(model)
    names = {}
    for label, models in by_label.items():
        if len(models) == 1:
            names[models[0].identity] = label
            continue
        # Such as ``demo (mean)`` and ``demo (last)``, which differ in their pooling.
        for model, mark in zip(models, _marks(models), strict=True):
            names[model.identity] = f"{label} ({mark})"
    labels: dict[str, set[str]] = {}  # all that a model ever had
    for record in records:
        labels.setdefault(record.model.identity, set()).add(record.model.label)
    for identity, model in newest.items():
        earlier_labels = sorted(labels[identity] - {model.label})
        if earlier_labels:
            names[identity] += f" (= {', '.join(earlier_labels)})"
    return names


def _marks(models: Sequence[ModelInfo]) -> list[str]:
    """Return what tells models of one label apart: pooling, dtype or digest."""
    for setting in ("pooling", "dtype"):
        values = [model.settings.get(setting) for model in models]
        if None not in values and len(set(values)) == len(models):
            return [str(value) for value in values]
    return [model.identity[:8] for model in models]


def system_name(result: Result, names: Names) -> str:
    """Return the name of the system that a record is of."""
    return names[result.model.identity, result.seed]


def system_names(results: Iterable[Result]) -> dict[tuple[str, int], str]:
    """Return names by identity and seed: the model's name, with the seed if there are several."""
    records = list(results)
    name_of_model = model_names(records)
    systems = dict.fromkeys((record.model.identity, record.seed) for record in records)
    seeds_of_model = Counter(identity for identity, _ in systems)
    names = {}
    for identity, seed in systems:
        name = name_of_model[identity]
        if seeds_of_model[identity] > 1:
            name = f"{name} (seed {seed})"
        names[identity, seed] = name
    return names


def score_columns(
    task: str, records: Iterable[Result], names: Names, metric: str, revision: str
) -> tuple[dict[str, SystemScores], list[str]]:
    """Return scores per query of the systems that can be compared, and notes on the others.

    Records of another revision of the data, without the metric per query, or of a search that found
    nothing at all are left out.
    """
    columns: dict[str, SystemScores] = {}
    notes = []
    for record in records:
        name = system_name(record, names)
        reason = _why_not_compared(record, metric, revision)
        if reason:
            notes.append(f"{task}: {name} {reason}")
        else:
            columns[name] = scores_by(metric, record)
    return columns, notes


def _why_not_compared(record: Result, metric: str, revision: str) -> str:
    """Return why a record has no scores to compare; empty if it has."""
    if record.task.revision != revision:
        return f"was run on revision {record.task.revision} of the data, the others on {revision}"
    if not record.scores.counts.get(metric):
        return f"has no {metric} per query"
    reason = without_result(record, metric)
    return f"{reason}, so there is no verdict" if reason else ""


def nothing_found(result: Result, metric: str) -> tuple[str, ...]:
    """Return the ids of the scored queries for which a search found nothing.

    A record with their number alone gives as many of its queries with a score of 0.
    """
    rankings = result.top  # the documents found; older records only count the queries without any
    count = result.task.counts.get(NOTHING_FOUND, 0)
    if rankings is None and not count:
        return ()  # such as of tasks that search nothing, whose scores need not be read
    scores = result.per_query.get(metric, {})
    if rankings is not None:
        return tuple(query for query in scores if query in rankings and not rankings[query])
    without_score = [query for query, score in scores.items() if score == 0]
    return tuple(without_score[:count])


def without_result(result: Result, metric: str) -> str:
    """Return why a search gives no verdict, as if it never ran; empty if it found something.

    It found nothing for any of its queries, or is a fusion of which a part did.
    """
    scored = result.scores.counts.get(metric, 0)
    if not scored:
        return ""
    if not _has_found(result, metric) and len(nothing_found(result, metric)) == scored:
        return "found nothing for any query"
    for noun, count in result.task.counts.items():
        # Such as "queries for which bm25, a part of the fusion, retrieved nothing".
        if noun.endswith(PART_FOUND_NOTHING) and count >= scored:
            _, _, part = noun.removesuffix(PART_FOUND_NOTHING).rpartition(" ")  # the last word
            return f"is a fusion of which {part} found nothing for any query"
    return ""


def _has_found(result: Result, metric: str) -> bool:
    """Return whether scores alone tell that a search found something, which saves its rankings.

    A measure of rankings gives a query without any document no score above 0.
    """
    if find_measure(metric) is None:
        return False
    return bool((result.scores.array(metric) > 0).any())  # NaN is not above


def scores_by(metric: str, result: Result) -> SystemScores:
    """Return the scores of a record by a metric, on the queries that have one.

    They are read when they are needed: those of all records may not fit into memory.
    """
    queries = result.scores.queries
    if result.scores.counts[metric] == len(queries):
        ids, rows = by_id(queries)  # which all records of these queries share
    else:
        is_scored = ~np.isnan(result.scores.array(metric))
        ids, order = by_id(tuple(itertools.compress(queries, is_scored)))
        rows = np.flatnonzero(is_scored)[order]
    return SystemScores(ids, partial(_scores_at, result.scores, metric, rows))


def _scores_at(scores: QueryScores, metric: str, rows: NDArray[np.intp]) -> Array:
    """Read the scores by a metric on the queries in some rows."""
    return np.asarray(scores.array(metric)[rows])


def common_revision(records: Sequence[Result]) -> str:
    """Return the revision of the data with most records; if tied, the newer."""
    times_by_revision: dict[str, list[str]] = {}
    for record in records:
        times_by_revision.setdefault(str(record.task.revision), []).append(record.finished)

    # Times are texts of the ISO format, of which the latest is the largest.
    def frequency_and_age(revision: str) -> tuple[int, str]:
        return len(times_by_revision[revision]), max(times_by_revision[revision])

    return max(times_by_revision, key=frequency_and_age)


FLOOR = "random"
_RANDOM = re.compile(rf"{FLOOR}(-\d+)?( \(.*\))?")  # such as ``random-384 (seed 1)``


def in_words(baseline: str) -> str:
    """Return the name of a baseline as shown on pages.

    >>> in_words("bm25"), in_words("random")
    ('bm25', 'random (the floor)')
    """
    is_random = _RANDOM.fullmatch(baseline)
    return f"{baseline} (the floor)" if is_random else baseline


def is_floor(result: Result) -> bool:
    """Return whether a record is of random vectors."""
    return result.model.spec.partition(":")[0] == FLOOR


def reference_models() -> dict[str, str]:
    """Return the hub ids of the reference models by name, in the order of the rule."""
    ids = {"bm25": "bm25"}
    for name, entry in registry().items():
        if entry.get("baseline", True):
            ids[name] = str(entry.get("id", name))
    return ids


def possible_baselines(results: Iterable[Result], *, named: str = "") -> list[Result]:
    """Return the records of models that `baselines` may choose."""
    ids = reference_models()
    specs = {FLOOR, *ids, *ids.values()}  # names and hub ids; of ``random:384``, what is before ":"
    return [
        result
        for result in results
        if result.model.label == named or result.model.spec.partition(":")[0] in specs
    ]


def baselines(results: Iterable[Result], names: Names, *, named: str = "") -> list[str]:
    """Return the names of possible baselines, the first choice first.

    ``results`` have scores on the tasks shown; a label ``named`` by the user comes first.
    """
    ids = reference_models()
    place_in_rule: dict[str, int] = {}  # by name and by hub id
    for position, (name, hub_id) in enumerate(ids.items()):
        place_in_rule[name] = position
        place_in_rule[hub_id] = position
    tasks: dict[str, set[str]] = {}
    references: dict[str, int] = {}  # published models, with their place in the rule
    chosen_by_user, random_baselines = [], []
    for result in results:
        name = system_name(result, names)
        tasks.setdefault(name, set()).add(result.task.key)
        if result.model.label == named:
            chosen_by_user.append(name)
        spec = result.model.spec
        if spec in place_in_rule:  # but not results of a training, which are in a folder
            references[name] = place_in_rule[spec]
        elif is_floor(result):  # random vectors, which any model should beat
            random_baselines.append(name)

    def most_tasks_first(name: str) -> tuple[int, int, str]:
        return -len(tasks[name]), references[name], name

    published_names = sorted(references, key=most_tasks_first)
    return list(dict.fromkeys([*chosen_by_user[:1], *published_names, *random_baselines]))
