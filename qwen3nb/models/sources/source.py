"""A resolved model spec: the kind of model and its location."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A resolved model spec.

    Attributes:
        spec: the spec as given.
        kind: ``encoder`` (a bidirectional Qwen3 directory), ``seq2seq`` (an
            encoder-decoder checkpoint), ``sentence-transformers``, ``static`` (model2vec's, or
            wordllama), ``t5`` (another encoder-decoder, whose encoder is used), ``decoder`` (a
            pre-trained model such as a causal language model), ``reranker`` (a causal language
            model with sentence-transformers' files of a cross-encoder), ``adapter`` (LoRA),
            ``fusion``, ``hub``, ``random`` or ``bm25``; `qwen3nb.models.gate.declared` decides.
        label: a name that is safe in file names and tables.
        folder: the model's folder, if it has one.
        prompts: text prepended to an input, per role or task; see `prompt_for`, and
            `qwen3nb.models.sources.resolve` for where they come from.
        instruction: default replacement for ``{instruction}`` in a prompt.
        pooling: the registry's pooling, for a model that does not define one.
        max_length: the registry's maximum length, likewise.
        revision: the pinned revision of a hub model.
        id: its id on the hub.
        base: the base model of an adapter; see `qwen3nb.models.sources.lora`.
        parts: the parts of a fusion (``a+b``).
    """

    spec: str
    kind: str
    label: str
    folder: Path | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    revision: str | None = None
    id: str | None = None
    base: Source | None = None
    parts: tuple[Source, ...] = ()
    instruction: str = ""
    pooling: str | None = None
    max_length: int | None = None
