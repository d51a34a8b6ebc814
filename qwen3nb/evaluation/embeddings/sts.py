"""Evaluate semantic textual similarity on STS-B, SICK-R, a file, or lists of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.rows import DataError, csv_rows, numbered_json_rows
from qwen3nb.datasets.values import scored_pair
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.choices import one_of

__all__ = [
    "STS_SETS",
    "STSPairs",
    "STSScores",
    "evaluate_sts",
    "local_sts_benchmark",
    "read_pairs",
    "sts_pairs",
]

_BENCHMARK = "STSBenchmark"
_BENCHMARK_PAIRS = 1379  # in the test split of STS-B (Cer et al. 2017)
STS_SETS = {"STS-B": _BENCHMARK, "SICK-R": "SICK-R", "AuthorSTS": "AuthorSTS"}


@dataclass(frozen=True)
class STSPairs:
    """Sentence pairs with gold scores on any scale.

    Attributes:
        name: name of the set.
        first: N sentences.
        second: N sentences.
        gold: N scores.
        stand_in: whether thresholds that were set for another set are read on this one.
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


@dataclass(frozen=True)
class STSScores:
    """Correlation of cosine similarities with gold scores.

    Attributes:
        dataset: name of the set.
        spearman: rank correlation, with its interval; undefined if a column is constant.
        pearson: linear correlation, likewise.
        per_query: cosine similarity and gold score of each pair.
    """

    dataset: str
    spearman: Aggregate
    pearson: Aggregate
    per_query: dict[str, dict[str, float]]

    def __repr__(self) -> str:
        def shown(value: Aggregate) -> str:
            return f"undefined ({value.undefined})" if value.value is None else f"{value.value:.4f}"

        return (
            f"STSScores({self.dataset}: spearman {shown(self.spearman)}, pearson "
            f"{shown(self.pearson)}, n {self.spearman.n})"
        )


def sts_pairs(name: str) -> STSPairs:
    """Load the test pairs of a set by name, from the mirror or the hub.

    Raises:
        ValueError: unknown set; the message lists the choices.
        MirrorError: the data are not available; the message says how to fetch them.
    """
    from qwen3nb.datasets.mirror import load_data, local_data
    from qwen3nb.evaluation.mteb.select import select_tasks

    task = select_tasks(names=[STS_SETS[one_of("STS set", name, STS_SETS)]])[0]
    with local_data(task):
        load_data(task)
        data: Any = task.dataset
        for key in (*task.hf_subsets, task.eval_splits[0]):
            data = data.get(key, data)
    return STSPairs(
        name,
        tuple(map(str, data["sentence1"])),
        tuple(map(str, data["sentence2"])),
        tuple(map(float, data["score"])),
    )


def local_sts_benchmark() -> STSPairs | None:
    """Return the test pairs of STS-B if they are in the mirror or in the datasets library's cache.

    Nothing is downloaded. They stand in for STS-B unless they are as many as it has.
    """
    from qwen3nb.datasets.mirror import mirrored
    from qwen3nb.evaluation.mteb.select import select_tasks

    task = select_tasks(names=[_BENCHMARK])[0]
    data = task.metadata.dataset
    if mirrored(data["path"]) is not None:
        pairs: STSPairs | None = sts_pairs("STS-B")
    else:
        pairs = _cached_pairs(data["path"], data["revision"])
    if pairs is None:
        return None
    return replace(pairs, stand_in=len(pairs.gold) != _BENCHMARK_PAIRS)


def _cached_pairs(path: str, revision: str) -> STSPairs | None:
    """Read the datasets library's cache: owner___name/config/version/revision."""
    import datasets

    root = Path(datasets.config.HF_DATASETS_CACHE).expanduser()
    folders = sorted(root.glob(f"{path.replace('/', '___')}/*/*/{revision}"))
    files = [file for folder in folders[:1] for file in folder.glob("*-test.arrow")]
    if len(files) != 1:
        return None
    rows = datasets.Dataset.from_file(str(files[0]))
    first, second = (tuple(map(str, rows[column])) for column in ("sentence1", "sentence2"))
    return STSPairs("STS-B", first, second, tuple(map(float, rows["score"])))


def read_pairs(file: Path) -> STSPairs:
    """Read pairs from JSONL, CSV or TSV with columns ``sentence1``, ``sentence2``, ``score``.

    Raises:
        DataError: an invalid row; the message names the line.
    """
    if file.name.removesuffix(".gz").endswith((".csv", ".tsv")):
        rows = list(_table(file))
    else:
        kinds: dict[str, Any] = {"sentence1": str, "sentence2": str, "score": (int, float)}
        rows = [
            scored_pair(file, number, a, b, score, of="sentences")
            for number, (a, b, score) in numbered_json_rows(file, kinds)
        ]
    if not rows:
        raise DataError(f"{file}: no pairs")
    first, second, gold = zip(*rows, strict=True)
    return STSPairs(file.name.split(".")[0], first, second, gold)


def _pairs(data: Any) -> STSPairs:
    if isinstance(data, STSPairs):
        return data
    if isinstance(data, str | Path):
        file = Path(data).expanduser()
        return read_pairs(file) if file.is_file() else sts_pairs(str(data))
    first, second, gold = data
    return STSPairs("custom", tuple(first), tuple(second), tuple(map(float, gold)))


def _table(file: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the pairs of a table with a header."""
    rows, wanted = csv_rows(file), ("sentence1", "sentence2", "score")
    header = next(rows, (1, []))[1]
    if missing := [name for name in wanted if name not in header]:
        raise DataError(f"{file}:1: no column {missing[0]!r}; expected {', '.join(wanted)}")
    for number, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{file}:{number}: {len(cells)} cells, expected {len(header)}")
        first, second, score = (cells[header.index(name)] for name in wanted)
        yield scored_pair(file, number, first, second, score, of="sentences")


def evaluate_sts(
    model: Encoder | Path | str,
    data: STSPairs | Path | str | tuple[Sequence[str], Sequence[str], Sequence[float]],
    *,
    seed: int = 0,
) -> STSScores:
    """Correlate the cosine similarity of each pair with its gold score.

    Correlations do not depend on the scale of the gold scores, so they are not rescaled.

    >>> pairs = (["a cat", "rain", "sort a list"], ["a dog", "list.sort", "list.sort"], [3, 0, 4])
    >>> evaluate_sts("random", pairs).spearman.n
    3

    Args:
        model: an encoder, or its spec.
        data: three lists (sentences, sentences, gold scores), a file as for `read_pairs`, the
            name of a set as for `sts_pairs`, or pairs from either.
        seed: seed of the confidence intervals.

    Raises:
        ValueError: unknown set; the message lists the choices.
        DataError: lists of different lengths, or an invalid row.
    """
    encoder = model if isinstance(model, Encoder) else load_encoder(model)
    pairs = _pairs(data)
    vectors = encoder.encode([*pairs.first, *pairs.second])
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    half = len(pairs.first)
    cosines = (vectors[:half] * vectors[half:]).sum(axis=1)
    names = [f"{index:05d}" for index in range(half)]
    per_query = {
        "cosine": dict(zip(names, map(float, cosines), strict=True)),
        "gold": dict(zip(names, pairs.gold, strict=True)),
    }
    spearman, pearson = (
        aggregate(per_query, how=how, columns=("cosine", "gold"), seed=seed)
        for how in ("spearman", "pearson")
    )
    return STSScores(pairs.name, spearman, pearson, per_query)
