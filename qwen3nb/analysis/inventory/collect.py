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
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.inventory.anomalies import Flag, find_flags
from qwen3nb.analysis.inventory.score import Score
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
_COPY = re.compile(r"(?P<system>.+)-seed_(?P<seed>\d+)-(mteb|reranking)_results")
_SEED = re.compile(r"seed_(\d+)")


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
    return Collection(tuple(scores), (*flags, *find_flags(scores)))


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
    use = [str(settings.get(key)) for key in ("pooling", "max_length", "dtype", "prompts")]
    return [
        Score(
            # Adapters of different seeds have different labels but share their configuration.
            system=_system(known) or result.model.label,
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


def _system(training: dict[str, Any]) -> str:
    """Name of an adapter's configuration, else its mode and rank; empty for other models."""
    if "mode" not in training:
        return ""
    rank = training.get("rank")
    name = training.get("configuration") or training["mode"]
    return str(name) if "configuration" in training or rank is None else f"{name}_r{rank}"


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
