"""Identities of models that were loaded before, without loading them again."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from qwen3nb import paths
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.kinds.source import Source, described
from qwen3nb.models.types import KnownModel
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.code_version import code_digest, installed_version
from qwen3nb.utils.hardware import gpus

log = logging.getLogger(__name__)
_LIBRARIES = "torch transformers tokenizers sentence-transformers peft numpy bm25s PyStemmer"
_WITHOUT_EFFECT = ("batch_size", "cache", "show_progress")  # options that change no identity


def known_or_loaded(spec: str, load: Callable[[], Any], options: Mapping[str, Any]) -> Any:
    """Return the `KnownModel` of an earlier run, or load the model and store its identity.

    Loading a model and its libraries takes seconds to minutes. Label and identity are cached under
    a digest of everything they depend on: the content of the files, ``options``, versions, code and
    hardware.

    Args:
        spec: spec of the model.
        load: loads the model.
        options: options of `load_model`.

    Raises:
        SpecError: no such model.
    """
    digest = _digest(spec, options)
    file = paths.cache() / "identities" / f"{digest[:32]}.json"
    try:
        return KnownModel(**read_json(file), load=cache(load))
    except (OSError, ValueError, TypeError):
        pass  # missing or damaged
    model = load()
    if _digest(spec, options) == digest:  # otherwise its files were replaced during loading
        kept = {each.name: getattr(model, each.name) for each in fields(KnownModel)[:-1]}
        try:
            write_json(file, kept)
        except OSError as error:
            log.warning("%s: not written (%s)", file, error)
    return model


def _digest(spec: str, options: Mapping[str, Any]) -> str:
    source = _fetched(find_source(spec, base=options.get("base")))
    used = {name: str(value) for name, value in options.items() if name not in _WITHOUT_EFFECT}
    versions = [code_digest(), *map(installed_version, _LIBRARIES.split())]
    return sha256_json([described(source), source.label, used, versions, gpus()])


def _fetched(source: Source) -> Source:
    if source.on_hub:
        return fetch_model(source)
    return replace(source, parts=tuple(_fetched(part) for part in source.parts))
