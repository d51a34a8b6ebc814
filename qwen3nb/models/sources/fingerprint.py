"""The fingerprint of a model's content: weights, tokenizer and configuration, not its path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.checkpoint import Checkpoint, open_checkpoint
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.models.sources.lora import adapter_fingerprint
from qwen3nb.models.sources.source import Source
from qwen3nb.utils.atomic_files import sha256_file, sha256_json

__all__ = ["fingerprint"]

# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_bert_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)


def fingerprint(source: Source) -> dict[str, Any]:
    """Return what the vectors of ``source`` depend on, apart from the settings it is used with.

    Raises:
        CheckpointError: weights that cannot be read, or that could run code; an export that
            is not as it was written.
    """
    if source.parts:
        return {"kind": source.kind, "of": [fingerprint(part) for part in source.parts]}
    if source.folder is None:
        return {"kind": source.kind, "spec": source.spec, "revision": source.revision}
    if source.kind == "adapter":
        assert source.base is not None  # noqa: S101 - adapters have one
        adapter = adapter_fingerprint(source.folder)
        return {"kind": source.kind, "base": fingerprint(source.base), "adapter": adapter}
    return {"kind": source.kind, **_folder_fingerprint(source.folder)}


def _folder_fingerprint(folder: Path) -> dict[str, Any]:
    files = {
        file.relative_to(folder).as_posix(): sha256_file(file)
        for file in sorted(folder.rglob("*"))
        if _IDENTIFYING.fullmatch(file.name) and file.is_file()
    }
    weights = open_checkpoint(folder).digest()
    check_checksums(folder, weights=weights, known=files)
    content: dict[str, Any] = {"weights": weights, "files": sha256_json(files)}
    # Modules of sentence-transformers that have weights, such as 2_Dense.
    if modules := sorted(folder.glob("*_*/model.safetensors")):
        content["modules"] = {
            file.parent.name: Checkpoint(folder, {}, read_safetensors(file)).digest()
            for file in modules
        }
    return content
