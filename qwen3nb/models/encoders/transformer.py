"""Encoders that run a transformer and pool its states.

Supported models: bidirectional Qwen3 directories; encoder-decoder checkpoints (the encoder
is extracted in memory); causal language models, causal or made bidirectional, with or
without a LoRA adapter; and the encoders of other encoder-decoders such as T5Gemma 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from qwen3nb.checkpoints.checkpoint import open_checkpoint
from qwen3nb.checkpoints.tied_weights import embedding_name
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weight_names import encoder_name
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.similarity import unit_and_similarity
from qwen3nb.models.gate.expected_weights import check_length
from qwen3nb.models.gate.finite_weights import check_finite, own_weights
from qwen3nb.models.gate.refusal import refusing
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.modeling.configuration import encoder_config
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel, causal_leak
from qwen3nb.models.modeling.runtime import (
    check_room,
    library_versions,
    load_tokenizer,
    pick_device,
    special_tokens,
    token_rows,
)
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError, Vectors
from qwen3nb.utils.atomic_files import read_json

__all__ = [
    "TransformerEncoder",
]

MAX_LENGTH = 512


class TransformerEncoder(Encoder):
    """A Qwen3 encoder, or any causal language model, with pooling.

    Attributes:
        runner: runs the model.
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
        bidirectional: bool = False,
        **options: Any,
    ) -> None:
        assert source.folder is not None  # noqa: S101 - kinds without a folder have other classes
        self._device = pick_device(device)
        stored = _stored_settings(source)
        self.pooling = _pooling(source, pooling or stored.get("pooling") or source.pooling)
        self.normalize = bool(stored.get("normalize", True)) if normalize is None else normalize
        self.max_length = max_length or stored.get("max_length") or MAX_LENGTH
        model = _load_model(source, torch_dtype(dtype), bidirectional=bidirectional)
        check_length(model, max_length, f"{source.label}: max_length")
        model = model.to(self._device).eval()
        origin = (source.base or source).folder or source.folder
        self._tokenizer = load_tokenizer(origin, model.config)
        self._special = special_tokens(self._tokenizer)
        if prefix or append_eos:
            end = self._tokenizer.eos_token if append_eos else None
            surround(self._tokenizer.backend_tokenizer, prefix=prefix, end=end)
        check_room(self._tokenizer, self.max_length, f"{source.label}: max_length")
        self._parameters = sum(parameter.numel() for parameter in model.parameters())
        attention = model.config._attn_implementation
        self.runner = Runner(
            model, pooling=self.pooling, normalize=self.normalize, batch_size=batch_size
        )
        super().__init__(
            source,
            settings={
                "pooling": self.pooling,
                **unit_and_similarity(source, given=normalize, unit=self.normalize),
                "max_length": self.max_length,
                "prefix": prefix,
                "append_eos": append_eos,
                "dtype": dtype,
                "causal": source.kind in ("decoder", "adapter") and not bidirectional,
                # Packing changes nothing beyond rounding; another kernel in 16 bits does.
                "attention": "varlen" if self.runner.way == "varlen" else attention,
                "versions": library_versions(),
            },
            batch_size=batch_size,
            **options,
        )

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return self._device

    @property
    def width(self) -> int:
        """The length of a vector."""
        return int(self.runner.model.config.get_text_config().hidden_size)

    @property
    def parameters(self) -> int:
        """Number of parameters, embeddings included."""
        return self._parameters

    def _embed(self, texts: Sequence[str]) -> Vectors:
        self.runner.batch_size = self.batch_size
        return self.runner.encode(texts, self._tokenise, done=self._tick)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        rows, cut = token_rows(self._tokenizer, texts, max_length=self.max_length)
        self.stats.cut += cut
        return rows


def _pooling(source: Source, known: str | None) -> str:
    """Return the ``known`` pooling; refuse a language model without one."""
    if known is None:
        raise SpecError(
            f"{source.folder}: a pre-trained model, which does not define a pooling; "
            f"choose one of: {', '.join(POOLINGS)} (--pooling)"
        )
    return known


def _stored_settings(source: Source) -> dict[str, Any]:
    """Return the pooling, normalisation and maximum length stored with the model."""
    if source.kind == "seq2seq":
        return {"pooling": "mean", "normalize": True, "max_length": MAX_LENGTH}
    if source.kind == "adapter":
        return {"pooling": "last", "normalize": True, "max_length": MAX_LENGTH}
    assert source.folder is not None  # noqa: S101
    config = read_json(source.folder / "config.json")
    settings = {
        "pooling": config.get("pooling_mode"),
        "normalize": config.get("normalize", True),
    }
    limits = source.folder / "sentence_bert_config.json"
    if limits.is_file():
        settings["max_length"] = read_json(limits).get("max_seq_length")
    return settings


def _load_model(source: Source, dtype: torch.dtype, *, bidirectional: bool = False) -> Any:
    assert source.folder is not None  # noqa: S101
    if source.kind == "adapter":
        from qwen3nb.models.inference.load_causal import load_causal

        model = load_causal(source, dtype).model
        if bidirectional:
            model.config.is_causal = False
    elif source.kind == "t5":
        return _stock(source.folder, dtype).get_encoder()
    elif source.kind == "decoder":
        model = _stock(source.folder, dtype, bidirectional=bidirectional)
    elif source.kind == "encoder":
        model = _stock(source.folder, dtype, kind=Qwen3EncoderModel)
    else:
        model = _from_seq2seq(source.folder).to(dtype)
    if bidirectional or source.kind in ("encoder", "seq2seq"):
        _check_bidirectional(model, source.folder)
    return model


def _stock(
    folder: Path, dtype: torch.dtype, *, kind: Any = None, bidirectional: bool = False
) -> Any:
    """Load a model, whose folder has been checked, in transformers' own class.

    Raises:
        SpecError: it cannot be loaded, or a weight is not finite.
    """
    from transformers import AutoConfig, AutoModel

    # Without safetensors: a state dict that `open_checkpoint` has checked for tensors only.
    safe = open_checkpoint(folder).files[0].suffix == ".safetensors"
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": safe}
    if bidirectional:
        options["config"] = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        options["config"].is_causal = False
    with refusing(folder, "cannot be loaded"):
        model = (kind or AutoModel).from_pretrained(folder, **options)
    own_weights(model)
    check_finite(model, folder)
    return model


def _check_bidirectional(model: Any, folder: Path) -> None:
    if not causal_leak(model.eval(), vocab_size=model.config.vocab_size) > 0:
        raise SpecError(
            f"{folder}: this transformers release runs the model causally although it should be "
            "bidirectional, so its vectors would be wrong. Install transformers 5.2 or newer; "
            "not every architecture can be made bidirectional"
        )


def _from_seq2seq(folder: Path) -> Qwen3EncoderModel:
    """Extract the encoder of an encoder-decoder checkpoint in memory."""
    checkpoint = open_checkpoint(folder)
    model = Qwen3EncoderModel(encoder_config(checkpoint.config))
    names = {new: name for name in checkpoint.tensors if (new := encoder_name(name)) is not None}
    if embedding := embedding_name(checkpoint):
        names["embed_tokens.weight"] = embedding
    try:
        model.load_state_dict({new: checkpoint.read(name) for new, name in names.items()})
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: the weights do not match config.json\n{error}") from None
    return model
