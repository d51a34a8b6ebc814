"""The identity of a model that was loaded before, without loading it again.

Loading a model and its libraries takes seconds to minutes. Its identity is kept in the cache under
a digest of all that it follows from: the content of its files, its prompts and options, the
versions and code that run it. A model is then loaded only if there is something to encode.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.custom.queries import ModelEntry
from qwen3nb.evaluation.run import KnownModel
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.kinds.source import Source, fingerprint
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.code_version import code_digest, installed_version
from qwen3nb.utils.hardware import gpu_names

log = logging.getLogger(__name__)
Model = Encoder | BM25 | Fusion
_LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "peft",
    "numpy",
    "bm25s",
    "PyStemmer",
)
_WITHOUT_EFFECT = ("batch_size", "cache", "show_progress")  # options that change no identity
_KEPT = {"label", "identity", "searches_only"}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def known_or_loaded(
    entry: ModelEntry, *, load: Callable[[], Model], options: Mapping[str, Any]
) -> KnownModel | Model:
    """Return what is known of a model from an earlier run, or load it and remember it.

    Args:
        entry: what names the model.
        load: loads it.
        options: the options of `load_encoder` that it is loaded with.

    Raises:
        SpecError: no such model.
    """
    digest = _digest(entry, options)
    file = paths.cache() / "identities" / f"{digest[:32]}.json"
    try:
        known = read_json(file)
        if set(known) == _KEPT and _LABEL.fullmatch(known["label"]):
            return KnownModel(**known, load=cache(load))
    except (OSError, ValueError, TypeError):
        pass  # missing or damaged
    model = load()
    if _digest(entry, options) == digest:  # else its files were replaced while it was loaded
        remember(file, {name: getattr(model, name) for name in _KEPT})
    return model


def remember(file: Path, value: Any) -> None:
    """Write what can be made again; a cache that cannot be written costs making it again."""
    try:
        write_json(file, value)
    except OSError as error:
        log.warning("%s: not written (%s)", file, error)


def _digest(entry: ModelEntry, options: Mapping[str, Any]) -> str:
    used = {name: str(value) for name, value in options.items() if name not in _WITHOUT_EFFECT}
    return sha256_json(
        {
            "source": _content(find_source(entry.spec, base=options.get("base"))),
            "label": entry.label,
            "prompts": entry.prompts,
            "dimensions": entry.dimensions,
            "options": used,
            "code": code_digest(),
            "libraries": {name: installed_version(name) for name in _LIBRARIES},
            "gpus": [gpu_names(), os.environ.get("CUDA_VISIBLE_DEVICES")],
        }
    )


def _content(source: Source) -> dict[str, Any]:
    """Return all that the settings of a model are made from."""
    if source.on_hub:
        source = fetch_model(source)
    parts = [_content(part) for part in source.parts]
    return {
        **vars(replace(source, folder=None, base=None, parts=())),
        "kind": source.kind.name,
        "content": {} if parts else fingerprint(source),
        "of": parts,
    }
