"""What an extraction wrote down about where its weights come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qwen3nb.utils.atomic_files import read_json

PROVENANCE = "qwen3nb.json"


def read_provenance(folder: Path) -> dict[str, Any] | None:
    """The provenance of an extracted directory, or None for any other folder."""
    file = folder / PROVENANCE
    return dict(read_json(file)) if file.is_file() else None
