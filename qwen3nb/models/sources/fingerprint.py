"""The fingerprint of a model's content: weights, tokenizer and configuration, not its path."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.checkpoint import Checkpoint, open_checkpoint
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.gate.sentence_modules import module_weights, sentence_modules
from qwen3nb.models.gate.static_tables import StaticFiles, static_files
from qwen3nb.models.sources.lora import adapter_fingerprint
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import sha256_file, sha256_json

__all__ = ["EXPECTED", "fingerprint", "folder_digests", "unchanged"]

# Environment variable of a run on another machine: what it was started for, see `folder_digests`.
EXPECTED = "QWEN3NB_EXPECTED_MODELS"

# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_\w+_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab|"
    r"(cnn|lstm|wordembedding|whitespacetokenizer|phrasetokenizer)_config)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)


def fingerprint(source: Source) -> dict[str, Any]:
    """Return what the vectors of ``source`` depend on, apart from the settings it is used with.

    Raises:
        CheckpointError: weights that cannot be read, or that could run code; an export that
            is not as it was written; in a run that was started for other content, that.
    """
    if source.parts:
        return {"kind": source.kind, "of": [fingerprint(part) for part in source.parts]}
    if source.folder is None:
        return {"kind": source.kind, "spec": source.spec, "revision": source.revision}
    content = _content(source, source.folder)
    _require_expected(source.folder, content)
    if source.kind != "adapter":
        return content
    assert source.base is not None  # noqa: S101 - adapters have one
    return {"kind": source.kind, "base": fingerprint(source.base), "adapter": content}


def folder_digests(source: Source) -> dict[str, str]:
    """Return the digest of what each folder of a model holds, by the folder's path.

    As JSON in the environment variable `EXPECTED`, it lets `fingerprint` refuse anything else.
    """
    others = (*source.parts, *([source.base] if source.base else []))
    digests = {path: each for other in others for path, each in folder_digests(other).items()}
    if source.folder is not None:
        digests[str(source.folder.absolute())] = sha256_json(_content(source, source.folder))
    return digests


def _require_expected(folder: Path, content: Any) -> None:
    expected = json.loads(os.environ.get(EXPECTED) or "{}").get(str(folder.absolute()))
    if expected not in (None, digest := sha256_json(content)):
        raise CheckpointError(
            f"node {platform.node()}: {folder}: expected the model of identity {expected[:12]}…, "
            f"which this run was started for; found one of {digest[:12]}…. Make the folder the "
            "same on all nodes"
        )


def _content(source: Source, folder: Path) -> Any:
    """Return what the vectors depend on in a model's own folder."""
    if source.kind == "adapter":
        return adapter_fingerprint(folder)
    static = static_files(folder)
    content = _folder_fingerprint(folder, _weights(source, static), static)
    if modules := _module_weights(source):
        content["modules"] = {name: each.digest() for name, each in sorted(modules.items())}
    return {"kind": source.kind, **content}


def unchanged(source: Source, content: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fingerprint of ``source``, which has been loaded since its ``content`` was taken.

    The digest of weights whose inode, size and times are the same is remembered, not computed.

    Raises:
        SpecError: another fingerprint; what was loaded has neither the one nor the other for sure.
        CheckpointError: see `fingerprint`.
    """
    now = fingerprint(source)
    if content is not None and now != content:
        raise SpecError(
            f"{source.folder}: its files changed while the model was loaded; load it again when "
            "whatever writes them has finished"
        )
    return now


def _weights(source: Source, static: StaticFiles | None) -> Checkpoint:
    """Return the weights of a folder, without those of modules in folders of their own."""
    folder = source.folder
    assert folder is not None  # noqa: S101
    if static is not None:
        return Checkpoint(folder, {}, read_safetensors(static.weights))
    bare = source.kind == "sentence-transformers" and not (folder / "config.json").is_file()
    opened = module_weights(sentence_modules(folder)[0]) if bare else None
    return opened or open_checkpoint(folder)


def _folder_fingerprint(
    folder: Path, opened: Checkpoint, static: StaticFiles | None
) -> dict[str, Any]:
    files = {
        file.relative_to(folder).as_posix(): sha256_file(file)
        for file in sorted(folder.rglob("*"))
        if (_IDENTIFYING.fullmatch(file.name) or (static and file == static.tokenizer))
        and file.is_file()
    }
    weights = opened.digest()
    check_checksums(folder, weights=weights, known=files)
    return {"weights": weights, "files": sha256_json(files)}


def _module_weights(source: Source) -> dict[str, Checkpoint]:
    """Return the weights of modules of sentence-transformers, such as 2_Dense, by their path."""
    folder = source.folder
    assert folder is not None  # noqa: S101
    weights = {
        file.parent.name: Checkpoint(folder, {}, read_safetensors(file))
        for file in folder.glob("*_*/model.safetensors")
    }
    if source.kind == "sentence-transformers":
        for module in sentence_modules(folder):
            path = module.folder.relative_to(folder).as_posix()
            if path != "." and path not in weights and (opened := module_weights(module)):
                weights[path] = opened
    return weights
