"""sentence-transformers models, on this package's fast path where possible.

sentence-transformers loads every model and tokenises its texts. A model that consists of a
transformer that can be packed, a known pooling and at most a normalisation runs on this
package's fast path; any other model, such as a static one, runs in sentence-transformers.
Tests check that the vectors agree. They have length 1 only if the model's own files normalise
them, or on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qwen3nb.models.encoders.base import ADDED, Encoder
from qwen3nb.models.encoders.blanks import beside_blanks
from qwen3nb.models.encoders.similarity import unit_and_similarity
from qwen3nb.models.gate.declared import POOLING_NAMES
from qwen3nb.models.gate.tokenizer import check_loaded, check_tokenizer
from qwen3nb.models.gate.weights import check_finite, check_length, own_weights, refusing
from qwen3nb.models.inference.flash_varlen import varlen_kernel
from qwen3nb.models.inference.packing import packing_of
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.runtime import (
    check_room,
    library_versions,
    pick_device,
    special_tokens,
)
from qwen3nb.models.types import SpecError, Vectors

_POOLINGS = {theirs: ours for ours, theirs in POOLING_NAMES.items()}
_PLAIN_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_FEATURES = {"input_ids", "attention_mask", "token_type_ids", "modality"}


class SentenceTransformerEncoder(Encoder):
    """A sentence-transformers model.

    Attributes:
        runner: runs the model; None if sentence-transformers runs it.
    """

    def __init__(
        self,
        source: Source,
        *,
        pooling: str | None,
        max_length: int | None,
        device: str,
        dtype: str,
        batch_size: int,
        prefix: str = "",
        append_eos: bool = False,
        normalize: bool | None = None,
        **options: Any,
    ) -> None:
        _check_options(source, pooling=pooling, others=prefix or append_eos)
        self._model = _load(source, device=pick_device(device), dtype=torch_dtype(dtype))
        check_length(self._model, max_length, f"{source.label}: max_length")
        _check_prompts(self._model, source)
        self._static = _static_tokenizer(self._model)
        self._special = special_tokens(self._model.tokenizer)
        self.max_length = _limited(self._model, self._static, max_length)
        words = type(self._model[0]).__name__ == "WordEmbeddings"
        if not self._static:
            check_room(self._model.tokenizer, self.max_length, f"{source.label}: max_length")
        self._tokenless = self._has_no_token if self._static or words else None
        self._parameters = sum(parameter.numel() for parameter in self._model.parameters())
        self.normalize = _normalizes(self._model, source, given=normalize)
        self.runner = _runner(self._model, batch_size=batch_size, normalize=self.normalize)
        super().__init__(
            source,
            settings={
                "max_length": self.max_length,
                **unit_and_similarity(source, given=normalize, unit=self.normalize),
                "dtype": dtype,
                "versions": {**library_versions(), "sentence-transformers": _version()},
                **({"attention": "varlen"} if self.way == "varlen" else {}),
            },
            batch_size=batch_size,
            **options,
        )

    @property
    def way(self) -> str:
        """How the model runs: ``packed``, ``varlen`` or ``sentence-transformers``."""
        return self.runner.way if self.runner is not None else "sentence-transformers"

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return str(self._model.device)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return int(self._model.get_embedding_dimension())

    @property
    def parameters(self) -> int:
        """Number of parameters, embeddings included."""
        return self._parameters

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if self.runner is not None:
            self.runner.batch_size = self.batch_size
            return self.runner.encode(texts, self._tokenise, done=self._tick)
        self.stats.cut += self._truncated(texts)
        return beside_blanks(self._padded, texts)

    def _padded(self, texts: Sequence[str]) -> Vectors:
        """Return what sentence-transformers computes."""
        # prompt="": the prompt is already part of the text; a default would be added again.
        vectors: Vectors = self._model.encode(
            list(texts),
            prompt="",
            batch_size=len(texts) if self._static else self.batch_size,  # nothing is padded
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self.normalize,
        )
        return vectors.astype(np.float32, copy=False)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of sentence-transformers, without its padding."""
        features = self._model.preprocess(list(texts), prompt="")
        ids, mask = features["input_ids"].cpu(), features["attention_mask"].cpu()
        rows = [row[real].tolist() for row, real in zip(ids, mask.bool(), strict=True)]
        full = [text for text, row in zip(texts, rows, strict=True) if len(row) == self.max_length]
        self.stats.cut += self._truncated(full)
        return rows

    def _truncated(self, texts: Sequence[str]) -> int:
        """Return how many texts have more tokens than the model reads.

        A text has at most a token per byte, and a few that the tokenizer adds.
        """
        from transformers import PreTrainedTokenizerBase

        tokenizer, limit = self._model.tokenizer, self.max_length
        if limit is None:
            return 0
        long = [text for text in texts if len(text.encode("utf-8")) + ADDED > limit]
        if self._static:
            encodings = self._static.encode_batch_fast(long, add_special_tokens=False)
            return sum(bool(each.overflowing) for each in encodings)
        if not long or not isinstance(tokenizer, PreTrainedTokenizerBase):
            return 0
        rows = tokenizer(long, truncation=False, padding=False, verbose=False)["input_ids"]
        return sum(len(row) > limit for row in rows)

    def _has_no_token(self, text: str) -> bool:
        if self._static is None:
            return not self._model.tokenizer.tokenize(text)
        return not self._static.encode(text, add_special_tokens=False).ids


def _static_tokenizer(model: Any) -> Any:
    """Return the tokenizer of a static table; None if something else reads the texts."""
    return model[0].tokenizer if type(model[0]).__name__ == "StaticEmbedding" else None


def _limited(model: Any, static: Any, max_length: int | None) -> int | None:
    """Set the maximum length, if one is given, and return that of the model."""
    if static is None:
        if max_length is not None:
            model.max_seq_length = max_length
        limit: int | None = model.max_seq_length
        return limit
    if max_length is not None:
        static.enable_truncation(max_length)
    return static.truncation["max_length"] if static.truncation else None


def _check_options(source: Source, *, pooling: str | None, others: object) -> None:
    """Refuse options that do not apply to sentence-transformers models."""
    if others:
        raise SpecError(
            f"{source.label} runs as its sentence-transformers files define; prefix and "
            "append_eos are for Qwen3 encoders and language models"
        )
    if pooling is not None:
        raise SpecError(
            f"{source.label} defines its own pooling (modules.json); "
            f"leave pooling at 'auto', not {pooling!r}"
        )


def _check_prompts(model: Any, source: Source) -> None:
    """Refuse prompts of a model that pools without their tokens, which would be pooled here."""
    apart = any(getattr(module, "include_prompt", True) is False for module in model)
    if apart and any(source.prompts.values()):
        raise SpecError(
            f"{source.label} leaves the tokens of a prompt out of its pooling (include_prompt), "
            "which is not supported; prompts={} runs it without prompts"
        )


def _load(source: Source, *, device: str, dtype: torch.dtype) -> Any:
    from sentence_transformers import SentenceTransformer

    assert source.folder is not None  # noqa: S101 - the kind has one
    modules = source.folder.modules
    for module in modules:
        if module.name in ("StaticEmbedding", "Transformer"):
            check_tokenizer(module.folder)
    with refusing(source.folder, "sentence-transformers cannot load it"):
        model = SentenceTransformer(
            str(source.folder),
            device=device,
            model_kwargs={"dtype": dtype, "use_safetensors": True},
        ).eval()
    if (static := _static_tokenizer(model)) is not None:
        check_loaded(static, rows=model[0].num_embeddings, folder=source.folder)
        model.to(dtype)  # which sentence-transformers sets for transformers only
    elif modules[0].name == "Transformer":
        rows = model[0].model.config.get_text_config().vocab_size
        check_loaded(model.tokenizer, rows=rows, folder=modules[0].folder)
    own_weights(model)
    check_finite(model, source.folder)
    with refusing(source.folder, "its modules do not fit each other"):
        width = model.encode(["a text"], prompt="").shape[1]
        if width != (stated := model.get_embedding_dimension()):
            raise ValueError(f"vectors of {width} numbers, its configuration says {stated}")
    return model


def _version() -> str:
    import sentence_transformers

    return str(sentence_transformers.__version__).split(".")[0]


def _normalizes(model: Any, source: Source, *, given: bool | None) -> bool:
    """Return whether vectors get length 1: ``given``, else what the model's files say.

    Raises:
        SpecError: ``given`` is False, but the files normalise.
    """
    own = type(list(model)[-1]).__name__ == "Normalize"
    if own and given is False:
        raise SpecError(
            f"{source.label} normalises its vectors (modules.json); normalize=False is for "
            "Qwen3 encoders and language models"
        )
    return own or bool(given)


def _runner(model: Any, *, batch_size: int, normalize: bool) -> Runner | None:
    """Return the runner for ``model``, or None if sentence-transformers must run it."""
    pooling = known_pooling(model)
    if pooling is None or packing_of(model[0].model) is None:
        return None
    inner = model[0].model
    if inner.device.type != "cpu" and varlen_kernel(inner) is None:
        return None  # padded either way
    return Runner(inner, pooling=pooling, normalize=normalize, batch_size=batch_size)


def known_pooling(model: Any) -> str | None:
    """Return this package's name of the pooling, or None for more than a pooled transformer.

    Recognised are only the classes of sentence-transformers itself, in this order:
    Transformer with plain text as its only input, Pooling by one of four rules, and
    optionally Normalize.
    """
    modules = list(model)
    kinds = [type(module) for module in modules]
    ours = all(kind.__module__.startswith("sentence_transformers.") for kind in kinds)
    names = [kind.__name__ for kind in kinds]
    if not ours or names not in (
        ["Transformer", "Pooling"],
        ["Transformer", "Pooling", "Normalize"],
    ):
        return None
    first, pooling = modules[0], modules[1]
    plain = (
        getattr(first, "modality_config", None) == _PLAIN_TEXT
        and getattr(first, "module_output_name", None) == "token_embeddings"
        and getattr(first, "query_expansion", None) is None
        and getattr(model, "truncate_dim", None) is None
        and getattr(pooling, "include_prompt", False)
        and (len(modules) == 2 or modules[2].module_output_name == "sentence_embedding")
        and set(model.preprocess(["a text"], prompt="")) <= _FEATURES
    )
    mode = getattr(pooling, "pooling_mode", None)
    return _POOLINGS.get(mode) if plain and isinstance(mode, str) else None
