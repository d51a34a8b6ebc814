"""Find the tensors in a file that ``torch.save`` wrote, without reading their data.

Such a file (``pytorch_model.bin``) is a zip with a pickle. It is opened with
``weights_only``, which builds nothing but tensors, and with tensors that own no memory,
so that a file that claims to be larger than it is costs nothing.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.types import (
    CheckpointError,
    TensorEntry,
    check_name,
    file_size,
    refuse_lookalikes,
)
from qwen3nb.checkpoints.zip_directory import Member, read_directory

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["read_torch"]

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
    size = file_size(file)
    with file.open("rb") as handle:
        refuse_lookalikes(file, handle.read(8))
    members = read_directory(file)
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


def _check_members(file: Path, members: Mapping[str, Member]) -> None:
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


def _content(file: Path, member: Member) -> bytes:
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


def _entry(file: Path, name: str, value: Tensor, storages: Mapping[int, Member]) -> TensorEntry:
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
