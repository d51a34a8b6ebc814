"""Evaluate semantic textual similarity on STS-B, SICK-R, a file, or lists of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from qwen3nb.datasets.mirror import MirrorError, load_data, load_here, local_data
from qwen3nb.datasets.pairs import scored_pairs
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.metrics.aggregate import Aggregate, aggregate, numbered
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.choices import one_of

_BENCHMARK = "STSBenchmark"
_BENCHMARK_PAIRS = 1379  # in the test split of STS-B (Cer et al. 2017)
STS_SETS = {"STS-B": _BENCHMARK, "SICK-R": "SICK-R", "AuthorSTS": "AuthorSTS"}
_OTHER_NAMES = {"stsb": "STS-B", "stsbenchmark": "STS-B", "sick": "SICK-R"}


@dataclass(frozen=True)
class STSPairs:
    """N sentence pairs with gold scores on any scale.

    ``stand_in``: whether these are substitute data for thresholds set on another data set.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]
    stand_in: bool = True

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.gold) > 0:
            raise DataError(
                f"{self.name}: expected as many first sentences as second ones and scores, "
                f"at least one; got {len(self.first)}, {len(self.second)} and {len(self.gold)}"
            )
        if not np.isfinite(self.gold).all():
            raise DataError(f"{self.name}: a gold score is not a finite number")

    @classmethod
    def of_task(cls, name: str, task: Any) -> Self:
        """Take the pairs of the first split of a loaded MTEB task."""
        rows: Any = task.dataset
        for key in (*task.hf_subsets, task.eval_splits[0]):
            rows = rows.get(key, rows)
        one, two, gold = rows["sentence1"], rows["sentence2"], rows["score"]
        return cls(name, tuple(map(str, one)), tuple(map(str, two)), tuple(map(float, gold)))


@dataclass(frozen=True)
class STSScores:
    """Rank and linear correlation of similarities with gold scores, each with its interval.

    Undefined if a column is constant. ``per_query`` has both values of each pair.
    """

    dataset: str
    spearman: Aggregate
    pearson: Aggregate
    per_query: dict[str, dict[str, float]]

    @classmethod
    def of(cls, pairs: STSPairs, similarities: Sequence[float]) -> Self:
        """Correlate the similarity of each pair with its gold score."""
        per_query = {"cosine": numbered(similarities), "gold": numbered(pairs.gold)}
        spearman, pearson = (
            aggregate(per_query, how=how, columns=("cosine", "gold"))
            for how in ("spearman", "pearson")
        )
        return cls(pairs.name, spearman, pearson, per_query)

    def __repr__(self) -> str:
        def shown(value: Aggregate) -> str:
            return f"undefined ({value.undefined})" if value.value is None else f"{value.value:.4f}"

        return (
            f"STSScores({self.dataset}: spearman {shown(self.spearman)}, pearson "
            f"{shown(self.pearson)}, n {self.spearman.n})"
        )


def sts_pairs(name: str) -> STSPairs:
    """Load the test pairs of a set by name, such as ``STS-B`` or ``sick``, from mirror or hub.

    Raises:
        ValueError: unknown set; the message lists the choices.
        MirrorError: the data are not available; the message says how to fetch them.
    """
    name = _OTHER_NAMES.get(name.casefold(), name)
    (task,) = choose_tasks(tasks=[STS_SETS[one_of("STS set", name, STS_SETS)]])
    with local_data(task):
        load_data(task)
    return STSPairs.of_task(name, task)


def local_sts_benchmark() -> STSPairs | None:
    """Return the test pairs of STS-B if they are in the mirror or the datasets library's cache.

    Nothing is downloaded. If their number differs from that of STS-B, they count as substitutes.
    """
    (task,) = choose_tasks(tasks=[_BENCHMARK])
    try:
        load_here(task)
    except MirrorError:
        return None
    pairs = STSPairs.of_task("STS-B", task)
    return replace(pairs, stand_in=len(pairs.gold) != _BENCHMARK_PAIRS)


def read_pairs(file: Path) -> STSPairs:
    """Read pairs of sentences as `scored_pairs` does; raise DataError for an invalid row."""
    first, second, gold = zip(*scored_pairs(file, of="sentences"), strict=True)
    return STSPairs(file.name.split(".")[0], first, second, gold)


def evaluate_sts(
    model: Any, data: STSPairs | Path | str | tuple[Sequence[str], Sequence[str], Sequence[float]]
) -> STSScores:
    """Correlate the cosine similarity of each pair with its gold score.

    Correlations do not depend on the scale of the gold scores, so they are not rescaled.

    >>> pairs = (["a cat", "rain", "sort a list"], ["a dog", "list.sort", "list.sort"], [3, 0, 4])
    >>> evaluate_sts("random", pairs).spearman.n
    3

    Args:
        model: an encoder, or its spec; any object with ``encode(texts)``; or a pair of a model with
            ``encode(texts, tokenizer)`` and its tokenizer.
        data: three lists (sentences, sentences, gold scores), a file as for `read_pairs`, the
            name of a set as for `sts_pairs`, or pairs from either.

    Raises:
        ValueError: unknown set; the message lists the choices.
        DataError: lists of different lengths, or an invalid row.
        TypeError: another kind of ``model``.
    """
    encoder = load_encoder(model) if isinstance(model, str | Path) else model
    if isinstance(model, tuple):
        inner, tokenizer = model
        one_argument = SimpleNamespace(encode=lambda texts: inner.encode(texts, tokenizer))
        encoder = WrappedEncoder(one_argument, label=type(inner).__name__)
    elif not isinstance(encoder, Encoder):
        encoder = WrappedEncoder(encoder)
    if isinstance(data, str | Path):
        file = Path(data).expanduser()
        data = read_pairs(file) if file.is_file() else sts_pairs(str(data))
    elif not isinstance(data, STSPairs):
        first, second, gold = data
        data = STSPairs("custom", tuple(first), tuple(second), tuple(map(float, gold)))
    vectors = encoder.encode([*data.first, *data.second])
    one, other = np.split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2)
    return STSScores.of(data, (one * other).sum(axis=1).tolist())
