"""Any object with ``encode(texts)`` as an encoder, such as a SentenceTransformer in memory."""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from qwen3nb.models.encoders.base import Encoder, beside_blanks
from qwen3nb.models.gate.declared import check_object
from qwen3nb.models.kinds.prompts import used_prompts
from qwen3nb.models.kinds.source import IN_MEMORY, Settings, Source
from qwen3nb.models.types import EncoderError, Vectors


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
            Settings(batch_size=batch_size, cache=bool(fingerprint), show_progress=show_progress),
            settings={"fingerprint": fingerprint or f"none, run {uuid.uuid4().hex}"},
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
