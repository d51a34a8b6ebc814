"""Read the directory of a zip as ``torch.save`` writes it, before any program opens the file.

Such a zip stores its members uncompressed, one after the other, and its directory follows
them. Anything else is refused from the directory and the members' own headers alone: what
expands, overlaps, appears twice, or is described differently in the two.

PKWARE's specification: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from qwen3nb.checkpoints.types import CheckpointError, file_size

__all__ = ["Member", "read_directory"]

# Bytes of the directory: 100,000 members. Parsed into Python objects, it grows twentyfold.
_LIMIT = 10_000_000
_END = struct.Struct("<4s4H2LH")  # the end of the directory: 22 bytes
_LOCATOR = struct.Struct("<4sLQL")  # where its 64-bit form is: 20 bytes
_END_64 = struct.Struct("<4sQ2H2L4Q")  # that form: 56 bytes
_LOCAL = struct.Struct("<4s5H3L2H")  # in front of each member: 30 bytes
_ENCRYPTED = 1


@dataclass(frozen=True)
class Member:
    """A member of a zip.

    Attributes:
        name: its name, without the folder that all members share.
        start: offset of its first byte in the file.
        size: its size in bytes.
    """

    name: str
    start: int
    size: int


def read_directory(file: Path) -> dict[str, Member]:
    """Return the members by name; memory and time are bounded by the directory's 10 MB.

    Raises:
        CheckpointError: no such zip; the message says what is wrong.
    """
    size = file_size(file)
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
    if length > _LIMIT:
        raise CheckpointError(
            f"{file}: its list of members has {length:,} bytes, expected at most {_LIMIT:,}; "
            "no model needs that; save it as safetensors"
        )
    if begin + length != end:
        raise _not_written_by_torch(file, "its directory is not where it says")
    return begin, count


def _members(
    file: Path, handle: BinaryIO, infos: list[zipfile.ZipInfo], *, end: int
) -> dict[str, Member]:
    """Return the members, which must follow each other up to ``end`` without overlapping."""
    members: dict[str, Member] = {}
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
        members[name] = Member(name, start, info.file_size)
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
