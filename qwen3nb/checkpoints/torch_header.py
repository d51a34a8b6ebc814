"""Find the tensors in a file that ``torch.save`` wrote, without reading their data.

Such a file (``pytorch_model.bin``) is a zip with a pickle. It is opened with
``weights_only``, which builds nothing but tensors, and with tensors that own no memory,
so that a file that claims to be larger than it is costs nothing.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.types import (
    HEADER_LIMIT,
    CheckpointError,
    TensorEntry,
    file_size,
    refuse_lookalikes,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["read_torch"]

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

    Tensors that share storage get the same byte range.

    Raises:
        CheckpointError: another kind of file; one that contains more than tensors, and so
            could run code; not a flat state dict; or a tensor that claims more values
            than its storage holds.
    """
    size = file_size(file)
    with file.open("rb") as handle:
        refuse_lookalikes(file, handle.read(8))
    _check_zip(file)
    state = _load_without_data(file)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: contains a {type(state).__name__}, expected a state dict of tensors"
        )
    return {str(name): _entry(file, str(name), value, size) for name, value in state.items()}


def _check_zip(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            order = [archive.read(m) for m in members if m.filename.endswith("/byteorder")]
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"{file}: not written by torch.save (1.6 or newer), or truncated ({error}); "
            "save it again as safetensors (the default of save_pretrained)"
        ) from None
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise CheckpointError(f"{file}: compressed, which torch.save never does; save it again")
    if any(m.filename.endswith("/data.pkl") and m.file_size > HEADER_LIMIT for m in members):
        raise CheckpointError(
            f"{file}: its pickle has more than {HEADER_LIMIT:,} bytes; no state dict needs that"
        )
    if order not in ([], [b"little"]):
        raise CheckpointError(
            f"{file}: written on a big-endian machine; save it as safetensors there"
        )


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
        raise CheckpointError(
            f"{file}: its pickle contains more than tensors, and loading it can run code; "
            "save the state dict alone, or as safetensors (the default of save_pretrained)"
        ) from None
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{file}: unreadable ({reason})") from None


def _entry(file: Path, name: str, value: Tensor, size: int) -> TensorEntry:
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
    start = int(begin) + offset
    if start + needed > size:
        raise CheckpointError(f"{file}: {name} ends beyond the end of the file; is it truncated?")
    return TensorEntry(file, name, dtype, tuple(value.shape), start, start + needed)
