"""Benchmark reranking against two other implementations on the same weights.

The reference is left-padded batches with the logits of every position, as in the model card of
Qwen3-Reranker; the peer is the CrossEncoder of sentence-transformers. All take turns in one
process. A ratio is the median of the reference's CPU seconds over that of a method, because load on
the machine inflates wall time. Scores are compared in the same run.

The weights are random, and the output matrix has as many rows as Qwen3's real vocabulary.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypedDict

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from qwen3nb.bench.encode import bench_texts
from qwen3nb.bench.harness import in_turn, table
from qwen3nb.bench.random_models import QUERY, cross_encoder, predict, write_random_reranker
from qwen3nb.models.rerankers import Floats, Reranker, load_reranker
from qwen3nb.utils.choices import check_choice

# hidden, intermediate, layers, heads, key-value heads, head size
SHAPES = {
    "tiny": (64, 96, 2, 4, 2, 16),
    "100M": (512, 1536, 8, 8, 4, 64),
    "0.6B": (1024, 3072, 28, 16, 8, 128),
}
Scoring: TypeAlias = Callable[[list[str]], Floats]
_BATCH = 16  # batch size of the reference
_TOLERANCE = 1e-4  # of P(yes)
_REFERENCE, _PEER, _OURS = "reference", "sentence-transformers CrossEncoder", "qwen3nb"


class RerankTiming(TypedDict):
    """What one method took for a set of texts."""

    name: str
    seconds: float  # median
    cpu: float  # seconds of all threads, median
    ratio: float  # of the reference's CPU seconds to them
    difference: float  # in P(yes) from the reference, the largest


@dataclass(frozen=True)
class RerankBench:
    """Results for one size of model and one set of texts.

    There is a timing of each method, the reference first and ours last.
    """

    size: str  # key of `SHAPES`
    texts: str  # name of the set
    documents: int
    rounds: int
    timings: tuple[RerankTiming, ...]

    def table(self) -> str:
        """The timings as plain text."""
        return table(
            f"{self.size} parameters, {self.texts}: {self.documents} "
            f"documents, medians of {self.rounds} rounds in turn",
            rows=self.timings,
            # The column of names has no heading; dP is the difference in P(yes).
            shown=": {name} | CPU s: {cpu:.2f} | s: {seconds:.2f} | faster: {ratio:.2f}x | "
            "max dP: {difference:.0e}",
        )


def bench_rerank(
    *, size: str = "100M", documents: int = 100, rounds: int = 3
) -> Iterator[RerankBench]:
    """Measure each set of texts of `qwen3nb.bench.encode.bench_texts`.

    Args:
        size: one of `SHAPES`; ``0.6B`` is the shape of Qwen3-0.6B (the reference needs 8 GB
            of memory).
        documents: documents per query; of long ones, a quarter.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown size.
        RuntimeError: the scores of a method differ from those of the reference.
    """
    check_choice("size", size, SHAPES)
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-") as work:
        folder = Path(work)
        write_random_reranker(folder, SHAPES[size])
        reranker = load_reranker(folder, device="cpu")
        methods: dict[str, Scoring] = {
            _REFERENCE: _Reference(folder, reranker).scores,
            _PEER: partial(predict, cross_encoder(folder)),
            _OURS: lambda texts: reranker.score(QUERY, texts).p_yes,
        }
        for name, texts in bench_texts(documents).items():
            timings = _timings(methods, texts, rounds=rounds)
            yield RerankBench(
                size, texts=name, documents=len(texts), rounds=rounds, timings=tuple(timings)
            )


def _timings(
    methods: Mapping[str, Scoring], texts: list[str], *, rounds: int
) -> list[RerankTiming]:
    """Time all methods in turn, and compare their scores.

    Raises:
        RuntimeError: the scores of a method differ from those of the reference.
    """
    calls = {name: partial(method, texts) for name, method in methods.items()}
    medians, scores = in_turn(calls, rounds=rounds)
    timings = []
    for name, median in medians.items():
        difference = float(abs(scores[name] - scores[_REFERENCE]).max())
        if difference > _TOLERANCE:
            raise RuntimeError(f"{name}: P(yes) differs from the reference by {difference:.1e}")
        timings.append(
            RerankTiming(
                name=name,
                seconds=median.seconds,
                cpu=median.cpu,
                ratio=medians[_REFERENCE].cpu / median.cpu,  # how many times faster
                difference=difference,
            )
        )
    return timings


class _Reference:
    """Scores in left-padded batches, and computes the logits of every token."""

    def __init__(self, folder: Path, reranker: Reranker) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self._no_and_yes = tokenizer.convert_tokens_to_ids(["no", "yes"])
        self._reranker = reranker

    def scores(self, texts: list[str]) -> Floats:
        """Return P(yes) of each text."""
        tokens = self._reranker._pairs.rows(QUERY, texts)
        rows = [[*tokens.shared, *rest] for rest in tokens.rests]
        p_yes = []
        for start in range(0, len(rows), _BATCH):
            p_yes.append(self._p_yes(rows[start : start + _BATCH]))
        return torch.cat(p_yes).double().numpy()

    def _p_yes(self, batch: list[list[int]]) -> Tensor:
        """Return P(yes) of each row of tokens."""
        longest = max(len(row) for row in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros(len(batch), longest, dtype=torch.long)
        # Padded on the left, so that every row ends at the last position.
        for index, row in enumerate(batch):
            first_token = longest - len(row)
            ids[index, first_token:] = torch.tensor(row)
            mask[index, first_token:] = 1
        with torch.inference_mode():
            output = self._model(input_ids=ids, attention_mask=mask, use_cache=False)
        no_and_yes = output.logits[:, -1, self._no_and_yes]  # (batch, 2), after the last token
        # P(yes) among the two: the softmax over "no" and "yes" alone.
        return no_and_yes.log_softmax(-1)[:, 1].exp()
