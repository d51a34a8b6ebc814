"""Checks of notebook parameters by name, shared by all notebooks.

`CHOICES` has the parameters whose values can be listed, `MINIMUM` the numbers with a lower
bound, and `CHECKS` all of them: a check takes the value and raises ``ValueError`` or
``OSError`` with what is expected. Modules that load numpy are imported inside the checks
that need them, because the command line reads the choices for ``--help``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.evaluation.mteb.select import ALL, select_tasks, split_names
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.rerankers.prompt_template import TEMPLATES
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of

__all__ = ["CHECKS", "CHOICES", "MINIMUM", "without_effect"]

log = logging.getLogger(__name__)
CHOICES: dict[str, tuple[str, ...]] = {
    "average": ("last", "best"),
    "correction": tuple(CORRECTIONS),
    "dtype": tuple(DTYPES),
    "pooling": ("auto", *POOLINGS),
    "template": ("auto", *TEMPLATES),
    "tier": tuple(TIERS),
}

MINIMUM: dict[str, int] = {
    "batch_size": 1,
    "batch_tokens": 0,
    "count": 1,
    "depth": 1,
    "k": 1,
    "limit": 0,
    "max_length": 0,
    "rounds": 1,
    "seed": 0,
    "texts": 1,
}


_OF_TRANSFORMERS = {"pooling", "max_length", "prefix", "append_eos", "bidirectional"}
_WITHOUT_EFFECT = {"bm25": {*_OF_TRANSFORMERS, "dimensions"}, "random": _OF_TRANSFORMERS}


def _choice(name: str) -> Callable[[Any], object]:
    return lambda value: one_of(name, value, CHOICES[name])


def _at_least(name: str, minimum: int) -> Callable[[Any], object]:
    def check(value: int) -> None:
        if value < minimum:
            expected = "0 or more" if minimum == 0 else f"at least {minimum}"
            raise ValueError(f"{name} is {value}; expected {expected}")

    return check


def _split(value: str) -> list[str]:
    """Split a comma-separated string into at least one part."""
    return [each.strip() for each in value.split(",")]


def _numbers(name: str, minimum: int) -> Callable[[str], object]:
    check = _at_least(name, minimum)
    return lambda value: [check(int(each)) for each in _split(value)]


def _dimensions(value: int | str) -> object:
    """Check the number of dimensions of one model, or a list of numbers to compare."""
    if isinstance(value, str):
        return _numbers("dimensions", 1)(value)
    return _at_least("dimensions", 0)(value)


def _model(value: str) -> None:
    from qwen3nb.models.sources.prompt_families import prompt_warning
    from qwen3nb.models.sources.resolve import find_source

    if warning := prompt_warning(find_source(value)):
        log.warning(warning)  # at the terminal; the notebook's own is on its page


def _training(value: str) -> None:
    from qwen3nb.models.sources.resolve import find_training

    find_training(value)


def _indexes(value: str) -> None:
    from qwen3nb.models.search.faiss_index import FAMILIES

    for each in _split(value):
        one_of("index", each, FAMILIES)


def _device(value: str) -> None:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; choose one of auto, cpu, mps, cuda, cuda:N")


def _writable(value: str) -> None:
    folder = Path(value or paths.results()).expanduser()
    nearest = next(each for each in (folder, *folder.resolve().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(
            f"output_dir {value!r} cannot be written to: {nearest} is not a writable folder"
        )


def _folder(value: str) -> None:
    if value and not Path(value).expanduser().is_dir():
        raise ValueError(f"outputs {value!r}: no such folder")


def _level(value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"alpha is {value}; expected between 0 and 1")


def _task_names(names: list[str]) -> None:
    """Check names of MTEB tasks; those of a tier are known without loading MTEB, for seconds."""
    known = {name for tier in TIERS.values() for name in tier.tasks}
    if unknown := [each for each in names if each not in known]:
        select_tasks(names=unknown)


def _mteb_tasks(value: str) -> None:
    """Check names of MTEB tasks; data sets of the mirror, with a slash, are resolved later."""
    _task_names([each for each in split_names(value) if "/" not in each and each != ALL])


def _adapter(value: str) -> None:
    if value and not (Path(value).expanduser() / "adapter_config.json").is_file():
        raise ValueError(f"adapter {value!r}: no folder with adapter_config.json")


def _data(value: str) -> None:
    """Check folders and names of MTEB tasks."""
    names = [each for each in _split(value) if not Path(each).expanduser().is_dir()]
    if lost := [each for each in names if "/" in each]:
        raise ValueError(
            f"data {lost[0]!r}: no such folder. A data set of ir_datasets is first written to one, "
            "in BEIR's format: corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and "
            "qrels/test.tsv (query-id, corpus-id, score)"
        )
    _task_names(names)


def _first_stage(value: str) -> None:
    for each in _split(value):
        if each not in ("bm25", "given") and not Path(each).is_file():
            _model(each)


CHECKS: dict[str, Callable[[Any], object]] = {
    **{name: _choice(name) for name in CHOICES},
    **{name: _at_least(name, minimum) for name, minimum in MINIMUM.items()},
    **{name: _numbers(name, 1) for name in ("averages", "ef_search", "nprobe", "rescore")},
    "dimensions": _dimensions,
    "threads": _numbers("threads", 0),
    "poolings": lambda value: [one_of("pooling", each, POOLINGS) for each in _split(value)],
    "checkpoint": _model,
    "training": _training,
    "adapter": _adapter,
    "indexes": _indexes,
    "data": _data,
    "first_stage": _first_stage,
    "tasks": _mteb_tasks,
    "types": lambda value: value and select_tasks(types=split_names(value)),
    "benchmark": lambda value: value and select_tasks(benchmark=value),
    "device": _device,
    "output_dir": _writable,
    "outputs": _folder,
    "alpha": _level,
}


def without_effect(
    values: Mapping[str, Any], defaults: Mapping[str, Any], once: Callable[..., Any]
) -> list[str]:
    """Say which values the checkpoint would ignore: its page would promise what is not so.

    Args:
        values: all parameters of a run, each valid by itself.
        defaults: those that change nothing.
        once: calls a function, or knows its result.
    """
    from qwen3nb.models.sources.resolve import find_source

    given = {name for name, default in defaults.items() if values[name] != default}
    if "checkpoint" not in values or not given & _WITHOUT_EFFECT["bm25"]:
        return []
    source = once(find_source, values["checkpoint"])
    parts = [_WITHOUT_EFFECT.get(each.kind, set()) for each in source.parts or (source,)]
    return [
        f"{name} is {values[name]!r}, which {source.spec} has no use for; "
        f"leave it at {defaults[name]!r}"
        for name in defaults
        if name in given and all(name in part for part in parts)
    ]
