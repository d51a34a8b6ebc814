"""Read the provenance that an extraction records next to the weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.inside import read_object

__all__ = ["PROVENANCE", "read_provenance"]

PROVENANCE = "qwen3nb.json"


def read_provenance(folder: Path) -> dict[str, Any] | None:
    """Return the provenance of an extracted model, or None for any other folder.

    Raises:
        CheckpointError: not a JSON object, or a file outside the folder.
    """
    file = folder / PROVENANCE
    return read_object(file) if os.path.lexists(file) else None
