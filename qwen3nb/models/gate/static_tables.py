"""Static models: a table with a vector per token, and a tokenizer; checked before they are used.

A text's vector is the mean of its tokens' rows. Three layouts are known: folders of model2vec
(the potion models), and the weights of wordllama in its package and on the hub. Folders of
sentence-transformers whose first module is ``StaticEmbedding`` hold the same kind of table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.inside import check_inside, read_object
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.tensor_io import not_finite_error
from qwen3nb.checkpoints.types import FLOATS, TensorEntry
from qwen3nb.models.gate.configuration_bounds import (
    check_configuration,
    check_settings,
    check_whole,
)
from qwen3nb.models.types import ModelFolderError, Vectors

__all__ = [
    "StaticFiles",
    "TokenTable",
    "check_static_folder",
    "read_table",
    "static_files",
    "token_table",
]

_CONFIG = "config.json"
# Weights and tokenizer: of model2vec; of wordllama's package; of its repository on the hub.
_MODEL2VEC = ("model.safetensors", "tokenizer.json")
_WORDLLAMA = (
    ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"),
    ("l2_supercat_256.safetensors", "l2_supercat_tokenizer_config.json"),
)
_LENGTH = (1, 1_000_000_000)
_NAMES = ("embeddings", "embedding.weight")
_MAPPING, _WEIGHTS = "mapping", "weights"
# Types of the tables that numpy reads; model2vec also stores rows as whole numbers.
_NUMBERS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
_WHOLE = {"I64": np.int64, "I32": np.int32, "U32": np.uint32, "I16": np.int16, "U16": np.uint16}


@dataclass(frozen=True)
class StaticFiles:
    """The files of a static model that this package runs itself.

    Attributes:
        weights: the safetensors file with the table.
        tokenizer: in the format of ``tokenizer.json``.
        config: the content of model2vec's ``config.json``; None for wordllama, which has none.
    """

    weights: Path
    tokenizer: Path
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


def static_files(folder: Path) -> StaticFiles | None:
    """Return the files of the static model in ``folder``; None if it is another kind of model.

    Raises:
        CheckpointError: a ``config.json`` that is malformed.
    """
    if (folder / _CONFIG).is_file():
        config = read_object(folder / _CONFIG)
        weights, tokenizer = (folder / name for name in _MODEL2VEC)
        return (
            StaticFiles(weights, tokenizer, config)
            if config.get("model_type") == "model2vec"
            else None
        )
    for names in _WORDLLAMA:
        weights, tokenizer = (folder / name for name in names)
        if weights.is_file() and tokenizer.is_file():
            return StaticFiles(weights, tokenizer, None)
    return None


def check_static_folder(folder: Path) -> None:
    """Check configuration and header of a static model; its tokenizer: gate/tokenizer.py.

    Raises:
        ModelFolderError: names file and key or tensor.
        CheckpointError: a JSON or weight file that is missing or malformed, or outside.
    """
    files = static_files(folder)
    if files is None:
        raise ModelFolderError(f"{folder}: not a static model; expected the files of model2vec")
    if files.config is not None:
        file = folder / _CONFIG
        check_configuration(files.config, file)
        if (length := files.config.get("max_length")) is not None:
            check_whole(length, f"{file}: max_length", _LENGTH)
        check_settings(folder)
    for file in (files.weights, files.tokenizer):
        if not file.exists():
            raise ModelFolderError(
                f"{folder}: no {file.name}; expected {' and '.join(_MODEL2VEC)}, as model2vec "
                "writes them"
            )
        check_inside(file, folder)
    token_table(read_safetensors(files.weights), files.weights, types=tuple(_NUMBERS))


def token_table(
    tensors: Mapping[str, TensorEntry], file: Path, *, types: tuple[str, ...] = tuple(FLOATS)
) -> TokenTable:
    """Return where the table among ``tensors`` is.

    Args:
        tensors: the header of a weight file.
        file: the file, named in errors.
        types: what rows and factors may be stored as.

    Raises:
        ModelFolderError: tensors that are missing, unexpected, or of another shape or type.
    """
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


def read_table(file: Path) -> Vectors:
    """Return the row of each token, (V, D), with its mapping and weight applied.

    Raises:
        ModelFolderError: a mapping to a row that is not there, or a number that is not finite.
    """
    table = token_table(read_safetensors(file), file, types=tuple(_NUMBERS))
    rows = _read(table.embeddings).astype(np.float32, copy=False)
    if table.mapping is not None:
        mapping = _read(table.mapping)
        if not 0 <= mapping.min() <= mapping.max() < len(rows):
            raise ModelFolderError(
                f"{file}: {_MAPPING} goes from {mapping.min()} to {mapping.max()}, but there are "
                f"{len(rows)} rows; copy the file again"
            )
        rows = rows[mapping]
    if table.weights is not None:
        rows = rows * _read(table.weights).astype(np.float32, copy=False)[:, None]
    return rows


def _read(entry: TensorEntry) -> NDArray[Any]:
    kind = (_NUMBERS | _WHOLE)[entry.dtype]
    values = np.fromfile(entry.file, dtype=kind, count=entry.count, offset=entry.start)
    if not np.isfinite(values).all():
        raise ModelFolderError(str(not_finite_error(entry)))
    return values.reshape(entry.shape)
