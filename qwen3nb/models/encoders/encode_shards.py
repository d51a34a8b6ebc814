"""Encode a file of texts into a folder of vectors in parts; it can stop and resume anywhere.

The layout of the folder is described in `qwen3nb.models.search.shards`. The folder may be
written by several processes of several machines at once if they share a file system: a part
is written under a name of its own and appears, whole, under its final one, which the first
writer gets. Object storage is not supported, as it cannot rename.

    done = encode_shards(encoder, Path("texts.jsonl"), Path("vectors"), shards=8)

The plan is made in one reading of the input, which checks every line, and one that computes
its digests; neither holds it in memory. A later call keeps the plan, refuses another model,
role or input, and encodes only the parts that are not there.

Vectors are those of `encode_to_file`, to the last bit, however many parts there are. The last
bits of a vector may depend on its neighbours in a batch (not those of BERT on this package's
fast path, but those of Qwen3, and of padded models), so parts begin at multiples of the 4,096
texts that `encode_to_file` batches together, and there are fewer if the texts are too few.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.encode_file import AT_ONCE, encode_to_file, text_bar, texts_from
from qwen3nb.models.encoders.prompts import ROLES
from qwen3nb.models.search.shards import (
    MANIFEST,
    PLAN,
    Shard,
    ShardedVectors,
    ShardModel,
    ShardSource,
    read_manifest,
    read_shard_plan,
    stored_digests,
)
from qwen3nb.utils.atomic_files import sha256_file, sweep_leftovers, write_json
from qwen3nb.utils.choices import one_of

__all__ = [
    "EncodedShards", "TextCuts", "check_folder", "cut_texts", "encode_shard", "encode_shards",
    "finish_shards", "model_of", "start_shards",
]  # fmt: skip

TEXTS_PER_SHARD = 65_536  # by default
_MARKS = 1 << 17  # offsets in memory
_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class EncodedShards:
    """The folder that was written.

    Attributes:
        folder: its path.
        vectors: its manifest.
        kept: number of parts that were there before.
    """

    folder: Path
    vectors: ShardedVectors
    kept: int


@dataclass(frozen=True)
class TextCuts:
    """A file of texts and where it is cut."""

    source: ShardSource
    shards: tuple[Shard, ...]


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
        encoder: any encoder; its cache is of little use, as finished parts are kept anyway.
        source: a file with one ``{"text": ...}`` per line.
        folder: the folder to write, or to finish.
        shards: number of parts; None for that of the folder, else one per 65,536 texts.
            At most one per 4,096 texts.
        role: ``query`` or ``passage``; selects the prompt.

    Raises:
        EncoderError: a text that cannot be encoded.
        ValueError: a malformed line, or a folder that holds other things, or vectors of
            another model, role or input.
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
    """Return what a plan says of ``encoder`` and ``role``.

    Raises:
        ValueError: an unknown role.
    """
    if role is not None:
        one_of("role", role, ROLES)
    return ShardModel(
        label=encoder.label,
        identity=encoder.identity,
        dimension=encoder.dimension,
        similarity=encoder.similarity_name,
        role=role,
    )


def check_folder(folder: Path) -> None:
    """Create the folder; refuse one that holds other things than vectors in parts.

    Raises:
        ValueError: it does, or it cannot be written.
    """
    if folder.suffix == ".npy" or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder}: expected the name of a folder, for vectors in parts")
    if not folder.absolute().parent.is_dir():
        raise ValueError(f"{folder.parent}: no such folder to write to")
    folder.mkdir(exist_ok=True)
    # Files first: another writer may put the plan and a part in between.
    files = any(each.name[0] != "." for each in folder.iterdir())
    if files and not (folder / PLAN).is_file():
        raise ValueError(f"{folder}: holds files but no {PLAN}; choose a new folder")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder}: this folder is not writable")


def cut_texts(source: Path, folder: Path, *, shards: int | None, at_least: int = 1) -> TextCuts:
    """Check the input and cut it into ``shards`` parts, or as the plan of ``folder`` says.

    Without a number or a plan, a part has 65,536 texts, and there are ``at_least`` so many. In
    any case, there is at most one per 4,096 texts.

    Raises:
        ValueError: a malformed line; a plan of another input, or with other parts.
    """
    if not source.is_file():
        raise ValueError(f"{source}: no such file")
    if (folder / PLAN).is_file():
        plan = read_shard_plan(folder)
        _check_same(folder, plan, source, shards=shards)
        return TextCuts(plan.source, plan.shards)
    texts, step, marks = _line_offsets(source)
    if not texts:
        raise ValueError(f'{source} is empty; expected one {{"text": "…"}} per line')
    wanted = shards or max(at_least, -(-texts // TEXTS_PER_SHARD))
    firsts = _firsts(texts, wanted, grain=max(step, AT_ONCE))
    return _with_digests(source, texts, firsts, [marks[first // step] for first in firsts])


def _check_same(folder: Path, plan: ShardedVectors, source: Path, *, shards: int | None) -> None:
    if (source.stat().st_size, sha256_file(source)) != (plan.source.bytes, plan.source.sha256):
        raise ValueError(
            f"{folder} holds vectors of another input: expected {plan.source.file} of "
            f"{plan.source.bytes:,} bytes, SHA-256 {plan.source.sha256[:12]}…; got {source}. "
            "Choose a new folder"
        )
    if shards is not None and len(_firsts(plan.texts, shards, grain=AT_ONCE)) != len(plan.shards):
        raise ValueError(
            f"{folder} is planned in {len(plan.shards)} parts; got --shards {shards}. Leave it "
            "out to resume, or choose a new folder"
        )


def _line_offsets(source: Path) -> tuple[int, int, Sequence[int]]:
    """Check every line; return their number, and the offset of every ``step``-th with the step.

    The step doubles as the lines grow in number, so that memory does not.
    """
    marks, step, position, number = array("Q"), 1, 0, 0
    with source.open("rb") as handle:
        for _, length in texts_from(handle, source):
            if number % step == 0:
                if len(marks) == _MARKS:
                    marks, step = marks[::2], 2 * step
                if number % step == 0:
                    marks.append(position)
            position += length
            number += 1
    return number, step, marks


def _firsts(texts: int, shards: int, *, grain: int) -> list[int]:
    """Return the first text of each part: at multiples of ``grain``, in parts of equal size.

    >>> _firsts(10, 3, grain=1), _firsts(10, 3, grain=2), _firsts(2, 3, grain=1)
    ([0, 3, 6], [0, 2, 6], [0, 1])
    """
    grains = -(-texts // grain)
    shards = min(shards, grains)
    return [grain * (number * grains // shards) for number in range(shards)]


def _with_digests(
    source: Path, texts: int, firsts: Sequence[int], offsets: Sequence[int]
) -> TextCuts:
    """Read the input once for its digest and those of its parts."""
    size, whole, shards = source.stat().st_size, hashlib.sha256(), []
    with source.open("rb") as handle:
        for number, (offset, end) in enumerate(itertools.pairwise([*offsets, size])):
            own = hashlib.sha256()
            for block in _blocks(handle.read, end - offset):
                whole.update(block)
                own.update(block)
            last = firsts[number + 1] if number + 1 < len(firsts) else texts
            shards.append(
                Shard(
                    file=f"part-{number:06d}.npy",
                    first=firsts[number],
                    texts=last - firsts[number],
                    offset=offset,
                    bytes=end - offset,
                    source_sha256=own.hexdigest(),
                )
            )
    return TextCuts(ShardSource(source.name, size, whole.hexdigest(), texts), tuple(shards))


def _blocks(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (block := read(min(size, _BLOCK))):
        size -= len(block)
        yield block


def start_shards(folder: Path, cuts: TextCuts, model: ShardModel) -> ShardedVectors:
    """Write the plan if there is none yet; return that of the folder, with digests if finished.

    Raises:
        ValueError: the folder is planned for another model, role or input.
    """
    own = ShardedVectors(source=cuts.source, model=model, shards=cuts.shards)
    if not (folder / PLAN).is_file():
        write_json(folder / PLAN, own.to_json(), replace=False)
    plan = read_shard_plan(folder)
    if plan.model != model:
        raise ValueError(_other_model(folder, plan.model, model))
    if plan != replace(own, source=plan.source) or plan.source.sha256 != own.source.sha256:
        raise ValueError(f"{folder}: planned for another input at the same time; choose a new one")
    digests = stored_digests(folder)
    shards = tuple(replace(each, sha256=digests.get(each.file, "")) for each in plan.shards)
    return replace(plan, shards=shards)


def _other_model(folder: Path, expected: ShardModel, got: ShardModel) -> str:
    def named(model: ShardModel) -> str:
        role = f", role {model.role}" if model.role else ", no role"
        return f"{model.label}, identity {model.identity[:12]}{role}"

    return (
        f"{folder} holds vectors of another model: expected {named(expected)}; "
        f"got {named(got)}. Choose a new folder"
    )


def encode_shard(
    encoder: Encoder,
    shard: Shard,
    *,
    source: Path,
    folder: Path,
    vectors: ShardedVectors,
    advance: Callable[[int], object],
) -> tuple[str, bool]:
    """Encode a part unless it is there; return its SHA-256 and whether it was there.

    A part that is there but not whole, or not what the manifest says, was damaged later; it is
    moved aside.

    Raises:
        ValueError: the texts are not those of the plan.
    """
    was_there = _is_whole(vectors, shard, folder)
    if was_there:
        advance(shard.texts)
    else:
        _check_texts_of(shard, source)
        try:
            encode_to_file(
                encoder,
                _texts_of(shard, source),
                folder / shard.file,
                role=vectors.model.role,
                total=shard.texts,
                first=shard.first,
                replace=False,
                advance=advance,
            )
        except FileNotFoundError:  # a faster writer finished the folder and cleared it
            vectors.check(shard, folder)
    return sha256_file(folder / shard.file), was_there


def _is_whole(vectors: ShardedVectors, shard: Shard, folder: Path) -> bool:
    file = folder / shard.file
    if not file.exists():
        return False
    try:
        vectors.check(shard, folder)
        whole = shard.sha256 in ("", sha256_file(file))
    except ValueError:
        whole = False
    if not whole:
        file.replace(file.with_name(f"{file.name}.damaged"))
    return whole


def _check_texts_of(shard: Shard, source: Path) -> None:
    digest = hashlib.sha256()
    with source.open("rb") as handle:
        handle.seek(shard.offset)
        for block in _blocks(handle.read, shard.bytes):
            digest.update(block)
    if digest.hexdigest() != shard.source_sha256:
        raise ValueError(
            f"{source}: the texts of {shard.file} are not those of the plan; "
            "did the file change, or is it another one on this machine?"
        )


def _texts_of(shard: Shard, source: Path) -> Iterator[str]:
    with source.open("rb") as handle:
        handle.seek(shard.offset)
        for text, _ in itertools.islice(texts_from(handle, source), shard.texts):
            yield text


def finish_shards(
    folder: Path, vectors: ShardedVectors, digests: Mapping[str, str]
) -> ShardedVectors:
    """Write the manifest, after a look at every part, and remove what killed writers left.

    Raises:
        ValueError: a part that is missing or not whole.
    """
    shards = tuple(replace(each, sha256=digests[each.file]) for each in vectors.shards)
    for shard in shards:
        vectors.check(shard, folder)
    write_json(folder / MANIFEST, replace(vectors, shards=shards).to_json())
    sweep_leftovers(folder / PLAN)
    for left in folder.glob(".part-*.tmp"):  # of slower writers too, which notice
        left.unlink(missing_ok=True)
    return read_manifest(folder)
