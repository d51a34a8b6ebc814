"""Static models: a text's vector is the mean of its tokens' rows in a table.

Folders of model2vec follow that library: a text is cut to ``max_length`` times the median
length of a token in characters, then to ``max_length`` tokens (512 if the folder says nothing),
and unknown tokens are left out of the mean. wordllama cuts nothing and leaves nothing out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.nn import functional as F

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.encoders.base import Encoder, unit_and_similarity
from qwen3nb.models.gate.declared import static_files
from qwen3nb.models.gate.tokenizer import check_loaded, rust_tokenizer
from qwen3nb.models.kinds.source import Settings, Source
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.runtime import pick_device, special_tokens
from qwen3nb.models.types import ModelFolderError, SpecError, Vectors, refusing

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_MAX_LENGTH = 512  # of model2vec
_NAMES = ("embeddings", "embedding.weight")  # of the table


class StaticEncoder(Encoder):
    """A table with a row per token.

    Attributes:
        max_length: tokens after which a text is truncated, or None.
        parameters: number of values in the table.
    """

    def __init__(self, source: Source, given: Settings) -> None:
        if given.pooling not in (None, "mean") or given.prefix or given.append_eos:
            raise SpecError(
                f"{source.label} is a static model, the mean of its tokens' vectors; pooling, "
                "prefix and append_eos are for transformers"
            )
        self.device = pick_device(given.device)
        folder = source.own_folder
        rows, self._tokenizer = _load(folder)
        self._special = special_tokens(self._tokenizer)
        self._table = torch.from_numpy(rows).to(self.device, torch_dtype(given.dtype))
        self.parameters, self.width = self._table.numel(), int(self._table.shape[1])
        self.max_length: int | None = given.max_length
        # Characters after which a text is cut before it has tokens; the token that is left out.
        self._characters = self._unknown = None
        if folder.config:  # of model2vec
            self.max_length = given.max_length or folder.config.get("max_length", _MAX_LENGTH)
            self._unknown = _unknown(self._tokenizer)
            if self.max_length is not None:
                sizes = [len(each) for each in self._tokenizer.get_vocab()]
                self._characters = self.max_length * int(np.median(sizes))
        if self.max_length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(self.max_length)
        stored = bool(folder.config.get("normalize", False))
        self.normalize = stored if given.normalize is None else given.normalize
        self._tokenless = self._has_no_token
        super().__init__(
            source,
            given,
            settings={
                "max_length": self.max_length,
                **unit_and_similarity(source, given=given.normalize, unit=self.normalize),
                "dtype": given.dtype,
                "versions": {"torch": torch.__version__.split(".")[0]},
            },
        )

    def _embed(self, texts: Sequence[str]) -> Vectors:
        encodings = self._encodings(texts)
        for text, each in zip(texts, encodings, strict=True):
            cut = self._characters is not None and len(text) > self._characters
            self.stats.cut += cut or bool(each.overflowing)
        rows = [self._known(each.ids) for each in encodings]
        ends = np.cumsum([0, *map(len, rows)])
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64, count=ends[-1])
        ids, starts = (torch.from_numpy(each).to(self.device) for each in (flat, ends[:-1]))
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


def _load(folder: ModelFolder) -> tuple[Vectors, Tokenizer]:
    """Return the table and the tokenizer in ``folder``, which fit each other."""
    files = static_files(folder)
    assert files is not None  # noqa: S101 - the kind of its source
    rows, file = read_table(folder.path / files[0]), folder.path / files[1]
    tokenizer = rust_tokenizer(file)
    check_loaded(tokenizer, rows=len(rows), folder=folder)
    if (count := tokenizer.get_vocab_size()) != len(rows):
        raise CheckpointError(
            f"{file}: has {count} tokens, but the table has {len(rows)} "
            "rows; the tokenizer belongs to another model"
        )
    tokenizer.no_padding()
    return rows, tokenizer


def read_table(file: Path) -> Vectors:
    """Return the row of each token, (V, D), with its mapping and weight applied.

    Raises:
        ModelFolderError: tensors that are missing, unexpected, of another shape or type, or not
            finite, or a mapping to a row that is not there.
    """
    with refusing(file, "not a table with a row per token"):
        held = load_file(file)
    names = [name for name in _NAMES if name in held]
    if len(names) != 1 or held.keys() - {*names, "mapping", "weights"}:
        raise ModelFolderError(
            f"{file}: has {', '.join(sorted(held))}; expected the rows of tokens, called "
            f"{' or '.join(_NAMES)}, perhaps with mapping and weights"
        )
    for name, values in held.items():
        if not np.isfinite(values).all():
            raise ModelFolderError(f"{file}: {name} contains NaN or infinity; copy the file again")
    rows = held[names[0]].astype(np.float32, copy=False)
    with refusing(file, "not a table with a row per token"):
        if "mapping" in held:
            if held["mapping"].min() < 0:
                raise IndexError("mapping goes below 0")
            rows = rows[held["mapping"]]
        if "weights" in held:
            rows = rows * held["weights"].astype(np.float32, copy=False)[:, None]
        if rows.ndim != 2:
            raise ValueError(f"shape {list(rows.shape)}")
    return rows


def _unknown(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for what the vocabulary lacks, if there is one."""
    if hasattr(tokenizer.model, "unk_token"):
        name = tokenizer.model.unk_token
        return None if name is None else tokenizer.token_to_id(name)
    number = json.loads(tokenizer.to_str())["model"].get("unk_id")  # Unigram
    return None if number is None else int(number)
