"""The encoder of an encoder-decoder in training, on the training's own weights."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import torch
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from qwen3nb.checkpoints.tied_weights import EMBEDDINGS
from qwen3nb.checkpoints.weight_names import encoder_name
from qwen3nb.extraction.export import ExportOptions
from qwen3nb.extraction.extract import MODEL_TYPES, is_seq2seq
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.modeling.configuration import encoder_config
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel, causal_leak
from qwen3nb.models.modeling.runtime import special_tokens, token_rows
from qwen3nb.models.sources.prompt_names import named_prompts
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError, Vectors

__all__ = ["TrainedEncoder"]


class TrainedEncoder(Encoder):
    """The encoder of an encoder-decoder, as `qwen3nb.extract` would export it.

    It has the modules of the export and the weights of the model in memory, which are not copied
    (but for linear layers that oneDNN reorders on some processors). It is for one evaluation: no
    vector is kept, and after the next step its vectors are those of no checkpoint.
    """

    def __init__(
        self, model: Any, tokenizer: Any, options: ExportOptions, *, batch_size: int
    ) -> None:
        """Take the encoder of ``model``.

        Args:
            model: an encoder-decoder of transformers; it is not changed.
            tokenizer: its tokenizer, which adds the prefix and the end token.
            options: how an export would be used; the dtype is that of the weights.
            batch_size: texts per batch if they must be padded.

        Raises:
            SpecError: no encoder-decoder of Qwen3, weights that are not those of its
                configuration, or a transformers release that runs the encoder causally.
        """
        encoder = _on_same_weights(model, options)
        if causal_leak(encoder, vocab_size=encoder.config.vocab_size) == 0:
            raise SpecError(
                f"{type(model).__name__}: this transformers release runs the encoder causally; "
                "install transformers 5.2 or newer"
            )
        self._tokenizer, self.max_length = tokenizer, options.max_length
        self._special = special_tokens(tokenizer)
        self._runner = Runner(
            encoder, pooling=options.pooling, normalize=options.normalize, batch_size=batch_size
        )
        super().__init__(
            Source(
                spec=type(model).__qualname__,
                kind="object",
                label="training",
                prompts=named_prompts(options.prompts),
            ),
            settings={"fingerprint": uuid.uuid4().hex, "normalize": options.normalize},
            batch_size=batch_size,
            cache=False,
            show_progress=False,
        )

    @property
    def device(self) -> str:
        """The device of the weights."""
        return str(self._runner.model.device)

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return int(self._runner.model.config.hidden_size)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        self._runner.batch_size = self.batch_size
        rows, cut = token_rows(self._tokenizer, texts, max_length=self.max_length)
        self.stats.cut += cut
        return self._runner.vectors(rows, done=self._tick)


def _on_same_weights(model: Any, options: ExportOptions) -> Qwen3EncoderModel:
    """Return the encoder of ``model``, in evaluation mode, on the same weights."""
    name = type(model).__name__
    fields = model.config.to_dict() if hasattr(model, "config") else {}
    if not is_seq2seq(fields):
        raise SpecError(
            f"{name}: expected a SentenceTransformer, or an encoder-decoder with one of the model "
            f"types {', '.join(MODEL_TYPES)}; got {fields.get('model_type')!r}"
        )
    config = encoder_config(fields, pooling=options.pooling, normalize=options.normalize)
    with torch.device("meta"):
        encoder = Qwen3EncoderModel(config)
    weights = _encoder_weights(model)
    whole = {key: value.shape for key, value in encoder.state_dict().items()}
    if odd := [key for key in whole if key not in weights or weights[key].shape != whole[key]]:
        raise SpecError(
            f"{name}: {odd[0]} is not as its configuration says ({len(odd)} such weights of the "
            "encoder). A model with adapters (LoRA) cannot be scored during the training; score "
            "what it becomes: qwen3nb eval --checkpoint FOLDER"
        )
    encoder.load_state_dict(weights, assign=True)
    # Frequencies are no weights: they are computed, as in a model that is loaded.
    encoder.rotary_emb = Qwen3RotaryEmbedding(config=config).to(encoder.device)
    return encoder.eval()


def _encoder_weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of the encoder under its own names."""
    tensors = model.state_dict()
    weights = {new: tensors[name] for name in tensors if (new := encoder_name(name)) is not None}
    if embedding := next((name for name in EMBEDDINGS if name in tensors), None):
        weights["embed_tokens.weight"] = tensors[embedding]
    return weights
