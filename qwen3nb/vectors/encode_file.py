"""Encode texts into vectors on disk in constant memory: to one .npy file, or in parts.

`encode_shards` writes a folder of parts as described in `qwen3nb.vectors.block_file`, and can be
interrupted and resumed at any time. Processes on several machines with a shared file system may
write the folder at once: a part is written under a temporary name and renamed when complete; the
first writer wins. Object storage is not supported, because it cannot rename. A later call keeps the
plan, refuses another model, role or input, and encodes only missing parts.

Vectors are bit-identical to those of `encode_to_file`, for any number of parts. The last bits of a
vector may depend on its neighbours in a batch (for Qwen3 and padded models, not for BERT on this
package's fast path). Parts therefore begin at multiples of the 4,096 texts that `encode_to_file`
batches together.

A `VectorStore` holds vectors that are read several times. Above a quarter of the available memory,
they are stored in a file next to the embedding cache. The file has no name, so a crash leaves
nothing behind, and it is read, not mapped, so it does not count as memory of the process.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from qwen3nb import paths
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import ROLES
from qwen3nb.models.types import EncoderError, Vectors
from qwen3nb.utils.atomic_files import named, new_file, sha256_file, sweep_leftovers
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.compressed import DAMAGED, compression, open_unpacked
from qwen3nb.utils.hardware import available_memory
from qwen3nb.utils.progress import tqdm
from qwen3nb.vectors.block_file import (
    MANIFEST,
    PLAN,
    Floats,
    Shard,
    ShardedVectors,
    ShardModel,
    ShardSource,
    fill,
    npy_header,
    read_manifest,
    read_shards,
    write_all,
)

log = logging.getLogger(__name__)
AT_ONCE = 4096  # texts in memory: enough to batch texts of similar length
TEXTS_PER_SHARD = 65_536  # by default
BLOCK = 65_536  # vectors added to a FAISS index at once
_BLOCK = 32 << 20  # bytes of vectors: enough to batch texts of similar length
_BOM = b"\xef\xbb\xbf"
_MOST = 32_768  # texts of a block
Cuts = tuple[ShardSource, tuple[Shard, ...]]


class _Line(BaseModel, strict=True):
    """A line of a file of texts; other fields are ignored."""

    text: str


def block_size(dimension: int) -> int:
    """Return the number of texts of a block."""
    return max(1, min(_MOST, _BLOCK // (4 * max(1, dimension))))


def encode_blocks(
    encoder: Encoder,
    texts: Iterable[str],
    *,
    size: int | None = None,
    total: int | None = None,
    first: int = 0,
    **options: Any,
) -> Iterator[Vectors]:
    """Yield the vectors of ``texts``, in order, in blocks (n, D) of float32.

    The vectors depend neither on ``size`` nor on the texts of the same block.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        size: texts per block; None for 32 MiB of vectors.
        total: number of texts, if known; a progress bar is shown for several blocks.
        first: position of the first text in a larger input, for errors.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded; the message says where its block starts.
    """
    size = size or block_size(encoder.dimension)
    source = iter(texts)
    shown = encoder.show_progress and total is not None and total > size
    with tqdm(
        total=total, desc=f"{encoder.label}: corpus", unit=" texts", leave=False, disable=not shown
    ) as bar:
        while part := list(itertools.islice(source, size)):
            try:
                vectors: Vectors = encoder.encode(part, **options)
            except EncoderError as error:
                if not first:
                    raise
                raise EncoderError(f"counting from text {first}: {error}") from None
            yield vectors
            first += len(part)
            bar.update(len(part))


def encode_to_file(
    encoder: Encoder,
    texts: Iterable[str],
    file: Path,
    *,
    total: int | None = None,
    first: int = 0,
    replace: bool = True,
    advance: Callable[[int], object] | None = None,
    **options: Any,
) -> int:
    """Write the vectors of ``texts``, in order, to a .npy file of float32 (N, D).

    Texts are read 4,096 at a time. The file is replaced when the new one is complete. After a kill,
    an encoder with a cache resumes and encodes at most 512 texts again (4,096 on a GPU). Returns
    the number of texts.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        file: the .npy file to write.
        total: number of texts, if known; shown in the progress bar and checked at the end.
        first: position of the first text in a larger input, for errors.
        replace: whether to replace an existing file.
        advance: called with the number of texts done, instead of a progress bar.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded, or a number of texts other than ``total``.
    """
    rows = 0
    bar = text_bar(encoder.label, total, show=encoder.show_progress and advance is None)
    options["show_progress_bar"] = False  # one bar for all texts
    with new_file(file, replace=replace) as handle, bar:
        handle.write(npy_header(0, encoder.dimension))
        for vectors in encode_blocks(encoder, texts, size=AT_ONCE, first=first, **options):
            write_all(vectors, handle)
            rows += len(vectors)
            (advance or bar.update)(len(vectors))
        if total not in (None, rows):
            raise EncoderError(f"expected {total} texts; got {rows}; did the input change?")
        handle.seek(0)
        handle.write(npy_header(rows, encoder.dimension))
    return rows


def text_bar(label: str, total: int | None, *, show: bool) -> tqdm:
    """Return a bar that counts the texts of a file."""
    return tqdm(total=total, desc=label, unit=" texts", delay=2, leave=False, disable=not show)


def read_texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file with one ``{"text": ...}`` per line; refuse other lines.

    Blank lines and a byte order mark are skipped; the file may be compressed (see `COMPRESSED`).
    """
    try:
        with closing(open_unpacked(file, compression(file))) as handle:
            yield from _texts_from(handle, file)
    except DAMAGED as error:
        if not compression(file):
            raise
        raise ValueError(f"{file}: cannot be unpacked ({error})") from None


def _texts_from(handle: IO[bytes], file: Path) -> Iterator[str]:
    """Yield the texts from the position of ``handle``; errors count lines from there."""
    with named(file):
        for number, whole in enumerate(handle, 1):
            line = whole.removeprefix(_BOM).strip()
            if not line:
                continue
            try:
                yield _Line.model_validate_json(line).text
            except ValidationError as error:
                raise ValueError(
                    f'{file}:{number}: expected {{"text": "…"}}; {error.errors()[0]["msg"]}'
                ) from None


def check_texts(file: Path) -> int:
    """Return the number of texts in ``file``; raise an error if it is empty or malformed."""
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    count = sum(1 for _ in read_texts(file))
    if not count:
        raise ValueError(f'{file} is empty; expected one {{"text": "…"}} per line')
    return count


def check_output(file: Path) -> None:
    """Raise ValueError for an output file that cannot be written, before any work is done."""
    if file.suffix != ".npy" or file.is_dir():
        raise ValueError(f"{file}: expected the name of a .npy file")
    _check_writable(file.parent)


def _check_writable(folder: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder to write to")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder}: this folder is not writable")


@dataclass(frozen=True)
class EncodedShards:
    """The folder, its manifest, and the number of parts kept from an earlier run."""

    folder: Path
    vectors: ShardedVectors
    kept: int

    def summary(self) -> str:
        """Return the shape of the vectors, and the number of parts, in one line."""
        return (
            f"{self.folder}: {self.vectors.texts:,} x {self.vectors.dimension} float32, in "
            f"{len(self.vectors.shards)} parts, {self.kept} of them from an earlier run"
        )


def encode_shards(
    encoder: Encoder,
    source: Path,
    folder: Path,
    *,
    shards: int | None = None,
    role: str | None = None,
) -> EncodedShards:
    """Write the vectors of a file of texts to a folder, one part after another.

    Args:
        encoder: any encoder; its cache is hardly needed, as finished parts are kept.
        source: a file with one ``{"text": ...}`` per line.
        folder: the folder to write, or to finish.
        shards: number of parts; None for the number in the folder's plan, else one per 65,536
            texts. At most one per 4,096 texts.
        role: ``query`` or ``passage``; selects the prompt.

    Raises:
        EncoderError: a text that cannot be encoded.
        ValueError: a malformed line, or a folder with other files, or with vectors of another
            model, role or input.
    """
    check_folder(folder)
    cuts = cut_texts(source, folder, shards=shards)
    vectors = start_shards(folder, cuts, model_of(encoder, role))
    done: dict[str, str] = {}
    kept = 0
    with text_bar(encoder.label, vectors.texts, show=encoder.show_progress) as bar:
        for shard in vectors.shards:
            done[shard.file], was_there = encode_shard(
                encoder, shard, source=source, folder=folder, vectors=vectors, advance=bar.update
            )
            kept += was_there
    return EncodedShards(folder, finish_shards(folder, vectors, done), kept)


def model_of(encoder: Encoder, role: str | None) -> ShardModel:
    """Return ``encoder`` and ``role`` as stored in a plan; raise ValueError for an unknown role."""
    if role is not None:
        one_of("role", role, ROLES)
    return ShardModel(
        label=encoder.label,
        identity=encoder.identity,
        dimension=encoder.dimension,
        similarity=encoder.similarity_name,
        role=role,  # type: ignore[arg-type]
    )


def check_folder(folder: Path) -> None:
    """Create the folder; raise ValueError if it contains anything but vectors in parts."""
    if folder.suffix == ".npy" or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder}: expected the name of a folder, for vectors in parts")
    if not folder.is_dir():
        _check_writable(folder.absolute().parent)
        folder.mkdir(exist_ok=True)
    _check_writable(folder)
    # List files first: another writer may add the plan and a part meanwhile.
    files = any(each.name[0] != "." for each in folder.iterdir())
    if files and not (folder / PLAN).is_file():
        raise ValueError(f"{folder}: holds files but no {PLAN}; choose a new folder")


def cut_texts(source: Path, folder: Path, *, shards: int | None, at_least: int = 1) -> Cuts:
    """Check the input and split it into ``shards`` parts, or as in the plan of ``folder``.

    Without a number or a plan, there is a part per 65,536 texts, but ``at_least`` this number;
    always at most one per 4,096 texts. A first pass over the input checks every line, a second one
    computes digests.

    Raises:
        ValueError: a malformed line; a plan of another input, or with other parts.
    """
    if (folder / PLAN).is_file():
        plan = read_shards(folder / PLAN)
        if not source.is_file() or sha256_file(source) != plan.source.sha256:
            raise ValueError(
                f"{folder} holds vectors of another input: expected {plan.source.file} of "
                f"{plan.source.bytes:,} bytes, SHA-256 {plan.source.sha256[:12]}…; got {source}. "
                "Choose a new folder"
            )
        if shards and len(_firsts(plan.texts, shards, grain=AT_ONCE)) != len(plan.shards):
            raise ValueError(
                f"{folder} is planned in {len(plan.shards)} parts; got --shards {shards}. Leave "
                "it out to resume, or choose a new folder"
            )
        return plan.source, plan.shards
    if compression(source):
        raise ValueError(f"{source}: parts are read by their position; unpack it for --shards")
    texts = check_texts(source)
    wanted = shards or max(at_least, -(-texts // TEXTS_PER_SHARD))
    bounds = [*_firsts(texts, wanted, grain=AT_ONCE), texts]
    whole, parts = hashlib.sha256(), []
    with source.open("rb") as handle:
        for number, (first, end) in enumerate(itertools.pairwise(bounds)):
            own, offset = hashlib.sha256(), handle.tell()
            for line in _lines_of(handle, end - first):
                whole.update(line)
                own.update(line)
            part = Shard(
                file=f"part-{number:06d}.npy",
                first=first,
                texts=end - first,
                offset=offset,
                bytes=handle.tell() - offset,
                source_sha256=own.hexdigest(),
            )
            parts.append(part)
        for line in iter(handle.readline, b""):  # blank ones at the end
            whole.update(line)
        size = handle.tell()
    return ShardSource(source.name, size, whole.hexdigest(), texts), tuple(parts)


def _lines_of(handle: BinaryIO, texts: int) -> Iterator[bytes]:
    """Yield the next lines, up to the last of so many texts; with the blank ones between them."""
    while texts:
        line = handle.readline()
        if not line:
            return
        texts -= bool(line.removeprefix(_BOM).strip())
        yield line


def _firsts(texts: int, shards: int, *, grain: int) -> list[int]:
    """Return the first text of each of equal parts, at multiples of ``grain``.

    >>> _firsts(10, 3, grain=1), _firsts(10, 3, grain=2), _firsts(2, 3, grain=1)
    ([0, 3, 6], [0, 2, 6], [0, 1])
    """
    grains = -(-texts // grain)
    shards = min(shards, grains)
    return [grain * (number * grains // shards) for number in range(shards)]


def start_shards(folder: Path, cuts: Cuts, model: ShardModel) -> ShardedVectors:
    """Write the plan unless it exists; return the folder's plan, with digests if finished.

    Raises ValueError if it is for another model, role or input.
    """
    own = ShardedVectors(cuts[0], model, cuts[1])
    if not (folder / PLAN).is_file():
        own.write(folder / PLAN, replace=False)
    plan = read_shards(folder / PLAN)
    if plan.model != model:
        expected, got = (
            f"{each.label}, identity {each.identity[:12]}, "
            + (f"role {each.role}" if each.role else "no role")
            for each in (plan.model, model)
        )
        raise ValueError(
            f"{folder} holds vectors of another model: expected {expected}; got {got}. "
            "Choose a new folder"
        )
    if plan.shards != own.shards or plan.source.sha256 != own.source.sha256:
        raise ValueError(f"{folder}: planned for another input at the same time; choose a new one")
    if (folder / MANIFEST).is_file():
        try:
            digests = {each.file: each.sha256 for each in read_shards(folder / MANIFEST).shards}
            shards = (replace(each, sha256=digests.get(each.file, "")) for each in plan.shards)
            return replace(plan, shards=tuple(shards))
        except ValueError as error:
            log.warning("%s; it is written again", error)
    return plan


def encode_shard(
    encoder: Encoder,
    shard: Shard,
    *,
    source: Path,
    folder: Path,
    vectors: ShardedVectors,
    advance: Callable[[int], object],
) -> tuple[str, bool]:
    """Encode a part unless it exists; return its SHA-256 and whether it existed.

    A damaged part is moved aside. Raises ValueError if the texts differ from the plan.
    """
    file = folder / shard.file
    if file.exists():
        with suppress(ValueError):
            vectors.check(shard, folder)
            digest = sha256_file(file)
            if shard.sha256 in ("", digest):
                advance(shard.texts)
                return digest, True
        file.replace(file.with_name(f"{file.name}.damaged"))
    try:
        encode_to_file(
            encoder,
            _texts_of(shard, source),
            file,
            role=vectors.model.role,
            total=shard.texts,
            first=shard.first,
            replace=False,
            advance=advance,
        )
    except FileNotFoundError:  # a faster writer finished the folder and cleared it
        vectors.check(shard, folder)
    return sha256_file(file), False


def _texts_of(shard: Shard, source: Path) -> Iterator[str]:
    """Yield the texts of a part, after checking their digest."""
    digest = hashlib.sha256()
    with source.open("rb") as handle:
        handle.seek(shard.offset)
        for line in _lines_of(handle, shard.texts):
            digest.update(line)
        if digest.hexdigest() != shard.source_sha256:
            raise ValueError(
                f"{source}: the texts of {shard.file} are not those of the plan; "
                "did the file change, or is it another one on this machine?"
            )
        handle.seek(shard.offset)
        yield from itertools.islice(_texts_from(handle, source), shard.texts)


def finish_shards(
    folder: Path, vectors: ShardedVectors, digests: Mapping[str, str]
) -> ShardedVectors:
    """Write the manifest if every part is complete, and remove leftovers of killed writers."""
    shards = tuple(replace(each, sha256=digests[each.file]) for each in vectors.shards)
    for shard in shards:
        vectors.check(shard, folder)
    replace(vectors, shards=shards).write(folder / MANIFEST)
    sweep_leftovers(folder / PLAN)
    for left in folder.glob(".part-*.tmp"):  # including those of slower writers, which notice it
        left.unlink(missing_ok=True)
    return read_manifest(folder)


class VectorStore:
    """Vectors of ``shape`` (N, D), read by blocks or rows from memory or disk."""

    def __init__(self, read: Callable[[int, int], Floats], shape: tuple[int, int]) -> None:
        """Wrap ``read`` (first row, number of rows)."""
        self._read = read
        self.shape = shape

    @classmethod
    def of(cls, vectors: Floats | VectorStore) -> VectorStore:
        """Return a store of an array (N, D), or the store itself."""
        if isinstance(vectors, VectorStore):
            return vectors
        if vectors.ndim != 2:
            raise ValueError(f"expected vectors (N, D); got {vectors.shape}")
        array = np.ascontiguousarray(vectors, dtype=np.float32)
        return cls(lambda first, count: array[first : first + count], array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, size: int = BLOCK) -> Iterator[Floats]:
        """Yield all vectors, in blocks (size, D); the last may be smaller."""
        for first in range(0, len(self), size):
            yield self._read(first, min(size, len(self) - first))

    def everything(self) -> Floats:
        """Return all vectors (N, D)."""
        return self._read(0, len(self))

    def mapped(self, transform: Callable[[Floats], Floats]) -> VectorStore:
        """Return a store that applies ``transform`` to vectors when they are read, row by row."""
        dimension = transform(self._read(0, min(1, len(self)))).shape[1]
        return VectorStore(
            lambda first, count: transform(self._read(first, count)), (len(self), dimension)
        )

    def rows(self, positions: NDArray[np.int64]) -> Floats:
        """Return the vectors (n, D) at ``positions`` (n,), in their order."""
        vectors = np.empty((len(positions), self.shape[1]), dtype=np.float32)
        for row, position in enumerate(positions.tolist()):
            vectors[row] = self._read(position, 1)[0]
        return vectors


@contextmanager
def stored_vectors(
    encoder: Encoder,
    texts: Iterable[str],
    *,
    total: int,
    limit: int | None = None,
    transform: Callable[[Floats], Floats] | None = None,
    **options: Any,
) -> Iterator[VectorStore]:
    """Encode ``texts`` and yield a store of their vectors.

    Args:
        encoder: any encoder.
        texts: the texts.
        total: number of texts, N.
        limit: bytes above which vectors are stored in a file; None for a quarter of the memory.
        transform: applied to each block (n, D), row by row, before it is stored.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded.
        ValueError: a number of texts other than ``total``.
        OSError: the file cannot be written.
    """
    blocks = encode_blocks(encoder, texts, total=total, **options)
    if transform is not None:
        blocks = map(transform, blocks)
    dimension = encoder.dimension
    if 4 * total * dimension <= (available_memory() // 4 if limit is None else limit):
        vectors = np.empty((total, dimension), dtype=np.float32)
        for first, part in _numbered(blocks, total):
            vectors[first : first + len(part)] = part
        yield VectorStore.of(vectors)
        return
    paths.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=paths.cache(), buffering=0) as handle:
        for _, part in _numbered(blocks, total):
            write_all(part, handle)

        def read(first: int, count: int) -> Floats:
            rows = np.empty((count, dimension), dtype=np.float32)
            handle.seek(4 * dimension * first)
            if not fill(rows, handle):
                raise OSError(f"the file of vectors ends before row {first + count}")
            return rows

        yield VectorStore(read, (total, dimension))


def _numbered(blocks: Iterable[Floats], total: int) -> Iterator[tuple[int, Floats]]:
    """Yield each block with the number of its first row; check that there are ``total`` rows."""
    first = 0
    for part in blocks:
        if first + len(part) <= total:
            yield first, part
        first += len(part)
    if first != total:
        raise ValueError(f"expected {total} texts; got {first}")
