"""Which tensors a weight file holds and where their bytes lie, found without reading them.

Two formats: safetensors, and the zip that ``torch.save`` writes (``pytorch_model.bin``).
The header of a safetensors file is checked by hand before any library sees the
file, so that a bad file is named together with what is wrong with it. A ``.bin`` is a
pickle: it is opened with ``weights_only``, which builds tensors and nothing else,
and with tensors that own no memory, so that a file which claims more than it holds costs
nothing. From both comes the same table of byte ranges, and everything after reads those.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FLOATS", "CheckpointError", "TensorEntry", "read_safetensors", "read_torch"]

FLOATS = {"F32": 4, "BF16": 2, "F16": 2}  # what a weight may be stored in, and its bytes
_BYTES = {
    **FLOATS,
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("I32", "U32"), 4),
    **dict.fromkeys(("I16", "U16"), 2),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2"), 1),
}
# A real header has some 120 bytes per tensor; as Python objects it grows twentyfold.
_HEADER_LIMIT = 25_000_000
_TORCH = {
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


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says what, where, and what to do."""


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        file: the weight file.
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

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def read_safetensors(file: Path) -> dict[str, TensorEntry]:
    """The tensors a safetensors file declares, checked against its size.

    Raises:
        CheckpointError: not a regular file, truncated, not safetensors (an HTML page
            and a git-LFS pointer are recognised), an unknown dtype, or ranges that do not
            fit shape and file.
    """
    size = _regular_size(file)
    with file.open("rb") as handle:
        head = handle.read(8)
        _refuse_lookalikes(file, head)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 2 <= length <= size - 8:
            raise CheckpointError(
                f"{file}: not a safetensors file, or cut short ({size} bytes); copy it again"
            )
        if length > _HEADER_LIMIT:
            raise CheckpointError(f"{file}: a header of {length:,} bytes; no model needs that")
        raw = handle.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: unreadable safetensors header ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: unreadable safetensors header (not an object)")
    header.pop("__metadata__", None)
    begin = 8 + length
    entries = {name: _entry(file, name, fields, begin) for name, fields in header.items()}
    _check_ranges(file, entries, begin=begin, size=size)
    return entries


def _regular_size(file: Path) -> int:
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file, or not a regular one")
    return file.stat().st_size


def _refuse_lookalikes(file: Path, head: bytes) -> None:
    if head.startswith(b"version "):
        raise CheckpointError(f"{file}: a git-LFS pointer, not weights; run `git lfs pull`")
    if head.lstrip().lower().startswith((b"<!doc", b"<html")):
        raise CheckpointError(f"{file}: an HTML page, not weights; download it again")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result


def _entry(file: Path, name: str, fields: Any, begin: int) -> TensorEntry:
    try:
        dtype, shape = fields["dtype"], tuple(fields["shape"])
        start, stop = fields["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file}: malformed header entry for {name}") from None
    if any(type(number) is not int or number < 0 for number in (*shape, start, stop)):
        raise CheckpointError(f"{file}: malformed header entry for {name}")
    if dtype not in _BYTES:
        raise CheckpointError(f"{file}: {name} is {dtype}; expected one of {', '.join(_BYTES)}")
    if stop - start != math.prod(shape) * _BYTES[dtype]:
        raise CheckpointError(f"{file}: {name} says {dtype} {shape} but holds {stop - start} bytes")
    return TensorEntry(file, name, dtype, shape, begin + start, begin + stop)


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


def read_torch(file: Path) -> dict[str, TensorEntry]:
    """The tensors in a state dict that ``torch.save`` wrote.

    Tensors that share their storage get the same byte range.

    Raises:
        CheckpointError: not such a file, one that needs more than tensors to be loaded
            (it could run code), not a flat state dict, or tensors that claim more
            values than their storage holds.
    """
    size = _regular_size(file)
    with file.open("rb") as handle:
        _refuse_lookalikes(file, handle.read(8))
    _check_zip(file)
    state = _load_without_data(file)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: holds a {type(state).__name__}, expected a state dict of tensors"
        )
    return {str(name): _torch_entry(file, str(name), value, size) for name, value in state.items()}


def _check_zip(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            order = [archive.read(m) for m in members if m.filename.endswith("/byteorder")]
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"{file}: not a file torch.save has written since 1.6, or cut short ({error}); "
            "save it again with safetensors (the default of save_pretrained)"
        ) from None
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise CheckpointError(f"{file}: compressed, which torch.save never does; save it again")
    if any(m.filename.endswith("/data.pkl") and m.file_size > _HEADER_LIMIT for m in members):
        raise CheckpointError(f"{file}: its table of tensors is too large for any model")
    if order not in ([], [b"little"]):
        raise CheckpointError(f"{file}: written on a big-endian machine; convert it there")


def _load_without_data(file: Path) -> Any:
    """The unpickled structure, its tensors without memory of their own."""
    import pickle

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
        raise CheckpointError(
            f"{file}: torch {torch.__version__} reads pickled weights unsafely; "
            "install 2.10 or newer, or save with safetensors"
        )
    try:
        with FakeTensorMode():
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{file}: more than tensors is pickled in it, and loading that can run code; "
            "save the state dict alone, or with safetensors (the default of save_pretrained)"
        ) from None
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{file}: unreadable ({reason})") from None


def _torch_entry(file: Path, name: str, value: Tensor, size: int) -> TensorEntry:
    import torch

    if not isinstance(value, torch.Tensor):
        raise CheckpointError(
            f"{file}: {name} is a {type(value).__name__}, expected a flat state dict of tensors"
        )
    dtype = _TORCH.get(str(value.dtype).removeprefix("torch."))
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
            f"{file}: {name} is not contiguous; save its .contiguous(), or with safetensors"
        )
    begin = getattr(storage, "_checkpoint_offset", None)
    if begin is None:
        raise CheckpointError(
            f"{file}: torch {torch.__version__} does not say where its tensors lie; "
            "save with safetensors (the default of save_pretrained)"
        )
    start = int(begin) + offset
    if start + needed > size:
        raise CheckpointError(f"{file}: {name} ends beyond the file; cut short?")
    return TensorEntry(file, name, dtype, tuple(value.shape), start, start + needed)
