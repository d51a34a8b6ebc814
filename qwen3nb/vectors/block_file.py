"""The format of vectors on disk: ``.npy`` files of float32 (N, D), described by a manifest.

It is used by the embedding cache, ``encode --out x.npy``, the parts of ``encode --shards`` and
temporary stores of vectors; `numpy.load` reads any of them. Files are read, never memory-mapped:
truncating a mapped file kills the process, whereas reading a truncated file raises.

A manifest is a JSON object with a schema number and a digest of its own content. ``encode
--shards`` writes a folder of parts with a manifest:

    vectors/
      plan.json          input, model and parts; written first
      part-000000.npy    float32 (n, D), in the order of the input; written atomically
      part-000001.npy
      manifest.json      the plan and the SHA-256 of every part; written last

A folder without a manifest is unfinished, and is not read.

Shapes: N rows or texts, D dimensions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.schema import field_problem

HEADER = 128  # bytes of a written header: enough for any number of rows
SCHEMA = 1  # of manifests
Floats = NDArray[np.float32]
PLAN, MANIFEST = "plan.json", "manifest.json"
_Count = Annotated[int, Field(ge=0)]
# A file name, not a path.
_PartName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.npy$")]
Role = Literal["query", "passage"]
_STRICT = ConfigDict(extra="forbid", strict=True)


def npy_header(rows: int, dimension: int, *, dtype: str = "<f4") -> bytes:
    """Return a .npy header of `HEADER` bytes, version 1.0: magic, length, padded fields."""
    shape = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({rows}, {dimension}), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + shape.encode("ascii").ljust(HEADER - 11) + b"\n"


def _read_header(file: Path) -> tuple[int, int, int]:
    """Return N, D and the offset of the data of a .npy file of float32, or raise ValueError."""
    with file.open("rb") as handle:
        try:
            major, _ = np.lib.format.read_magic(handle)
            # A function for each version of the format.
            read_header: Any = getattr(np.lib.format, f"read_array_header_{major}_0")
            shape, column_major, dtype = read_header(handle)
        except (ValueError, AttributeError, TypeError, SyntaxError, TokenError) as error:
            raise ValueError(f"{file} is not a .npy file ({error})") from None
        offset = handle.tell()
    # ``<f4``: float32, its lowest byte first.
    if len(shape) != 2 or column_major or dtype != np.dtype("<f4"):
        raise ValueError(f"{file}: expected float32 (N, D) in C order; got {dtype} {shape}")
    return shape[0], shape[1], offset


def read_blocks(file: Path, size: int) -> Iterator[Floats]:
    """Yield blocks (size, D) of a .npy file of float32 (N, D); raise ValueError for any other."""
    rows, dimension, offset = _read_header(file)
    message = f"{file} is truncated: expected {rows} rows of {dimension} float32"
    if file.stat().st_size < offset + 4 * rows * dimension:  # 4 bytes of a float32
        raise ValueError(message)
    with file.open("rb", buffering=0) as handle:
        handle.seek(offset)
        for start in range(0, rows, size):
            count = min(size, rows - start)
            part = np.empty((count, dimension), dtype=np.float32)
            if not fill(part, handle):
                raise ValueError(message)
            yield part


def fill(rows: NDArray[Any], handle: FileIO) -> bool:
    """Fill ``rows`` from the position of ``handle``; return False if the file is too short."""
    # Their bytes, which a read may fill in several steps.
    target = rows.view(np.uint8).reshape(-1).data
    while target:
        count = handle.readinto(target)
        if not count:
            return False
        target = target[count:]
    return True


def write_all(rows: NDArray[Any], handle: BinaryIO | FileIO) -> None:
    """Write all ``rows`` at the position of ``handle``, which may be unbuffered."""
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(-1).data
    while data:
        count = handle.write(data)
        data = data[count:]


def write_manifest_fields(
    file: Path,
    fields: Mapping[str, object],
    *,
    replace: bool = True,
) -> None:
    """Write a manifest of ``fields`` with its digest; without ``replace``, keep an existing one."""
    content = {"schema": SCHEMA, **fields}
    write_json(file, {**content, "check": sha256_json(content)}, replace=replace)


def read_manifest_fields(file: Path) -> dict[str, object]:
    """Return the fields of a manifest; raise ValueError if it has another schema or was changed."""
    value = read_json(file)
    schema = None
    if isinstance(value, dict):
        schema = value.pop("schema", None)
    if schema != SCHEMA:
        raise ValueError(f"{file}: expected a manifest of schema {SCHEMA}; got {schema}")
    if value.pop("check", None) != sha256_json({"schema": SCHEMA, **value}):
        raise ValueError(f"{file}: changed since it was written")
    fields: dict[str, object] = value
    return fields


@dataclass(frozen=True, config=_STRICT)
class ShardSource:
    """The file of N texts: its name, size and digest."""

    file: str
    bytes: _Count
    sha256: str
    texts: _Count


@dataclass(frozen=True, config=_STRICT)
class ShardModel:
    """The model of the vectors, and how it was used."""

    label: str  # its name
    identity: str  # SHA-256 of everything its vectors depend on, except the role
    dimension: Annotated[int, Field(ge=1)]  # D
    similarity: str  # ``cosine`` or ``dot``
    role: Role | None  # ``query``, ``passage`` or None; selects the prompt


@dataclass(frozen=True, config=_STRICT)
class Shard:
    """A part: its file, and its texts in the input."""

    file: _PartName  # name of the .npy file
    first: _Count  # position of its first text
    texts: _Count  # number of texts, n
    offset: _Count  # start of its lines in the input; ``bytes`` is their length
    bytes: _Count
    source_sha256: str  # digest of its lines
    sha256: str = ""  # digest of the .npy file; empty in a plan


@dataclass(frozen=True, config=_STRICT)
class ShardedVectors:
    """Content of a plan or manifest: the input, the model, and the parts in order."""

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
        """Write the plan or manifest; without ``replace``, keep an existing one."""
        write_manifest_fields(file, asdict(self), replace=replace)

    def check(self, shard: Shard, folder: Path) -> None:
        """Raise ValueError if the file of a part is missing, truncated or of another shape."""
        file = folder / shard.file
        if not file.is_file():
            raise ValueError(f"{file}: no such file")
        expected_shape = (shard.texts, self.dimension)
        rows, dimension, offset = _read_header(file)
        if (rows, dimension) != expected_shape:
            raise ValueError(f"{file}: expected float32 {expected_shape}; got {rows, dimension}")
        size = file.stat().st_size
        expected = offset + 4 * rows * dimension
        if size != expected:
            raise ValueError(f"{file}: expected {expected:,} bytes; got {size:,}")


def read_manifest(folder: Path) -> ShardedVectors:
    """Return the manifest of a finished folder, after checking existence and size of its parts.

    `damaged_shards` checks their content.

    Raises:
        ValueError: no such folder, an unfinished folder, or a part that is missing, truncated or of
            another shape; names the file.
    """
    if not (folder / MANIFEST).is_file():
        if not (folder / PLAN).is_file():
            raise ValueError(
                f"{folder}: expected a .npy file, or a folder with a {MANIFEST} (qwen3nb encode "
                "--shards)"
            )
        shards = read_shards(folder / PLAN).shards
        complete = sum((folder / shard.file).is_file() for shard in shards)
        raise ValueError(
            f"{folder}: not finished: {complete} of {len(shards)} parts and no {MANIFEST}; "
            "run the same `qwen3nb encode` again, which resumes"
        )
    vectors = read_shards(folder / MANIFEST)
    for shard in vectors.shards:
        vectors.check(shard, folder)
    return vectors


def read_shards(file: Path) -> ShardedVectors:
    """Return the content of a plan or manifest; raise ValueError if it is invalid."""
    try:
        fields = read_manifest_fields(file)
    except ValueError as error:
        remedy = "encode to a new folder"
        if file.name == MANIFEST:
            remedy = (
                "run the same `qwen3nb encode` again, which writes it again and keeps the parts"
            )
        raise ValueError(f"{error}; {remedy}") from None
    try:
        return TypeAdapter(ShardedVectors).validate_json(json.dumps(fields))
    except ValidationError as error:
        raise ValueError(f"{file}: {field_problem(error, fields)}") from None


def shard_blocks(folder: Path, size: int) -> Iterator[Floats]:
    """Yield blocks (n, D), n at most ``size``, of the vectors of a folder, in order.

    Raises:
        ValueError: see `read_manifest`; or a part that does not match its digest.
    """
    for shard in read_manifest(folder).shards:
        file = folder / shard.file
        # Computed again only if the file has changed.
        digest = remembered_digest([file], partial(sha256_file, file))
        if digest != shard.sha256:
            raise ValueError(
                f"{file}: expected SHA-256 {shard.sha256[:12]}… ({MANIFEST}), got "
                f"{digest[:12]}…; run the same `qwen3nb encode` again, which replaces it"
            )
        yield from read_blocks(file, size)


def damaged_shards(folder: Path) -> list[str]:
    """Return the parts of a finished folder that do not match their digests."""
    damaged: list[str] = []
    for shard in read_manifest(folder).shards:
        if sha256_file(folder / shard.file) != shard.sha256:
            damaged.append(shard.file)
    return damaged
