"""Read files of a bounded size, and see that an output replaces only a file of its kind.

A pipe may never end, a device such as ``/dev/zero`` fills the memory, and so does a file with a
hole of gigabytes. Kind and size are therefore checked before a file is read.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qwen3nb.utils.atomic_files import decoded_json

_MEBIBYTE = 1 << 20
JSON_BYTES = 256 * _MEBIBYTE  # a log of a long training has 100 MB
TOML_BYTES = 16 * _MEBIBYTE
# One takes some 240 and 60 bytes of memory, so all of them 500 MB each.
_MOST_CONTAINERS = 2_000_000  # objects and lists
_MOST_VALUES = 8_000_000  # in these


class FileBoundError(ValueError):
    """Not a regular file, or one with too many bytes; the message names it."""


def read_bounded(file: Path, *, most_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``most_bytes``.

    Raises:
        FileBoundError: a folder, a pipe, a socket, a device, or a larger file.
        OSError: it cannot be read.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = "a pipe, a socket or a device"
        if stat.S_ISDIR(status.st_mode):
            kind = "a folder"
        raise FileBoundError(f"{file}: expected a regular file, got {kind}")
    if status.st_size > most_bytes:
        raise FileBoundError(
            f"{file}: {status.st_size:,} bytes; expected at most {most_bytes:,} "
            f"({most_bytes // _MEBIBYTE} MiB)"
        )
    return file.read_bytes()


def read_bounded_text(file: Path, *, most_bytes: int) -> str:
    """Return the text of such a file in UTF-8, with line ends as ``\\n``; see `read_bounded`.

    Raises:
        ValueError: not UTF-8, or as in `read_bounded`.
        OSError: it cannot be read.
    """
    content = io.BytesIO(read_bounded(file, most_bytes=most_bytes))
    return io.TextIOWrapper(content, encoding="utf-8").read()


def read_json_bytes(file: Path, *, most_bytes: int = JSON_BYTES) -> bytes:
    """Return the content of such a file of JSON, whose values fit into a gigabyte of memory.

    Raises:
        FileBoundError: as in `read_bounded`, or too many objects, lists and values.
        OSError: it cannot be read.
    """
    content = read_bounded(file, most_bytes=most_bytes)
    # At most, as texts may have these characters, too.
    containers = content.count(b"{") + content.count(b"[")
    values = content.count(b",") + containers
    if containers > _MOST_CONTAINERS or values > _MOST_VALUES:
        raise FileBoundError(
            f"{file}: {containers:,} objects and lists, {values:,} values; expected at most "
            f"{_MOST_CONTAINERS:,} and {_MOST_VALUES:,}"
        )
    return content


def read_bounded_json(file: Path, *, most_bytes: int = JSON_BYTES) -> Any:
    """Return the strict JSON in such a file; see `read_json_bytes`.

    Raises:
        ValueError: not UTF-8, not JSON, NaN or infinity, or as in `read_json_bytes`; names the
            file.
        OSError: it cannot be read.
    """
    return decoded_json(read_json_bytes(file, most_bytes=most_bytes), file=file)


def check_replaceable(file: Path, *, suffixes: Sequence[str]) -> None:
    """Refuse to replace an existing file whose name ends in none of ``suffixes``.

    Raises:
        FileExistsError: there is such a file, a folder or a pipe; says what to do.
    """
    is_free = not file.exists()
    is_of_kind = file.is_file() and file.suffix.lower() in suffixes
    if is_free or is_of_kind:
        return
    raise FileExistsError(
        f"{file}: exists, and is no {' or '.join(suffixes)} file, so it was not replaced; name "
        "another file, or remove it first"
    )
