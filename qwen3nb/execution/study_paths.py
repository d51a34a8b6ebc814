"""Folders and files in the parameters of a notebook, relative to its study.

A user gives a path as it is seen from the working directory, such as ``../outputs`` in
``notebooks/``. A page keeps it as ``outputs``, relative to the study, so that it can be made again
from anywhere, also after the study was moved. A path outside the study is kept whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.models.types import SpecError

# Parameters that are the path of one folder or file.
_FOLDERS = ("adapter", "file", "output", "output_dir", "outputs", "training", "trainings", "words")
# Parameters that are paths or names of models, possibly several.
_MODELS = ("base", "checkpoint", "first_stage", "models")
# Other parameters that may be paths.
_OTHERS = ("data", "prompts", "questions", "where")
_WRITTEN = ("output", "output_dir")  # need not exist
_LONGEST = 4096  # characters of a path
DEMO = "demo"  # the toy model or training


def in_study(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with every path relative to the study, or whole if it is outside.

    Paths are looked up from the working directory, then from the study.
    """
    return _rewritten(values, (Path.cwd(), paths.root()))


def in_page(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a page or record with every path relative to the study.

    Earlier releases kept them as seen from where they were made, mostly ``notebooks/``.
    """
    root = paths.root()
    return _rewritten(values, (root, root / "notebooks"))


def of_page(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a page as they can be given in the working directory."""
    return as_given_here(in_page(values))


def as_given_here(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of `in_study` as they can be given in the working directory."""
    here = dict(values)
    if Path.cwd() == paths.root():
        return here
    for name, value in values.items():
        if name in (*_FOLDERS, *_MODELS, *_OTHERS) and isinstance(value, str):
            entries = value.split(",")
            here[name] = ",".join(_seen_from_here(entry, name) for entry in entries)
    return here


def at_root(value: str) -> Path:
    """Return the path in a value of `in_study`."""
    return paths.root() / Path(value).expanduser()


def _seen_from_here(entry: str, name: str) -> str:
    """Return a path in the study as it is seen from the working directory; others as they are."""
    if not _may_be_path(entry) or Path(entry).is_absolute():
        return entry
    file = at_root(entry)
    if not file.exists() and name not in _WRITTEN:
        return entry
    inside = Path.cwd().is_relative_to(paths.root())
    return os.path.relpath(file) if inside else str(file)


def _rewritten(values: Mapping[str, Any], bases: Sequence[Path]) -> dict[str, Any]:
    rewritten = dict(values)
    for name, value in values.items():
        if not isinstance(value, str) or not value:
            continue
        if name in _FOLDERS:
            rewritten[name] = _relative(value, bases, written=name in _WRITTEN)
        elif name in _MODELS or name in _OTHERS:
            entries = [value] if _is_found(value, bases) else value.split(",")
            relative = _relative_model if name in _MODELS else _relative
            rewritten[name] = ",".join(relative(entry, bases) for entry in entries)
    return rewritten


def _relative_model(entry: str, bases: Sequence[Path]) -> str:
    """Return an entry with its paths relative to the study; it may be a fusion, ``a+b``."""
    from qwen3nb.models.kinds.resolve import find_source

    if not _is_found(entry, bases) and "+" in entry:
        return "+".join(_relative_model(part, bases) for part in entry.split("+"))
    if _is_found(entry, bases) and not re.search(r"[/\\]", entry):
        with suppress(SpecError):  # a name may also be that of a folder here
            if find_source(entry).folder is None:
                return entry
    return _relative(entry, bases)


def _relative(text: str, bases: Sequence[Path], *, written: bool = False) -> str:
    """Return a path relative to the study, or whole outside; any other text as it is."""
    if not _may_be_path(text):
        return text
    for base in bases:
        file = base / Path(text.strip()).expanduser()
        if file.exists() or written:
            shown = _shown(file)
            # A home is another folder on other machines, which find their own model there.
            in_home = text.strip().startswith("~") and Path(shown).is_absolute()
            return text if in_home else shown
    return text


def _is_found(text: str, bases: Sequence[Path]) -> bool:
    return _may_be_path(text) and any((base / text.strip()).exists() for base in bases)


def _may_be_path(text: str) -> bool:
    stripped = text.strip()
    if not 0 < len(stripped) <= _LONGEST or not stripped.isprintable():
        return False
    is_name = stripped == DEMO or stripped.isdecimal()
    return not is_name and not stripped.startswith("api:") and "://" not in stripped


def _shown(file: Path) -> str:
    """Return a path relative to the root; links inside the study are kept as they are."""
    whole = Path(os.path.abspath(file))  # noqa: PTH100 - does not follow links
    if whole.is_relative_to(paths.root()):
        return str(whole.relative_to(paths.root()))
    return paths.shown(file)
