"""Put MTEB's own results into ``results/mteb``, each file whole and with its checksum.

    results/mteb/results/<model>/<revision>/<task>.json
    results/mteb/results/<model>/<revision>/model_meta.json
    results/mteb/results/<model>/<revision>/run_settings.jsonl
    results/mteb/results/<model>/<revision>/checksums.jsonl     ours

MTEB writes in place, so that a kill would leave half a file; it writes to a folder of its own,
and what it wrote is moved from there.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from qwen3nb.records.record import CHECKSUMS
from qwen3nb.utils.atomic_files import sha256_file, write_bytes
from qwen3nb.utils.files.journal import noted
from qwen3nb.utils.files.turns import turn

__all__ = ["keep_results"]


def keep_results(written: Path, folder: Path) -> dict[str, str]:
    """Copy what MTEB wrote to ``written`` into ``folder``; both are folders of its results.

    Return the SHA-256 of each file by its name.
    """
    files = [file for file in sorted(written.rglob("*")) if file.is_file()]
    for file in files:
        _keep(file, folder / file.relative_to(written))
    return {file.name: sha256_file(file) for file in files}


def _keep(file: Path, target: Path) -> None:
    data = file.read_bytes()
    with turn(target.with_name(CHECKSUMS)):  # as with all files that have a line per task
        if file.suffix == ".jsonl":  # others have written theirs
            write_bytes(target, _merged(target, data))
            return
        digest = hashlib.sha256(data).hexdigest()
        with noted(target.with_name(CHECKSUMS), f"{target.name} {digest}"):
            write_bytes(target, data)


def _merged(target: Path, data: bytes) -> bytes:
    """Return the lines of ``data`` below those of other tasks in ``target``."""
    tasks = {_task(line) for line in data.splitlines()}
    known = target.read_bytes().splitlines() if target.is_file() else []
    others = [line for line in known if _task(line) not in {*tasks, None}]
    return b"".join(line + b"\n" for line in (*others, *data.splitlines()))


def _task(line: bytes) -> str | None:
    """Return the task of a line; None if it is damaged."""
    try:
        return str(json.loads(line)["task"])
    except (ValueError, KeyError, TypeError):
        return None
