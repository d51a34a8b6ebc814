"""The embedding cache as a person sees it: list, verify and prune what is there.

A cache is safe to delete: missing vectors are computed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.models.cache.cache_limit import shrink, total_bytes
from qwen3nb.models.cache.embedding_cache import ABOUT
from qwen3nb.models.cache.segments import Segment, find_segments, sound_rows
from qwen3nb.utils.atomic_files import read_json

__all__ = [
    "ModelVectors",
    "cache_folder",
    "list_caches",
    "prune",
    "prune_to",
    "to_prune",
    "verify_cache",
]

_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class ModelVectors:
    """The cached vectors of one encoder.

    Attributes:
        path: the folder.
        label: the model's label; ``unknown`` without a description.
        identity: the encoder's SHA-256, or its first 32 digits.
        settings: everything its vectors depend on.
        files: all files that belong to it.
        bytes: their size.
        used: time of the last use, in seconds since 1970.
    """

    path: Path
    label: str
    identity: str
    settings: dict[str, Any]
    files: tuple[Path, ...]
    bytes: int
    used: float

    def texts(self) -> int:
        """Return the number of stored vectors."""
        return sum(len(Segment(*each)) for each in find_segments(self.path).items())


def cache_folder() -> Path:
    """Return the folder of the cache's files."""
    return paths.cache() / "embeddings"


def list_caches(folder: Path | None = None) -> list[ModelVectors]:
    """Return what the cache holds, the most recently used first."""
    folder = folder or cache_folder()
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    caches = [each for path in there if (each := _described(path)) is not None]
    return sorted(caches, key=lambda each: -each.used)


def _described(path: Path) -> ModelVectors | None:
    """Return what is in ``path``, or None if it is not a cache or is being removed."""
    files = sorted(path.iterdir()) if path.is_dir() else []
    states = {file: file.stat() for file in files if file.is_file()}
    if not states:
        return None
    about = _about(path / ABOUT)
    return ModelVectors(
        path=path,
        label=str(about.get("label", "unknown")),
        identity=str(about.get("identity", path.name)),
        settings=dict(about.get("settings", {})),
        files=tuple(states),
        bytes=sum(each.st_size for each in states.values()),
        used=max(each.st_mtime for each in states.values()),
    )


def _about(file: Path) -> dict[str, Any]:
    try:
        about = read_json(file) if file.is_file() else {}
    except ValueError:
        about = {"label": "unknown: its description is damaged"}
    return about if isinstance(about, dict) else {}


def verify_cache(cache: ModelVectors) -> tuple[int, list[str]]:
    """Return the number of intact vectors, and the problems, each naming its file."""
    problems, intact = [], 0
    for file, (sound, damaged) in _counts(cache).items():
        intact += sound
        if damaged:
            problems.append(
                f"{file.name}: {damaged} vectors fail their checksum and will be computed again"
            )
    return intact, problems


def _counts(cache: ModelVectors) -> dict[Path, tuple[int, int]]:
    """Return the numbers of intact and damaged vectors of each segment."""
    counts = {}
    for file, dimension in find_segments(cache.path).items():
        segment = Segment(file, dimension)
        rows = np.arange(len(segment))
        parts = segment.read(rows) if len(rows) else ()
        sound = sum(int(sound_rows(records).sum()) for _, records in parts)
        counts[file] = sound, len(rows) - sound
    return counts


def to_prune(
    caches: Iterable[ModelVectors],
    *,
    older_than: float | None = None,
    label: str | None = None,
    everything: bool = False,
    damaged: bool = False,
    now: float | None = None,
) -> list[ModelVectors]:
    """Return what meets all given conditions.

    Args:
        caches: what to select from.
        older_than: days since the last use.
        label: label of the model.
        everything: all of it, without a condition.
        damaged: of each model, the segments with damaged vectors.
        now: seconds since 1970; None for the current time.

    Raises:
        ValueError: no condition, or ``everything`` combined with a condition.
    """
    conditions = list(_conditions(older_than, label, time.time() if now is None else now))
    if everything == bool(conditions or damaged):
        raise ValueError(
            "expected --all, or one or more of --older-than DAYS, --model LABEL and --damaged; "
            "or --to SIZE"
        )
    selected = [cache for cache in caches if all(condition(cache) for condition in conditions)]
    return [part for each in selected for part in _damaged(each)] if damaged else selected


def _conditions(
    older_than: float | None, label: str | None, now: float
) -> Iterator[Callable[[ModelVectors], bool]]:
    if older_than is not None:
        yield lambda cache: now - cache.used > older_than * _DAY
    if label is not None:
        yield lambda cache: cache.label == label


def _damaged(cache: ModelVectors) -> Iterator[ModelVectors]:
    """Yield the damaged segments of a model, if there are any."""
    bad = {file.stem for file, (_, damaged) in _counts(cache).items() if damaged}
    if files := tuple(file for file in cache.files if file.stem in bad):
        yield replace(cache, files=files, bytes=sum(file.stat().st_size for file in files))


def prune(caches: Iterable[ModelVectors]) -> int:
    """Remove files and return the bytes freed; a process that uses them continues without."""
    freed = 0
    for cache in caches:
        for file in cache.files:
            freed += file.stat().st_size if file.is_file() else 0
            file.unlink(missing_ok=True)
        _remove_empty(cache.path)
    return freed


def prune_to(size: int, *, folder: Path | None = None) -> int:
    """Remove the segments unused for longest until ``size`` bytes are left; return those freed.

    What a process is writing is kept.
    """
    folder = folder or cache_folder()
    before = total_bytes(folder)
    freed = before - shrink(folder, to=size)
    for path in folder.iterdir() if folder.is_dir() else ():
        _remove_empty(path)
    return freed


def _remove_empty(path: Path) -> None:
    """Remove the folder of a model that has no vectors left, and its description."""
    if path.is_dir() and not find_segments(path):
        (path / ABOUT).unlink(missing_ok=True)
        if not any(path.iterdir()):
            path.rmdir()
