"""The gate: what a model's folder must be before anything is built from it.

`check_model_folder` runs before a model of any kind is loaded. It reads JSON files and the
headers of weight files, builds nothing that has values, and runs no code of the folder.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["check_model_folder"]


def check_model_folder(folder: Path, *, kind: str) -> None:
    """Refuse a folder that cannot be loaded as what it says it is.

    Args:
        folder: the model's folder.
        kind: as in `Source.kind`: ``encoder``, ``seq2seq``, ``sentence-transformers``, ``t5``
            or ``decoder``.

    Raises:
        ModelFolderError: names the file and the key or tensor, what was expected, what it
            contains, and what to do.
    """
    # Files inside the folder: gate/inside.py.
    # Configurations: gate/configuration_bounds.py.
    # Weights: gate/expected_weights.py.
    # Tokenizer: gate/tokenizer.py.
