"""Static models: a text's vector is the mean of its tokens' rows in a table, as in wordllama.

Folders that begin with ``StaticEmbedding``, such as those of model2vec, run in
sentence-transformers.
"""

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.gate.declared import static_files
from qwen3nb.models.gate.tokenizer import check_loaded, rust_tokenizer
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling.runtime import pick_device, special_tokens
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import CheckpointError, SpecError, Vectors, torch_dtype

_TABLE = "embedding.weight"
_log = logging.getLogger(__name__)


class StaticEncoder(Encoder):
    """A table with a row per token.

    Attributes:
        max_length: tokens after which a text is truncated, or None.
        parameters: number of values in the table.
    """

    def __init__(self, source: Source, options: ModelOptions) -> None:
        _check_options(source, options)
        self.device = pick_device(options.device)
        folder = source.own_folder
        weights, tokens = (folder.path / name for name in static_files(folder))
        rows = _read_table(weights)
        self._tokenizer = rust_tokenizer(tokens)
        check_loaded(self._tokenizer, rows=len(rows), folder=folder)
        count = self._tokenizer.get_vocab_size()
        if count != len(rows):
            raise CheckpointError(
                f"{tokens}: has {count} tokens, but the table has {len(rows)} rows; the tokenizer "
                "belongs to another model"
            )
        self._tokenizer.no_padding()
        self._special = special_tokens(self._tokenizer)
        self._table = torch.from_numpy(rows).to(self.device, torch_dtype(options.dtype))
        self.parameters = self._table.numel()
        self.width = int(self._table.shape[1])
        self.max_length: int | None = options.max_length
        if self.max_length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(self.max_length)
        self.normalize = bool(options.normalize)
        self._tokenless = self._has_no_token
        settings = {
            "max_length": self.max_length,
            **self._comparison(source, options),
            "versions": {"torch": torch.__version__.split(".")[0]},
        }
        super().__init__(source, options, settings=settings)

    def _has_no_token(self, text: str) -> bool:
        return not self._tokenizer.encode(text, add_special_tokens=False).ids

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, however long it is."""
        return whole_lengths(self._tokenizer, texts)

    def _truncated(self, texts: Sequence[str]) -> int:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return sum(bool(encoding.overflowing) for encoding in encodings)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        self.stats.cut += sum(bool(encoding.overflowing) for encoding in encodings)
        rows = [encoding.ids for encoding in encodings]
        # All tokens in one row, and where each text begins in it.
        tokens = torch.from_numpy(np.fromiter(itertools.chain(*rows), dtype=np.int64))
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        starts = torch.from_numpy(lengths.cumsum() - lengths)
        with torch.inference_mode():
            # The mean of the rows of each text's tokens; zero for a text without any.
            vectors = F.embedding_bag(
                tokens.to(self.device), self._table, starts.to(self.device), mode="mean"
            ).float()
            if self.normalize:
                vectors = F.normalize(vectors, dim=-1, eps=1e-32)
        array: Vectors = vectors.cpu().numpy()
        return array


def whole_lengths(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return how many tokens each text has, with those that the tokenizer cuts off."""
    lengths = []
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        cut_off = sum(len(part.ids) for part in encoding.overflowing)
        lengths.append(len(encoding.ids) + cut_off)
    return lengths


def _check_options(source: Source, options: ModelOptions) -> None:
    """Refuse options that a table of vectors lacks."""
    if options.pooling not in (None, "mean") or options.prefix or options.append_eos:
        raise SpecError(
            f"{source.label} is a static model, the mean of its tokens' vectors; pooling, "
            "prefix and append_eos are for transformers"
        )
    if options.dtype == "int8":
        raise SpecError(f"{source.label} is a table of vectors; int8 is for linear layers")


def _read_table(file: Path) -> Vectors:
    """Return the vectors of the tokens (T, D) in a file of weights."""
    table = load_file(file).get(_TABLE)
    if table is None or table.ndim != 2 or not np.isfinite(table).all():
        raise CheckpointError(f"{file}: expected {_TABLE}, finite, with a row per token")
    rows: Vectors = table.astype(np.float32, copy=False)
    if (rows == rows.flat[0]).all():
        _log.warning("%s: the table's values are all equal; copy it again", file)
    return rows
