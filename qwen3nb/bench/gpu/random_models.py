"""The random models and texts of `qwen3nb.bench.gpu.run`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qwen3nb.bench.encode import load_peer
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.utils.atomic_files import write_json

__all__ = [
    "SHAPES",
    "Shape",
    "Texts",
    "load_peers",
    "load_random",
    "write_encoder",
]


@dataclass(frozen=True)
class Shape:
    """The shape of a transformer; one with key heads is a Qwen3, another a BERT.

    Attributes:
        reranker: key of `qwen3nb.bench.rerank_baselines.SHAPES` that is measured too.
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int = 0
    head: int = 0
    vocabulary: int = 30_522
    reranker: str = ""

    def config(self) -> Any:
        """The configuration of transformers."""
        from transformers import BertConfig, Qwen3Config

        common = {
            "vocab_size": self.vocabulary, "hidden_size": self.hidden,
            "intermediate_size": self.inner, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "max_position_embeddings": 1024,
            "initializer_range": self.hidden**-0.5,
        }  # fmt: skip
        if not self.key_heads:
            return BertConfig(**common)
        return Qwen3Config(**common, num_key_value_heads=self.key_heads, head_dim=self.head)


SHAPES = {
    "tiny": Shape(64, 96, 2, 4, 2, 16, vocabulary=8_448, reranker="tiny"),
    "MiniLM": Shape(384, 1536, 6, 12),
    "bge-base": Shape(768, 3072, 12, 12),
    "Qwen3-0.6B": Shape(1024, 3072, 28, 16, 8, 128, vocabulary=151_936, reranker="0.6B"),
    "Qwen3-4B": Shape(2560, 9728, 36, 32, 8, 128, vocabulary=151_936),
}


def write_encoder(folder: Path, shape: Shape, *, device: str, dtype: str) -> None:
    """Write a random model in the format of sentence-transformers: mean pooling, length 1."""
    from transformers import AutoModel

    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer

    texts = [entry.text for entry in load_pydocs().entries]
    write_tokenizer(texts, folder, vocabulary=8_000)
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = AutoModel.from_config(shape.config(), dtype=torch_dtype(dtype))
    model.save_pretrained(folder)
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "",
         "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]  # fmt: skip
    write_json(folder / "modules.json", modules)
    pooling = {"word_embedding_dimension": shape.hidden, "pooling_mode_mean_tokens": True}
    for path, fields in {
        "1_Pooling/config.json": pooling,
        "2_Normalize/config.json": {},
        "sentence_bert_config.json": {"max_seq_length": 1024, "do_lower_case": False},
    }.items():
        write_json(folder / path, fields)


def load_random(folder: Path, device: str, dtype: str) -> SentenceTransformerEncoder:
    """Load with this package what `write_encoder` wrote; nothing is cached."""
    encoder = load_encoder(folder, device=device, dtype=dtype, cache=False, show_progress=False)
    assert isinstance(encoder, SentenceTransformerEncoder)  # noqa: S101 - as it was written
    return encoder


def load_peers(folder: Path, *, device: str, dtype: str) -> dict[str, Any]:
    """sentence-transformers, loaded once per attention that this machine has."""
    ways = ["sdpa"]
    if device != "cpu" and importlib.util.find_spec("flash_attn"):
        ways.append("flash_attention_2")
    return {way: load_peer(folder, device=device, dtype=dtype, attention=way) for way in ways}


class Texts:
    """Distinct texts of about so many tokens: words of docstrings, from random places."""

    def __init__(self, encoder: Any) -> None:
        from qwen3nb.datasets.pydocs.build import load_pydocs

        self._words = [word for entry in load_pydocs().entries for word in entry.text.split()]
        self._encoder = encoder
        sample = " ".join(self._words[:2000])
        self._tokens_per_word = sum(self.tokens([sample[:4000]])) / len(sample[:4000].split())

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text."""
        return [len(row) for row in self._encoder._tokenise(list(texts))]

    def draw(self, tokens: int, count: int) -> list[str]:
        """``count`` texts, half to one and a half times as long as ``tokens``."""
        draw = np.random.default_rng(0)
        words = draw.uniform(0.5, 1.5, count) * tokens / self._tokens_per_word
        starts = draw.integers(0, len(self._words) // 2, count)
        return [
            " ".join([str(index), *self._words[start : start + max(1, int(some))]])
            for index, (start, some) in enumerate(zip(starts, words, strict=True))
        ]
