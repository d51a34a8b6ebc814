"""A linear map of stored vectors in a safetensors file, with what was checked of it.

The file has ``matrix`` (D, E) and ``offset`` (E,) in float32: new vector = old vector · matrix +
offset. Old vectors have length 1, and mapped ones are scaled to it, as cosines compare them.
"""

import json
from pathlib import Path

import numpy as np

from qwen3nb.evaluation.migration.rehearse import Rehearsal
from qwen3nb.utils.atomic_files import write_bytes

SUFFIX = ".safetensors"


def check_map_file(file: Path) -> None:
    """Raise ValueError for a file that a map cannot be written to, before any work is done."""
    if file.suffix != SUFFIX or file.is_dir():
        raise ValueError(f"{file}: expected the name of a {SUFFIX} file, such as map{SUFFIX}")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"{file}: no such folder to write to")


def write_map(file: Path, rehearsal: Rehearsal) -> Path:
    """Write the best map of old documents; its metadata say on how many documents it was checked.

    Raises:
        ValueError: no map can be trusted, or the file cannot be written.
    """
    from safetensors.numpy import save

    check_map_file(file)
    found = rehearsal.map_to_write
    if found is None:
        raise ValueError(f"{file}: not written, as {_why_none(rehearsal)}")
    facts = {
        "kind": found.map.kind,
        "from": {"label": rehearsal.old.label, "identity": rehearsal.old.identity},
        "to": {"label": rehearsal.new.label, "identity": rehearsal.new.identity},
        "length": "1 before and after",
        "fitted_documents": found.fitted,
        "checked_documents": found.checked,
        "relative_error": found.error,
    }
    tensors = {
        "matrix": np.ascontiguousarray(found.map.matrix, dtype=np.float32),
        "offset": np.ascontiguousarray(found.map.offset, dtype=np.float32),
    }
    # safetensors keeps texts alone.
    content = save(tensors, metadata={"qwen3nb.map": json.dumps(facts, sort_keys=True)})
    return write_bytes(file, content)


def _why_none(rehearsal: Rehearsal) -> str:
    """Say why there is no map to write."""
    if not rehearsal.has_vectors:
        return "a model has no vectors to map"
    if not rehearsal.maps:
        return f"{len(rehearsal.data.documents):,} documents are too few to fit a map on"
    fitted = rehearsal.maps[0].fitted
    dimension = rehearsal.old.costs.dimension
    return (
        f"{fitted:,} documents for {dimension:,} dimensions fit by chance; give more documents "
        "than dimensions"
    )
