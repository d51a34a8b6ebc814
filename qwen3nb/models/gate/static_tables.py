"""Tables with a vector per token: where they are in a folder, checked and read.

A text's vector is the mean of its tokens' rows. Three layouts are known: folders of model2vec
(the potion models), and the weights of wordllama in its package and on the hub. Folders of
sentence-transformers whose first module is ``StaticEmbedding`` hold the same kind of table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import FLOATS, TensorEntry
from qwen3nb.checkpoints.weights import Weights, not_finite_error, truncated_error
from qwen3nb.models.types import ModelFolderError, Vectors

# Weights and tokenizer: of model2vec; of wordllama's package; of its repository on the hub.
_MODEL2VEC = ("model.safetensors", "tokenizer.json")
_WORDLLAMA = (
    ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"),
    ("l2_supercat_256.safetensors", "l2_supercat_tokenizer_config.json"),
)
_NAMES = ("embeddings", "embedding.weight")
# Types of the tables that numpy reads; model2vec also stores rows as whole numbers.
NUMBERS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
_WHOLE = {"I64": np.int64, "I32": np.int32, "U32": np.uint32, "I16": np.int16, "U16": np.uint16}


def static_files(folder: ModelFolder) -> tuple[str, str] | None:
    """Return the files with the table and the tokenizer of a static model that runs here.

    None for another kind of model. Those of wordllama have no ``config.json``.
    """
    if folder.has("config.json"):
        return _MODEL2VEC if folder.config.get("model_type") == "model2vec" else None
    return next((each for each in _WORDLLAMA if all(map(folder.has, each))), None)


def token_table(
    opened: Weights, *, types: tuple[str, ...] = tuple(FLOATS)
) -> tuple[TensorEntry, TensorEntry | None, TensorEntry | None]:
    """Return the rows (R, D), the row of each token (V,), and the factor of each token (V,).

    Token i has row i without the second, and the factor 1 without the third.

    Args:
        opened: the weights of a file.
        types: what rows and factors may be stored as.

    Raises:
        ModelFolderError: tensors that are missing, unexpected, or of another shape or type.
    """
    tensors, file = opened.tensors, ", ".join(map(str, opened.files))
    name = next((name for name in _NAMES if name in tensors), None)
    if name is None:
        raise ModelFolderError(
            f"{file}: has {', '.join(tensors) or 'no tensor'}; expected the rows of tokens, "
            f"called {' or '.join(_NAMES)}"
        )
    if more := sorted(tensors.keys() - {name, "mapping", "weights"}):
        raise ModelFolderError(
            f"{file}: {more[0]}: unexpected; expected {name}, perhaps with mapping and weights"
        )
    table, mapping, weights = tensors[name], tensors.get("mapping"), tensors.get("weights")
    if len(table.shape) != 2 or not all(table.shape):
        raise ModelFolderError(
            f"{file}: {name}: shape {list(table.shape)}; expected a row per token"
        )
    tokens = (mapping or table).shape[:1]
    for entry, known in ((table, types), (mapping, tuple(_WHOLE)), (weights, types)):
        if entry is not None and entry.dtype not in known:
            raise ModelFolderError(
                f"{file}: {entry.stored_name}: of type {entry.dtype}; expected one of "
                f"{', '.join(known)}"
            )
        if entry not in (None, table) and (entry.shape != tokens or not all(tokens)):
            raise ModelFolderError(
                f"{file}: {entry.stored_name}: shape {list(entry.shape)}; expected "
                f"{list(tokens)}, a number per token"
            )
    return table, mapping, weights


def read_table(opened: Weights) -> Vectors:
    """Return the row of each token, (V, D), with its mapping and weight applied.

    Raises:
        ModelFolderError: a mapping to a row that is not there, or a number that is not finite.
    """
    table, mapped, weights = token_table(opened, types=tuple(NUMBERS))
    rows = _read(table).astype(np.float32, copy=False)
    if mapped is not None:
        mapping = _read(mapped)
        if not 0 <= mapping.min() <= mapping.max() < len(rows):
            raise ModelFolderError(
                f"{mapped.file}: mapping goes from {mapping.min()} to {mapping.max()}, "
                f"but there are {len(rows)} rows; copy the file again"
            )
        rows = rows[mapping]
    if weights is not None:
        rows = rows * _read(weights).astype(np.float32, copy=False)[:, None]
    return rows


def _read(entry: TensorEntry) -> NDArray[Any]:
    kind = (NUMBERS | _WHOLE)[entry.dtype]
    values = np.fromfile(entry.file, dtype=kind, count=entry.count, offset=entry.start)
    if values.size != entry.count:
        raise truncated_error(entry)
    if not np.isfinite(values).all():
        raise ModelFolderError(str(not_finite_error(entry)))
    return values.reshape(entry.shape)
