"""Collect the scores of three kinds of result files in one table.

    our records       <model>/seed_<n>/<task>.json (`records.record.Result`)
    MTEB's own        <model>/<revision>/<task>.json next to model_meta.json
    adapter training  <config>/seed_<n>/results/reranking_results.json, mteb_results.json,
                      one file per data set (written by `evaluation.studies.lora_runs`),
                      or copies named <config>-seed_<n>-mteb_results.json

Files are recognised by their content. Files that are broken, contradict each other, or give the
same scores for different weights are flagged. A flag asks a person to check, so flagged scores
stay in the table. Scores of adapters carry the facts of their training, which must agree before
two runs are compared.

Kinds of flags:
    duplicate      the same run, task and metric in two files that agree
    inconsistent   the same in two files that disagree; or runs on different revisions of a
                   task's data
    same scores    identical scores of different weights: a stale cache, or a file copied over
                   another
    stale          results older than the weights they claim to evaluate
    superseded     an older record of a label whose weights have since changed
    nameless       MTEB's cache stores every local folder under one name
    unreadable     a broken file (found while reading)
    empty          a file without scores, or with means that have none (likewise)
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import step_number
from qwen3nb.datasets.rows import DataError, checked_id, finite_number, printable, read_text
from qwen3nb.datasets.training_files import json_lines, read_settings
from qwen3nb.records.record import SCHEMA, Result
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.strict_json import parse_json

_LARGEST = 256 * 2**20  # bytes; a record of 100,000 queries has about 20 MB
_SKIPPED = {"checkpoints", "partial", "logs", "_build", ".cache"}
_RERANKING_METRIC = "ndcg@10"
# Facts that describe a run, and their key paths in the training's configuration.
_KEY_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mode": (("training", "mode"), ("mode",)),
    "rank": (("lora", "rank"), ("rank",)),
    "base": (("model", "base_model_name"), ("base",)),
    "data_seed": (("data", "seed"), ("data_seed",), ("seed",)),
}
FACTS = (*_KEY_PATHS, "steps", "steps_embedding", "steps_reranking", "ended", "weights")
_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
_QUERIES = 10  # this many equal per-query scores, unless constant, are not a coincidence
_TASKS = 2  # nor are equal means on this many tasks
_COPY = re.compile(r"(?P<system>.+)-seed_(?P<seed>\d+)-(mteb|reranking)_results")
_SEED = re.compile(r"seed_(\d+)")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Score:
    """One system's score on one task."""

    system: str  # name of the model, or of its training configuration
    seed: int | None  # of the run; None if unknown
    task: str  # name of the task or data set
    metric: str  # name of the metric
    value: float | None  # the score, or None if undefined
    kind: str = ""  # ``reranking`` or ``embedding`` for adapters; else the type of the task
    # score per query id; may be empty
    per_query: Mapping[str, float] = field(default_factory=dict, repr=False)
    identity: str = ""  # digest of the weights; empty if unknown
    source: str = ""  # file it was read from
    origin: str = ""  # the program that wrote the file
    revision: str = ""  # of the task's data, or empty
    finished: str = ""  # time, ISO 8601, or empty
    # how the run was trained; see `FACTS`
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    main: bool = True  # whether it is the task's main metric

    @property
    def run(self) -> str:
        """The system and its seed."""
        return self.system if self.seed is None else f"{self.system} (seed {self.seed})"


@dataclass(frozen=True)
class Flag:
    """An anomaly for a person to check."""

    kind: str  # one of the kinds listed in the module's docstring
    text: str  # description with names and numbers
    files: tuple[str, ...] = ()  # the files concerned


@dataclass(frozen=True)
class Collection:
    """Scores collected from files, with their anomalies."""

    scores: tuple[Score, ...]  # one per system, seed, task and metric
    flags: tuple[Flag, ...] = ()  # anomalies for a person to check, by kind

    def nested(self) -> dict[str, dict[int | None, dict[str, dict[str, float | None]]]]:
        """``{system: {seed: {task: {metric: value}}}}``; of duplicates, the first."""
        table: dict[str, dict[int | None, dict[str, dict[str, float | None]]]] = {}
        for score in self.scores:
            row = table.setdefault(score.system, {}).setdefault(score.seed, {})
            row.setdefault(score.task, {}).setdefault(score.metric, score.value)
        return table


def load_all_results(folders: Path | str | Iterable[Path | str] | None = None) -> Collection:
    """Read all results below one or more folders (by default `paths.results`).

    Raises:
        FileNotFoundError: a folder does not exist.
    """
    if folders is None:
        folders = paths.results()
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    scores: list[Score] = []
    flags: list[Flag] = []
    for base in map(Path, given):
        if not base.is_dir():
            raise FileNotFoundError(f"{base}: no such folder of results")
        for file in _json_files(base):
            try:
                scores += _read(file, flags)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                text = " ".join(str(error).split()).removeprefix(f"{file}: ")
                kind = "KeyError: " if isinstance(error, KeyError) else ""
                _flag(flags, "unreadable", file, f": {kind}{text}")
    return Collection(
        tuple(scores), (*flags, *(flag for find in _FINDERS for flag in find(scores)))
    )


def _flag(flags: list[Flag], kind: str, file: Path, text: str) -> None:
    flags.append(Flag(kind, printable(f"{file}{text}"), (str(file),)))


def _json_files(base: Path) -> Iterator[Path]:
    """Yield regular JSON files below ``base`` in order, without following links to folders."""
    for folder, names, files in os.walk(base):
        names[:] = sorted(name for name in names if name not in _SKIPPED and name[0] != ".")
        for name in sorted(files):
            file = Path(folder) / name
            if name.endswith(".json") and file.is_file():
                yield file


def _read(file: Path, flags: list[Flag]) -> list[Score]:
    """Read the scores of one file; none if it contains no results.

    Raises:
        ValueError: it contains results that cannot be read.
    """
    value = _parsed(file)
    if not isinstance(value, dict):
        return []
    if str(value.get("schema", "")).startswith("qwen3nb.result/"):
        return _from_record(file)
    if "task_name" in value and isinstance(value.get("scores"), dict):
        return _from_mteb(file, value, flags)
    if isinstance(value.get("per_dataset"), dict):
        return _from_reranking(file, value, flags)
    if isinstance(value.get("per_task"), dict):
        return _from_adapter_mteb(file, value["per_task"], flags)
    if "dataset" in value and isinstance(value.get("aggregate"), dict):
        return [_from_dataset(file, value)]
    return []


def _parsed(file: Path) -> Any:
    """Return the content of a JSON file; MTEB writes bare NaN for undefined values."""
    text = read_text(file, most=_LARGEST)
    try:
        return parse_json(text, nan=True)
    except ValueError as error:
        raise DataError(f"{file}: not readable as JSON ({error})") from None


def _from_record(file: Path) -> list[Score]:
    result = Result.load(file)
    settings = result.model.settings
    training = result.config.get("training")
    known = training if isinstance(training, dict) else {}
    own_kind = "reranking" if result.task.type == "Reranking" else "embedding"
    kind = known.get("kind") or (own_kind if known else result.task.type)
    # Adapters of different seeds have different labels but share their configuration.
    system, rank = known.get("configuration") or known.get("mode"), known.get("rank")
    if "mode" not in known:
        system = result.model.label
    elif "configuration" not in known and rank is not None:
        system = f"{system}_r{rank}"
    use = [str(settings.get(key)) for key in ("pooling", "max_length", "dtype", "prompts")]
    return [
        Score(
            system=str(system) or result.model.label,
            seed=result.seed,
            task=result.task.key,
            metric=name,
            value=metric.value,
            kind=kind,
            per_query=result.per_query.get(name, {}) if metric.how == "mean" else {},
            identity=result.model.identity,
            source=str(file),
            origin=SCHEMA,
            revision=result.task.revision,
            finished=result.finished,
            facts=_facts(training, {"use": ", ".join(use)}),
            main=name == result.task.main_metric,
        )
        for name, metric in result.metrics.items()
    ]


def _from_mteb(file: Path, value: dict[str, Any], flags: list[Flag]) -> list[Score]:
    """One score per split: the mean of main_score over its subsets."""
    about = file.parent / "model_meta.json"
    meta = _parsed(about) if about.is_file() else {}
    splits = value["scores"]
    if not splits:
        _flag(flags, "empty", file, ": no scores")
    task = _name(file, value["task_name"])
    return [
        Score(
            system=_name(file, meta.get("name") or file.parent.parent.name.replace("__", "/", 1)),
            seed=None,
            task=f"{task}/{split}" if len(splits) > 1 else task,
            metric="main_score",
            value=_mean(file, [entry["main_score"] for entry in entries]),
            kind="MTEB",
            identity=str(meta.get("revision") or file.parent.name),
            source=str(file),
            origin="mteb",
            revision=str(value.get("dataset_revision", "")),
        )
        for split, entries in splits.items()
    ]


def _from_reranking(file: Path, value: dict[str, Any], flags: list[Flag]) -> list[Score]:
    """Reranking scores of an adapter training; means are checked against the queries."""
    run, scores = _run(file), []
    if not value["per_dataset"]:
        _flag(flags, "empty", file, ": no data sets")
    for dataset, content in value["per_dataset"].items():
        per_query = _per_query(file, content["per_query"])
        if not per_query:
            _flag(flags, "empty", file, f": {dataset} has no queries, its mean cannot be checked")
        stored = _mean(file, [content["aggregate"][_RERANKING_METRIC]])
        mean = _mean(file, per_query.values()) if per_query else stored
        if not math.isclose(mean, stored, rel_tol=0, abs_tol=1e-6):
            text = f": {dataset} has mean {stored:.6f}, its queries give {mean:.6f}"
            _flag(flags, "inconsistent", file, text)
        scores.append(run(_name(file, dataset), "nDCG@10", mean, "reranking", per_query))
    average = finite_number(value.get("average", {}).get(_RERANKING_METRIC))
    means = [score.value for score in scores if score.value is not None]
    if average is not None and means and abs(average - sum(means) / len(means)) > 1e-6:
        text = f": average is {average:.6f}, its data sets give {sum(means) / len(means):.6f}"
        _flag(flags, "inconsistent", file, text)
    return scores


def _from_adapter_mteb(file: Path, value: dict[str, Any], flags: list[Flag]) -> list[Score]:
    """Embedding scores of an adapter training, without per-query scores."""
    run = _run(file)
    if not value:
        _flag(flags, "empty", file, ": no tasks")
    return [
        run(_name(file, task), "main_score", _mean(file, [content["main_score"]]), "embedding")
        for task, content in value.items()
    ]


def _from_dataset(file: Path, value: dict[str, Any]) -> Score:
    """Score of one data set, from a file written by `evaluation.studies.lora_runs`."""
    ((metric, stored),) = value["aggregate"].items()
    per_query = _per_query(file, value.get("per_query", {}))
    score = None if stored is None else _mean(file, per_query.values() or [stored])
    name = "nDCG@10" if metric == _RERANKING_METRIC else metric
    # Reranked data sets are named with their first stage, such as SciFact.bm25-100.
    kind = "reranking" if "." in file.stem else "embedding"
    one = _run(file)(file.stem, name, score, kind, per_query)
    return replace(one, identity=str(value.get("model", "")))


def _mean(file: Path, values: Iterable[Any]) -> float:
    """Mean of one or more finite values, else a ValueError."""
    numbers = [finite_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if not numbers or len(known) < len(numbers):
        raise ValueError(f"a score of {file.name} is missing or not finite, or no number")
    return sum(known) / len(known)


def _per_query(file: Path, scores: dict[str, Any]) -> dict[str, float]:
    return {_name(file, query): _mean(file, [score]) for query, score in scores.items()}


def _name(file: Path, name: Any) -> str:
    """The name of a model, task or query, checked for blanks, control characters, surrogates."""
    return checked_id(str(name), where=str(file))


def _facts(config: Any, log: Mapping[str, Any]) -> dict[str, Any]:
    """The known facts of a training: of its configuration, nested or flat, and of its log."""
    if not isinstance(config, Mapping):
        return dict(log)
    nested = config.get("settings")  # our own records contain the configuration
    whole = {**config, **nested} if isinstance(nested, Mapping) else config
    facts = {name: _first_value(whole, key_paths) for name, key_paths in _KEY_PATHS.items()}
    facts |= {name: config[name] for name in FACTS if name not in _KEY_PATHS and name in config}
    return {name: value for name, value in {**facts, **log}.items() if value is not None}


def _first_value(config: Mapping[str, Any], key_paths: tuple[tuple[str, ...], ...]) -> Any:
    for key_path in key_paths:
        value: Any = config
        for key in key_path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return value
    return None


def _run(file: Path) -> Callable[..., Score]:
    """What makes the scores in ``file``, which are of the adapter in whose folder it lies.

    System and seed are the folders ``<system>/seed_<n>/results/``, or the name of a copy,
    ``<system>-seed_<n>-mteb_results.json``, which has no facts.
    """
    folder, facts = file.parent.parent, dict[str, Any]()
    system, seed = file.parent.name, None
    if copy := _COPY.fullmatch(file.stem):
        system, seed = copy["system"], int(copy["seed"])
    elif system == "results" and (number := _SEED.fullmatch(folder.name)):
        system, seed, facts = folder.parent.name, int(number[1]), _folder_facts(folder)
    about = {"identity": facts.get("weights", ""), "source": str(file), "facts": facts}
    return partial(Score, system, seed, origin="adapter", **about)


def _folder_facts(folder: Path) -> dict[str, Any]:
    """Facts of a training: of its settings, of its log, and the digest of its weights."""
    settings, log = folder / "config.yaml", folder / "train_log.jsonl"
    reached: dict[str, Any] = {}
    for entry in json_lines(log)[0] if log.exists() else ():
        step = step_number(entry.get("global_step", entry.get("step")))
        if step is not None:  # of a killed training, the steps it reached
            reached["steps"] = max(reached.get("steps", 0), step)
        if (ended := finite_number(entry.get("timestamp"))) is not None:
            reached["ended"] = max(reached.get("ended", 0.0), ended)
        for kind, name in (("embedding", "epoch_emb_steps"), ("reranking", "epoch_rerank_steps")):
            if (steps := step_number(entry.get(name))) is not None:  # one summary per epoch
                reached[f"steps_{kind}"] = reached.get(f"steps_{kind}", 0) + steps
    facts = _facts(read_settings(settings) if settings.exists() else {}, reached)
    weights = folder / "checkpoints" / "final" / "adapter_model.safetensors"
    return {**facts, "weights": sha256_file(weights)} if weights.is_file() else facts


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
    a, b = _first(one), _first(other)
    known = bool(a.identity and b.identity)
    if (a.identity == b.identity) if known else ((a.system, a.seed) == (b.system, b.seed)):
        return []  # they have, or may have, the same weights
    pairs = [(score, other[key]) for key, score in one.items() if key in other]
    by_query = {s.task for s, t in pairs if _same_queries(s, t)}
    means = [(s, t) for s, t in pairs if not (s.per_query and t.per_query)]
    equal = {s.task for s, t in means if s.value is not None and s.value == t.value != 0}
    if len(equal) >= _TASKS and len(equal) == len({s.task for s, _ in means}):
        by_query |= equal
    return sorted(by_query)


def _same_queries(one: Score, other: Score) -> bool:
    if None not in (one.value, other.value) and not _equal([one.value, other.value]):
        return False  # equal scores have equal means, so most runs differ without a look at them
    values = dict(one.per_query)
    varied = len(values) >= _QUERIES and len(set(values.values())) > _TASKS
    return varied and values == dict(other.per_query)


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


_FINDERS = (_doubles, _revisions, _same_scores, _stale, _superseded, _nameless)
