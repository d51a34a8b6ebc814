"""Open, list and fingerprint checkpoint folders.

Only safetensors are read: a pickle (``pytorch_model.bin``, ``training_args.bin``,
``optimizer.pt``) runs code when loaded, and nothing here needs one. Headers are
checked by hand before the library sees the file, so that a bad file is named
together with what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.files import read_json, remembered_digest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "TensorEntry",
    "list_checkpoints",
    "metric_of",
    "open_checkpoint",
    "step_of",
]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WRAPPERS = ("_orig_mod.", "module.")  # torch.compile and (D)DP put these before a name
FLOATS = ("F32", "BF16", "F16")  # what a weight may be stored in
_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 2),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2"), 1),
}
_HEADER_LIMIT = 100_000_000
_NUMBERED = re.compile(r"checkpoint-(?:step-)?(\d+)")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says what, where, and what to do."""


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        file: the safetensors file.
        stored_name: its name there, wrapper prefixes included.
        dtype: as safetensors writes it, such as ``F32`` or ``BF16``.
        shape: its shape.
        start: offset of its first byte in the file.
        stop: offset after its last byte.
    """

    file: Path
    stored_name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, opened but not read.

    Attributes:
        folder: the folder.
        config: its ``config.json``.
        tensors: entry per tensor name, wrapper prefixes stripped, sorted by name.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorEntry]

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        return sorted({entry.file for entry in self.tensors.values()})

    def read(self, name: str) -> Tensor:
        """One weight, in the dtype it is stored in.

        Raises:
            CheckpointError: it is not of a float type (integers and unscaled 8-bit
                floats are no weights), or holds NaN or infinity.
        """
        from safetensors import safe_open

        entry = self.tensors[name]
        if entry.dtype not in FLOATS:
            raise CheckpointError(
                f"{entry.file}: {name} is {entry.dtype}; expected one of {', '.join(FLOATS)}"
            )
        with safe_open(entry.file, framework="pt") as file:
            tensor: Tensor = file.get_tensor(entry.stored_name)
        if not tensor.isfinite().all():
            raise CheckpointError(
                f"{entry.file}: {name} holds NaN or infinity; "
                "training had diverged by then, take an earlier checkpoint"
            )
        return tensor

    def digest(self) -> str:
        """SHA-256 over every tensor's name, dtype, shape and bytes.

        The same weights in one file or in shards have the same digest.
        """
        return remembered_digest(self.files, self._digest, memory=paths.cache() / "digests.json")

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, entry in self.tensors.items():
            digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0".encode())
            for block in _blocks(entry):
                digest.update(block)
        return digest.hexdigest()


def _blocks(entry: TensorEntry, size: int = 1 << 20) -> Iterator[bytes]:
    left = entry.stop - entry.start
    with entry.file.open("rb") as file:
        file.seek(entry.start)
        while left:
            block = file.read(min(size, left))
            if not block:
                raise CheckpointError(f"{entry.file}: shorter than when it was opened")
            left -= len(block)
            yield block


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """Open a folder with ``config.json`` and safetensors, in one file or in shards.

    Raises:
        CheckpointError: no such folder, no configuration, no safetensors, two sources
            of weights, or a weight file that is not what it should be.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint folder")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: no config.json, so this is not a checkpoint folder")
    try:
        config = read_json(folder / "config.json")
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / 'config.json'}: expected an object, got {config!r:.60}")
    tensors: dict[str, TensorEntry] = {}
    for file in _weight_files(folder):
        for stored, entry in read_header(file).items():
            name = strip_wrappers(stored)
            if name in tensors:
                raise CheckpointError(f"{file}: {name} is also in {tensors[name].file}")
            tensors[name] = entry
    return Checkpoint(folder, config, dict(sorted(tensors.items())))


def strip_wrappers(name: str) -> str:
    """``name`` without what torch.compile or data parallelism put before it."""
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / SINGLE, folder / INDEX
    if single.exists() and index.exists():
        raise CheckpointError(
            f"{folder}: holds both {SINGLE} and {INDEX}; remove the one that is stale"
        )
    if single.exists():
        return [single]
    if not index.exists():
        raise CheckpointError(
            f"{folder}: no {SINGLE} and no {INDEX}. Pickled weights (.bin, .pt) are not read: "
            "loading one can run code. Save with safetensors (the default of save_pretrained)."
        )
    try:
        shards = sorted(set(read_json(index)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: not a shard index ({error})") from None
    for shard in shards:
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(f"{index}: {shard!r} is not a bare file name")
    return [folder / shard for shard in shards]


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors a safetensors file declares, checked against its size.

    Raises:
        CheckpointError: not a regular file, truncated, not safetensors (an HTML page
            and a git-LFS pointer are recognised), an unknown dtype, or ranges that do not
            fit shape and file.
    """
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file, or not a regular one")
    size = file.stat().st_size
    with file.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(b"version "):
            raise CheckpointError(f"{file}: a git-LFS pointer, not weights; run `git lfs pull`")
        if head.lstrip().startswith((b"<!DOC", b"<html", b"<!doc", b"<HTML")):
            raise CheckpointError(f"{file}: an HTML page, not weights; download it again")
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 2 <= length <= min(size - 8, _HEADER_LIMIT):
            raise CheckpointError(f"{file}: not a safetensors file, or cut short ({size} bytes)")
        raw = handle.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: unreadable safetensors header ({error})") from None
    header.pop("__metadata__", None)
    entries = {}
    for name, fields in header.items():
        try:
            dtype, shape = fields["dtype"], tuple(fields["shape"])
            start, stop = fields["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{file}: malformed header entry for {name}") from None
        if dtype not in _BYTES:
            raise CheckpointError(f"{file}: {name} is {dtype}; expected one of {', '.join(_BYTES)}")
        if stop - start != math.prod(shape) * _BYTES[dtype] or not 0 <= start <= stop:
            raise CheckpointError(
                f"{file}: {name} says {dtype} {shape} but holds {stop - start} bytes"
            )
        offset = 8 + length
        entries[name] = TensorEntry(file, name, dtype, shape, offset + start, offset + stop)
    _check_ranges(file, entries, begin=8 + length, size=size)
    return entries


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result


def _check_ranges(file: Path, entries: dict[str, TensorEntry], *, begin: int, size: int) -> None:
    """The ranges must cover what follows the header, once."""
    position = begin
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            kind = "overlaps the tensor before it" if entry.start < position else "follows a gap"
            raise CheckpointError(f"{file}: {entry.stored_name} {kind}")
        position = entry.stop
    if position != size:
        raise CheckpointError(
            f"{file}: tensors end at byte {position} but the file has {size}; cut short?"
        )


def step_of(folder: Path) -> int | None:
    """The step in a folder's name, or None for ``-best``, ``-final`` and the like.

    >>> step_of(Path("checkpoint-200")), step_of(Path("checkpoint-step-3"))
    (200, 3)
    >>> step_of(Path("checkpoint-best")) is None
    True
    """
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None


def list_checkpoints(folder: Path | str) -> list[Path]:
    """The numbered checkpoints in ``folder``, by step.

    Raises:
        CheckpointError: there are none.
    """
    folder = Path(folder)
    numbered = [
        (step, path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() and (step := step_of(path)) is not None
    ]
    if not numbered:
        raise CheckpointError(f"{folder}: holds no checkpoint-N folder")
    return [path for _, path in sorted(numbered)]


def metric_of(folder: Path, metric: str = "eval_loss") -> float:
    """A metric of *this* checkpoint's step, from its ``trainer_state.json``.

    The log there is cumulative, so its last entry may belong to an earlier step;
    only the entry of the checkpoint's own step counts.

    Raises:
        CheckpointError: no such file, no such metric at that step, or not a finite number.
    """
    file = folder / "trainer_state.json"
    if not file.is_file():
        raise CheckpointError(f"{folder}: no trainer_state.json, so its {metric} is not known")
    state = read_json(file)
    step = state.get("global_step")
    values = [
        entry[metric]
        for entry in state.get("log_history", ())
        if entry.get("step") == step and metric in entry
    ]
    if not values:
        seen = sorted({key for entry in state.get("log_history", ()) for key in entry})
        raise CheckpointError(f"{file}: no {metric} at step {step}; it logs: {', '.join(seen)}")
    value = values[-1]
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise CheckpointError(f"{file}: {metric} at step {step} is {value!r}")
    return float(value)
