"""Prompts that the authors of known models prescribe, for a warning where a model has none.

A model of the registry has its prompts there, and many folders store theirs. Others, such as
``intfloat/e5-large-v2``, name them in their model card only: without them, their scores are
those of another use of the model. The families: ``prompt_families.toml``.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.inside import read_object
from qwen3nb.models.sources.source import Source

__all__ = ["prompt_families", "prompt_warning"]

_KINDS = ("decoder", "hub", "sentence-transformers", "t5")  # ours have the prompts of their export
_CARD_BYTES = 100_000  # of a model card, whose front matter comes first


@functools.cache
def prompt_families() -> Mapping[str, Mapping[str, Any]]:
    """Return the pattern, prompts and model card of each family, by its name."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def prompt_warning(source: Source) -> str:
    """Return what to say of a model that is used without the prompts of its family.

    Its family follows from its hub id, the name of its folder, the ``_name_or_path`` of its
    ``config.json`` or the ``base_model`` of its model card. Empty for models with prompts, of no
    known family, or of this package.
    """
    if source.kind not in _KINDS or source.prompts:
        return ""
    names = [name.lower().replace("_", "-") for name in _names(source)]
    for family, fields in prompt_families().items():
        if any(re.search(fields["pattern"], name) for name in names):
            prompts = fields["prompts"]
            return (
                f"{source.label}: used without prompts, but the authors of {family} prescribe "
                f"{', '.join(f'{text!r} for a {role}' for role, text in prompts.items())} "
                f"({fields['card']}), so its scores may be too low. Give "
                f"load_encoder(..., prompts={prompts}), store them as the prompts of its "
                "config_sentence_transformers.json, or give prompts={} for none"
            )
    return ""


def _names(source: Source) -> Iterator[str]:
    yield from (source.id or "", source.spec)
    if source.folder is None:
        return
    yield "/".join(source.folder.resolve().parts[-2:])
    config = source.folder / "config.json"
    yield str(read_object(config).get("_name_or_path") or "") if config.is_file() else ""
    card = source.folder / "README.md"
    yield from _base_models(card) if card.is_file() else ()


def _base_models(card: Path) -> list[str]:
    """Return the models that the front matter of a model card names as its base."""
    with card.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_CARD_BYTES)
    front = text.split("\n---", 1)[0] if text.startswith("---") else ""
    match = re.search(r"^base_model:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", front, re.MULTILINE)
    return re.findall(r"[\w.-]+/[\w.-]+", match[1]) if match else []
