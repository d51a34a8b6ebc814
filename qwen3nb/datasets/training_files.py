"""Read what a training left next to its weights: its configuration and its logs.

Neither is ours: both are read as plain values, and what is damaged is refused with its line.
"""

from pathlib import Path
from typing import Any

import yaml

from qwen3nb.datasets.rows import DataError, json_object, read_text
from qwen3nb.utils.strict_json import first_duplicate

_CONFIGURATION = 128 << 10  # bytes; PyYAML takes seconds for them
_LOG = 256 << 20  # bytes


class _Loader(yaml.SafeLoader):
    """Plain values only; no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if (twice := first_duplicate(key for key in keys if key != "<<")) is not None:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {twice!r:.60} occurs twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep=deep)


def read_settings(file: Path) -> Any:
    """Return the content of a YAML file of at most 128 KiB.

    Raises:
        DataError: unreadable, not YAML, or a key twice in a mapping; names the file.
    """
    text = read_text(file, most=_CONFIGURATION)
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
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
