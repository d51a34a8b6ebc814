"""A model specification, resolved: what kind of model it is and where it lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A model, found.

    Attributes:
        spec: what was asked for.
        kind: ``encoder`` (a bidirectional Qwen3 directory), ``seq2seq`` (an
            encoder-decoder checkpoint), ``sentence-transformers``, ``t5`` (another
            encoder-decoder, of which the encoder is used), ``decoder`` (a causal
            language model), ``adapter`` (LoRA), ``fusion``, ``hub``, ``random`` or ``bm25``.
        label: a name fit for files and tables.
        folder: where it lies, if it lies somewhere.
        prompts: text put before a text, per role or task; see `prompt_for`.
        instruction: what ``{instruction}`` in a prompt stands for by default.
        pooling: what the registry says, where the model says nothing.
        max_length: likewise.
        revision: the pinned revision of a hub model.
        id: its id on the hub.
        base: the model an adapter belongs to; see `qwen3nb.models.sources.lora`.
        parts: what a fusion (``a+b``) is made of.
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
