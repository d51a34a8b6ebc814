"""Prompts that the authors of known models prescribe, for a warning where a model has none.

A model of the registry has its prompts there, and many folders store theirs. Others, such as
``intfloat/e5-large-v2``, name them in their model card only: without them, their scores are
those of another use of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qwen3nb.checkpoints.inside import read_object
from qwen3nb.models.sources.source import Source

__all__ = ["FAMILIES", "PromptFamily", "prompt_warning"]

_HUB = "https://huggingface.co/"
_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_INSTRUCT = {"query": f"Instruct: {_TASK}\nQuery: "}
_SENTENCE = {"query": "Represent this sentence for searching relevant passages: "}
_KINDS = ("decoder", "hub", "sentence-transformers", "t5")  # ours have the prompts of their export
_CARD_BYTES = 100_000  # of a model card, whose front matter comes first


@dataclass(frozen=True)
class PromptFamily:
    """Models that were trained with the same prompts.

    Attributes:
        name: of the family.
        pattern: what a hub id or the name of a folder contains, in lower case.
        prompts: the prompts for search, by role.
        card: a model card that names them.
    """

    name: str
    pattern: str
    prompts: Mapping[str, str]
    card: str


# The first that fits decides.
FAMILIES = tuple(
    PromptFamily(name, pattern, prompts, _HUB + card)
    for name, pattern, prompts, card in (
        ("INSTRUCTOR", r"\binstructor-(base|large|xl)\b",
         {"query": "Represent the question for retrieving supporting documents: ",
          "passage": "Represent the document for retrieval: "}, "hkunlp/instructor-large"),
        ("E5 instruct", r"\be5-.*instruct", _INSTRUCT, "intfloat/multilingual-e5-large-instruct"),
        ("E5", r"\be5-(small|base|large)", {"query": "query: ", "passage": "passage: "},
         "intfloat/e5-large-v2"),
        ("BGE, Chinese", r"\bbge-(small|base|large)-zh",
         {"query": "为这个句子生成表示以用于检索相关文章："}, "BAAI/bge-large-zh-v1.5"),
        ("BGE", r"\bbge-(small|base|large)", _SENTENCE, "BAAI/bge-large-en-v1.5"),
        ("BGE Gemma 2", r"\bbge-multilingual-gemma2",
         {"query": f"<instruct>{_TASK}.\n<query>"}, "BAAI/bge-multilingual-gemma2"),
        ("GTE instruct", r"\bgte-qwen.*instruct", _INSTRUCT, "Alibaba-NLP/gte-Qwen2-1.5B-instruct"),
        ("Qwen3-Embedding", r"\bqwen3-embedding", {"query": f"Instruct: {_TASK}\nQuery:"},
         "Qwen/Qwen3-Embedding-0.6B"),
        ("EmbeddingGemma", r"\bembeddinggemma",
         {"query": "task: search result | query: ", "passage": "title: none | text: "},
         "google/embeddinggemma-300m"),
        ("Arctic Embed 2", r"\barctic-embed-.*v2", {"query": "query: "},
         "Snowflake/snowflake-arctic-embed-l-v2.0"),
        ("Arctic Embed", r"\barctic-embed", _SENTENCE, "Snowflake/snowflake-arctic-embed-l"),
        ("mxbai-embed", r"\bmxbai-embed", _SENTENCE, "mixedbread-ai/mxbai-embed-large-v1"),
        ("UAE", r"\buae-(large|code)", _SENTENCE, "WhereIsAI/UAE-Large-V1"),
        ("Nomic Embed", r"\bnomic-embed-text",
         {"query": "search_query: ", "passage": "search_document: "},
         "nomic-ai/nomic-embed-text-v1.5"),
        ("SFR-Embedding", r"\bsfr-embedding", _INSTRUCT, "Salesforce/SFR-Embedding-Mistral"),
        ("Linq-Embed", r"\blinq-embed", _INSTRUCT, "Linq-AI-Research/Linq-Embed-Mistral"),
    )
)  # fmt: skip


def prompt_warning(source: Source) -> str:
    """Return what to say of a model that is used without the prompts of its family.

    Its family follows from its hub id, the name of its folder, the ``_name_or_path`` of its
    ``config.json`` or the ``base_model`` of its model card. Empty for models with prompts, of no
    known family, or of this package.
    """
    if source.kind not in _KINDS or source.prompts:
        return ""
    names = [name.lower().replace("_", "-") for name in _names(source)]
    for family in FAMILIES:
        if any(re.search(family.pattern, name) for name in names):
            prompts = dict(family.prompts)
            return (
                f"{source.label}: used without prompts, but the authors of {family.name} prescribe "
                f"{', '.join(f'{text!r} for a {role}' for role, text in prompts.items())} "
                f"({family.card}), so its scores may be too low. Give "
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
    found = re.search(r"^base_model:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", front, re.MULTILINE)
    return re.findall(r"[\w.-]+/[\w.-]+", found[1]) if found else []
