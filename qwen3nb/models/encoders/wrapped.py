"""Any object with ``encode(texts)`` as an encoder, such as a SentenceTransformer in memory."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from qwen3nb.models.encoders.base import Encoder, beside_blanks
from qwen3nb.models.encoders.padding import UNPADDED, check_repeatable, depends_on_padding
from qwen3nb.models.gate.declared import check_object
from qwen3nb.models.kinds.prompts import used_prompts
from qwen3nb.models.kinds.source import IN_MEMORY, Source
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import EncoderError, Vectors

_BATCH = 32  # texts per batch of a plain transformers model
_MOST_TOKENS = 512  # its longest text, unless its tokenizer states a smaller one


def with_tokenizer(model: Any, tokenizer: Any) -> SimpleNamespace:
    """Return an object with ``encode(texts)`` from a model and its tokenizer.

    A model with ``encode(texts, tokenizer)`` pools itself. Of any other, such as an ``AutoModel``,
    the token states are pooled as its configuration says (``pooling_mode``, ``normalize``), or its
    folder for sentence-transformers, else by their mean.
    """
    if callable(getattr(model, "encode", None)):
        return SimpleNamespace(encode=lambda texts: model.encode(texts, tokenizer))
    if not callable(model) or not hasattr(model, "config"):
        raise TypeError(
            "expected a model with encode(texts, tokenizer), or a transformers model; got "
            f"{type(model).__name__}"
        )
    declared = _declared_pooling(model)
    longest = min(_MOST_TOKENS, int(getattr(tokenizer, "model_max_length", _MOST_TOKENS)))
    device = getattr(model, "device", "cpu")

    def encode(texts: Sequence[str]) -> Vectors:
        import torch

        from qwen3nb.models.modeling.pooling import pool

        pooled = []
        for start in range(0, len(texts), _BATCH):
            batch = tokenizer(
                list(texts[start : start + _BATCH]),
                padding=True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            ).to(device)
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            mask = batch["attention_mask"]
            pooled.append(pool(states, mask, pooling=declared.name, normalize=declared.normalize))
        return torch.cat(pooled).cpu().numpy()

    return SimpleNamespace(encode=encode, device=device)


class DeclaredPooling(NamedTuple):
    """How the states of a model become a vector."""

    name: str  # one of `qwen3nb.models.modeling.pooling.POOLINGS`
    normalize: bool


def _declared_pooling(model: Any) -> DeclaredPooling:
    """Return how a transformers model, or its folder for sentence-transformers, is pooled."""
    from qwen3nb.models.modeling.pooling import POOLINGS

    mode = getattr(model.config, "pooling_mode", None)
    if mode in POOLINGS:
        return DeclaredPooling(mode, bool(getattr(model.config, "normalize", False)))
    folder = Path(str(getattr(model, "name_or_path", "")))
    try:
        fields = json.loads((folder / "1_Pooling" / "config.json").read_bytes())
        stored_mode = fields.get("pooling_mode")
    except (OSError, ValueError, AttributeError):  # no such file, or no JSON object
        return DeclaredPooling("mean", normalize=False)
    # sentence-transformers stores a name, or before release 5.4 a flag per pooling.
    declared = []
    for name, rule in POOLINGS.items():
        if stored_mode == rule.stored or fields.get(rule.flag) is True:
            declared.append(name)
    if len(declared) != 1:  # none that is known, or several joined
        return DeclaredPooling("mean", normalize=False)
    return DeclaredPooling(declared[0], normalize=False)


class WrappedEncoder(Encoder):
    """An object whose ``encode`` takes a list of strings and returns a vector for each.

    Its content is unknown. Without a fingerprint, it is therefore a new model in every run, and
    neither vectors nor records are reused. With a fingerprint, both are; change it when the vectors
    change.

    The prompts of a SentenceTransformer are used as MTEB uses them. Vectors are compared by its
    ``similarity_fn_name``, by default cosine.
    """

    def __init__(
        self,
        model: Any,
        *,
        label: str = "",
        fingerprint: str = "",
        batch_size: int = 32,
        show_progress: bool = True,
    ) -> None:
        """Wrap ``model``.

        Args:
            model: an object with ``encode``.
            label: name in tables; by default the name of its class.
            fingerprint: identifies its content, such as a version or a digest.
            batch_size: texts per batch of a SentenceTransformer.
            show_progress: whether long encodings show a progress bar.

        Raises:
            TypeError: ``model`` has no method ``encode``.
            SpecError: a sentence-transformers model that is not dense.
            EncoderError: ``encode`` does not return a vector per text.
        """
        if not callable(getattr(model, "encode", None)):
            raise TypeError(
                f"expected a model spec, a loaded model, or an object with encode(texts); "
                f"got {type(model).__name__}"
            )
        self._model = model
        check_object(model)
        self._options: dict[str, Any] = {}
        prompts: dict[str, str] = {}
        padding = True
        if hasattr(model, "prompts") and hasattr(model, "encode_query"):  # a SentenceTransformer
            # It would add its default prompt to texts that already have a prompt.
            self._options = {"prompt": "", "batch_size": batch_size, "show_progress_bar": False}
            default = getattr(model, "default_prompt_name", None)
            prompts = used_prompts(model.prompts or {}, default=default)
            # Its texts are padded to the longest of a batch.
            padding = not depends_on_padding(self._embed_any)
        if not padding:
            self._options["batch_size"] = 1
            check_repeatable(self._embed_any, type(model).__name__)
        vector = self._embed_any(["a text"])[0]
        self.width = len(vector)
        self.normalize = abs(float(np.linalg.norm(vector)) - 1) < 1e-3
        self.device = str(getattr(model, "device", "cpu"))
        kind = type(model)
        source = Source(
            spec=f"{kind.__module__}.{kind.__qualname__}",
            kind=IN_MEMORY,
            label=label or kind.__name__,
            prompts=prompts,
        )
        options = ModelOptions(
            batch_size=batch_size, cache=bool(fingerprint), show_progress=show_progress
        )
        settings = {"fingerprint": fingerprint or f"none, run {uuid.uuid4().hex}"}
        if not padding:
            settings.update(UNPADDED)
        super().__init__(source, options, settings=settings)

    @property
    def similarity_name(self) -> str:
        """``dot`` if set by the object, else ``cosine``."""
        name = getattr(self._model, "similarity_fn_name", None)
        return "dot" if str(getattr(name, "value", name)) == "dot" else "cosine"

    @property
    def longest(self) -> int | None:
        """Most tokens of a text, if it is a SentenceTransformer with such a tokenizer."""
        from transformers import PreTrainedTokenizerBase

        if isinstance(getattr(self._model, "tokenizer", None), PreTrainedTokenizerBase):
            return getattr(self._model, "max_seq_length", None)
        return None

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, however long it is, with those that are added."""
        from qwen3nb.models.modeling.runtime import token_counts

        return token_counts(self._model.tokenizer, texts)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return beside_blanks(self._embed_any, texts)

    def _embed_any(self, texts: Sequence[str]) -> Vectors:
        encoded = self._model.encode(list(texts), **self._options)
        # Anything may come back: it is tried as rows of numbers, and described if it is not.
        try:
            vectors = np.asarray([_on_cpu(row) for row in encoded])
        except (TypeError, ValueError):
            vectors = np.empty(0)
        has_vector_per_text = vectors.ndim == 2 and len(vectors) == len(texts)
        are_real_numbers = vectors.dtype.kind in "biuf"  # bool, int, unsigned, float
        if not (has_vector_per_text and are_real_numbers):
            raise EncoderError(
                f"{type(self._model).__name__}.encode of {len(texts)} texts: expected real numbers "
                f"({len(texts)}, D), got {getattr(encoded, 'shape', type(encoded).__name__)}: "
                f"{encoded!r:.60}"
            )
        return vectors.astype(np.float32)


def _on_cpu(row: Any) -> Any:
    """Return a vector that NumPy reads; tensors may be on a GPU or of a dtype that it lacks."""
    if hasattr(row, "detach"):
        return row.detach().float().cpu()
    return row
