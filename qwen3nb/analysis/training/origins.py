"""Where the weights of a record came from: its checkpoint, and the start of its training.

An extracted model stores the folder of its checkpoint. A training that continues another one
names the checkpoint it began with, as ``start`` in the ``training.json`` beside its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import read_json

_FILE = "training.json"


def checkpoint_of(result: Result) -> Path | None:
    """Folder of the checkpoint that the record's model was extracted from, if that is known."""
    spec = result.model.spec
    provenance = read_provenance(paths.root() / spec) if spec else None
    folder = ((provenance or {}).get("source") or {}).get("folder")
    return paths.root() / folder if folder else None


def training_folder(results: Iterable[Result]) -> Path | None:
    """Folder of the training that the records' models are checkpoints of, if that is known."""
    checkpoints = map(checkpoint_of, results)
    return next((each.parent for each in checkpoints if each is not None), None)


def starting_record(training: Path, results: Iterable[Result]) -> Result | None:
    """The record of the checkpoint that the training in a folder started from, or None."""
    start = _start(training)
    if start is None:
        return None
    return next((each for each in results if start in _origins(each)), None)


def objective_of(training: Path) -> str:
    """What a training did, and the checkpoint it started from, if its folder says so."""
    about = _about(training)
    start = f"started from {about['start']}" if "start" in about else ""
    return ", ".join(filter(None, (about.get("objective", ""), start)))


def _about(training: Path) -> dict[str, str]:
    """The texts in the training's own description of itself."""
    file = training / _FILE
    value: Any = read_json(file) if file.is_file() else {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: text for name, text in pairs if isinstance(text, str) and text}


def _start(training: Path) -> Path | None:
    """The folder named as the training's start: from the root, or from the training."""
    start = _about(training).get("start")
    if start is None:
        return None
    folders = (base / start for base in (paths.root(), training, training.parent))
    return next((folder.resolve() for folder in folders if folder.is_dir()), None)


def _origins(result: Result) -> set[Path]:
    """The folder that was evaluated, and that of the checkpoint it was extracted from."""
    folders = {paths.root() / result.model.spec} if result.model.spec else set()
    checkpoint = checkpoint_of(result)
    return {folder.resolve() for folder in folders | ({checkpoint} if checkpoint else set())}
