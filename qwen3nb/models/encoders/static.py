"""Static models: a text's vector is the mean of its tokens' rows in a table.

Folders of model2vec follow that library: a text is cut to ``max_length`` times the median
length of a token in characters, then to ``max_length`` tokens (512 if the folder says nothing),
and unknown tokens are left out of the mean. wordllama cuts nothing and leaves nothing out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional as F

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.similarity import unit_and_similarity
from qwen3nb.models.gate.static_tables import read_table, static_files
from qwen3nb.models.gate.tokenizer import check_loaded, rust_tokenizer
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.runtime import pick_device, special_tokens
from qwen3nb.models.types import SpecError, Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_MAX_LENGTH = 512  # of model2vec


class StaticEncoder(Encoder):
    """A table with a row per token.

    Attributes:
        max_length: tokens after which a text is truncated, or None.
    """

    def __init__(
        self,
        source: Source,
        *,
        pooling: str | None,
        max_length: int | None,
        device: str,
        dtype: str,
        prefix: str = "",
        append_eos: bool = False,
        normalize: bool | None = None,
        **options: Any,
    ) -> None:
        if pooling not in (None, "mean") or prefix or append_eos:
            raise SpecError(
                f"{source.label} is a static model, the mean of its tokens' vectors; pooling, "
                "prefix and append_eos are for transformers"
            )
        assert source.folder is not None  # noqa: S101 - the kind has one
        self._device = pick_device(device)
        model = _load(source.folder, max_length=max_length)
        self.max_length = model.max_length
        self._characters, self._unknown = model.characters, model.unknown
        self._tokenizer = model.tokenizer
        self._special = special_tokens(self._tokenizer)
        self._table = torch.from_numpy(model.rows).to(self._device, torch_dtype(dtype))
        self.normalize = model.normalize if normalize is None else normalize
        self._tokenless = self._has_no_token
        super().__init__(
            source,
            settings={
                "max_length": self.max_length,
                **unit_and_similarity(source, given=normalize, unit=self.normalize),
                "dtype": dtype,
                "versions": {"torch": torch.__version__.split(".")[0]},
            },
            **options,
        )

    @property
    def device(self) -> str:
        """The device that holds the table."""
        return self._device

    @property
    def width(self) -> int:
        """The length of a row."""
        return int(self._table.shape[1])

    @property
    def parameters(self) -> int:
        """Number of values in the table."""
        return self._table.numel()

    def _embed(self, texts: Sequence[str]) -> Vectors:
        encodings = self._encodings(texts)
        for text, each in zip(texts, encodings, strict=True):
            cut = self._characters is not None and len(text) > self._characters
            self.stats.cut += cut or bool(each.overflowing)
        rows = [self._known(each.ids) for each in encodings]
        ends = np.cumsum([0, *map(len, rows)])
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64, count=ends[-1])
        ids, starts = (torch.from_numpy(each).to(self._device) for each in (flat, ends[:-1]))
        with torch.inference_mode():
            vectors = F.embedding_bag(ids, self._table, starts, mode="mean").float()
            vectors = F.normalize(vectors, dim=-1, eps=1e-32) if self.normalize else vectors
        array: Vectors = vectors.cpu().numpy()
        return array

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch_fast(
            [text[: self._characters] for text in texts], add_special_tokens=False
        )

    def _known(self, ids: list[int]) -> list[int]:
        return [each for each in ids if each != self._unknown] if self._unknown in ids else ids

    def _has_no_token(self, text: str) -> bool:
        return not self._known(self._encodings([text])[0].ids)


@dataclass(frozen=True)
class _Model:
    """What a static model computes with."""

    rows: Vectors
    tokenizer: Tokenizer
    normalize: bool
    max_length: int | None
    characters: int | None = None  # after which a text is cut, before it has tokens
    unknown: int | None = None  # the token that is left out


def _load(folder: ModelFolder, *, max_length: int | None) -> _Model:
    """Load the model in ``folder``, which has been checked.

    Raises:
        ModelFolderError: a table that is malformed.
        CheckpointError: a tokenizer that is malformed, or does not fit the table.
    """
    files = static_files(folder)
    assert files is not None  # noqa: S101 - the kind of its source
    rows = read_table(folder.weights_in(files.weights))
    tokenizer = rust_tokenizer(folder.path / files.tokenizer)
    check_loaded(tokenizer, rows=len(rows), folder=folder)
    if (count := tokenizer.get_vocab_size()) != len(rows):
        raise CheckpointError(
            f"{folder.path / files.tokenizer}: has {count} tokens, but the table has {len(rows)} "
            "rows; the tokenizer belongs to another model"
        )
    tokenizer.no_padding()
    characters = unknown = None
    if files.config is not None:
        max_length = max_length or files.config.get("max_length", _MAX_LENGTH)
        unknown = _unknown(tokenizer)
        if max_length is not None:
            characters = max_length * int(np.median([len(each) for each in tokenizer.get_vocab()]))
    if max_length is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(max_length)
    normalize = bool((files.config or {}).get("normalize", False))
    return _Model(rows, tokenizer, normalize, max_length, characters, unknown)


def _unknown(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for what the vocabulary lacks, if there is one."""
    if hasattr(tokenizer.model, "unk_token"):
        name = tokenizer.model.unk_token
        return None if name is None else tokenizer.token_to_id(name)
    number = json.loads(tokenizer.to_str())["model"].get("unk_id")  # Unigram
    return None if number is None else int(number)
