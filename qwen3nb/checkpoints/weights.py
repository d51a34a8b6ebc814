"""The weights of a model: positions of tensors in files, their values, and a digest.

Headers are read without data. The safetensors library checks its own header, except for duplicate
names, which are checked here. https://huggingface.co/docs/safetensors#format

Values are read, never mapped: truncating a mapped file kills the process.

A file written by ``torch.save`` (``pytorch_model.bin``) is a zip archive with a pickle. PyTorch
opens it with ``weights_only``, which creates only tensors, here without memory.
"""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, TypeVar

from qwen3nb.checkpoints.types import CheckpointError, TensorEntry
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.strict_json import parse_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
_BYTES_AT_ONCE = 1 << 20  # that are hashed
# Bytes of a header or pickle. The largest in use has 5 MB, for 36,000 tensors; unpickled, it takes
# a hundred times that.
_HEADER_LIMIT = 10_000_000
_BYTES_OF_LENGTH = 8  # which the header of a safetensors file begins with
_DTYPES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


class Weights:
    """The tensors of one or more weight files.

    Attributes:
        tensors: entry per tensor name, sorted by name.
    """

    def __init__(self, tensors: Mapping[str, TensorEntry]) -> None:
        """Create from the entries of `read_safetensors` or `read_torch`; reads no values."""
        self.tensors = dict(sorted(tensors.items()))

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        return sorted({entry.file for entry in self.tensors.values()})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights: name, dtype, shape and bytes of every tensor.

        Independent of file format and number of shards. Computed once per content; cached by
        `qwen3nb.utils.journal`.
        """
        return remembered_digest(
            self.files, lambda: combined_digest(self.tensors, self.sha256_each(self.tensors))
        )

    def remember(self, digest: str) -> None:
        """Cache a ``digest`` computed while copying, which saves `digest` reading the files."""
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
        return self._each(set(names), _read_values)

    def sha256_each(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of tensors' bytes by name; each file is opened once."""
        return dict(self._each(set(names), _read_hash))

    def _each(
        self,
        names: set[str],
        read: Callable[[BufferedReader, TensorEntry], T],
    ) -> Iterator[tuple[str, T]]:
        """Yield the names with what is read of their tensors."""
        for path in sorted({self.tensors[name].file for name in names}):
            with path.open("rb") as file:
                for name, entry in self.tensors.items():
                    if name in names and entry.file == path:
                        yield name, read(file, entry)


def _read_values(file: BufferedReader, entry: TensorEntry) -> Tensor:
    import torch

    entry.check_float()
    dtype = torch_dtypes()[entry.dtype]
    if entry.size == 0:  # torch.frombuffer refuses an empty buffer
        return torch.empty(entry.shape, dtype=dtype)
    buffer = bytearray(entry.size)
    file.seek(entry.start)
    bytes_read = file.readinto(buffer)
    if bytes_read < entry.size:
        raise entry.truncated()
    tensor = torch.frombuffer(buffer, dtype=dtype).reshape(entry.shape)
    if not tensor.isfinite().all():
        raise entry.not_finite()
    return tensor


def _read_hash(file: BufferedReader, entry: TensorEntry) -> str:
    digest = hashlib.sha256()
    remaining = entry.size
    file.seek(entry.start)
    while remaining:
        block = file.read(min(_BYTES_AT_ONCE, remaining))
        if not block:
            raise entry.truncated()
        remaining -= len(block)
        digest.update(block)
    return digest.hexdigest()


def combined_digest(tensors: Mapping[str, TensorEntry], hashes: Mapping[str, str]) -> str:
    """Combine the SHA-256 of each tensor's bytes into one digest, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0{hashes[name]}\n".encode())
    return digest.hexdigest()


class _TensorFields(TypedDict):
    """What the header of a safetensors file says of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]  # of its first byte, and after its last one


def read_safetensors(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file.

    Raises:
        CheckpointError: not a regular file, truncated, or not safetensors (HTML pages and git-LFS
            pointers are recognised).
    """
    header, start_of_data = _read_header(file)
    header.pop("__metadata__", None)
    entries: dict[str, TensorEntry] = {}
    # The header counts positions from the start of the data, a TensorEntry from that of the file.
    for name, fields in header.items():
        start, stop = fields["data_offsets"]
        entries[name] = TensorEntry(
            file,
            stored_name=_checked_name(file, name),
            dtype=fields["dtype"],
            shape=tuple(fields["shape"]),
            start=start_of_data + start,
            stop=start_of_data + stop,
        )
    return entries


def _read_header(file: Path) -> tuple[dict[str, _TensorFields], int]:
    """Return the header of a safetensors file, and where its data start.

    The file begins with the length of the header, then the header as JSON.
    """
    from safetensors import SafetensorError, safe_open

    with _opened(file) as handle:
        length = int.from_bytes(handle.read(_BYTES_OF_LENGTH), "little")
        # A length beyond the end is that of a cut file, which safe_open reports better.
        if length < file.stat().st_size:
            _check_header_size(file, "header", length)
        try:
            with safe_open(file, "numpy"):  # checks dtypes, shapes, and that nothing overlaps
                header = parse_json(handle.read(length).decode("utf-8"))
        except (SafetensorError, ValueError) as error:
            raise CheckpointError(
                f"{file}: not a safetensors file, or truncated ({str(error)!r:.160}); copy it again"
            ) from None
    return header, _BYTES_OF_LENGTH + length


def torch_dtypes() -> dict[str, torch.dtype]:
    """Return the torch dtype for each name in `BYTES_PER_VALUE`."""
    import torch

    return {
        "F64": torch.float64,
        "F32": torch.float32,
        "BF16": torch.bfloat16,
        "F16": torch.float16,
    }


def read_torch(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a state dict written by ``torch.save``.

    Tensors that share storage get the same byte range.

    Raises:
        CheckpointError: another kind of file; content other than tensors, which could run code; not
            a flat state dict; or a tensor larger than its storage.
    """
    # Each storage is a member of a zip archive; its tensors must not go beyond its end.
    with _opened(file) as handle:
        try:
            ends_of_members = _ends_of_members(file, handle)
        except (zipfile.BadZipFile, KeyError) as error:
            raise CheckpointError(
                f"{file}: not written by torch.save (1.6 or newer), or truncated ({error}). "
                f"`python -m qwen3nb.checkpoints.to_safetensors {file}` converts an older one"
            ) from None
    state = _load_without_data(file)
    if not isinstance(state, dict):
        raise CheckpointError(
            f"{file}: contains a {type(state).__name__}, expected a state dict of tensors"
        )
    entries: dict[str, TensorEntry] = {}
    for name, value in state.items():
        entries[_checked_name(file, name)] = _torch_entry(file, name, value, ends_of_members)
    return entries


def _ends_of_members(file: Path, handle: BinaryIO) -> list[int]:
    """Check that the zip members are stored uncompressed; return their end offsets."""
    with zipfile.ZipFile(handle) as archive:
        members = archive.infolist()
        starts = sorted(member.header_offset for member in members)
        begins_with_member = 0 in starts
        is_compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if is_compressed or not begins_with_member:
            raise zipfile.BadZipFile("its members are compressed, or something is in front of them")
        # Members are in a folder of any name, as in ``archive/data.pkl``.
        sizes = {member.filename.partition("/")[2]: member.file_size for member in members}
        _check_header_size(file, "pickle", sizes["data.pkl"])
        # A member ends where the next one starts; the last one, where the directory starts.
        return [*starts[1:], archive.start_dir]


def _check_header_size(file: Path, part: str, size: int) -> None:
    if size > _HEADER_LIMIT:
        raise CheckpointError(
            f"{file}: its {part} has {size:,} bytes, expected at most {_HEADER_LIMIT:,}; no "
            "model needs that; save it in shards of safetensors"
        )


def _load_without_data(file: Path) -> Any:
    """Unpickle the structure, with tensors without memory."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():  # tensors have a shape and a position, but no memory
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{file}: its pickle contains more than tensors, and loading it can run code; "
            "save the state dict alone, or as safetensors (the default of save_pretrained)"
        ) from None
    except Exception as error:  # a malformed pickle can raise any of them  # noqa: BLE001
        lines = str(error).splitlines() or [type(error).__name__]
        reason = lines[0]
        raise CheckpointError(f"{file}: unreadable ({reason})") from None


def _torch_entry(
    file: Path,
    name: str,
    value: Tensor,
    ends: list[int],
) -> TensorEntry:
    """Return the position of a tensor without data; ``ends`` are those of the file's members.

    Each member is a storage. A tensor is a part of a storage, or the whole.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        raise CheckpointError(
            f"{file}: {name} is a {type(value).__name__}, expected a flat state dict of tensors"
        )
    dtype = _DTYPES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise CheckpointError(
            f"{file}: {name} is {value.dtype}, which safetensors does not have; save it as float32"
        )
    storage = value.untyped_storage()
    offset_in_storage = int(value.storage_offset()) * value.element_size()
    size = int(value.numel()) * value.element_size()
    available = int(storage.nbytes()) - offset_in_storage
    if size > available:
        raise CheckpointError(
            f"{file}: {name} claims {size:,} bytes, its storage has {available:,}"
        )
    if not value.is_contiguous():
        raise CheckpointError(
            f"{file}: {name} is not contiguous; "
            f"`python -m qwen3nb.checkpoints.to_safetensors {file}` converts it"
        )
    start_of_storage = int(storage._checkpoint_offset or 0)
    end_of_storage = ends[bisect(ends, start_of_storage)]
    storage_in_file = end_of_storage - start_of_storage
    if storage.nbytes() > storage_in_file:
        raise CheckpointError(
            f"{file}: the storage of {name} claims {storage.nbytes():,} bytes, the file has "
            f"{storage_in_file:,} for it"
        )
    start = start_of_storage + offset_in_storage
    return TensorEntry(file, name, dtype, tuple(value.shape), start, start + size)


def _checked_name(file: Path, name: object) -> str:
    """Return the ``name`` of a tensor after checking it: it appears in messages and digests."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise CheckpointError(f"{file}: {name!a:.80} is not the name of a tensor")
    return name


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Open a weight file; refuse git-LFS pointers and HTML pages."""
    with file.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(b"version "):
            raise CheckpointError(f"{file}: a git-LFS pointer, not weights; run `git lfs pull`")
        if head.lstrip().lower().startswith((b"<!doc", b"<html")):
            raise CheckpointError(f"{file}: an HTML page, not weights; download it again")
        handle.seek(0)
        yield handle
