"""Evaluate semantic textual similarity on STS-B, SICK-R, a file, or lists of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from qwen3nb.datasets.in_memory import is_table
from qwen3nb.datasets.mirror import MirrorError, load_data, load_here, local_data
from qwen3nb.datasets.pairs import scored_pairs
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.metrics.aggregate import Aggregate, aggregate, numbered
from qwen3nb.models.capabilities import encodes
from qwen3nb.models.load import loaded, to_model
from qwen3nb.models.types import SpecError
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from mteb import AbsTask

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
        have_equal_lengths = len(self.first) == len(self.second) == len(self.gold)
        if not have_equal_lengths or not self.gold:
            raise DataError(
                f"{self.name}: expected as many first sentences as second ones and scores, "
                f"at least one; got {len(self.first)}, {len(self.second)} and {len(self.gold)}"
            )
        if not np.isfinite(self.gold).all():
            raise DataError(f"{self.name}: a gold score is not a finite number")

    @classmethod
    def of_task(cls, name: str, task: AbsTask) -> Self:
        """Take the pairs of the first split of a loaded MTEB task."""
        rows: Any = task.dataset
        for key in (*task.hf_subsets, task.eval_splits[0]):
            # Data of a single subset may have no level of subsets.
            rows = rows.get(key, rows)
        first_sentences = tuple(str(sentence) for sentence in rows["sentence1"])
        second_sentences = tuple(str(sentence) for sentence in rows["sentence2"])
        gold = tuple(float(score) for score in rows["score"])
        return cls(name, first_sentences, second_sentences, gold)


@dataclass(frozen=True)
class STSScores:
    """Rank and linear correlation of similarities with gold scores, each with its interval.

    Undefined if a column is constant. ``per_query`` has both values of each pair.
    """

    dataset: str
    spearman: Aggregate
    pearson: Aggregate
    per_query: dict[str, dict[str, float]]

    @property
    def dataset_name(self) -> str:
        """Name of the pairs, the same as ``dataset``."""
        return self.dataset

    @property
    def num_samples(self) -> int:
        """Number of pairs."""
        return self.spearman.n

    @classmethod
    def of(cls, pairs: STSPairs, similarities: Sequence[float]) -> Self:
        """Correlate the similarity of each pair with its gold score."""
        per_query = {"cosine": numbered(similarities), "gold": numbered(pairs.gold)}
        columns = ("cosine", "gold")
        spearman = aggregate(per_query, how="spearman", columns=columns)
        pearson = aggregate(per_query, how="pearson", columns=columns)
        return cls(pairs.name, spearman, pearson, per_query)

    def __repr__(self) -> str:
        def shown(correlation: Aggregate) -> str:
            if correlation.value is None:
                return f"undefined ({correlation.undefined})"
            return f"{correlation.value:.4f}"

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
    (task,) = choose_tasks(tasks=[STS_SETS[check_choice("STS set", name, STS_SETS)]])
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


def read_pairs(source: Any, *, name: str = "custom") -> STSPairs:
    """Read pairs of sentences as `scored_pairs` does; raise DataError for an invalid row."""
    if isinstance(source, Path):
        name = source.name.split(".")[0]
    first_sentences, second_sentences, gold = zip(
        *scored_pairs(source, of="sentences"), strict=True
    )
    return STSPairs(name, first_sentences, second_sentences, gold)


def evaluate_sts(model: Any, data: Any) -> STSScores:
    """Correlate the cosine similarity of each pair with its gold score.

    Correlations do not depend on the scale of the gold scores, so they are not rescaled.

    >>> pairs = (["a cat", "rain", "sort a list"], ["a dog", "list.sort", "list.sort"], [3, 0, 4])
    >>> evaluate_sts("random", pairs).spearman.n
    3
    >>> rows = [{"sentence1": "a", "sentence2": word, "score": n} for n, word in enumerate("bcd")]
    >>> evaluate_sts("random", rows).num_samples
    3

    Args:
        model: a `Model`, its spec, or an encoder; any object with ``encode(texts)``; or a pair of a
            model and its tokenizer, as `with_tokenizer` takes them.
        data: three lists (sentences, sentences, gold scores); rows with ``sentence1``,
            ``sentence2`` and ``score``, as a list of dictionaries or a data frame; a file as for
            `read_pairs`; the name of a set as for `sts_pairs`; or pairs from either.

    Raises:
        ValueError: unknown set; the message lists the choices.
        DataError: lists of different lengths, or an invalid row.
        TypeError: another kind of ``model``.
    """
    is_in_other_order = is_table(model) and not is_table(data)
    # A data frame first is accepted, too.
    if is_in_other_order:
        model, data = data, model
    pairs = _pairs_of(data)
    encoder = loaded(to_model(model))
    if not encodes(encoder):
        raise SpecError(f"{encoder.label} {encoder.only_searches}, so it compares no sentences")
    vectors = encoder.encode([*pairs.first, *pairs.second])
    unit_vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first_vectors, second_vectors = np.split(unit_vectors, 2)
    cosines = (first_vectors * second_vectors).sum(axis=1)
    return STSScores.of(pairs, cosines.tolist())


def _pairs_of(data: Any) -> STSPairs:
    """Return pairs given in any of the forms that `evaluate_sts` takes."""
    if isinstance(data, STSPairs):
        return data
    if isinstance(data, str | Path):
        file = Path(data).expanduser()
        if file.is_file():
            return read_pairs(file)
        return sts_pairs(str(data))
    if is_table(data):
        return read_pairs(data)
    first_sentences, second_sentences, gold = data
    return STSPairs(
        "custom", tuple(first_sentences), tuple(second_sentences), tuple(map(float, gold))
    )
