"""Specs that name what was made last in a study: an export, a training, an adapter.

Notebooks have them as defaults, so that each runs in any study that has something to show. Where a
study has nothing of the kind, the error is one sentence that says what to do.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from qwen3nb import paths
from qwen3nb.checkpoints.folder import list_checkpoints, step_of
from qwen3nb.checkpoints.names import MODEL_TYPES
from qwen3nb.checkpoints.provenance import PROVENANCE
from qwen3nb.models.types import NEWEST_ADAPTER, NEWEST_EXPORT, NEWEST_TRAINING, SpecError
from qwen3nb.utils.atomic_files import read_json

_ADAPTER_CONFIG = "adapter_config.json"
_DEEPEST = 8  # levels below a study: runs/demo/lora/outputs/joint_r8/seed_42/checkpoints/final
# Folders of a study that have no models.
_WITHOUT_MODELS = ("book", "eval_results", "notebooks", "releases", "results", "updates")


class NothingMadeError(SpecError):
    """A study has no export, training or adapter; the message says what to do."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in a cell: the sentence, without a traceback."""
        return [str(self)]


def newest(spec: str) -> Path:
    """Return the folder that a spec of this module stands for.

    Raises:
        NothingMadeError: the study has none.
    """
    find, error = _FINDERS[spec]
    study = paths.find_root()
    folders = []
    if study is not None:  # else the working directory may be anything
        folders = find(study)
    if not folders:
        raise NothingMadeError(error)
    return max(folders, key=_time_made)


def exports_of(study: Path) -> list[Path]:
    """Return the folders of a study's exports, at most four levels below it."""
    exports = []
    for entry in sorted(study.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        for depth in range(4):
            pattern = "*/" * depth + PROVENANCE  # "*/*/FILE" is two levels below
            for file in sorted(entry.glob(pattern)):
                exports.append(file.parent)
    return exports


def _trainings_of(study: Path) -> list[Path]:
    """Return the folders of a study that have encoder-decoder checkpoints."""
    trainings = set()
    for folder, _ in _folders_below(study):
        if step_of(folder) is None:
            continue
        # Checkpoints of other models have no encoder to extract.
        if _field(folder / "config.json", "model_type") in MODEL_TYPES:
            trainings.add(folder.parent)
    return sorted(trainings)


def _adapters_of(study: Path) -> list[Path]:
    """Return the folders of a study's adapters of causal language models."""
    adapters = []
    for folder, files in _folders_below(study):
        if _ADAPTER_CONFIG not in files:
            continue
        # Those of embedding models have no head, which a reranker needs.
        if _field(folder / _ADAPTER_CONFIG, "task_type") in ("CAUSAL_LM", None):
            adapters.append(folder)
    return adapters


def _field(config: Path, name: str) -> object:
    """Return a field of a configuration; None if there is none, or it cannot be read."""
    try:
        value: object = read_json(config)[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value


def _folders_below(study: Path) -> Iterable[tuple[Path, list[str]]]:
    """Yield the folders of a study that may have models, each with the names of its files."""
    for folder, folders, files in os.walk(study):
        path = Path(folder)
        depth = len(path.relative_to(study).parts)
        kept_folders = []
        if depth < _DEEPEST:
            kept_folders = [name for name in sorted(folders) if not name.startswith((".", "_"))]
        if depth == 0:
            kept_folders = [name for name in kept_folders if name not in _WITHOUT_MODELS]
        folders[:] = kept_folders  # os.walk goes into these
        yield path, files


def _time_made(folder: Path) -> float:
    """Return when a folder of a model was made; of a training, its last checkpoint."""
    for name in (PROVENANCE, _ADAPTER_CONFIG):
        if (folder / name).is_file():
            return (folder / name).stat().st_mtime
    return list_checkpoints(folder)[-1].stat().st_mtime


# By spec, what finds its folders in a study, and the error if there are none.
_FINDERS: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    NEWEST_EXPORT: (
        exports_of,
        "this study has no export: `qwen3nb extract CHECKPOINT encoder` makes one. Or name a "
        "model as checkpoint, such as all-MiniLM-L6-v2",
    ),
    NEWEST_TRAINING: (
        _trainings_of,
        "this study has no training: put a folder with checkpoint-N folders below runs/, or name "
        "one as training",
    ),
    NEWEST_ADAPTER: (
        _adapters_of,
        "this study has no adapter that ranks: name a reranker as checkpoint, such as "
        "Qwen/Qwen3-Reranker-0.6B",
    ),
}
