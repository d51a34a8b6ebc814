"""Read the JSON files of a model or checkpoint strictly.

A file is refused if two libraries could read it differently: a key that appears twice, NaN or
infinity (also as ``1e999``), a byte order mark, or nesting that a parser may give up on.
"""

from __future__ import annotations

import codecs
import json
import math
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.types import CheckpointError

__all__ = ["JSON_LIMIT", "read_strictly"]

# Bytes of a JSON file. The largest in use, tokenizers, have 35 MB; parsed into Python objects,
# a file that means harm grows twentyfold.
JSON_LIMIT = 50_000_000
_DEPTH = 32


def read_strictly(file: Path) -> Any:
    """Return the JSON value in ``file``.

    Raises:
        CheckpointError: not a regular file of at most 50 MB; not UTF-8, or with a byte order
            mark; not JSON; a key that appears twice, a number that is not finite, or more than
            32 levels.
    """
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file, or not a regular file")
    if (size := file.stat().st_size) > JSON_LIMIT:
        raise CheckpointError(f"{file}: {size:,} bytes; expected at most {JSON_LIMIT:,}")
    raw = file.read_bytes()
    if raw.startswith(codecs.BOM_UTF8):
        raise CheckpointError(
            f"{file}: starts with a byte order mark, which JSON does not allow and libraries "
            "refuse; save the file as UTF-8 without one"
        )
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        _check_depth(value, _DEPTH)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: invalid JSON ({error})") from None
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.60} appears twice; remove one")
    return result


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text:.60} is not finite")
    return value


def _check_depth(value: Any, levels: int) -> None:
    if not isinstance(value, dict | list):
        return
    if levels == 0:
        raise ValueError(f"nested in more than {_DEPTH} levels")
    for each in value.values() if isinstance(value, dict) else value:
        _check_depth(each, levels - 1)
