"""The kinds of models, in the order in which a folder or a spec is compared with them.

A new kind is a class like those of `qwen3nb.models.kinds.baselines` and a name in `KINDS`.
"""

from __future__ import annotations

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.declared import check_dense
from qwen3nb.models.kinds.baselines import BM25_KIND, RANDOM
from qwen3nb.models.kinds.sentence import SENTENCE
from qwen3nb.models.kinds.source import Kind, Source
from qwen3nb.models.kinds.static import STATIC
from qwen3nb.models.kinds.transformer import DECODER, ENCODER, ENCODER_DECODER, RERANKER, SEQ2SEQ

KINDS: tuple[Kind, ...] = (
    BM25_KIND,
    RANDOM,
    RERANKER,
    STATIC,
    SEQ2SEQ,
    ENCODER,
    SENTENCE,
    ENCODER_DECODER,
    DECODER,
)


def named_source(spec: str) -> Source | None:
    """Return the source that a ``spec`` names without a folder, if it does."""
    return next((source for kind in KINDS if (source := kind.named(spec)) is not None), None)


def kind_of(folder: ModelFolder) -> Kind:
    """Return the kind of the model in ``folder``.

    Raises:
        ModelFolderError: not a model with a vector per text; see `check_dense`.
        CheckpointError: a JSON file that is malformed.
    """
    check_dense(folder)
    return next(kind for kind in KINDS if kind.matches(folder))
