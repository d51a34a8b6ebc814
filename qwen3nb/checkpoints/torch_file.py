"""Find the tensors in a file that ``torch.save`` wrote, without reading their data.

Such a file (``pytorch_model.bin``) is a zip with a pickle. Its members are stored uncompressed,
one after the other, and its directory follows them. Anything else is refused from the directory
and the members' own headers alone: what expands, overlaps, appears twice, or is described
differently in the two. PKWARE's specification:
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT

The pickle is then opened with ``weights_only``, which builds nothing but tensors, and with tensors
that own no memory, so that a file that claims to be larger than it is costs nothing.
"""

from __future__ import annotations

import pickletools
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qwen3nb.checkpoints.types import CheckpointError, TensorEntry, check_name, weight_size

if TYPE_CHECKING:
    from torch import Tensor

# The largest model in use, with 36,000 tensors, has 5 MB; unpickled, it grows a hundredfold.
_PICKLE_LIMIT = 10_000_000
# Bytes of all tensors by those of the file: an embedding has up to four names.
_SHARED = 16
# Calls that rebuild tensors: up to three each.
_MOST_CALLS = 300_000
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


def read_torch(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a state dict that ``torch.save`` wrote.

    Tensors that share storage get the same byte range. Memory is bounded by the limits on the
    directory and the pickle, and so is time.

    Raises:
        CheckpointError: another kind of file; one that contains more than tensors, and so
            could run code; not a flat state dict; or a tensor that claims more values
            than its storage holds.
    """
    size = weight_size(file)
    members = _read_directory(file)
    _check_members(file, members)
    state = _load_without_data(file)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: contains a {type(state).__name__}, expected a state dict of tensors"
        )
    storages = {member.start: member for member in members.values()}
    entries = {check_name(file, name): _entry(file, name, v, storages) for name, v in state.items()}
    if (total := sum(each.stop - each.start for each in entries.values())) > _SHARED * size:
        raise CheckpointError(
            f"{file}: its tensors share storage so often that they have {total:,} bytes in a "
            f"file of {size:,}; expected at most {_SHARED} times as many; save it as safetensors"
        )
    return entries


def _check_members(file: Path, members: Mapping[str, _Member]) -> None:
    """Check the pickle and the byte order, before PyTorch opens the file."""
    if "data.pkl" not in members or "constants.pkl" in members:
        raise CheckpointError(
            f"{file}: contains {'TorchScript' if members else 'nothing'}, expected a state dict; "
            "save the state dict, as safetensors (the default of save_pretrained)"
        )
    if members["data.pkl"].size > _PICKLE_LIMIT:
        raise CheckpointError(
            f"{file}: its pickle has {members['data.pkl'].size:,} bytes, expected at most "
            f"{_PICKLE_LIMIT:,}; no state dict needs that; save it as safetensors"
        )
    _check_pickle(file, _content(file, members["data.pkl"]))
    order = members.get("byteorder")
    if order is not None and (order.size > 6 or _content(file, order) != b"little"):
        raise CheckpointError(
            f"{file}: written on a big-endian machine; save it as safetensors there"
        )


def _check_pickle(file: Path, raw: bytes) -> None:
    """Read the pickle's instructions without following any of them."""
    calls = 0
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            calls += opcode.name == "REDUCE"
            unknown = opcode.name not in _OPCODES
            if unknown or (opcode.name == "GLOBAL" and not _NAMES.fullmatch(str(argument))):
                raise _more_than_tensors(file)
            if calls > _MOST_CALLS:
                raise CheckpointError(
                    f"{file}: its pickle makes more than {_MOST_CALLS:,} calls; no state dict "
                    "needs that; save it as safetensors"
                )
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{file}: unreadable ({error!s:.120})") from None


def _more_than_tensors(file: Path) -> CheckpointError:
    return CheckpointError(
        f"{file}: its pickle contains more than tensors, and loading it can run code; "
        "save the state dict alone, or as safetensors (the default of save_pretrained)"
    )


def _content(file: Path, member: _Member) -> bytes:
    with file.open("rb") as handle:
        handle.seek(member.start)
        return handle.read(member.size)


def _load_without_data(file: Path) -> Any:
    """Unpickle the structure; its tensors own no memory."""
    import pickle

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
        raise CheckpointError(
            f"{file}: torch {torch.__version__} reads pickled weights unsafely; "
            "install 2.10 or newer, or save as safetensors"
        )
    try:
        with FakeTensorMode():
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        raise _more_than_tensors(file) from None
    except Exception as error:  # a malformed pickle can raise any of them  # noqa: BLE001
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{file}: unreadable ({reason})") from None


def _entry(file: Path, name: str, value: Tensor, storages: Mapping[int, _Member]) -> TensorEntry:
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
    begin = getattr(storage, "_checkpoint_offset", None)
    if begin is None:
        raise CheckpointError(
            f"{file}: torch {torch.__version__} does not expose the offsets of tensors; "
            "save as safetensors (the default of save_pretrained)"
        )
    member = storages.get(int(begin))
    if member is None or held > member.size:
        raise CheckpointError(
            f"{file}: the storage of {name} claims {held:,} bytes, the file has "
            f"{member.size if member else 0:,} for it"
        )
    start = member.start + offset
    return TensorEntry(file, name, dtype, tuple(value.shape), start, start + needed)


# Bytes of the directory: 100,000 members. Parsed into Python objects, it grows twentyfold.
_DIRECTORY_LIMIT = 10_000_000
_END = struct.Struct("<4s4H2LH")  # the end of the directory: 22 bytes
_LOCATOR = struct.Struct("<4sLQL")  # where its 64-bit form is: 20 bytes
_END_64 = struct.Struct("<4sQ2H2L4Q")  # that form: 56 bytes
_LOCAL = struct.Struct("<4s5H3L2H")  # in front of each member: 30 bytes
_ENCRYPTED = 1


@dataclass(frozen=True)
class _Member:
    """A member of a zip.

    Attributes:
        name: its name, without the folder that all members share.
        start: offset of its first byte in the file.
        size: its size in bytes.
    """

    name: str
    start: int
    size: int


def _read_directory(file: Path) -> dict[str, _Member]:
    """Return the members by name; memory and time are bounded by the directory's 10 MB.

    Raises:
        CheckpointError: no such zip; the message says what is wrong.
    """
    size = weight_size(file)
    try:
        with file.open("rb") as handle:
            end, count = _end_and_count(file, handle, size)
            with zipfile.ZipFile(handle) as archive:
                infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            if len(infos) != count:
                raise _not_written_by_torch(file, f"{len(infos)} of {count} members")
            return _members(file, handle, infos, end=end)
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, OSError) as error:
        raise _not_written_by_torch(file, str(error)) from None


def _end_and_count(file: Path, handle: BinaryIO, size: int) -> tuple[int, int]:
    """Return where the members end and the directory begins, and how many members it lists."""
    end_of_file = size - _END.size
    if end_of_file < 0:
        raise _not_written_by_torch(file, f"it has {size} bytes")
    mark, *_, count, length, begin, comment = _read(handle, _END, end_of_file)
    if mark != b"PK\5\6" or comment:
        raise _not_written_by_torch(file, "it does not end as a zip")
    end = end_of_file
    if end_of_file >= _LOCATOR.size + _END_64.size:
        mark, _, position, _ = _read(handle, _LOCATOR, end_of_file - _LOCATOR.size)
        if mark == b"PK\6\7":
            end = end_of_file - _LOCATOR.size - _END_64.size
            mark, *_, count, length, begin = _read(handle, _END_64, end)
            if mark != b"PK\6\6" or position != end:
                raise _not_written_by_torch(file, "its 64-bit directory is elsewhere")
    if length > _DIRECTORY_LIMIT:
        raise CheckpointError(
            f"{file}: its list of members has {length:,} bytes, expected at most "
            f"{_DIRECTORY_LIMIT:,}; no model needs that; save it as safetensors"
        )
    if begin + length != end:
        raise _not_written_by_torch(file, "its directory is not where it says")
    return begin, count


def _members(
    file: Path, handle: BinaryIO, infos: list[zipfile.ZipInfo], *, end: int
) -> dict[str, _Member]:
    """Return the members, which must follow each other up to ``end`` without overlapping."""
    members: dict[str, _Member] = {}
    stop = 0
    for info in infos:
        name = info.filename.partition("/")[2]
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise CheckpointError(f"{file}: compressed, which torch.save never does; save it again")
        if info.flag_bits & _ENCRYPTED:
            raise CheckpointError(f"{file}: encrypted, which torch.save never does; save it again")
        if not name or name in members:
            why = "twice" if name else "outside its folder"
            raise _not_written_by_torch(file, f"it contains {info.filename!r:.80} {why}")
        start = _start(file, handle, info)
        if info.header_offset < stop or start + info.file_size > end:
            raise _not_written_by_torch(file, f"{info.filename!r:.80} overlaps another member")
        stop = start + info.file_size
        members[name] = _Member(name, start, info.file_size)
    return members


def _start(file: Path, handle: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the offset of a member's data, from the header in front of it."""
    mark, _, _, method, *_, name_length, extra = _read(handle, _LOCAL, info.header_offset)
    name = handle.read(name_length)
    if mark != b"PK\3\4" or method != zipfile.ZIP_STORED or name != info.filename.encode():
        raise _not_written_by_torch(
            file, f"{info.filename!r:.80} is described differently in front of its data"
        )
    return info.header_offset + _LOCAL.size + name_length + int(extra)


def _read(handle: BinaryIO, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
    handle.seek(offset)
    return layout.unpack(handle.read(layout.size))


def _not_written_by_torch(file: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: not written by torch.save (1.6 or newer), or truncated ({reason}); "
        "save it again as safetensors (the default of save_pretrained)"
    )
