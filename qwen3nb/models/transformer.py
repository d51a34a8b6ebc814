"""Encoders that run a neural network: our own loader, and sentence-transformers'.

The package's own path serves bidirectional Qwen3 directories, encoder-decoder
checkpoints (their encoder is taken out in memory) and causal language models. Any
other sentence-transformers model runs in sentence-transformers itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from qwen3nb.extraction.checkpoint import CheckpointError, open_checkpoint
from qwen3nb.extraction.tied import embedding_name
from qwen3nb.files import read_json
from qwen3nb.models.batching import batches_by_length
from qwen3nb.models.config import encoder_config
from qwen3nb.models.encoder import Qwen3EncoderModel, causal_leak
from qwen3nb.models.encoders import Encoder, Vectors
from qwen3nb.models.inputs import surround
from qwen3nb.models.pooling import POOLINGS, pool
from qwen3nb.models.precision import torch_dtype
from qwen3nb.models.seq2seq import encoder_name
from qwen3nb.models.source import Source, SpecError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["SentenceTransformerEncoder", "TransformerEncoder", "pick_device"]

MAX_LENGTH = 512


def pick_device(device: str) -> str:
    """``device``, or for ``auto`` the GPU if there is one.

    Raises:
        ValueError: a device this machine does not have.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device {device!r} is not usable here ({reason}); choose auto, cpu or cuda"
        ) from None
    return device


def _versions() -> dict[str, str]:
    import transformers

    return {
        "torch": torch.__version__.split(".")[0],
        "transformers": transformers.__version__.split(".")[0],
    }


class TransformerEncoder(Encoder):
    """A Qwen3 encoder, or any causal language model, with a pooling of our own."""

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
        assert source.folder is not None  # noqa: S101 - kinds without a folder come elsewhere
        self._device = pick_device(device)
        stored = _stored_settings(source)
        pooling = pooling or stored.get("pooling")
        if pooling is None:
            raise SpecError(
                f"{source.folder}: a language model, which says nothing of pooling; "
                f"choose one of: {', '.join(POOLINGS)}"
            )
        self.pooling = pooling
        self.normalize = bool(stored.get("normalize", True)) if normalize is None else normalize
        self.max_length = max_length or stored.get("max_length") or MAX_LENGTH
        self._batch_size = batch_size
        self._model = _load_model(source, torch_dtype(dtype)).to(self._device).eval()
        origin = (source.base or source).folder or source.folder
        self._tokenizer = _load_tokenizer(origin, self._model.config)
        if prefix or append_eos:
            end = self._tokenizer.eos_token if append_eos else None
            surround(self._tokenizer.backend_tokenizer, prefix=prefix, end=end)
        super().__init__(
            source,
            settings={
                "pooling": self.pooling,
                "normalize": self.normalize,
                "max_length": self.max_length,
                "prefix": prefix,
                "append_eos": append_eos,
                "dtype": dtype,
                "causal": source.kind in ("decoder", "adapter"),
                "attention": self._model.config._attn_implementation,
                "versions": _versions(),
            },
            **options,
        )

    @property
    def device(self) -> str:
        """Where the model runs."""
        return self._device

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return int(self._model.config.hidden_size)

    @property
    def parameters(self) -> int:
        """Number of parameters, embeddings included."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def _embed(self, texts: Sequence[str]) -> Vectors:
        ids = self._tokenise(texts)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for batch in batches_by_length([len(row) for row in ids], size=self._batch_size):
            vectors[batch] = self._forward([ids[index] for index in batch])
        return vectors

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,
            return_attention_mask=False,
        )
        self.stats.cut += sum(bool(each.overflowing) for each in encoded.encodings or ())
        rows = [list(row) for row in encoded["input_ids"]]
        self.stats.empty += sum(not row for row in rows)
        return [row or [self._end] for row in rows]

    @property
    def _end(self) -> int:
        """The token that stands for a text without tokens."""
        tokenizer = self._tokenizer
        end = (
            tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.pad_token_id
        )
        return int(end or 0)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """Vectors (B, D) of B token rows, padded on the right."""
        width = max(map(len, rows))
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            mask[index, : len(row)] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        pooled = pool(states, mask, how=self.pooling, normalize=self.normalize)
        vectors: Vectors = pooled.cpu().numpy()
        return vectors


def _stored_settings(source: Source) -> dict[str, Any]:
    """Pooling, normalisation and maximum length that come with the model."""
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


def _load_model(source: Source, dtype: torch.dtype) -> Any:
    from transformers import AutoModel

    assert source.folder is not None  # noqa: S101
    if source.kind == "adapter":
        from qwen3nb.models.yes_no import load_causal

        return load_causal(source, dtype).model
    # Without safetensors, a state dict that `open_checkpoint` found to hold tensors only.
    safe = open_checkpoint(source.folder).files[0].suffix == ".safetensors"
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": safe}
    if source.kind == "decoder":
        return AutoModel.from_pretrained(source.folder, **options)
    if source.kind == "encoder":
        model = Qwen3EncoderModel.from_pretrained(source.folder, **options)
    else:
        model = _from_seq2seq(source.folder).to(dtype)
    if not causal_leak(model.eval(), vocab_size=model.config.vocab_size) > 0:
        raise SpecError(
            f"{source.folder}: this transformers release runs the model causally although "
            "it is bidirectional; its vectors would be wrong. Install transformers 5.2 or newer"
        )
    return model


def _from_seq2seq(folder: Path) -> Qwen3EncoderModel:
    """The encoder of an encoder-decoder checkpoint, taken out in memory."""
    checkpoint = open_checkpoint(folder)
    model = Qwen3EncoderModel(encoder_config(checkpoint.config))
    names = {new: name for name in checkpoint.tensors if (new := encoder_name(name)) is not None}
    if embedding := embedding_name(checkpoint):
        names["embed_tokens.weight"] = embedding
    try:
        model.load_state_dict({new: checkpoint.read(name) for new, name in names.items()})
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: the weights do not fit config.json\n{error}") from None
    return model


def _load_tokenizer(folder: Path, config: Any) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, config=config)
    except (OSError, ValueError) as error:
        raise SpecError(f"{folder}: its tokenizer cannot be loaded ({error})") from None
    return tokenizer


class SentenceTransformerEncoder(Encoder):
    """A sentence-transformers model, run by sentence-transformers."""

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
        import sentence_transformers

        if prefix or append_eos or normalize is not None:
            raise SpecError(
                f"{source.label} runs in sentence-transformers as it is; prefix, append_eos and "
                "normalize are for Qwen3 encoders and language models"
            )
        if pooling is not None:
            raise SpecError(
                f"{source.label} brings its own pooling (modules.json); "
                f"leave pooling at 'auto', not {pooling!r}"
            )
        self._batch_size = batch_size
        self._model = sentence_transformers.SentenceTransformer(
            str(source.folder),
            device=pick_device(device),
            model_kwargs={"dtype": torch_dtype(dtype), "use_safetensors": True},
        )
        if max_length is not None:
            self._model.max_seq_length = max_length
        self.max_length = self._model.max_seq_length
        super().__init__(
            source,
            settings={
                "max_length": self.max_length,
                "normalize": True,
                "dtype": dtype,
                "versions": {
                    **_versions(),
                    "sentence-transformers": sentence_transformers.__version__.split(".")[0],
                },
            },
            **options,
        )

    @property
    def device(self) -> str:
        """Where the model runs."""
        return str(self._model.device)

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return int(self._model.get_embedding_dimension())

    @property
    def parameters(self) -> int:
        """Number of parameters, embeddings included."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def _embed(self, texts: Sequence[str]) -> Vectors:
        # prompt="": prompts are ours to add; a default one would come twice, unseen.
        vectors: Vectors = self._model.encode(
            list(texts),
            prompt="",
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return vectors.astype(np.float32, copy=False)
