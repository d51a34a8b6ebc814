"""Any object with ``encode(texts)`` as an encoder, such as a SentenceTransformer in memory."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from qwen3nb.models.encoders.base import Encoder, beside_blanks
from qwen3nb.models.encoders.padding import UNPADDED, check_repeatable, depends_on_padding
from qwen3nb.models.gate.declared import check_object
from qwen3nb.models.kinds.prompts import used_prompts
from qwen3nb.models.kinds.source import IN_MEMORY, Source
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import EncoderError, Vectors

_AT_ONCE = 32  # texts per batch of a plain transformers model
_TOKENS = 512  # its longest text, unless its tokenizer states a smaller one


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
    how, normalize = _declared_pooling(model)
    longest = min(_TOKENS, int(getattr(tokenizer, "model_max_length", _TOKENS)))

    def encode(texts: Sequence[str]) -> Vectors:
        import torch

        from qwen3nb.models.modeling.pooling import pool

        pooled = []
        for start in range(0, len(texts), _AT_ONCE):
            batch = tokenizer(
                list(texts[start : start + _AT_ONCE]),
                padding=True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            ).to(getattr(model, "device", "cpu"))
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            pooled.append(pool(states, batch["attention_mask"], how=how, normalize=normalize))
        return torch.cat(pooled).cpu().numpy()

    return SimpleNamespace(encode=encode, device=getattr(model, "device", "cpu"))


def _declared_pooling(model: Any) -> tuple[str, bool]:
    """Return the pooling of a transformers model, and whether its vectors have length 1."""
    from qwen3nb.models.modeling.pooling import POOLINGS

    mode = getattr(model.config, "pooling_mode", None)
    if mode in POOLINGS:
        return mode, bool(getattr(model.config, "normalize", False))
    folder = Path(str(getattr(model, "name_or_path", "")))
    try:
        stored = json.loads((folder / "1_Pooling" / "config.json").read_bytes())
        flags = {name for name, value in stored.items() if value is True}
        flags.add(str(stored.get("pooling_mode")))
    except (OSError, ValueError, AttributeError):
        return "mean", False
    found = [name for name, each in POOLINGS.items() if flags & {each.flag, each.stored}]
    return (found[0] if len(found) == 1 else "mean"), False


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
        # A SentenceTransformer would add its default prompt to texts that already have a prompt.
        named = hasattr(model, "prompts") and hasattr(model, "encode_query")
        self._options = (
            {"prompt": "", "batch_size": batch_size, "show_progress_bar": False} if named else {}
        )
        padding = True
        if named:  # its texts are padded to the longest of a batch
            padding = not depends_on_padding(self._embed_any)
        if not padding:
            self._options["batch_size"] = 1
            check_repeatable(self._embed_any, type(model).__name__)
        vector = self._embed_any(["a text"])[0]
        self.width, self.normalize = len(vector), abs(float(np.linalg.norm(vector)) - 1) < 1e-3
        self.device = str(getattr(model, "device", "cpu"))
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        super().__init__(
            Source(
                spec=kind,
                kind=IN_MEMORY,
                label=label or type(model).__name__,
                prompts=used_prompts(
                    model.prompts or {}, default=getattr(model, "default_prompt_name", None)
                )
                if named
                else {},
            ),
            ModelOptions(
                batch_size=batch_size, cache=bool(fingerprint), show_progress=show_progress
            ),
            settings={
                "fingerprint": fingerprint or f"none, run {uuid.uuid4().hex}",
                **({} if padding else UNPADDED),
            },
        )

    @property
    def similarity_name(self) -> str:
        """``dot`` if set by the object, else ``cosine``."""
        name = getattr(self._model, "similarity_fn_name", None)
        return "dot" if str(getattr(name, "value", name)) == "dot" else "cosine"

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return beside_blanks(self._embed_any, texts)

    def _embed_any(self, texts: Sequence[str]) -> Vectors:
        given = self._model.encode(list(texts), **self._options)
        try:  # torch tensors, or rows of one, may be on a GPU or of a dtype that numpy lacks
            rows = [
                each.detach().float().cpu() if hasattr(each, "detach") else each for each in given
            ]
            vectors = np.asarray(rows)
        except (TypeError, ValueError):
            vectors = np.empty(0)
        if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind not in "biuf":
            raise EncoderError(
                f"{type(self._model).__name__}.encode of {len(texts)} texts: expected real numbers "
                f"({len(texts)}, D), got {getattr(given, 'shape', type(given).__name__)}: "
                f"{given!r:.60}"
            )
        return vectors.astype(np.float32)
