"""The files of the embedding cache: list, verify and prune them.

A cache is safe to delete: missing vectors are computed again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.models.encoders.embedding_cache import connect, is_damage, is_sound
from qwen3nb.utils.atomic_files import read_json

__all__ = ["CacheFile", "cache_folder", "list_caches", "prune", "to_prune", "verify_cache"]

_DAY = 24 * 60 * 60
_DAMAGED = ".damaged"


@dataclass(frozen=True)
class CacheFile:
    """The cached vectors of one encoder.

    Attributes:
        file: the SQLite file, or a damaged file that was moved aside.
        label: the model's label; ``unknown`` without a description.
        identity: the encoder's SHA-256, or its first 32 digits.
        settings: everything its vectors depend on.
        bytes: size on disk, including the journal and the description.
        used: time of the last use, in seconds since 1970.
    """

    file: Path
    label: str
    identity: str
    settings: dict[str, Any]
    bytes: int
    used: float

    @property
    def aside(self) -> bool:
        """Whether the file was damaged and moved aside."""
        return self.file.name.endswith(_DAMAGED)

    @property
    def parts(self) -> list[Path]:
        """All files that belong to it."""
        if self.aside:
            return [self.file]
        names = (self.file.name, f"{self.file.name}-wal", f"{self.file.name}-shm",
                 f"{self.file.name}-journal", f"{self.file.stem}.json")  # fmt: skip
        return [path for name in names if (path := self.file.with_name(name)).is_file()]

    def texts(self) -> int | None:
        """Return the number of stored vectors, or None if the file cannot be read."""
        if self.aside:
            return None
        try:
            with closing(connect(self.file)) as database:
                return int(database.execute("select count(*) from e").fetchone()[0])
        except sqlite3.Error:
            return None


def cache_folder() -> Path:
    """Return the folder of the cache's files."""
    return paths.cache() / "embeddings"


def list_caches(folder: Path | None = None) -> list[CacheFile]:
    """Return all files of the cache, the most recently used first."""
    folder = folder or cache_folder()
    files = [*folder.glob("*.sqlite"), *folder.glob(f"*{_DAMAGED}")]
    return sorted(map(_described, files), key=lambda each: -each.used)


def _described(file: Path) -> CacheFile:
    name = file.name.partition(".")[0]
    about_file = file.with_name(f"{name}.json")
    about: dict[str, Any] = {}
    try:
        if about_file.is_file() and isinstance(described := read_json(about_file), dict):
            about = described
    except ValueError:
        about = {"label": "unknown: its description is damaged"}
    moved = file.name.endswith(_DAMAGED)
    newest = [file, about_file] if about_file.is_file() and not moved else [file]
    cache = CacheFile(
        file=file,
        label=str(about.get("label", "unknown")),
        identity=str(about.get("identity", name)),
        settings=dict(about.get("settings", {})),
        bytes=0,
        used=max(path.stat().st_mtime for path in newest),
    )
    size = sum(path.stat().st_size for path in cache.parts)
    return CacheFile(**{**vars(cache), "bytes": size})


def verify_cache(cache: CacheFile) -> tuple[int, list[str]]:
    """Return the number of intact vectors, and the problems: checksums and file integrity."""
    if cache.aside:
        return 0, ["was damaged and moved aside; `qwen3nb cache prune --damaged` removes it"]
    intact = damaged = 0
    problems: list[str] = []
    try:
        with closing(connect(cache.file)) as database:
            for row in database.execute("select k, v, crc from e"):
                sound = is_sound(row)
                intact, damaged = intact + sound, damaged + (not sound)
            reports = [_text(line[0]) for line in database.execute("pragma integrity_check(3)")]
            problems += [] if reports == ["ok"] else reports
    except sqlite3.Error as error:
        what = "damaged" if is_damage(error) else "not readable"
        problems.append(f"{what}: {error}")
    if damaged:
        problems.insert(0, f"{damaged} vectors fail their checksum and will be computed again")
    return intact, problems


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def to_prune(
    caches: Iterable[CacheFile],
    *,
    older_than: float | None = None,
    label: str | None = None,
    everything: bool = False,
    damaged: bool = False,
    now: float | None = None,
) -> list[CacheFile]:
    """Return the files that meet all given conditions.

    Args:
        caches: the files to select from.
        older_than: days since the last use.
        label: label of the model.
        everything: all files, without a condition.
        damaged: files moved aside, and those in which `verify_cache` finds problems.
        now: seconds since 1970; None for the current time.

    Raises:
        ValueError: no condition, or ``everything`` combined with a condition.
    """
    conditions = list(_conditions(older_than, label, damaged, time.time() if now is None else now))
    if everything == bool(conditions):
        raise ValueError(
            "expected --all, or one or more of --older-than DAYS, --model LABEL and --damaged"
        )
    return [cache for cache in caches if all(condition(cache) for condition in conditions)]


def _conditions(
    older_than: float | None, label: str | None, damaged: bool, now: float
) -> Iterator[Callable[[CacheFile], bool]]:
    if older_than is not None:
        yield lambda cache: now - cache.used > older_than * _DAY
    if label is not None:
        yield lambda cache: cache.label == label
    if damaged:
        yield lambda cache: bool(verify_cache(cache)[1])


def prune(caches: Iterable[CacheFile]) -> int:
    """Remove files and return the bytes freed; a process that uses a file continues without it."""
    freed = 0
    for cache in caches:
        for path in cache.parts:
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
    return freed
