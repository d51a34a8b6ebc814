"""What a notebook's parameter of a name must satisfy, in whichever notebook.

A check takes the value and raises ``ValueError`` or ``OSError`` with what would do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.evaluation.mteb.select import listed, select_tasks
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.rerankers.prompt_template import TEMPLATES
from qwen3nb.models.search.faiss_index import FAMILIES
from qwen3nb.models.sources.resolve import find_source, find_training
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of

__all__ = ["CHECKS"]


def _positive(name: str, *, zero: bool = False) -> Callable[[Any], object]:
    def check(value: int) -> None:
        if value < (0 if zero else 1):
            raise ValueError(f"{name} is {value}; expected {'0 or more' if zero else 'at least 1'}")

    return check


def _device(value: str) -> None:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; choose one of: auto, cpu, mps, cuda, cuda:N")


def _writable(value: str) -> None:
    folder = Path(value or paths.results()).expanduser()
    there = next(each for each in (folder, *folder.resolve().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"output_dir {value!r} cannot be written to: {there} is in the way")


def _folder(value: str) -> None:
    if value and not Path(value).expanduser().is_dir():
        raise ValueError(f"outputs {value!r}: no such folder")


def _level(value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"alpha is {value}; expected between 0 and 1")


def _known_tasks(value: str) -> None:
    """Names of MTEB tasks; ``organisation/name`` is a folder of the mirror, found when run."""
    if names := [each for each in listed(value) if "/" not in each]:
        select_tasks(names=names)


def _listed(value: str) -> list[str]:
    """The parts of a list that is written with commas; at least one."""
    return [each.strip() for each in value.split(",")]


def _numbers(name: str, *, zero: bool = False) -> Callable[[str], object]:
    check = _positive(name, zero=zero)
    return lambda value: [check(int(each)) for each in _listed(value)]


def _adapter(value: str) -> None:
    if value and not (Path(value).expanduser() / "adapter_config.json").is_file():
        raise ValueError(f"adapter {value!r}: no folder with adapter_config.json")


def _data(value: str) -> None:
    """Folders, or names of MTEB tasks."""
    names = [each for each in _listed(value) if not Path(each).expanduser().is_dir()]
    if names:
        select_tasks(names=names)


def _first_stage(value: str) -> None:
    for each in _listed(value):
        if each not in ("bm25", "given") and not Path(each).is_file():
            find_source(each)


CHECKS: dict[str, Callable[[Any], object]] = {
    "checkpoint": find_source,
    "training": find_training,
    "average": lambda value: one_of("average", value, ("last", "best")),
    **{name: _numbers(name) for name in ("averages", "ef_search", "nprobe", "rescore")},
    "dimensions": _numbers("dimensions"),
    "threads": _numbers("threads", zero=True),
    "indexes": lambda value: [one_of("index", each, FAMILIES) for each in _listed(value)],
    "k": _positive("k"),
    "poolings": lambda value: [one_of("pooling", each, POOLINGS) for each in _listed(value)],
    "count": _positive("count"),
    "adapter": _adapter,
    "data": _data,
    "first_stage": _first_stage,
    "depth": _positive("depth"),
    "template": lambda value: one_of("template", value, ("auto", *TEMPLATES)),
    "batch_tokens": _positive("batch_tokens", zero=True),
    "tasks": _known_tasks,
    "types": lambda value: value and select_tasks(types=listed(value)),
    "benchmark": lambda value: value and select_tasks(benchmark=value),
    "tier": lambda value: one_of("tier", value, TIERS),
    "pooling": lambda value: one_of("pooling", value, ("auto", *POOLINGS)),
    "device": _device,
    "dtype": lambda value: one_of("dtype", value, DTYPES),
    "batch_size": _positive("batch_size"),
    "rounds": _positive("rounds"),
    "texts": _positive("texts"),
    "limit": _positive("limit", zero=True),
    "max_length": _positive("max_length", zero=True),
    "seed": _positive("seed", zero=True),
    "output_dir": _writable,
    "outputs": _folder,
    "alpha": _level,
    "correction": lambda value: one_of("correction", value, CORRECTIONS),
}
