"""Remember digests of large files, so that they are read once.

A file counts as unchanged as long as its path, inode, size and times are: the time of the last
change of its inode (ctime) cannot be set by a program. What changed within the resolution of
file systems' clocks before it was read is not remembered, as another change might have the same
time. A memory that cannot be written, or an entry that is damaged, costs another reading.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from qwen3nb import paths
from qwen3nb.utils.atomic_files import file_stamp, sha256_json
from qwen3nb.utils.files.journal import Journal

log = logging.getLogger(__name__)
_TICK = 20_000_000  # nanoseconds: file systems' clocks advance by 10 ms at most


def remembered_digest(files: Sequence[Path], compute: Callable[[], str], *, kind: str = "") -> str:
    """Return the stored digest of ``files``, or ``compute()`` and store it.

    Args:
        files: the files.
        compute: computes the digest.
        kind: of the digest, where files have another one besides.
    """
    key = _key(files, kind)
    if (known := known_digests(key).get(key)) is not None:
        return known
    old = all(time.time_ns() - file.stat().st_ctime_ns > _TICK for file in files)
    digest = compute()
    if old and _key(files, kind) == key:  # else they were replaced while they were read
        remember_digests({key: digest})
    return digest


def known_digests(*keys: str) -> dict[str, str]:
    """Return this machine's digests of files by their stamps: those of ``keys``, or all."""
    try:
        memory = Journal(_memory())
        values = {key: memory.get(key) for key in sorted(keys or memory.keys())}
        return {key: str(value) for key, value in values.items() if value is not None}
    except OSError as error:
        log.warning("%s: not read (%s); digests are computed again", _memory(), error)
        return {}


def remember_digests(digests: Mapping[str, str]) -> None:
    """Add entries, such as another machine's `known_digests`."""
    try:
        memory = Journal(_memory())
        for key in digests.keys() - memory.keys():
            memory.add(key, digests[key])
    except OSError as error:
        log.warning("%s: not written (%s); digests are computed again", _memory(), error)


def _memory() -> Path:
    return paths.cache() / "digests.journal"


def _key(files: Sequence[Path], kind: str = "") -> str:
    stamps = [file_stamp(file) for file in sorted(files)]
    return sha256_json([kind, stamps] if kind else stamps)
