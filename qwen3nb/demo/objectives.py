"""The training objectives of the demo's base model and adapters: ranking and embedding.

A batch holds queries of PyDocs, each with its own document and that of the next query.
Ranking: whether query and document match, by the logits of yes and no at the last token
(the objective of Qwen3-Reranker). Embedding: queries and their documents against the
others of the batch (InfoNCE, van den Oord et al. 2018), last token, cosine.

The shared start of all pairs goes through the model once per batch, gradients included:
the template makes up a third of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample
from qwen3nb.models.rerankers.prompt_template import (
    INSTRUCTION,
    TEMPLATES,
    PairTokens,
    common_start,
)

__all__ = ["Batch", "batches", "embedding_loss", "ranking_loss", "words"]

TEMPLATE = TEMPLATES["double-newline"]


@dataclass(frozen=True)
class Batch:
    """Rows of token ids: pairs with their label, queries and their documents."""

    pairs: list[list[int]]
    labels: list[int]
    queries: list[list[int]]
    documents: list[list[int]]


def batches(
    folder: Path, *, steps: int, size: int, window: int, length: int, seed: int
) -> list[Batch]:
    """Draw ``steps`` batches of ``size`` queries, none of them in the sample of the smoke tier.

    Args:
        folder: a tokenizer.
        steps: number of batches.
        size: queries per batch.
        window: maximum tokens of a pair.
        length: maximum tokens of an embedded text.
        seed: seed of the draws.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = PairTokens(tokenizer, template=TEMPLATE, instruction=INSTRUCTION, max_length=window)
    measured = {entry.name for entry in pydocs_sample().entries}
    seen = {text for entry in pydocs_sample().entries for text in (entry.summary, entry.text)}
    entries = [
        entry
        for entry in load_pydocs().entries
        if entry.name not in measured and not {entry.summary, entry.text} & seen
    ]
    generator = np.random.default_rng(seed)
    return [
        _batch(tokenizer, pairs, [entries[i] for i in picks], length)
        for picks in generator.integers(0, len(entries), size=(steps, size))
    ]


def _batch(tokenizer: Any, pairs: PairTokens, entries: Sequence[Any], length: int) -> Batch:
    rows, labels = [], []
    for index, entry in enumerate(entries):
        other = entries[(index + 1) % len(entries)]
        tokens = pairs.rows(entry.summary, [entry.text, other.text])
        rows += [[*tokens.shared, *rest] for rest in tokens.rests]
        labels += [1, int(other.text == entry.text)]
    end = tokenizer.eos_token_id

    def texts(values: list[str]) -> list[list[int]]:
        ids = tokenizer(values, truncation=True, max_length=length - 1).input_ids
        return [[*row, end] for row in ids]

    queries = [f"Instruct: {INSTRUCTION}\nQuery:{entry.summary}" for entry in entries]
    return Batch(rows, labels, texts(queries), texts([entry.text for entry in entries]))


def words(tokenizer: Any) -> list[int]:
    """The token ids of no and yes."""
    ids: list[int] = tokenizer.convert_tokens_to_ids(["no", "yes"])
    return ids


def ranking_loss(backbone: Any, rows: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of no and yes; ``rows`` (2, H) are their rows of the output matrix."""
    logits = last_states(backbone, batch.pairs) @ rows.T
    return F.cross_entropy(logits, torch.tensor(batch.labels))


def embedding_loss(backbone: Any, batch: Batch, *, temperature: float) -> Tensor:
    """InfoNCE over the batch."""
    queries, documents = (
        F.normalize(last_states(backbone, rows), dim=-1)
        for rows in (batch.queries, batch.documents)
    )
    scores = queries @ documents.T / temperature
    return F.cross_entropy(scores, torch.arange(len(scores)))


def last_states(backbone: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """States (B, H) of the last token of B rows; their shared prefix is computed once."""
    from transformers import DynamicCache

    shared = min(min(common_start(rows[0], row), len(row) - 1) for row in rows)
    cache = None
    if shared:
        cache = DynamicCache(config=backbone.config)
        prefix = torch.tensor([list(rows[0][:shared])])
        backbone(input_ids=prefix, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(rows))
    rests = [list(row[shared:]) for row in rows]
    # Padding on the right: tokens of a causal model do not see later ones.
    ends = torch.tensor([len(rest) for rest in rests]) - 1
    ids = torch.zeros(len(rests), int(ends.max()) + 1, dtype=torch.long)
    for line, rest in zip(ids, rests, strict=True):
        line[: len(rest)] = torch.tensor(rest)
    states = backbone(input_ids=ids, past_key_values=cache, use_cache=cache is not None)
    last: Tensor = states.last_hidden_state[torch.arange(len(rests)), ends]
    return last
