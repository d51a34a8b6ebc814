"""Find the tensors in a file that ``torch.save`` wrote, without reading their data.

Such a file (``pytorch_model.bin``) is a zip with a pickle. Its members are stored uncompressed,
one after the other, and its directory follows them. What expands, overlaps or appears twice is
refused from the directory alone.

The pickle is then opened with ``weights_only``, which builds nothing but tensors, and with tensors
that own no memory, so that a file that claims to be larger than it is costs nothing.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from bisect import bisect
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qwen3nb.checkpoints.types import CheckpointError, TensorEntry, check_name, open_weights

if TYPE_CHECKING:
    from torch import Tensor

# The largest model in use, with 36,000 tensors, has 5 MB; unpickled, it grows a hundredfold.
_PICKLE_LIMIT = 10_000_000
# Bytes of the directory: 100,000 members. Parsed into Python objects, it grows twentyfold.
_DIRECTORY_LIMIT = 10_000_000
_HEADER = 30  # bytes in front of each member, without its name
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
    entries = {check_name(file, name): _entry(file, name, v, spans) for name, v in state.items()}
    if (total := sum(each.stop - each.start for each in entries.values())) > _SHARED * size:
        raise CheckpointError(
            f"{file}: its tensors share storage so often that they have {total:,} bytes in a "
            f"file of {size:,}; expected at most {_SHARED} times as many; save it as safetensors"
        )
    return entries


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
    calls = 0
    try:
        for opcode, argument, _ in pickletools.genops(archive.read(members["data.pkl"])):
            calls += opcode.name == "REDUCE"
            named = opcode.name != "GLOBAL" or _NAMES.fullmatch(str(argument))
            if opcode.name not in _OPCODES or not named:
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


def _entry(file: Path, name: str, value: Tensor, spans: list[tuple[int, int]]) -> TensorEntry:
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
