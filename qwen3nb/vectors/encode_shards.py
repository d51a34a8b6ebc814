"""Encode a file of texts into a folder of parts, which can be interrupted and resumed.

The folder is described in `qwen3nb.vectors.block_file`. Processes on several machines with a shared
file system may write it at once, such as the tasks of a Slurm array. Each claims a part that no
other has, and all end when every part is there. The claim of a process that dies ends with it, and
another encodes that part. Where the file system has no locks, the first writer of a part wins: it
is written under a temporary name and renamed when complete. Object storage is not supported,
because it cannot rename. A later call keeps the plan, refuses another model, role or input, and
encodes only missing parts.

Vectors are bit-identical to those of `encode_to_file`, for any number of parts. The last bits of a
vector may depend on its neighbours in a batch (for Qwen3 and padded models, not for BERT on this
package's fast path). Parts therefore begin at multiples of the 4,096 texts that `encode_to_file`
batches together.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, get_args

from qwen3nb.utils.atomic_files import claim, sha256_file, sweep_leftovers
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.compressed import compression
from qwen3nb.vectors import encode_file
from qwen3nb.vectors.block_file import (
    MANIFEST,
    PLAN,
    Role,
    Shard,
    ShardedVectors,
    ShardModel,
    ShardSource,
    read_manifest,
    read_shards,
)
from qwen3nb.vectors.encode_file import TextEncoder, check_writable, encode_to_file, text_bar
from qwen3nb.vectors.text_files import check_texts, lines_of, texts_from

log = logging.getLogger(__name__)
TEXTS_PER_SHARD = 65_536  # by default
_CLAIM_SECONDS = 0.2  # between two tries to claim a part that another process has


class Cuts(NamedTuple):
    """A file of texts, and its parts."""

    source: ShardSource
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class EncodedShards:
    """The folder, its manifest, and the number of parts that this call did not encode.

    They are from an earlier run, or from another process.
    """

    folder: Path
    vectors: ShardedVectors
    kept: int

    def summary(self) -> str:
        """Return the shape of the vectors, and the number of parts, in one line."""
        return (
            f"{self.folder}: {self.vectors.texts:,} x {self.vectors.dimension} float32, in "
            f"{len(self.vectors.shards)} parts, {self.kept} of them from other runs"
        )


def encode_shards(
    encoder: TextEncoder,
    source: Path,
    folder: Path,
    *,
    shards: int | None = None,
    role: str | None = None,
) -> EncodedShards:
    """Write the vectors of a file of texts to a folder, one part after another.

    Parts that another process encodes are left to it; the call ends when all are there.

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
    digests: dict[str, str] = {}
    number_kept = 0
    with text_bar(encoder.label, vectors.texts, show=encoder.show_progress) as bar:
        for shard in _claimed_shards(folder, vectors.shards):
            digest, was_kept = encode_shard(
                encoder,
                shard,
                source=source,
                folder=folder,
                vectors=vectors,
                advance=bar.update,
            )
            digests[shard.file] = digest
            number_kept += was_kept
    return EncodedShards(folder, finish_shards(folder, vectors, digests), number_kept)


def _claimed_shards(folder: Path, shards: Sequence[Shard]) -> Iterator[Shard]:
    """Yield each part, claimed until the next is asked for; those of other processes come last."""
    while shards:
        claimed_elsewhere = []
        for shard in shards:
            with claim(folder / shard.file, purpose="encodes") as is_ours:
                if is_ours:
                    yield shard
                else:
                    claimed_elsewhere.append(shard)
        if len(claimed_elsewhere) == len(shards):
            time.sleep(_CLAIM_SECONDS)  # all that is left is being encoded
        shards = claimed_elsewhere


def model_of(encoder: TextEncoder, role: str | None) -> ShardModel:
    """Return ``encoder`` and ``role`` as stored in a plan; raise ValueError for an unknown role."""
    if role is not None:
        check_choice("role", role, get_args(Role))
    return ShardModel(
        label=encoder.label,
        identity=encoder.identity,
        dimension=encoder.dimension,
        similarity=encoder.similarity_name,
        role=role,  # type: ignore[arg-type]  # checked above
    )


def check_folder(folder: Path) -> None:
    """Create the folder; raise ValueError if it contains anything but vectors in parts."""
    if folder.suffix == ".npy" or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder}: expected the name of a folder, for vectors in parts")
    if not folder.is_dir():
        check_writable(folder.absolute().parent)
        folder.mkdir(exist_ok=True)
    check_writable(folder)
    # List files first: another writer may add the plan and a part meanwhile.
    has_files = any(not file.name.startswith(".") for file in folder.iterdir())
    if has_files and not (folder / PLAN).is_file():
        raise ValueError(f"{folder}: holds files but no {PLAN}; choose a new folder")


def cut_texts(
    source: Path,
    folder: Path,
    *,
    shards: int | None,
    at_least: int = 1,
) -> Cuts:
    """Check the input and split it into ``shards`` parts, or as in the plan of ``folder``.

    Without a number or a plan, there is a part per 65,536 texts, but ``at_least`` this number;
    always at most one per 4,096 texts. A first pass over the input checks every line, a second one
    computes digests.

    Raises:
        ValueError: a malformed line; a plan of another input, or with other parts.
    """
    if (folder / PLAN).is_file():
        return _planned_cuts(source, folder, shards)
    if compression(source):
        raise ValueError(f"{source}: parts are read by their position; unpack it for --shards")
    texts = check_texts(source)
    number_of_parts = shards or max(at_least, math.ceil(texts / TEXTS_PER_SHARD))
    # Parts begin where blocks of the encoder do.
    firsts = _first_texts(texts, number_of_parts, grain=encode_file.AT_ONCE)
    input_digest = hashlib.sha256()
    parts: list[Shard] = []
    with source.open("rb") as handle:
        for number, (first, end) in enumerate(itertools.pairwise([*firsts, texts])):
            parts.append(_cut_shard(handle, number, first, end - first, input_digest))
        for blank_line in handle:  # at the end
            input_digest.update(blank_line)
        size = handle.tell()
    shard_source = ShardSource(
        source.name, bytes=size, sha256=input_digest.hexdigest(), texts=texts
    )
    return Cuts(shard_source, tuple(parts))


def _planned_cuts(source: Path, folder: Path, shards: int | None) -> Cuts:
    """Return the cuts of a folder's plan; refuse another input, or another number of parts."""
    plan = read_shards(folder / PLAN)
    if not source.is_file() or sha256_file(source) != plan.source.sha256:
        raise ValueError(
            f"{folder} holds vectors of another input: expected {plan.source.file} of "
            f"{plan.source.bytes:,} bytes, SHA-256 {plan.source.sha256[:12]}…; got {source}. "
            "Choose a new folder"
        )
    if shards:
        # The number may have been lowered, as a part has a least size.
        firsts = _first_texts(plan.texts, shards, grain=encode_file.AT_ONCE)
        if len(firsts) != len(plan.shards):
            raise ValueError(
                f"{folder} is planned in {len(plan.shards)} parts; got --shards {shards}. Leave "
                "it out to resume, or choose a new folder"
            )
    return Cuts(plan.source, plan.shards)


def _cut_shard(
    handle: BinaryIO,
    number: int,
    first: int,
    texts: int,
    input_digest: hashlib._Hash,
) -> Shard:
    """Read the lines of the next part; add them to the digest of the whole input, too."""
    digest = hashlib.sha256()
    offset = handle.tell()
    for line in lines_of(handle, texts):
        input_digest.update(line)
        digest.update(line)
    return Shard(
        file=f"part-{number:06d}.npy",
        first=first,
        texts=texts,
        offset=offset,
        bytes=handle.tell() - offset,
        source_sha256=digest.hexdigest(),
    )


def _first_texts(texts: int, shards: int, *, grain: int) -> list[int]:
    """Return the first text of each of equal parts, at multiples of ``grain``.

    >>> _first_texts(10, 3, grain=1), _first_texts(10, 3, grain=2), _first_texts(2, 3, grain=1)
    ([0, 3, 6], [0, 2, 6], [0, 1])
    """
    grains = math.ceil(texts / grain)
    shards = min(shards, grains)
    return [grain * (number * grains // shards) for number in range(shards)]


def start_shards(folder: Path, cuts: Cuts, model: ShardModel) -> ShardedVectors:
    """Write the plan unless it exists; return the folder's plan, with digests if finished.

    Raises ValueError if it is for another model, role or input.
    """
    new_plan = ShardedVectors(cuts.source, model, cuts.shards)
    if not (folder / PLAN).is_file():
        new_plan.write(folder / PLAN, replace=False)  # another process may be faster
    plan = read_shards(folder / PLAN)
    if plan.model != model:
        raise ValueError(
            f"{folder} holds vectors of another model: expected {_described(plan.model)}; got "
            f"{_described(model)}. Choose a new folder"
        )
    if plan.shards != new_plan.shards or plan.source.sha256 != new_plan.source.sha256:
        raise ValueError(f"{folder}: planned for another input at the same time; choose a new one")
    if not (folder / MANIFEST).is_file():
        return plan
    try:
        manifest = read_shards(folder / MANIFEST)
    except ValueError as error:
        log.warning("%s; it is written again", error)
        return plan
    # A finished folder has a manifest, with the digests of its parts.
    digests = {shard.file: shard.sha256 for shard in manifest.shards}
    shards = [replace(shard, sha256=digests.get(shard.file, "")) for shard in plan.shards]
    return replace(plan, shards=tuple(shards))


def _described(model: ShardModel) -> str:
    role = "no role"
    if model.role:
        role = f"role {model.role}"
    return f"{model.label}, identity {model.identity[:12]}, {role}"


def encode_shard(
    encoder: TextEncoder,
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
        # A part that is incomplete, or not the one in the manifest, is moved aside.
        with suppress(ValueError):
            vectors.check(shard, folder)
            digest = sha256_file(file)
            if shard.sha256 in ("", digest):  # empty: not in a manifest yet
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
            start=shard.first,
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
        for line in lines_of(handle, shard.texts):
            digest.update(line)
        if digest.hexdigest() != shard.source_sha256:
            raise ValueError(
                f"{source}: the texts of {shard.file} are not those of the plan; "
                "did the file change, or is it another one on this machine?"
            )
        # Read again: no text of a changed file may be encoded.
        handle.seek(shard.offset)
        yield from itertools.islice(texts_from(handle, source), shard.texts)


def finish_shards(
    folder: Path,
    vectors: ShardedVectors,
    digests: Mapping[str, str],
) -> ShardedVectors:
    """Write the manifest if every part is complete, and remove leftovers of killed writers."""
    shards = tuple(replace(shard, sha256=digests[shard.file]) for shard in vectors.shards)
    for shard in shards:
        vectors.check(shard, folder)
    replace(vectors, shards=shards).write(folder / MANIFEST)
    sweep_leftovers(folder / PLAN)
    for leftover in folder.glob(".part-*.tmp"):  # also of slower writers, which notice it
        leftover.unlink(missing_ok=True)
    return read_manifest(folder)
