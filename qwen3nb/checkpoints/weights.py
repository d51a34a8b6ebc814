"""The weights of a model: where each tensor lies, its values, and one digest of them all.

Headers are read without data and checked before any library opens the file: the safetensors
library accepts a name that appears twice, and its errors name neither the file nor the tensor.
https://huggingface.co/docs/safetensors#format

Values are read, never mapped: truncating a mapped file kills the process.

A file that ``torch.save`` wrote (``pytorch_model.bin``) is a zip with a pickle. Its members are
stored uncompressed, one after the other, and its directory follows them. What expands, overlaps or
appears twice is refused from the directory alone. The pickle is then opened with ``weights_only``,
which builds nothing but tensors, and with tensors that own no memory, so that a file that claims to
be larger than it is costs nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import pickletools
import re
import zipfile
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from qwen3nb.checkpoints.types import (
    FLOATS,
    ITEM_SIZES,
    CheckpointError,
    TensorEntry,
)
from qwen3nb.utils.files.digest_memory import remembered_digest
from qwen3nb.utils.strict_json import parse_json

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_BLOCK = 1 << 20
_MOST_AXES = 64  # as in NumPy; the product of a million axes would take hours
# A typical header has about 120 bytes per tensor; parsed into Python objects, it grows twentyfold.
_HEADER_LIMIT = 25_000_000
# The largest model in use, with 36,000 tensors, has 5 MB; unpickled, it grows a hundredfold.
_PICKLE_LIMIT = 10_000_000
# Bytes of the directory: 100,000 members. Parsed into Python objects, it grows twentyfold.
_DIRECTORY_LIMIT = 10_000_000
_HEADER = 30  # bytes in front of each member, without its name
# What torch.save writes for a state dict; other opcodes and names can run code, or allocate.
_OPCODES = set(
    """
PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE GLOBAL
EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS
BINPUT LONG_BINPUT BINGET LONG_BINGET BINPERSID REDUCE BUILD
""".split()  # noqa: SIM905 - a list of words reads better as lines
)
_NAMES = re.compile(
    r"collections OrderedDict|torch Size|torch (\w+Storage|(bool|u?int|b?float|complex)\d*)|"
    r"torch\._utils _rebuild_(tensor(_v2)?|parameter(_with_state)?)"
)

_DTYPES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float64": "F64",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


class Weights:
    """The tensors of one or more weight files.

    Attributes:
        tensors: entry per tensor name, sorted by name.
    """

    def __init__(self, tensors: Mapping[str, TensorEntry]) -> None:
        """Take entries from `read_safetensors` or `read_torch`; no values are read."""
        self.tensors = dict(sorted(tensors.items()))

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        return sorted({entry.file for entry in self.tensors.values()})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights: name, dtype, shape and bytes of every tensor.

        It does not depend on the file format or the number of shards, and is read once per
        content: `qwen3nb.utils.files.digest_memory` remembers it.
        """
        return remembered_digest(
            self.files, lambda: combined_digest(self.tensors, self.sha256_each(self.tensors))
        )

    def remember(self, digest: str) -> None:
        """Store a ``digest`` computed while copying, so that `digest` need not read the files."""
        remembered_digest(self.files, lambda: digest)

    def read(self, name: str) -> Tensor:
        """Return one weight in its stored dtype.

        Raises:
            CheckpointError: the dtype is not one of `FLOATS` (integers and unscaled 8-bit floats
                are not weights), or a value is NaN or infinite.
        """
        ((_, tensor),) = self.read_each([name])
        return tensor

    def read_each(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield weights by their names, file by file; each file is opened once. See `read`."""
        return self._each(set(names), _values)

    def sha256_each(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of tensors' bytes by name; each file is opened once."""
        return dict(self._each(set(names), _hash))

    def _each(
        self, names: set[str], action: Callable[[BinaryIO, TensorEntry], T]
    ) -> Iterator[tuple[str, T]]:
        for path in sorted({self.tensors[name].file for name in names}):
            with path.open("rb") as file:
                for name, entry in self.tensors.items():
                    if name in names and entry.file == path:
                        yield name, action(file, entry)


def _values(file: BinaryIO, entry: TensorEntry) -> Tensor:
    import torch

    check_float(entry)
    dtype = torch_dtypes()[entry.dtype]
    buffer = bytearray(entry.stop - entry.start)
    file.seek(entry.start)
    if file.readinto(buffer) != len(buffer):  # type: ignore[attr-defined]
        raise truncated_error(entry)
    if not buffer:
        return torch.empty(entry.shape, dtype=dtype)
    tensor = torch.frombuffer(buffer, dtype=dtype).reshape(entry.shape)
    if not tensor.isfinite().all():
        raise not_finite_error(entry)
    return tensor


def _hash(file: BinaryIO, entry: TensorEntry) -> str:
    digest, left = hashlib.sha256(), entry.stop - entry.start
    file.seek(entry.start)
    while left:
        block = file.read(min(_BLOCK, left))
        if not block:
            raise truncated_error(entry)
        left -= len(block)
        digest.update(block)
    return digest.hexdigest()


def combined_digest(tensors: Mapping[str, TensorEntry], hashes: Mapping[str, str]) -> str:
    """Combine the SHA-256 of each tensor's bytes into one digest, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0{hashes[name]}\n".encode())
    return digest.hexdigest()


def read_safetensors(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors that a safetensors file declares, checked against its size.

    Raises:
        CheckpointError: the file is not a regular file, is truncated, is not safetensors
            (HTML pages and git-LFS pointers are recognised), has an unknown dtype, or
            declares byte ranges that do not match the shapes or the file.
    """
    with open_weights(file) as (handle, size):
        length = int.from_bytes(handle.read(8), "little")
        if not 2 <= length <= size - 8:
            raise CheckpointError(
                f"{file}: not a safetensors file, or truncated ({size} bytes); copy it again"
            )
        if length > _HEADER_LIMIT:
            raise CheckpointError(
                f"{file}: the header has {length:,} bytes, expected at most {_HEADER_LIMIT:,}; "
                "save the model in several files (max_shard_size of save_pretrained)"
            )
        raw = handle.read(length)
    try:
        header = parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file}: invalid safetensors header ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: invalid safetensors header (not an object)")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(
            f"{file}: its __metadata__ is not an object of strings; save it again"
        )
    entries = {
        _checked_name(file, name): _entry(file, name, fields, begin=8 + length)
        for name, fields in header.items()
    }
    position = 8 + length
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            where = "overlaps the tensor before it" if entry.start < position else "follows a gap"
            raise CheckpointError(f"{file}: {entry.stored_name} {where}")
        position = entry.stop
    if position != size:
        raise CheckpointError(
            f"{file}: the tensors end at byte {position}, the file at {size}; is it truncated?"
        )
    return entries


def _entry(file: Path, name: str, fields: Any, *, begin: int) -> TensorEntry:
    try:
        dtype, shape = fields["dtype"], tuple(fields["shape"])
        start, stop = fields["data_offsets"]
        sizes = (*shape, start, stop)
        whole = all(type(n) is int and 0 <= n < 1 << 63 for n in sizes)
        if len(shape) > _MOST_AXES or not whole:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file}: malformed header entry for {name}") from None
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise CheckpointError(
            f"{file}: {name} has dtype {dtype!s:.40}; expected one of {', '.join(ITEM_SIZES)}"
        )
    expected = math.prod(shape) * ITEM_SIZES[dtype]
    if stop - start != expected:
        raise CheckpointError(
            f"{file}: {name} of dtype {dtype} and shape {shape!s:.80} needs {expected:,} bytes, "
            f"got {stop - start:,}"
        )
    return TensorEntry(file, name, dtype, shape, begin + start, begin + stop)


def torch_dtypes() -> dict[str, Any]:
    """The torch dtype for each name in `FLOATS`."""
    import torch

    return {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def check_float(entry: TensorEntry) -> None:
    """Refuse a tensor whose dtype is not in `FLOATS`."""
    if entry.dtype not in FLOATS:
        raise CheckpointError(
            f"{entry.file}: {entry.stored_name} has dtype {entry.dtype}; "
            f"expected one of {', '.join(FLOATS)}"
        )


def truncated_error(entry: TensorEntry) -> CheckpointError:
    """Return the error for a file that became shorter after it was opened."""
    return CheckpointError(
        f"{entry.file}: shorter than when it was opened; it changed while it was being read"
    )


def not_finite_error(entry: TensorEntry) -> CheckpointError:
    """Return the error for a tensor with NaN or infinity."""
    return CheckpointError(
        f"{entry.file}: {entry.stored_name} contains NaN or infinity; "
        "the training diverged; use an earlier checkpoint"
    )


def read_torch(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a state dict that ``torch.save`` wrote.

    Tensors that share storage get the same byte range. Memory is bounded by the limits on the
    directory and the pickle, and so is time.

    Raises:
        CheckpointError: another kind of file; one that contains more than tensors, and so
            could run code; not a flat state dict; or a tensor that claims more values
            than its storage holds.
    """
    try:
        with open_weights(file) as (handle, size):
            spans = _checked_members(file, handle, size)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise _not_written_by_torch(file, str(error)) from None
    state = _load_without_data(file)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: contains a {type(state).__name__}, expected a state dict of tensors"
        )
    return {
        _checked_name(file, name): _torch_entry(file, name, v, spans) for name, v in state.items()
    }


def _checked_members(file: Path, handle: BinaryIO, size: int) -> list[tuple[int, int]]:
    """Check the zip and its pickle before PyTorch opens them; return where each member lies."""
    handle.seek(max(size - 22, 0))
    end = handle.read(22)
    if not end.startswith(b"PK\5\6") or len(end) < 22:
        raise _not_written_by_torch(file, "it does not end as a zip")
    if (length := int.from_bytes(end[12:16], "little")) > _DIRECTORY_LIMIT:
        raise CheckpointError(
            f"{file}: its list of members has {length:,} bytes, expected at most "
            f"{_DIRECTORY_LIMIT:,}; no model needs that; save it as safetensors"
        )
    with zipfile.ZipFile(handle) as archive:
        infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
        stops = [*(info.header_offset for info in infos), archive.start_dir]
        members: dict[str, zipfile.ZipInfo] = {}
        for info, stop in zip(infos, stops[1:], strict=True):
            name = info.filename.partition("/")[2]
            if info.compress_type or info.compress_size != info.file_size:
                raise _not_written_by_torch(file, "it is compressed")
            if not name or name in members:
                why = "twice" if name else "outside its folder"
                raise _not_written_by_torch(file, f"it contains {info.filename!r:.80} {why}")
            if info.header_offset + _HEADER + len(info.filename) + info.file_size > stop:
                raise _not_written_by_torch(file, f"{info.filename!r:.80} overlaps another")
            members[name] = info
        if stops[0]:
            raise _not_written_by_torch(file, "something is in front of its members")
        _check_pickle(file, archive, members)
    return list(pairwise(stops))


def _check_pickle(
    file: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> None:
    """Check the byte order, and the pickle's instructions without following any of them."""
    if "data.pkl" not in members or "constants.pkl" in members:
        raise CheckpointError(
            f"{file}: contains {'TorchScript' if members else 'nothing'}, expected a state dict; "
            "save the state dict, as safetensors (the default of save_pretrained)"
        )
    if (length := members["data.pkl"].file_size) > _PICKLE_LIMIT:
        raise CheckpointError(
            f"{file}: its pickle has {length:,} bytes, expected at most "
            f"{_PICKLE_LIMIT:,}; no state dict needs that; save it as safetensors"
        )
    order = members.get("byteorder")
    if order is not None and (order.file_size > 6 or archive.read(order) != b"little"):
        raise CheckpointError(
            f"{file}: written on a big-endian machine; save it as safetensors there"
        )
    try:
        for opcode, argument, _ in pickletools.genops(archive.read(members["data.pkl"])):
            named = opcode.name != "GLOBAL" or _NAMES.fullmatch(str(argument))
            if opcode.name not in _OPCODES or not named:
                raise _more_than_tensors(file)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{file}: unreadable ({error!s:.120})") from None


def _more_than_tensors(file: Path) -> CheckpointError:
    return CheckpointError(
        f"{file}: its pickle contains more than tensors, and loading it can run code; "
        "save the state dict alone, or as safetensors (the default of save_pretrained)"
    )


def _load_without_data(file: Path) -> Any:
    """Unpickle the structure; its tensors own no memory."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        raise _more_than_tensors(file) from None
    except Exception as error:  # a malformed pickle can raise any of them  # noqa: BLE001
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{file}: unreadable ({reason})") from None


def _torch_entry(file: Path, name: str, value: Tensor, spans: list[tuple[int, int]]) -> TensorEntry:
    import torch

    if not isinstance(value, torch.Tensor):
        raise CheckpointError(
            f"{file}: {name} is a {type(value).__name__}, expected a flat state dict of tensors"
        )
    dtype = _DTYPES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise CheckpointError(f"{file}: {name} is {value.dtype}; expected float weights")
    storage = value.untyped_storage()
    width = value.element_size()
    offset, held = int(value.storage_offset()) * width, int(storage.nbytes())
    needed = int(value.numel()) * width
    if needed > held - offset:
        raise CheckpointError(
            f"{file}: {name} claims {needed:,} bytes, its storage has {held - offset:,}"
        )
    if not value.is_contiguous():
        raise CheckpointError(
            f"{file}: {name} is not contiguous; save its .contiguous(), or save as safetensors"
        )
    begin = int(storage._checkpoint_offset or 0)
    room = spans[bisect(spans, (begin, 0)) - 1][1] - begin
    if held > room:
        raise CheckpointError(
            f"{file}: the storage of {name} claims {held:,} bytes, the file has {room:,} for it"
        )
    start = begin + offset
    return TensorEntry(file, name, dtype, tuple(value.shape), start, start + needed)


def _not_written_by_torch(file: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: not written by torch.save (1.6 or newer), or truncated ({reason}); "
        "save it again as safetensors (the default of save_pretrained)"
    )


def _checked_name(file: Path, name: object) -> str:
    """Return the ``name`` of a tensor, which is shown in messages and becomes part of digests.

    Raises:
        CheckpointError: not a string, an empty one, or one with control characters.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise CheckpointError(f"{file}: {name!a:.80} is not the name of a tensor")
    return name


@contextmanager
def open_weights(file: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a weight file for the block, at its first byte; give its size in bytes, too.

    Raises:
        CheckpointError: not a regular file, or a git-LFS pointer or an HTML page in its place.
    """
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file, or not a regular file")
    with file.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(b"version "):
            raise CheckpointError(f"{file}: a git-LFS pointer, not weights; run `git lfs pull`")
        if head.lstrip().lower().startswith((b"<!doc", b"<html")):
            raise CheckpointError(f"{file}: an HTML page, not weights; download it again")
        handle.seek(0)
        yield handle, os.fstat(handle.fileno()).st_size
