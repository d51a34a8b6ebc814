"""Scores as data: means of one model, and a file with all scores for other programs.

results/all_results.json        all records; rewritten by `eval`, `sweep` and `report`
eval_results/all_results.json   models of a report

Each contains ``model``, ``model_path`` and ``config`` of the newest record, or of the report;
``results`` by model and task, with the checksum of each record; a ``summary`` by model; and
``failures``.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.records.record import Result, checksum
from qwen3nb.records.results import newest
from qwen3nb.records.store import load_failures, records_under
from qwen3nb.records.verification import SUMMARY, SUMMARY_SCHEMA, scores_of
from qwen3nb.tiers import BENCHMARKS, GROUP_OF, GROUPS
from qwen3nb.utils.atomic_files import exclusive_lock, write_json
from qwen3nb.utils.secrets import Secrets, known_secrets

_SETTINGS_BY_QUERY = ("top", "queries", "runs", "qrels")  # of a record, with a row per query


@dataclass(frozen=True)
class Summary:
    """Means of one model's scores: of benchmarks requested as a whole, or by type."""

    label: str  # name of the model
    means: tuple[benchmark_means.BenchmarkMean, ...]  # means of benchmarks requested as a whole
    # mean main score over the tasks of each MTEB type, if they have one metric
    by_type: dict[str, float]
    tasks: dict[str, int]  # number of tasks of each type; a group of tasks counts as one
    # mean over all tasks; None without tasks, with benchmarks, or if their metrics are unlike
    over_tasks: float | None
    over_types: float | None  # mean of the means by type, likewise
    missing: dict[str, str]  # requested tasks without a result, with the reason
    data: DataUsed = NO_SCORES  # of the scores
    metrics: tuple[str, ...] = ()  # main metrics of the tasks, sorted

    def as_dict(self) -> dict[str, object]:
        """Return the summary as a dictionary for JSON."""
        means = {}
        for mean in self.means:
            means[mean.column.name] = {
                "metric": mean.column.measure,
                "over": mean.column.over,
                "value": mean.value,
                "interval": mean.interval,
                "missing": list(mean.missing),
            }
        fields = dict(vars(self))
        del fields["data"]  # of which only what is not plain is listed
        if self.data.generated:
            fields["generated"] = sorted(self.data.generated)
        return {**fields, "means": means, "substitutes": sorted(self.data.substitutes)}


def summarise(
    results: Iterable[Result],
    *,
    requested: Sequence[str] = (),
    reasons: dict[str, str] | None = None,
) -> Summary:
    """Summarise one model's results.

    There is no mean over several benchmarks requested as a whole. A group of tasks (the forums of
    CQADupStack) counts as one task with the mean of its parts; if a part is missing, so is the
    task. Requested keys without a result are listed as missing, with the reason.

    Raises:
        ValueError: the records are of several models.
    """
    records = list(results)
    names = list(model_names(records).values())
    if len(names) > 1:
        raise ValueError(f"expected results of one model, got {', '.join(sorted(names))}")
    newest, _ = newest_records(records)
    by_task = {record.task.key: record for record in newest}
    means = _benchmark_means(by_task, requested)
    scores = _scores_by_type(by_task)
    by_type = {}
    for kind, scores_of_type in scores.items():
        if len(_metrics(by_task, kind)) == 1:
            by_type[kind] = fmean(scores_of_type)
    metrics = _metrics(by_task)
    over_tasks = None
    over_types = None
    if scores and not means and len(metrics) == 1:
        over_tasks = fmean(itertools.chain(*scores.values()))
        over_types = fmean(by_type.values())
    reason_by_task = {}
    for key in requested:
        if key not in by_task:
            reason_by_task[key] = (reasons or {}).get(key, "not run")
    return Summary(
        label=names[0] if names else "",
        means=means,
        by_type=by_type,
        tasks={kind: len(scores_of_type) for kind, scores_of_type in scores.items()},
        over_tasks=over_tasks,
        over_types=over_types,
        missing=reason_by_task,
        data=DataUsed.of(by_task.values()),
        metrics=metrics,
    )


def _benchmark_means(
    by_task: Mapping[str, Result], requested: Sequence[str]
) -> tuple[benchmark_means.BenchmarkMean, ...]:
    """Return the means of the benchmarks that were requested as a whole."""
    means = []
    for benchmark in BENCHMARKS.values():
        if set(benchmark.task_keys) <= set(requested):
            for column in benchmark_means.benchmark_columns(benchmark):
                means.append(benchmark_means.column_mean(column, by_task.values()))
    return tuple(means)


def _scores_by_type(by_task: Mapping[str, Result]) -> dict[str, list[float]]:
    """Return the main scores of the tasks by type; a group needs all its parts."""
    groups: dict[str, list[Result]] = {}
    for key, record in by_task.items():
        # Such as CQADupStack of one of its forums; most tasks are a group of one.
        group = GROUP_OF.get(key, key)
        groups.setdefault(group, []).append(record)
    scores_by_type: dict[str, list[float]] = {}
    for group, records in groups.items():
        scores = []
        for record in records:
            score = benchmark_means.main_score(record)
            if score is not None:
                scores.append(score)
        parts = GROUPS.get(group, [group])
        if len(scores) == len(parts):  # none is missing
            kind = str(records[0].task.type)
            scores_by_type.setdefault(kind, []).append(fmean(scores))
    return dict(sorted(scores_by_type.items()))


def _metrics(records: Mapping[str, Result], kind: str = "") -> tuple[str, ...]:
    """Return the main metrics of tasks, by MTEB's names if it ran them; optionally of a type."""
    metrics = set()
    for record in records.values():
        task = record.task
        if kind in ("", task.type):
            metrics.add(task.mteb.metric if task.mteb else task.main_metric)
    return tuple(sorted(metrics))


def write_all_results(folder: Path | str | None = None) -> Path:
    """Write the scores of all records in ``folder``, by default `paths.results`; return the file.

    Processes that write it take turns, and each reads the records within its turn.
    """
    base = Path(folder).expanduser() if folder else paths.results()
    with exclusive_lock(base / SUMMARY):
        records = list(records_under(base, whole=False))
        config: dict[str, object] = {}
        if records:
            last = newest(records)
            # The model of the last evaluation comes first; the sort keeps the order of the others.
            records.sort(key=lambda record: record.model.identity != last.model.identity)
            for name, value in last.config.items():
                if name not in _SETTINGS_BY_QUERY:
                    config[name] = value
        summary = all_results(records, config=config, failures=load_failures(base))
        return write_json(base / SUMMARY, summary)


def problems_with_records(
    folder: Path,
    stated: Mapping[str, Any],
    named: Mapping[str, Mapping[str, Result]],
    others: Sequence[Result],
) -> Iterator[str]:
    """Compare a summary with the records that it names; yield the differences.

    Its time and the reasons of failures are not compared. Neither are models of which a record was
    replaced or removed since; each of these is reported elsewhere.

    Args:
        folder: of the records.
        stated: the summary.
        named: the records that it names and that are as they were, by model and task.
        others: all other records of the folder.
    """
    records = list(others)
    for of_model in named.values():
        records += of_model.values()
    yield from _problems_of_facts(stated, records)
    for failure in sorted(stated["failures"].keys() - load_failures(folder).keys()):
        yield f"it has a failure of {failure}, of which there is no note"
    if stated["results"].keys() != stated["summary"].keys():
        yield "its means are of other models than its results"
    for model, entries in stated["results"].items():
        yield from _problems_of_names(model, named[model])
        if named[model].keys() == entries.keys():
            yield from _problems_of_means(model, stated["summary"].get(model, {}), named[model])
    stated_pairs = set()
    for entries in stated["results"].values():
        for task, entry in entries.items():
            stated_pairs.add((entry["identity"], task))
    for record in others:
        pair = (record.model.identity, record.task.key)
        is_older = "" < record.finished < stated["timestamp"]
        if is_older and pair not in stated_pairs:
            yield f"it lacks {record.model.label} on {record.task.key}, of which there is a record"


def _problems_of_facts(stated: Mapping[str, Any], records: Sequence[Result]) -> Iterator[str]:
    """Compare the model, path and options in a summary, which are those of one record."""
    if stated["model"] and stated["model"] not in stated["results"]:
        yield "its model is none of its results"
    spec = stated["model_path"]
    identities = {record.model.identity for record in records if record.model.spec == spec}
    if spec and not identities:
        yield "its model_path is that of no record"
    candidates = [record for record in records if record.model.identity in identities]
    secrets = known_secrets()
    options, _ = secrets.clean(dict(stated["config"]))
    if options and not any(_has_options(record, options, secrets) for record in candidates):
        yield "its config is that of no record"


def _has_options(record: Result, options: Mapping[str, object], secrets: Secrets) -> bool:
    """Return whether a record has these details; another version may have had others."""
    config = record.config
    shared = {name: config[name] for name in options.keys() & config.keys()}
    public, _ = secrets.clean(json.loads(json.dumps(shared)))
    return bool(public) and all(options[name] == public[name] for name in public)


def _problems_of_names(model: str, records: Mapping[str, Result]) -> Iterator[str]:
    """Compare the names of a model and its tasks in a summary with their records."""
    for task, record in records.items():
        label = record.model.label
        # Such as demo, or demo (mean) next to another model of that label.
        is_named = model == label or model.startswith(f"{label} (")
        if not is_named or task != record.task.key:
            yield f"it has the record of {label} on {record.task.key} as {model} on {task}"


def _problems_of_means(
    model: str, stated: Mapping[str, Any], records: Mapping[str, Result]
) -> Iterator[str]:
    """Compute the means of a model again from its records."""
    by_identity = {record.model.identity: record for record in records.values()}
    if len(by_identity) > 1:
        yield f"its results of {model} are of several models"
        return
    means = replace(summarise(records.values(), requested=[*records]), label=model).as_dict()
    for field, value in json.loads(json.dumps(means)).items():
        # Another version may have had other fields.
        if not _are_alike(stated.get(field, value), value):
            yield f"{field} of {model} does not follow from its records"


def _are_alike(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal but for the rounding of numbers."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _are_alike(first[name], second[name]) for name in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_are_alike, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, abs_tol=1e-9)
    return bool(first == second)


def all_results(
    results: Iterable[Result],
    *,
    config: Mapping[str, object],
    failures: Mapping[str, str],
    requested: Sequence[str] = (),
    when: datetime | None = None,
) -> dict[str, Any]:
    """Return the scores of records as JSON, those of the run's model first.

    ``config`` has the parameters of the run, ``failures`` reasons by task or model. Means are over
    the tasks ``requested`` by their keys, or those of each model; ``when`` is stated in it.
    """
    records = list(results)
    names = model_names(records)
    newest_by_model: dict[str, list[Result]] = {}
    for record in records:  # sets the order of the models
        newest_by_model[names[record.model.identity]] = []
    newest, _ = newest_records(records)
    for record in newest:
        newest_by_model[names[record.model.identity]].append(record)
    scores, summaries = {}, {}
    for name, records_of_model in newest_by_model.items():
        tasks = [record.task.key for record in records_of_model]
        summary = summarise(records_of_model, requested=requested or tasks)
        summaries[name] = replace(summary, label=name).as_dict()
        scores[name] = {record.task.key: scores_of(record) for record in records_of_model}
    # What people typed may contain a token.
    typed = {"config": dict(config), "failures": dict(failures)}
    public, _ = known_secrets().clean(typed)
    value = {
        "schema": SUMMARY_SCHEMA,
        "model": next(iter(newest_by_model), ""),
        "model_path": records[0].model.spec if records else "",
        "timestamp": (when or datetime.now(UTC)).isoformat(timespec="seconds"),
        "config": public["config"],
        "results": scores,
        "summary": summaries,
        "failures": public["failures"],
    }
    return {**value, "checksum": checksum(value)}
