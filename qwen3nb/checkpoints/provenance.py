"""Read the provenance that an extraction records next to the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qwen3nb.utils.atomic_files import read_json

__all__ = ["PROVENANCE", "read_provenance"]

PROVENANCE = "qwen3nb.json"


def read_provenance(folder: Path) -> dict[str, Any] | None:
    """Return the provenance of an extracted model, or None for any other folder."""
    file = folder / PROVENANCE
    return dict(read_json(file)) if file.is_file() else None
