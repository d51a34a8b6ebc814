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
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.records.record import CHECKSUMS, Result, checksum, in_list
from qwen3nb.records.results import newest
from qwen3nb.records.store import load_failures, records_under
from qwen3nb.records.verification import SUMMARY, SUMMARY_SCHEMA, scores_of
from qwen3nb.tiers import BENCHMARKS, GROUP_OF, GROUPS
from qwen3nb.utils.atomic_files import exclusive_lock, write_json
from qwen3nb.utils.journal import Journal
from qwen3nb.utils.schema import Moment, Name, PathText, Unicode, field_problems
from qwen3nb.utils.secrets import Secrets, known_secrets

_RECORD = re.compile(r"[^/.][^/]*/seed_-?\d+/[^/]+\.json")  # its path, as in a list of records
_CLOCKS = timedelta(hours=25)  # clocks may differ by a day
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
            config = _options_of(last)
        summary = all_results(records, config=config, failures=load_failures(base))
        return write_json(base / SUMMARY, summary)


@dataclass(frozen=True)
class _Stated:
    """The fields of a summary, with their types."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    schema: Name
    model: Unicode
    model_path: PathText
    timestamp: Annotated[Moment, StringConstraints(min_length=1)]
    config: dict[str, Any]
    results: dict[Unicode, dict[Unicode, dict[str, Any]]]
    summary: dict[Unicode, dict[str, Any]]
    failures: dict[Unicode, Unicode]
    checksum: Name


def form_problem(stated: Any) -> str:
    """Return what of a JSON value is not as in a summary that this version writes, or nothing."""
    if not isinstance(stated, dict) or stated.get("schema") != SUMMARY_SCHEMA:
        return f"expected an object with the schema {SUMMARY_SCHEMA!r}"
    try:
        TypeAdapter(_Stated).validate_python(stated)
    except ValidationError as error:
        names = [field.name for field in fields(_Stated)]
        return field_problems(error, stated, known={"": names})[0]
    for model, entries in stated["results"].items():
        for task, entry in entries.items():
            if not _RECORD.fullmatch(str(entry.get("record"))):
                return f"the record of {model} on {task} is not named by its path"
            if not all(isinstance(entry.get(name), str) for name in ("checksum", "identity")):
                return f"{model} on {task} lacks the checksum or the identity"
    fields_of_means = {field.name for field in fields(Summary)} - {"data"} | {"substitutes"}
    for model, means in stated["summary"].items():
        others = fields_of_means ^ (means.keys() - {"generated"})
        if others:
            return f"the means of {model} lack, or have besides, {', '.join(sorted(others))}"
    return ""


def problems_with_records(
    folder: Path,
    stated: Mapping[str, Any],
    named: Mapping[str, Mapping[str, Result]],
    others: Sequence[Result],
) -> Iterator[str]:
    """Compare a summary with the records that it names; yield the differences.

    Its time and the reasons of failures are not compared, unless no record can be of that time.
    Neither are models of which a record was replaced or removed since; each of these is reported
    elsewhere.

    Args:
        folder: of the records.
        stated: the summary, of the form that `form_problem` demands.
        named: the records that it names and that are as they were, by model and task.
        others: all other records of the folder.
    """
    records = list(others)
    for of_model in named.values():
        records += of_model.values()
    yield from _problems_of_facts(stated, named, records)
    for failure in sorted(stated["failures"].keys() - load_failures(folder).keys()):
        yield f"it has a failure of {failure}, of which there is no note"
    if stated["results"].keys() != stated["summary"].keys():
        yield "its means are of other models than its results"
    for model, entries in stated["results"].items():
        yield from _problems_of_names(model, named[model])
        if named[model].keys() == entries.keys():
            yield from _problems_of_means(model, stated["summary"].get(model, {}), named[model])
    yield from _problems_of_age(folder, stated, named, others)


def _problems_of_age(
    folder: Path,
    stated: Mapping[str, Any],
    named: Mapping[str, Mapping[str, Result]],
    others: Sequence[Result],
) -> Iterator[str]:
    """Yield the records that were there before a summary, and that it lacks or has otherwise."""
    of_summary = [record for of_model in named.values() for record in of_model.values()]
    written = _time(stated["timestamp"])
    finished = [_time(record.finished) for record in of_summary if record.finished]
    is_before_all = bool(finished) and min(finished) - written > _CLOCKS
    if is_before_all and min(finished) < datetime.now(UTC):  # else a clock was wrong
        yield "its time is before that of all its records"
    place_by_entry = _places_when_complete(folder)
    newest_place = max(
        (_place(record, folder, place_by_entry) or 0 for record in of_summary), default=0
    )
    pairs, checksum_by_file = set(), {}
    for entries in stated["results"].values():
        for task, entry in entries.items():
            pairs.add((entry["identity"], task))
            checksum_by_file[entry["record"]] = entry["checksum"]
    for record in others:
        place = _place(record, folder, place_by_entry)
        is_older = bool(record.finished) and _time(record.finished) < written
        # Whatever the clocks said: another record, which it has, was written later.
        if not is_older and not (place and place < newest_place):
            continue
        label, task = record.model.label, record.task.key
        file = record.path(folder).relative_to(folder).as_posix()
        if (record.model.identity, task) not in pairs:
            yield f"it lacks {label} on {task}, of which there is a record"
        elif checksum_by_file.get(file, record.checksum) != record.checksum:
            yield f"it has {label} on {task} as in a record that had been replaced before"


class _FirstLines(Journal):
    """A list of records in the order in which each was first written completely."""

    def _store(self, key: str, value: object) -> None:
        if value:
            self._values.setdefault(key, value)


def _places_when_complete(folder: Path) -> dict[str, int]:
    """Return the place of each record in the list of a folder, by path and checksum."""
    entries = _FirstLines(folder / CHECKSUMS).keys()
    return {entry: place for place, entry in enumerate(entries, start=1)}


def _place(record: Result, folder: Path, place_by_entry: Mapping[str, int]) -> int | None:
    """Return the place of a record in a list; None if it is not there."""
    return place_by_entry.get(in_list(record.path(folder), record.checksum))


def _time(text: str) -> datetime:
    """Return a time that is stated in ISO 8601, in UTC unless it says otherwise."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _problems_of_facts(
    stated: Mapping[str, Any], named: Mapping[str, Mapping[str, Result]], records: Sequence[Result]
) -> Iterator[str]:
    """Compare the model, path and options in a summary, which are those of one record."""
    model, spec = stated["model"], stated["model_path"]
    entries = stated["results"].get(model, {})
    if model not in stated["results"] and (model or stated["results"]):
        yield "its model is none of its results"
    identities = {record.model.identity for record in records if record.model.spec == spec}
    if spec and not identities:
        yield "its model_path is that of no record"
    # Else the record that it is of may have been replaced since.
    if not entries or named[model].keys() != entries.keys():
        return
    identities_of_model = {entry["identity"] for entry in entries.values()}
    candidates = [record for record in records if record.model.identity in identities_of_model]
    if spec not in {record.model.spec for record in candidates}:
        yield "its model_path is not that of its model"
    secrets = known_secrets()
    options, _ = secrets.clean(dict(stated["config"]))
    if not any(_has_options(record, options, secrets) for record in candidates):
        yield "its config is that of no record"


def _has_options(record: Result, options: Mapping[str, object], secrets: Secrets) -> bool:
    """Return whether a record has these details; another version may have had others."""
    config = _options_of(record)
    if not options:
        return not config
    shared = {name: config[name] for name in options.keys() & config.keys()}
    public, _ = secrets.clean(json.loads(json.dumps(shared)))
    return bool(public) and all(options[name] == public[name] for name in public)


def _options_of(record: Result) -> dict[str, object]:
    """Return the options of a record that a summary has."""
    return {name: value for name, value in record.config.items() if name not in _SETTINGS_BY_QUERY}


def _problems_of_names(model: str, records: Mapping[str, Result]) -> Iterator[str]:
    """Compare the names of a model and its tasks in a summary with their records."""
    for task, record in records.items():
        if not _is_name_of(record, model) or task != record.task.key:
            yield (
                f"it has the record of {record.model.label} on {record.task.key} "
                f"as {model} on {task}"
            )


def _is_name_of(record: Result, name: str) -> bool:
    """Return whether a name, such as demo (mean) or demo (= best), may be that of a model."""
    model = record.model
    label, *marks = name.removesuffix(")").replace(") (", " (").split(" (")
    labels = [label]
    known_marks = [model.identity[:8]]
    known_marks += [str(model.settings.get(setting)) for setting in ("pooling", "dtype")]
    for mark in marks:
        if mark.startswith("= "):
            labels += mark.removeprefix("= ").split(", ")
        elif mark not in known_marks:
            return False
    return model.label in labels


def _problems_of_means(
    model: str, stated: Mapping[str, Any], records: Mapping[str, Result]
) -> Iterator[str]:
    """Compute the means of a model again from its records."""
    by_identity = {record.model.identity: record for record in records.values()}
    if len(by_identity) > 1:
        yield f"its results of {model} are of several models"
        return
    means = replace(summarise(records.values(), requested=[*records]), label=model).as_dict()
    computed = json.loads(json.dumps(means))
    for field in sorted(computed.keys() | stated.keys()):
        if not _are_alike(stated.get(field), computed.get(field)):
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
