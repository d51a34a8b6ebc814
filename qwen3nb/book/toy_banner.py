"""The banner on pages that show models which were trained only to demonstrate this package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qwen3nb import paths
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import ModelInfo, Result
from qwen3nb.utils.atomic_files import read_json

__all__ = ["toy_labels", "toy_text"]


def toy_labels(results: Iterable[Result]) -> list[str]:
    """Return the labels of the models with results that are toys, sorted.

    A model is a toy if its training says so (``"toy": true`` in ``training.json``, in or above
    the folder of the model or of the checkpoint it was extracted from), or if it is one of the
    demo's own: ``demo-…`` below ``runs/demo``.
    """
    models = {result.model.label: result.model for result in results}
    return sorted(label for label, model in models.items() if _is_toy(model))


def toy_text(labels: Iterable[str], *, models: int) -> str:
    """Return what the banner says about these of so many models."""
    named = list(labels)
    which = "All models here" if len(named) == models else f"{len(named)} of {models} models here"
    were = "was" if len(named) == 1 else "were"
    return (
        f"{which} ({', '.join(named)}) {were} trained in minutes on a few thousand docstrings, to "
        "show the way from a checkpoint to this book: real files and real numbers, but not models "
        "to use. Read their pages for the method, not for the scores."
    )


def _is_toy(model: ModelInfo) -> bool:
    folder = paths.root() / model.spec
    if not model.spec or not folder.is_dir():
        return False
    demo = (paths.runs() / "demo").resolve()
    if model.label.startswith("demo-") and folder.resolve().is_relative_to(demo):
        return True
    return any(_says_toy(each / "training.json") for each in _trainings(folder))


def _trainings(folder: Path) -> list[Path]:
    """Return the folders that may describe a model's training."""
    folders = [folder, folder.parent]
    if provenance := read_provenance(folder):
        source = paths.root() / str(provenance.get("source", {}).get("folder", ""))
        folders += [source, source.parent]
    return folders


def _says_toy(file: Path) -> bool:
    if not file.is_file():
        return False
    training = read_json(file)
    return isinstance(training, dict) and training.get("toy") is True
