"""Folders and files in the parameters of a notebook, relative to its study.

A user gives a path as it is seen from the working directory, such as ``../outputs`` in
``notebooks/``. A page keeps it as ``outputs``, relative to the study, so that it can be made again
from anywhere, also after the study was moved. A path outside the study is kept whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from qwen3nb import paths
from qwen3nb.models.types import NEWEST, SpecError

Values: TypeAlias = Mapping[str, Any]  # of parameters, by name
NewValues: TypeAlias = dict[str, Any]  # those that a function has made

# Parameters that are the path of one folder or file.
_FOLDERS = (
    "adapter",
    "file",
    "map_file",
    "output",
    "output_dir",
    "outputs",
    "query_file",
    "training",
    "trainings",
    "words",
)
# Parameters that are paths or names of models, possibly several.
MODELS = ("checkpoint", "first_stage", "models", "base", "candidates", "old", "new")
# Parameters that name files or folders which a notebook reads.
READ_FILES = ("documents", "file", "query_file", "questions", "trainings", "words")
# Other parameters that may be paths.
_MAYBE_PATHS = ("data", "documents", "prompts", "questions", "where")
_CREATED_BY_RUNS = ("map_file", "output", "output_dir")  # so they need not exist
_LONGEST = 4096  # characters of a path
DEMO = "demo"  # the toy model or training


def relative_to_study(values: Values) -> NewValues:
    """Return values with every path relative to the study, or whole if it is outside.

    Paths are looked up from the working directory, then from the study.
    """
    return _with_relative_paths(values, bases=(Path.cwd(), paths.root()))


def page_values_in_study(values: Values) -> NewValues:
    """Return the values of a page or record with every path relative to the study.

    Earlier releases kept them as seen from where they were made, mostly ``notebooks/``.
    """
    root = paths.root()
    return _with_relative_paths(values, bases=(root, root / "notebooks"))


def page_values_from_here(values: Values) -> NewValues:
    """Return the values of a page as they can be given in the working directory."""
    return relative_to_working_directory(page_values_in_study(values))


def relative_to_working_directory(values: Values) -> NewValues:
    """Return values of `relative_to_study` as they can be given in the working directory."""
    local_values = dict(values)
    if Path.cwd() == paths.root():
        return local_values
    for name, value in values.items():
        if name in (*_FOLDERS, *MODELS, *_MAYBE_PATHS) and isinstance(value, str):
            must_exist = name not in _CREATED_BY_RUNS
            entries = [
                _seen_from_working_directory(entry, must_exist=must_exist)
                for entry in value.split(",")
            ]
            local_values[name] = ",".join(entries)
    return local_values


def path_from_root(value: str) -> Path:
    """Return the path in a value of `relative_to_study`."""
    return paths.root() / Path(value).expanduser()


def _seen_from_working_directory(text: str, *, must_exist: bool) -> str:
    """Return a path in the study as it is seen from the working directory; others as they are."""
    if not _may_be_path(text) or Path(text).is_absolute():
        return text
    file = path_from_root(text)
    if must_exist and not file.exists():  # such as the name of a model
        return text
    if Path.cwd().is_relative_to(paths.root()):
        return os.path.relpath(file)
    return str(file)


def _with_relative_paths(values: Values, *, bases: Sequence[Path]) -> NewValues:
    """Return values with paths relative to the study, which are looked up in each of the bases."""
    relative_values = dict(values)
    for name, value in values.items():
        if not isinstance(value, str) or not value:
            continue
        if name in _FOLDERS:
            must_exist = name not in _CREATED_BY_RUNS
            relative_values[name] = _relative_path(value, bases, must_exist=must_exist)
        elif name in MODELS:
            # Several models are separated by commas.
            models = [_relative_model(entry, bases) for entry in _entries(value, bases)]
            relative_values[name] = ",".join(models)
        elif name in _MAYBE_PATHS:
            entries = [_relative_path(entry, bases) for entry in _entries(value, bases)]
            relative_values[name] = ",".join(entries)
    return relative_values


def _entries(value: str, bases: Sequence[Path]) -> list[str]:
    """Split a list at its commas, unless it is the path of one file."""
    if _exists(value, bases):
        return [value]
    return value.split(",")


def _relative_model(entry: str, bases: Sequence[Path]) -> str:
    """Return an entry with its paths relative to the study.

    It may be a fusion, ``a+b``, and have a label, ``LABEL=a``.
    """
    from qwen3nb.models.kinds.resolve import split_fusion

    if "=" in entry and not _exists(entry, bases):
        from qwen3nb.datasets.custom.queries import label_and_spec

        label, spec = label_and_spec(entry)
        if label:
            return f"{label}={_relative_model(spec, bases)}"
    if _exists(entry, bases):
        if _is_name_of_model(entry):
            return entry
    elif "+" in entry:
        joined_parts, _ = split_fusion(entry)
        relative_parts = [_relative_model(part, bases) for part in joined_parts.split("+")]
        return "+".join(relative_parts) + entry.removeprefix(joined_parts)
    return _relative_path(entry, bases)


def _is_name_of_model(entry: str) -> bool:
    """Return whether an entry names a known model, although there is a folder of that name."""
    from qwen3nb.models.kinds.resolve import find_source

    if re.search(r"[/\\]", entry):  # a path
        return False
    try:
        return find_source(entry).folder is None  # a known model, such as bm25
    except SpecError:
        return False


def _relative_path(text: str, bases: Sequence[Path], *, must_exist: bool = True) -> str:
    """Return a path relative to the study, or whole outside; any other text as it is."""
    if not _may_be_path(text):
        return text
    given_path = text.strip()
    # From the first folder below which there is such a file.
    for base in bases:
        file = base / Path(given_path).expanduser()
        if must_exist and not file.exists():
            continue
        path = _path_in_study(file)
        if given_path.startswith("~") and Path(path).is_absolute():
            # A home is another folder on other machines, which find their own model there.
            return text
        return path
    return text


def _exists(text: str, bases: Sequence[Path]) -> bool:
    return _may_be_path(text) and any((base / text.strip()).exists() for base in bases)


def _may_be_path(text: str) -> bool:
    stripped = text.strip()
    if not 0 < len(stripped) <= _LONGEST or not stripped.isprintable():
        return False
    is_name = stripped in (DEMO, *NEWEST) or stripped.isdecimal()
    return not is_name and not stripped.startswith("api:") and "://" not in stripped


def _path_in_study(file: Path) -> str:
    """Return a path relative to the root; links inside the study are kept as they are."""
    absolute = Path(os.path.abspath(file))  # noqa: PTH100 - does not follow links
    if absolute.is_relative_to(paths.root()):
        return str(absolute.relative_to(paths.root()))
    return paths.shown(file)
