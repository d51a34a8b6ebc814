"""The banner on pages that show models which were trained only to demonstrate this package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qwen3nb import paths
from qwen3nb.analysis.training.origins import checkpoint_of
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import read_json

__all__ = ["toy_labels", "toy_text"]


def toy_labels(results: Iterable[Result]) -> list[str]:
    """Return the labels of the models with results that are toys, sorted.

    A model is a toy if its training says so (``"toy": true`` in ``training.json``, in or above
    the folder of the model or of the checkpoint it was extracted from), or if it is one of the
    demo's own: ``demo-…`` below ``runs/demo``.
    """
    models = {result.model.label: result for result in results}
    return sorted(label for label, result in models.items() if _is_toy(result))


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


def _is_toy(result: Result) -> bool:
    model = result.model
    folder = paths.root() / model.spec
    if not model.spec or not folder.is_dir():
        return False
    demo = (paths.runs() / "demo").resolve()
    if model.label.startswith("demo-") and folder.resolve().is_relative_to(demo):
        return True
    return any(_says_toy(each / "training.json") for each in _trainings(folder, result))


def _trainings(folder: Path, result: Result) -> list[Path]:
    """Return the folders that may describe a model's training."""
    checkpoint = checkpoint_of(result)
    evaluated = [folder] if checkpoint is None else [folder, checkpoint]
    return [each for own in evaluated for each in (own, own.parent)]


def _says_toy(file: Path) -> bool:
    if not file.is_file():
        return False
    training = read_json(file)
    return isinstance(training, dict) and training.get("toy") is True
