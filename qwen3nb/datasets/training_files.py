"""Read what a training left next to its weights: its configuration and its logs.

Neither is ours: both are read as plain values, and what is damaged is refused with its line.
"""

from pathlib import Path
from typing import Any

import yaml

from qwen3nb.datasets.rows import DataError, json_object, read_text

_CONFIGURATION = 128 << 10  # bytes; PyYAML takes seconds for them
_LOG = 256 << 20  # bytes


def read_settings(file: Path) -> Any:
    """Return the content of a YAML file of at most 128 KiB.

    Raises:
        DataError: unreadable, or not YAML of plain values; names the file.
    """
    text = read_text(file, most=_CONFIGURATION)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{file}: cannot be read as YAML ({cause:.200})") from None


def json_lines(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Read the objects of a JSON Lines file, and a note if its last line is truncated.

    Raises:
        DataError: a line other than a truncated last one is not a JSON object (names file and
            line), or the file is larger than 256 MiB.
    """
    lines = read_text(file, most=_LOG).split("\n")
    objects, notes = [], []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                objects.append(json_object(line, where=f"{file}:{number}", nan=True))
        except DataError:
            if number < len(lines):
                raise
            notes.append(f"{file.name}:{number}: truncated, left out")
    return objects, notes
