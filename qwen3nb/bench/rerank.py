"""Benchmark reranking against two other implementations on the same weights.

The reference is left-padded batches with the logits of every position, as in the model card of
Qwen3-Reranker; the peer is the CrossEncoder of sentence-transformers. All take turns in one
process. A ratio is the median of the reference's CPU seconds over that of a method, because load on
the machine inflates wall time. Scores are compared in the same run.

The weights are random, the output matrix has as many rows as Qwen3's real vocabulary, and
the passages are docstrings, truncated to the requested lengths.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.bench.harness import in_turn, table
from qwen3nb.bench.random_models import QUERY, cross_encoder, predict, write_random_reranker
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.rerankers.yes_no import Floats, Reranker
from qwen3nb.utils.choices import one_of

PASSAGES = {"60-80": (60, 80), "250": (240, 260)}  # tokens, from and to
# hidden, intermediate, layers, heads, key-value heads, head size
SHAPES = {
    "tiny": (64, 96, 2, 4, 2, 16),
    "100M": (512, 1536, 8, 8, 4, 64),
    "0.6B": (1024, 3072, 28, 16, 8, 128),
}
_BATCH = 16  # batch size of the reference
_REFERENCE, _PEER, _OURS = "reference", "sentence-transformers CrossEncoder", "qwen3nb"


@dataclass(frozen=True)
class RerankBench:
    """Results for one size of model and one length of passages.

    A timing has, of each method, the reference first and ours last: median ``seconds`` and ``cpu``
    seconds, the ``ratio`` of the reference's CPU seconds to them, and the largest ``difference`` in
    P(yes) from it.
    """

    size: str  # key of `SHAPES`
    passages: str  # key of `PASSAGES`
    documents: int
    rounds: int
    timings: tuple[dict[str, Any], ...]

    def table(self) -> str:
        """The timings as plain text."""
        return table(
            f"{self.size} parameters, passages of {self.passages} tokens: {self.documents} "
            f"documents, medians of {self.rounds} rounds in turn",
            rows=self.timings,
            shown=": {name} | CPU s: {cpu:.2f} | s: {seconds:.2f} | faster: {ratio:.2f}x | "
            "max dP: {difference:.0e}",
        )


def bench_rerank(
    *,
    size: str = "100M",
    passages: Sequence[str] = tuple(PASSAGES),
    documents: int = 100,
    rounds: int = 3,
) -> Iterator[RerankBench]:
    """Measure one length of passages after the other.

    Args:
        size: one of `SHAPES`; ``0.6B`` is the shape of Qwen3-0.6B (the reference needs 8 GB
            of memory).
        passages: keys of `PASSAGES`.
        documents: documents per query.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown size or length.
        RuntimeError: the scores of a method differ from those of the reference.
    """
    one_of("size", size, SHAPES)
    for name in passages:
        one_of("length of passages", name, PASSAGES)
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-") as work:
        write_random_reranker(Path(work), SHAPES[size])
        for name in passages:
            timings = _timings(Path(work), PASSAGES[name], documents, rounds)
            yield RerankBench(size, name, documents, rounds, timings)


def _timings(
    folder: Path, lengths: tuple[int, int], documents: int, rounds: int
) -> tuple[dict[str, Any], ...]:
    texts = _passages(folder, *lengths, documents)
    methods = {name: partial(_method(name, folder), texts) for name in (_REFERENCE, _PEER, _OURS)}
    medians, scores = in_turn(methods, rounds=rounds)
    timings = []
    for name, each in medians.items():
        difference = float(abs(scores[name] - scores[_REFERENCE]).max())
        if difference > 1e-4:
            raise RuntimeError(f"{name}: P(yes) differs from the reference by {difference:.1e}")
        ratio = medians[_REFERENCE].cpu / each.cpu
        timings.append({"name": name, **vars(each), "ratio": ratio, "difference": difference})
    return tuple(timings)


def _method(name: str, folder: Path) -> Callable[[list[str]], Floats]:
    if name == _PEER:
        return partial(predict, cross_encoder(folder))
    ours = load_reranker(folder, device="cpu")
    return _reference(folder, ours) if name == _REFERENCE else lambda t: ours.score(QUERY, t).p_yes


def _reference(folder: Path, reranker: Reranker) -> Callable[[list[str]], Floats]:
    """Return what scores in left-padded batches, and computes the logits of every token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    words = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["no", "yes"])

    def scores(texts: list[str]) -> Floats:
        tokens, p_yes = reranker._pairs.rows(QUERY, texts), []
        rows = [[*tokens.shared, *rest] for rest in tokens.rests]
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            width = max(map(len, batch))
            ids = torch.tensor([[0] * (width - len(row)) + row for row in batch])
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch])
            with torch.inference_mode():
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, -1]
            p_yes.append(logits[:, words].log_softmax(-1)[:, 1].exp())
        return torch.cat(p_yes).double().numpy()

    return scores


def _passages(folder: Path, least: int, most: int, count: int) -> list[str]:
    """Return passages of ``least`` to ``most`` tokens, from concatenated docstrings."""
    from transformers import AutoTokenizer

    from qwen3nb.datasets.pydocs.build import load_pydocs

    tokenizer = AutoTokenizer.from_pretrained(folder)
    words = [word for entry in load_pydocs().entries for word in entry.text.split()]
    generator = np.random.default_rng(0)
    texts = []
    for _ in range(count):
        wanted, start = generator.integers(least, most + 1), generator.integers(len(words) // 2)
        text = " ".join(words[start : start + wanted])
        ids = tokenizer(text, add_special_tokens=False).input_ids[:wanted]
        texts.append(tokenizer.decode(ids))
    return texts
