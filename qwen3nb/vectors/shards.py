"""Vectors in parts: a folder of .npy files and a manifest, as ``encode --shards`` writes it.

    vectors/
      plan.json          what is encoded, by which model, in which parts; written first
      part-000000.npy    float32 (n, D), in the order of the input; appears whole
      part-000001.npy
      manifest.json      the plan and the SHA-256 of every part; written last

A folder without a manifest is not finished, and is not read. `qwen3nb.vectors.encode_file` writes
such folders; `qwen3nb.models.search.exact.search` takes them like a .npy file.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from qwen3nb.utils.atomic_files import file_stamp, sha256_file
from qwen3nb.utils.files.digest_memory import known_digest, remembered_digest
from qwen3nb.vectors.block_file import (
    Floats,
    check_npy,
    read_blocks,
    read_manifest_fields,
    write_manifest_fields,
)

PLAN, MANIFEST = "plan.json", "manifest.json"
_Count = Annotated[int, Field(ge=0)]
# A name in the folder, never a path.
_PartName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.npy$")]
_STRICT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, config=_STRICT)
class ShardSource:
    """The file of N texts: its name, size and digest."""

    file: str
    bytes: _Count
    sha256: str
    texts: _Count


@dataclass(frozen=True, config=_STRICT)
class ShardModel:
    """The model that the vectors are of, and how it was used."""

    label: str  # its name
    identity: str  # SHA-256 of everything its vectors depend on but the role
    dimension: Annotated[int, Field(ge=1)]  # D
    similarity: str  # ``cosine`` or ``dot``
    role: Literal["query", "passage"] | None  # ``query``, ``passage`` or None; selects the prompt


@dataclass(frozen=True, config=_STRICT)
class Shard:
    """A part: its file, and its texts in the input."""

    file: _PartName  # name of the .npy file
    first: _Count  # position of its first text
    texts: _Count  # number of texts, n
    offset: _Count  # where its lines begin in the input; ``bytes`` is their length
    bytes: _Count
    source_sha256: str  # their digest
    sha256: str = ""  # digest of the .npy file; empty in a plan


@dataclass(frozen=True, config=_STRICT)
class ShardedVectors:
    """What a plan or a manifest says: the input, the model, and the parts in order."""

    source: ShardSource
    model: ShardModel
    shards: tuple[Shard, ...]

    @property
    def texts(self) -> int:
        """N, the number of vectors."""
        return self.source.texts

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return self.model.dimension

    def write(self, file: Path, *, replace: bool = True) -> None:
        """Write the plan or the manifest; without ``replace``, unless there is one."""
        write_manifest_fields(file, asdict(self), replace=replace)

    def check(self, shard: Shard, folder: Path) -> None:
        """Raise ValueError if the file of a part is missing, truncated or of another shape."""
        check_npy(folder / shard.file, rows=shard.texts, dimension=self.dimension)


def read_manifest(folder: Path) -> ShardedVectors:
    """Return the manifest of a finished folder, whose parts are there and have their size.

    Their content is read by `damaged_shards`.

    Raises:
        ValueError: no such folder, one that is not finished, or a part that is missing,
            truncated or of another shape; names the file.
    """
    if not (folder / MANIFEST).is_file():
        if not (folder / PLAN).is_file():
            raise ValueError(
                f"{folder}: expected a .npy file, or a folder with a {MANIFEST} (qwen3nb encode "
                "--shards)"
            )
        shards = read_shard_plan(folder).shards
        done = sum((folder / shard.file).is_file() for shard in shards)
        raise ValueError(
            f"{folder}: not finished: {done} of {len(shards)} parts and no {MANIFEST}; "
            "run the same `qwen3nb encode` again, which resumes"
        )
    vectors = read_shards(folder / MANIFEST)
    for shard in vectors.shards:
        vectors.check(shard, folder)
    return vectors


def read_shard_plan(folder: Path) -> ShardedVectors:
    """Return the plan of a folder, or raise ValueError."""
    return read_shards(folder / PLAN)


def read_shards(file: Path) -> ShardedVectors:
    """Return what a plan or a manifest says, or raise ValueError."""
    try:
        fields = read_manifest_fields(file)
    except ValueError as error:
        again = "encode to a new folder"
        if file.name == MANIFEST:
            again = "run the same `qwen3nb encode` again, which writes it again and keeps the parts"
        raise ValueError(f"{error}; {again}") from None
    try:
        return TypeAdapter(ShardedVectors).validate_json(json.dumps(fields))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{file}: {where}: {first['msg']}; expected parts named such as part-000000.npy"
        ) from None


def shard_blocks(folder: Path, size: int) -> Iterator[Floats]:
    """Yield blocks (n, D), n at most ``size``, of the vectors of a folder, in order.

    The digest of each part is checked unless that was done before.

    Raises:
        ValueError: see `read_manifest`; or a part whose content is not what the manifest says,
            which shows when all of it is read.
    """
    vectors = read_manifest(folder)
    for shard in vectors.shards:
        file = folder / shard.file
        if known_digest([file]) == shard.sha256:
            yield from read_blocks(file, size)
            continue
        stamp, digest = file_stamp(file), hashlib.sha256()
        with file.open("rb") as handle:
            digest.update(handle.read(file.stat().st_size - 4 * shard.texts * vectors.dimension))
        for block in read_blocks(file, size):
            digest.update(block.data)
            yield block
        check_content(shard, folder, digest.hexdigest())
        if file_stamp(file) == stamp:
            remembered_digest([file], digest.hexdigest)


def check_content(shard: Shard, folder: Path, digest: str = "") -> None:
    """Raise ValueError if the digest of a part, computed if it is empty, is not the manifest's."""
    file = folder / shard.file
    digest = digest or remembered_digest([file], lambda: sha256_file(file))
    if digest != shard.sha256:
        raise ValueError(
            f"{file}: expected SHA-256 {shard.sha256[:12]}… ({MANIFEST}), got {digest[:12]}…; "
            "run the same `qwen3nb encode` again, which replaces it"
        )


def damaged_shards(folder: Path) -> list[str]:
    """Return the parts of a finished folder whose content is not what the manifest says."""
    shards = read_manifest(folder).shards
    return [each.file for each in shards if sha256_file(folder / each.file) != each.sha256]
