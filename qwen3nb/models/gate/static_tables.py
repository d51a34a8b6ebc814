"""Static models: a table with a vector per token, and a tokenizer; checked before they are used.

A text's vector is the mean of its tokens' rows. Three layouts are known: folders of model2vec
(the potion models), and the weights of wordllama in its package and on the hub. Folders of
sentence-transformers whose first module is ``StaticEmbedding`` hold the same kind of table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import FLOATS, TensorEntry
from qwen3nb.checkpoints.weights import Weights, not_finite_error, truncated_error
from qwen3nb.models.types import ModelFolderError, Vectors

_CONFIG = "config.json"
# Weights and tokenizer: of model2vec; of wordllama's package; of its repository on the hub.
_MODEL2VEC = ("model.safetensors", "tokenizer.json")
_WORDLLAMA = (
    ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"),
    ("l2_supercat_256.safetensors", "l2_supercat_tokenizer_config.json"),
)
_NAMES = ("embeddings", "embedding.weight")
_MAPPING, _WEIGHTS = "mapping", "weights"
# Types of the tables that numpy reads; model2vec also stores rows as whole numbers.
NUMBERS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
_WHOLE = {"I64": np.int64, "I32": np.int32, "U32": np.uint32, "I16": np.int16, "U16": np.uint16}


@dataclass(frozen=True)
class StaticFiles:
    """The files of a static model that this package runs itself.

    Attributes:
        weights: the safetensors file with the table.
        tokenizer: in the format of ``tokenizer.json``.
        config: the content of model2vec's ``config.json``; None for wordllama, which has none.
    """

    weights: str
    tokenizer: str
    config: Mapping[str, Any] | None


@dataclass(frozen=True)
class TokenTable:
    """Where the vectors of tokens are.

    Attributes:
        embeddings: rows (R, D).
        mapping: the row of each token, (V,); None if token i has row i.
        weights: the factor of each token, (V,); None for 1.
    """

    embeddings: TensorEntry
    mapping: TensorEntry | None
    weights: TensorEntry | None

    @property
    def tokens(self) -> int:
        """V, the number of tokens that have a vector."""
        return (self.mapping or self.embeddings).shape[0]

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return self.embeddings.shape[1]


def static_files(folder: ModelFolder) -> StaticFiles | None:
    """Return the files of the static model in ``folder``; None if it is another kind of model.

    Raises:
        CheckpointError: a ``config.json`` that is malformed.
    """
    if folder.has(_CONFIG):
        ours = folder.config.get("model_type") == "model2vec"
        return StaticFiles(*_MODEL2VEC, folder.config) if ours else None
    for names in _WORDLLAMA:
        if all(map(folder.has, names)):
            return StaticFiles(*names, None)
    return None


def token_table(opened: Weights, *, types: tuple[str, ...] = tuple(FLOATS)) -> TokenTable:
    """Return where the table among the tensors of a file is.

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
    if more := sorted(tensors.keys() - {name, _MAPPING, _WEIGHTS}):
        raise ModelFolderError(
            f"{file}: {more[0]}: unexpected; expected {name}, perhaps with {_MAPPING} and "
            f"{_WEIGHTS}"
        )
    table = TokenTable(tensors[name], tensors.get(_MAPPING), tensors.get(_WEIGHTS))
    rows = table.embeddings.shape
    if len(rows) != 2 or not all(rows):
        raise ModelFolderError(f"{file}: {name}: shape {list(rows)}; expected a row per token")
    _check_type(table.embeddings, types)
    _check_column(table.mapping, table.tokens, tuple(_WHOLE))
    _check_column(table.weights, table.tokens, types)
    return table


def _check_column(entry: TensorEntry | None, tokens: int, types: tuple[str, ...]) -> None:
    if entry is None:
        return
    _check_type(entry, types)
    if entry.shape != (tokens,) or not tokens:
        raise ModelFolderError(
            f"{entry.file}: {entry.stored_name}: shape {list(entry.shape)}; expected [{tokens}], "
            "a number per token"
        )


def _check_type(entry: TensorEntry, types: tuple[str, ...]) -> None:
    if entry.dtype not in types:
        raise ModelFolderError(
            f"{entry.file}: {entry.stored_name}: of type {entry.dtype}; expected one of "
            f"{', '.join(types)}"
        )


def read_table(weights: Weights) -> Vectors:
    """Return the row of each token, (V, D), with its mapping and weight applied.

    Raises:
        ModelFolderError: a mapping to a row that is not there, or a number that is not finite.
    """
    table = token_table(weights, types=tuple(NUMBERS))
    rows = _read(table.embeddings).astype(np.float32, copy=False)
    if table.mapping is not None:
        mapping = _read(table.mapping)
        if not 0 <= mapping.min() <= mapping.max() < len(rows):
            raise ModelFolderError(
                f"{table.mapping.file}: {_MAPPING} goes from {mapping.min()} to {mapping.max()}, "
                f"but there are {len(rows)} rows; copy the file again"
            )
        rows = rows[mapping]
    if table.weights is not None:
        rows = rows * _read(table.weights).astype(np.float32, copy=False)[:, None]
    return rows


def _read(entry: TensorEntry) -> NDArray[Any]:
    kind = (NUMBERS | _WHOLE)[entry.dtype]
    values = np.fromfile(entry.file, dtype=kind, count=entry.count, offset=entry.start)
    if values.size != entry.count:
        raise truncated_error(entry)
    if not np.isfinite(values).all():
        raise ModelFolderError(str(not_finite_error(entry)))
    return values.reshape(entry.shape)
