"""Collect the scores of three kinds of result files in one table, and read logs of trainings.

::

    our records       <model>/seed_<n>/<task>.json (`records.record.Result`)
    MTEB's own        <model>/<revision>/<task>.json next to model_meta.json
    adapter training  <config>/seed_<n>/results/reranking_results.json, mteb_results.json,
                      one file per data set (written by `evaluation.studies.lora_runs`),
                      or copies named <config>-seed_<n>-mteb_results.json

Files are recognised by their content. Flags mark anomalies for review; flagged scores stay in the
table. Scores of adapters include the facts of their training, which must agree before two runs are
compared.

Kinds of flags::

    inconsistent   files that disagree on a run's score or on the revision of a task's data, or a
                   mean that differs from that of its queries
    same scores    identical scores of different weights: a stale cache, or a file copied
    unreadable     a broken file
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, cmp_to_key, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets import rows
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.per_query import metrics_of
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.record import SCHEMA, Result, in_list, places
from qwen3nb.records.side_files import QueryScores
from qwen3nb.tiers import BENCHMARKS
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.strict_json import parse_json

Places = Callable[[Path], Mapping[str, int]]  # of the records of a folder; see `places`
_LARGEST = 256 * 2**20  # bytes; a record of 100,000 queries has about 20 MB
_SKIPPED = {"checkpoints", "partial", "logs", "prompts", "_build", ".cache"}
_RERANKING_METRIC = "ndcg@10"
# Facts of a run, and their key paths in the training's configuration.
_KEY_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mode": (("training", "mode"), ("mode",)),
    "rank": (("lora", "rank"), ("rank",)),
    "base": (("model", "base_model_name"), ("base",)),
    "data_seed": (("data", "seed"), ("data_seed",), ("seed",)),
}
FACTS = (*_KEY_PATHS, "steps", "steps_embedding", "steps_reranking", "weights", "change")
_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
_QUERIES = 10  # so many equal per-query scores, unless constant, are no coincidence
_TASKS = 2  # nor are equal means on this many tasks
_COPY = re.compile(r"(?P<system>.+)-seed_(?P<seed>\d+)-(mteb|reranking)_results")
_SEED = re.compile(r"seed_(\d+)")


@dataclass(frozen=True)
class _Column(Mapping[str, float]):
    """A column of a record's scores, read when needed."""

    scores: QueryScores
    name: str

    @cached_property
    def _read(self) -> dict[str, float]:
        return self.scores[self.name]

    def __getitem__(self, query: str) -> float:
        return self._read[query]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return self.scores.counts[self.name]


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
    # cluster per query id; empty if queries were sampled one by one, or it is unknown
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: str = ""  # digest of the weights; empty if unknown
    source: str = ""  # file it was read from
    origin: str = ""  # the program that wrote the file
    revision: str = ""  # of the task's data, or empty
    finished: str = ""  # time, ISO 8601, or empty
    # of a record: its place among all that were written to its folder; see `Result.place`
    place: int = field(default=0, compare=False)
    folder: str = field(default="", compare=False, repr=False)  # in which it has this place
    # how the run was trained; see `FACTS`
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    main: bool = True  # whether it is the task's main metric
    collection: str = ""  # the data set of a reranking, whose task also names the first stage

    @property
    def data_set(self) -> str:
        """The name of the data, without a first stage."""
        return self.collection or self.task

    @property
    def run(self) -> str:
        """The system and its seed."""
        return self.system if self.seed is None else f"{self.system} (seed {self.seed})"


def from_oldest(scores: Iterable[Score]) -> list[Score]:
    """Return scores in the order in which they were made, as `records.results.from_oldest` does.

    The wall clock, which may have been set back, decides only without places in one folder.
    """
    return sorted(scores, key=cmp_to_key(_age))


def _age(one: Score, other: Score) -> int:
    """Return a negative number if the first score is older, 0 if neither is."""
    if one.place and other.place and one.folder == other.folder:
        return one.place - other.place
    return (one.finished > other.finished) - (one.finished < other.finished)


@dataclass(frozen=True)
class Flag:
    """An anomaly to review."""

    kind: str  # one of the kinds listed in the module's docstring
    text: str  # description with names and numbers
    files: tuple[str, ...] = ()  # the files concerned


@dataclass(frozen=True)
class Collection:
    """Scores collected from files, with their anomalies."""

    scores: tuple[Score, ...]  # one per system, seed, task and metric
    flags: tuple[Flag, ...] = ()  # anomalies to review, by kind

    def nested(self) -> dict[str, dict[int | None, dict[str, dict[str, float | None]]]]:
        """``{system: {seed: {task: {metric: value}}}}``; the first of duplicates."""
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
    read_places = cache(places)  # each list of records is read once
    for base in map(Path, given):
        if not base.is_dir():
            raise FileNotFoundError(f"{base}: no such folder of results")
        for file in _json_files(base):
            try:
                scores += _read(file, flags, read_places)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                text = " ".join(str(error).split()).removeprefix(f"{file}: ")
                kind = "KeyError: " if isinstance(error, KeyError) else ""
                flags.append(_flag("unreadable", file, f": {kind}{text}"))
    found = [flag for find in (_disagreeing, _revisions, _same_scores) for flag in find(scores)]
    return Collection(tuple(scores), (*flags, *found))


def _flag(kind: str, file: Path, text: str) -> Flag:
    return Flag(kind, rows.printable(f"{file}{text}"), (str(file),))


def _json_files(base: Path) -> Iterator[Path]:
    """Yield regular JSON files below ``base`` in order, without following links to folders."""
    for folder, names, files in os.walk(base):
        names[:] = sorted(name for name in names if name not in _SKIPPED and name[0] != ".")
        for name in sorted(files):
            file = Path(folder) / name
            if name.endswith(".json") and file.is_file():
                yield file


def _read(file: Path, flags: list[Flag], read_places: Places) -> list[Score]:
    """Read the scores of one file; none if it contains no results.

    Raises:
        ValueError: results that cannot be read.
    """
    value = _parsed(file)
    if _is_list_of_mteb(file, value):
        raise DataError(f"{file}: expected an MTEB result, a JSON object; got a list")
    if not isinstance(value, dict):
        return []
    if str(value.get("schema", "")).startswith("qwen3nb.result/"):
        return _from_record(file, read_places)
    if "mteb_dataset_name" in value:
        raise DataError(f"{file}: the format of MTEB before 1.11 is not read; convert it with mteb")
    if "task_name" in value and ("scores" in value or "mteb_version" in value):
        return _from_mteb(file, value)
    if isinstance(value.get("per_dataset"), dict):
        entries = value["per_dataset"].items()
        return [_of_queries(file, _name(file, name), each, flags) for name, each in entries]
    if isinstance(value.get("per_task"), dict):
        run = _run(file)
        return [
            run(_name(file, task), _main(task), _mean(file, [content["main_score"]]), "embedding")
            for task, content in value["per_task"].items()
        ]
    if "dataset" in value and isinstance(value.get("aggregate"), dict):
        # Reranked data sets are named with their first stage, such as SciFact.bm25-100.
        kind = "reranking" if "." in file.stem else "embedding"
        one = _of_queries(file, file.stem, {"per_query": {}, **value}, flags, kind)
        identity, revision = (str(value.get(key) or "") for key in ("model", "revision"))
        collection = _name(file, value["dataset"]) if kind == "reranking" else ""
        return [replace(one, identity=identity, revision=revision, collection=collection)]
    return []


def _is_list_of_mteb(file: Path, value: Any) -> bool:
    """Return whether a file is a list of results, or lies where MTEB writes one."""
    if not isinstance(value, list):
        return False
    results = [entry for entry in value if isinstance(entry, dict) and "task_name" in entry]
    return bool(results) or (file.parent / "model_meta.json").is_file()


def _parsed(file: Path) -> Any:
    """Return the content of a JSON file; MTEB writes bare NaN for undefined values."""
    text = rows.read_text(file, most=_LARGEST)
    try:
        return parse_json(text, nan=True)
    except ValueError as error:
        raise DataError(f"{file}: not readable as JSON ({error})") from None


def _from_record(file: Path, read_places: Places) -> list[Score]:
    result = Result.load(file)
    folder = file.absolute().parents[2]
    place = read_places(folder).get(in_list(file, result.checksum), 0)
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
            per_query=_Column(result.scores, name)
            if metric.how == "mean" and name in result.per_query
            else {},
            clusters=result.task.clusters,
            identity=result.model.identity,
            source=str(file),
            origin=SCHEMA,
            revision=result.task.substitute or result.task.revision,
            finished=result.finished,
            place=place,
            folder=str(folder),
            facts=_facts(training, {"use": ", ".join(use)}),
            main=name == result.task.main_metric,
            collection=str(result.config.get("collection") or ""),
        )
        for name, metric in result.metrics.items()
    ]


def _from_mteb(file: Path, value: dict[str, Any]) -> list[Score]:
    """Return one score per split: the mean of main_score over its subsets."""
    about = file.parent / "model_meta.json"
    meta = _parsed(about) if about.is_file() else {}
    splits, task = value.get("scores"), _name(file, value["task_name"])
    if not isinstance(splits, dict) or not splits:
        got = "none" if not splits else f"a {type(splits).__name__}"
        raise DataError(f"{file}: expected `scores` of {task} by split; got {got}")
    system = _name(file, meta.get("name") or file.parent.parent.name.replace("__", "/", 1))
    if file.parent.parent.name == "experiments":  # settings of a model, in folders of their own
        system = f"{system} ({_name(file, file.parent.name)})"
    return [
        Score(
            system=system,
            seed=None,
            task=f"{task}/{split}" if len(splits) > 1 else task,
            metric=_main(value["task_name"]),
            value=_mean_of_subsets(file, split, entries),
            kind="MTEB",
            identity=str(meta.get("revision") or file.parent.name),
            source=str(file),
            origin="mteb",
            revision=str(value.get("dataset_revision") or ""),
        )
        for split, entries in splits.items()
    ]


def _mean_of_subsets(file: Path, split: str, entries: Any) -> float | None:
    """Return the mean main score of a split's subsets; None if MTEB wrote one as undefined."""
    if not isinstance(entries, list) or not entries:
        got = "none" if not entries else f"a {type(entries).__name__}"
        raise DataError(f"{file}: expected a list of subsets in split {split}; got {got}")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or "main_score" not in entry:
            names = ", ".join(list(entry)[:4]) if isinstance(entry, dict) else ""
            raise DataError(
                f"{file}: expected `main_score` in subset {number} of split {split}; "
                f"got {names or 'no fields'}"
            )
    values = [entry["main_score"] for entry in entries]
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None
    return _mean(file, values)


def _of_queries(
    file: Path, task: str, content: dict[str, Any], flags: list[Flag], kind: str = "reranking"
) -> Score:
    """Return the score of one data set, after comparing its mean with the scores of its queries."""
    means, per_query = content["aggregate"], content["per_query"]
    metric = _RERANKING_METRIC if _RERANKING_METRIC in means else next(iter(means))
    stored = means[metric]
    scores = {_name(file, query): _mean(file, [each]) for query, each in per_query.items()}
    value = None if stored is None else _mean(file, scores.values() or [stored])
    if value is not None and not math.isclose(value, stored, rel_tol=0, abs_tol=1e-6):
        text = f": {task} has mean {stored:.6f}, its queries give {value:.6f}"
        flags.append(_flag("inconsistent", file, text))
    name = "nDCG@10" if metric == _RERANKING_METRIC else metric
    return _run(file)(task, name, value, kind, scores)


def _main(task: str) -> str:
    """Return the name of a task's main metric; ``main_score`` if it is in no benchmark here."""
    types = [each for benchmark in BENCHMARKS.values() for each in benchmark.types.items()]
    kinds = {kind for kind, tasks in types if task in tasks}
    names = (metrics_of(kind) for kind in kinds - {"Reranking"})  # MTEB reranks by another
    return next(chain.from_iterable(names), "main_score")


def _mean(file: Path, values: Iterable[Any]) -> float:
    """Mean of one or more finite values, else a ValueError."""
    numbers = [rows.finite_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if not numbers or len(known) < len(numbers):
        raise ValueError(f"a score of {file.name} is missing, not finite or not a number")
    return sum(known) / len(known)


def _name(file: Path, name: Any) -> str:
    """Check a name of a model, task or query: no blanks, control characters or surrogates."""
    return rows.checked_id(str(name), where=str(file))


def _facts(config: Any, log: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known facts of a training, from its configuration (nested or flat) and log."""
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
    """Return a function that creates scores with the run of the adapter that ``file`` belongs to.

    System and seed follow from the folder ``<system>/seed_<n>/results/``, or from the name of a
    copy, ``<system>-seed_<n>-mteb_results.json``, which has no facts.
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
    """Return the facts of a training, from its settings and log, and the digest of its weights."""
    settings, log = folder / "config.yaml", folder / "train_log.jsonl"
    reached: dict[str, int] = {}
    for entry in rows.json_lines(log)[0] if log.exists() else ():
        step = step_number(entry.get("global_step", entry.get("step")))
        if step is not None:  # the steps reached by a killed training
            reached["steps"] = max(reached.get("steps", 0), step)
        for kind, name in (("embedding", "epoch_emb_steps"), ("reranking", "epoch_rerank_steps")):
            if (steps := step_number(entry.get(name))) is not None:  # one summary per epoch
                reached[f"steps_{kind}"] = reached.get(f"steps_{kind}", 0) + steps
    facts = _facts(rows.read_settings(settings) if settings.exists() else {}, reached)
    weights = folder / "checkpoints" / "final" / "adapter_model.safetensors"
    return {**facts, "weights": sha256_file(weights)} if weights.is_file() else facts


def _disagreeing(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag files with different scores of one run by the same metric."""
    groups: dict[Hashable, list[Score]] = defaultdict(list)
    for each in scores:
        run = (each.system, each.seed, each.facts.get("use"), each.identity)
        groups[(*run, each.task, each.kind, each.metric, each.revision)].append(each)
    for group in groups.values():
        first, values = group[0], [each.value for each in group]
        numbers = [value for value in values if value is not None]
        apart = max(numbers, default=0.0) - min(numbers, default=0.0)
        if 0 < len(numbers) < len(values) or apart > _AGREEMENT:
            shown = ", ".join("undefined" if v is None else f"{v:.6f}" for v in values)
            text = f"{first.run}, {first.task}, {first.metric}: {len(values)} files give {shown}"
            yield Flag("inconsistent", text, tuple(each.source for each in group))


def _revisions(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs on different revisions of a task's data."""
    groups: dict[str, dict[str, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for each in scores:
        if each.revision and each.main:
            groups[each.task][each.revision].append(each)
    for task, revisions in groups.items():
        if len(revisions) > 1:
            runs = {of: sorted({each.run for each in own}) for of, own in revisions.items()}
            parts = "; ".join(f"{of}: {', '.join(names)}" for of, names in runs.items())
            files = tuple(dict.fromkeys(each.source for own in revisions.values() for each in own))
            yield Flag(
                "inconsistent", f"{task}: on different revisions of its data ({parts})", files
            )


def _mean_on(score: Score) -> tuple[str, float]:
    """Return the task and the mean, up to the rounding of sums in another order."""
    return score.task, round(score.value or 0.0, 9)


def _same_scores(scores: Sequence[Score]) -> Iterator[Flag]:
    """Flag runs of different weights with identical scores.

    Scores agree either on ten or more queries of a task, if they vary, or, without per-query
    scores, in the means of two or more tasks.
    """
    runs: dict[tuple[Hashable, ...], list[Score]] = defaultdict(list)
    for each in scores:
        if each.main:  # Recall@100 of 100 candidates is the same for every model
            runs[each.origin, each.kind, each.system, each.identity, each.seed].append(each)
    alike: dict[tuple[Hashable, ...], list[Score]] = defaultdict(list)
    equal = Counter((*at[:2], *_mean_on(each)) for at, own in runs.items() for each in own)
    for (origin, kind, *_), own in runs.items():
        means = {each.task: each.value for each in own if not each.per_query and each.value}
        if len(means) >= _TASKS:
            alike[origin, kind, ", ".join(sorted(means)), (*sorted(means.items()),)].append(own[0])
        for each in own:
            alone = equal[origin, kind, *_mean_on(each)] < 2  # no need to read its scores
            if alone or len(each.per_query) < _QUERIES:
                continue
            if len({*each.per_query.values()}) > _TASKS:
                queries = tuple(sorted(each.per_query.items()))
                alike[origin, kind, each.task, queries].append(each)
    for (_, _, tasks, _), group in alike.items():
        if len({each.identity or each.run for each in group}) > 1:
            names = ", ".join(each.run for each in group)
            text = (
                f"{names}: identical scores on {tasks} although the weights differ; "
                "at most one of them was measured"
            )
            yield Flag("same scores", text, tuple(each.source for each in group))


LOG, CONFLICTS = "train_log.jsonl", "gradient_conflicts.jsonl"
_MOST_STEPS = 2**53  # beyond, floats skip integers
_LAYER_MODULE = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:\w+\.)*?(\w+)\.lora_[AB]\b")


@dataclass(frozen=True)
class TrainingLog:
    """The log of one training."""

    name: str  # of the training
    # by name (``loss``, ``lr``, …), step and value in order
    series: dict[str, tuple[tuple[int, float], ...]]
    notes: tuple[str, ...] = ()  # lines that cannot be read


@dataclass(frozen=True)
class Conflicts:
    """Cosines of two objectives' gradients."""

    name: str  # of the training
    steps: tuple[int, ...]  # steps at which they were measured
    # per layer and module, such as ``("0", "q_proj")``, one value per step, or None; mean over its
    # parameters (A and B of a LoRA)
    cosines: dict[tuple[str, str], tuple[float | None, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()  # lines that cannot be read

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in numerical order."""
        names = {layer for layer, _ in self.cosines}
        return tuple(sorted(names, key=lambda name: (not name.isdigit(), name.zfill(6))))

    def by_step(self) -> Array:
        """Mean over modules (layers, steps); NaN where not measured."""
        absent = (None,) * len(self.steps)
        modules = tuple(dict.fromkeys(module for _, module in self.cosines))
        cosines = [[self.cosines.get((k, m), absent) for m in modules] for k in self.layers]
        table = np.ma.masked_invalid(np.array(cosines, dtype=np.float64))  # None is NaN
        return np.asarray(table.mean(axis=1).filled(np.nan))


def read_log(file: Path) -> TrainingLog:
    """Read a training's ``train_log.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = rows.json_lines(file)
    return TrainingLog(_run_name(file), _series(entries), tuple(notes))


def read_trainer_state(state: Mapping[str, Any], *, name: str) -> TrainingLog:
    """The log in the parsed ``trainer_state.json`` of transformers' Trainer."""
    entries = [entry for entry in state.get("log_history", ()) if isinstance(entry, dict)]
    renamed = [{("lr" if k == "learning_rate" else k): v for k, v in e.items()} for e in entries]
    return TrainingLog(name, _series(renamed))


def step_number(value: Any) -> int | None:
    """Return a step number as an integer; None for anything else."""
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and abs(value) <= _MOST_STEPS else None


def _series(entries: Iterable[Mapping[str, Any]]) -> dict[str, tuple[tuple[int, float], ...]]:
    series: dict[str, dict[int, float]] = {}
    for entry in entries:
        step = step_number(entry.get("step"))
        if step is None:
            continue
        for key, value in entry.items():
            if key != "step" and (number := rows.finite_number(value)) is not None:
                series.setdefault(key, {})[step] = number
    return {key: tuple(sorted(values.items())) for key, values in series.items()}


def read_conflicts(file: Path) -> Conflicts:
    """Read a joint training's ``gradient_conflicts.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = rows.json_lines(file)
    measured: dict[int, dict[tuple[str, str], list[float]]] = {}
    for entry in entries:
        step, per_layer = step_number(entry.get("step")), entry.get("per_layer")
        if step is not None and isinstance(per_layer, dict):
            measured[step] = _cosines(per_layer)
    steps = tuple(sorted(measured))
    modules = dict.fromkeys(module for step in steps for module in measured[step])
    values_of = {m: [measured[step].get(m, []) for step in steps] for m in modules}
    cosines = {
        m: tuple(sum(v) / len(v) if v else None for v in values) for m, values in values_of.items()
    }
    return Conflicts(_run_name(file), steps, cosines, tuple(notes))


def _cosines(per_layer: Mapping[str, Any]) -> dict[tuple[str, str], list[float]]:
    cosines: dict[tuple[str, str], list[float]] = {}
    for parameter, value in per_layer.items():
        if (number := rows.finite_number(value)) is not None:
            match = _LAYER_MODULE.search(parameter)
            module = (match[1], match[2]) if match else ("other", parameter.rsplit(".", 2)[0])
            cosines.setdefault(module, []).append(number)
    return cosines


def _run_name(file: Path) -> str:
    """Name of a run: ``rank_only_r4 (seed 42)`` for ``rank_only_r4/seed_42/train_log.jsonl``."""
    seed = file.parent.name.removeprefix("seed_")
    return f"{file.parent.parent.name} (seed {seed})"


def find_outputs(folder: Path) -> list[Path]:
    """Folders below ``folder`` that contain ``<configuration>/seed_<n>/config.yaml``, in order."""
    if not folder.is_dir():
        return []
    return sorted({file.parents[2] for file in folder.rglob("*/seed_*/config.yaml")})


def log_files(folder: Path) -> list[Path]:
    """All files below ``folder`` that pages on trainings depend on, in order."""
    patterns = ("config.yaml", LOG, CONFLICTS, "trainer_state.json", "results/*.json")
    return sorted({file for pattern in patterns for file in folder.rglob(pattern)})


def find_logs(outputs: Iterable[Path], name: str = LOG) -> list[Path]:
    """Logs of this name of all trainings below ``outputs``, in order."""
    return [file for folder in outputs for file in sorted(folder.glob(f"*/seed_*/{name}"))]
