"""Static models: a text's vector is the mean of its tokens' rows in a table, as in wordllama.

Folders that begin with ``StaticEmbedding``, such as those of model2vec, run in
sentence-transformers.
"""

import itertools
import logging
from collections.abc import Sequence

import numpy as np
import torch
from safetensors.numpy import load_file
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

    def __init__(self, source: Source, given: ModelOptions) -> None:
        if given.pooling not in (None, "mean") or given.prefix or given.append_eos:
            raise SpecError(
                f"{source.label} is a static model, the mean of its tokens' vectors; pooling, "
                "prefix and append_eos are for transformers"
            )
        if given.dtype == "int8":
            raise SpecError(f"{source.label} is a table of vectors; int8 is for linear layers")
        self.device, folder = pick_device(given.device), source.own_folder
        weights, words = (folder.path / name for name in static_files(folder))
        rows = load_file(weights).get(_TABLE)
        if rows is None or rows.ndim != 2 or not np.isfinite(rows).all():
            raise CheckpointError(f"{weights}: expected {_TABLE}, finite, with a row per token")
        rows = rows.astype(np.float32, copy=False)
        self._tokenizer = rust_tokenizer(words)
        check_loaded(self._tokenizer, rows=len(rows), folder=folder)
        if (count := self._tokenizer.get_vocab_size()) != len(rows):
            raise CheckpointError(
                f"{words}: has {count} tokens, but the table has {len(rows)} rows; the tokenizer "
                "belongs to another model"
            )
        self._tokenizer.no_padding()
        self._special = special_tokens(self._tokenizer)
        self._table = torch.from_numpy(rows).to(self.device, torch_dtype(given.dtype))
        if (rows == rows.flat[0]).all():
            _log.warning("%s: the table's values are all equal; copy it again", weights)
        self.parameters, self.width = self._table.numel(), int(self._table.shape[1])
        self.max_length: int | None = given.max_length
        if self.max_length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(self.max_length)
        self.normalize = bool(given.normalize)
        self._tokenless = self._has_no_token
        super().__init__(
            source,
            given,
            settings={
                "max_length": self.max_length,
                **self._comparison(source, given),
                "versions": {"torch": torch.__version__.split(".")[0]},
            },
        )

    def _has_no_token(self, text: str) -> bool:
        return not self._tokenizer.encode(text, add_special_tokens=False).ids

    def _truncated(self, texts: Sequence[str]) -> int:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return sum(bool(each.overflowing) for each in encodings)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        self.stats.cut += sum(bool(each.overflowing) for each in encodings)
        rows = [each.ids for each in encodings]
        ends = np.cumsum([0, *map(len, rows)])
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64, count=ends[-1])
        ids, starts = (torch.from_numpy(each).to(self.device) for each in (flat, ends[:-1]))
        with torch.inference_mode():
            vectors = F.embedding_bag(ids, self._table, starts, mode="mean").float()
            vectors = F.normalize(vectors, dim=-1, eps=1e-32) if self.normalize else vectors
        array: Vectors = vectors.cpu().numpy()
        return array
