"""A training that the lessons of the guide can use, with or without the demo."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from qwen3nb import paths
from qwen3nb.models.kinds.resolve import find_training
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import new_folder


def lesson_training() -> Path:
    """Return the folder of the demo's training, or of one of 20 steps, kept in the cache.

    The short training writes the same files in seconds; scores of its checkpoints mean nothing.
    """
    for training in (str(paths.runs() / "demo" / "contrastive"), "demo"):
        with suppress(SpecError):  # the demo has not been run here
            return find_training(training)
    folder = paths.cache() / "lesson" / "train"
    if not folder.is_dir():
        from qwen3nb.demo.train_ul2 import Ul2Settings, train_seq2seq

        short = Ul2Settings(steps=20, save_every=10, batch=4, vocabulary=1000, hidden=64)
        with new_folder(folder) as work:
            train_seq2seq(work, short)
    return folder
