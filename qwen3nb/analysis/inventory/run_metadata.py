"""Metadata of adapter trainings, which must agree before two runs are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen3nb.analysis.inventory.training_logs import step_number
from qwen3nb.datasets.rows import finite_number
from qwen3nb.datasets.training_files import json_lines, read_settings
from qwen3nb.utils.atomic_files import sha256_file

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


def run_facts(config: Any, log: Mapping[str, Any]) -> dict[str, Any]:
    """The known facts of a training.

    Args:
        config: the training's configuration, nested as in its ``config.yaml``, or flat with
            the names in `FACTS`; anything else is treated as empty.
        log: facts from its log, such as ``steps``.
    """
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


def run_name(file: Path) -> tuple[str, int | None, dict[str, Any]]:
    """System, seed and facts of a results file of an adapter training.

    They are taken from the folders ``<system>/seed_<n>/results/``, or from the name of a copy,
    ``<system>-seed_<n>-mteb_results.json``, which has no facts.
    """
    if copy := _COPY.fullmatch(file.stem):
        return copy["system"], int(copy["seed"]), {}
    folder = file.parent.parent
    if file.parent.name != "results" or not (seed := _SEED.fullmatch(folder.name)):
        return file.parent.name, None, {}
    return folder.parent.name, int(seed[1]), _folder_facts(folder)


def _folder_facts(folder: Path) -> dict[str, Any]:
    file = folder / "config.yaml"
    config = read_settings(file) if file.exists() else {}
    facts = run_facts(config, _log_facts(folder / "train_log.jsonl"))
    weights = folder / "checkpoints" / "final" / "adapter_model.safetensors"
    return {**facts, "weights": sha256_file(weights)} if weights.is_file() else facts


def _log_facts(file: Path) -> dict[str, Any]:
    """Number of steps, in total and per task, and the time of the last entry (seconds).

    Raises:
        DataError: a line other than a truncated last one is not JSON; names the line.
    """
    if not file.exists():
        return {}
    facts: dict[str, Any] = {}
    for entry in json_lines(file)[0]:  # of a killed training, the steps it reached
        _add_entry(facts, entry)
    return facts


def _add_entry(facts: dict[str, Any], entry: Mapping[str, Any]) -> None:
    step = step_number(entry.get("global_step", entry.get("step")))
    if step is not None:
        facts["steps"] = max(facts.get("steps", 0), step)
    if (ended := finite_number(entry.get("timestamp"))) is not None:
        facts["ended"] = max(facts.get("ended", 0.0), ended)
    for kind, name in (("embedding", "epoch_emb_steps"), ("reranking", "epoch_rerank_steps")):
        if (steps := step_number(entry.get(name))) is not None:  # one summary per epoch
            facts[f"steps_{kind}"] = facts.get(f"steps_{kind}", 0) + steps
