"""Measure word similarity and analogies on word vectors.

A file of word pairs is JSONL (sentence1, sentence2, score), CSV or TSV (word, word, score),
plain or gzipped, or a folder with test.jsonl, as in a mirror: local/wordsim353. A file of
analogies has lines ``man king woman queen``; a line that starts with ``:`` names a section.

References:
    Finkelstein et al. 2002 (WordSim-353); Hill et al. 2015, arXiv:1408.3456 (SimLex-999);
    Mikolov et al. 2013, NAACL, and Levy and Goldberg 2014, CoNLL (analogies, 3CosAdd).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qwen3nb.datasets.words import (
    Analogy,
    WordPair,
)
from qwen3nb.metrics.aggregate import Aggregate, aggregate

__all__ = [
    "Analogies",
    "Vectors",
    "WordSimilarity",
    "analogies",
    "unit_rows",
    "word_similarity",
]

Vectors = NDArray[np.float64]
_BLOCK = 1024  # questions scored at once


@dataclass(frozen=True)
class WordSimilarity:
    """Correlation of the cosine of two words' vectors with human judgements.

    Attributes:
        spearman: rank correlation with its interval over pairs, or why it is undefined.
        p_value: two-sided p-value of no correlation (t-distribution), or None.
        n: number of covered pairs, in which both words have a vector.
        coverage: share of pairs that are covered.
    """

    spearman: Aggregate
    p_value: float | None
    n: int
    coverage: float


@dataclass(frozen=True)
class Analogies:
    """Accuracy on analogy questions.

    Attributes:
        accuracy: share of questions answered correctly, with its interval.
        topk: number of nearest words that may contain the answer.
        n: number of covered questions, in which all four words have a vector.
        coverage: share of questions that are covered.
    """

    accuracy: Aggregate
    topk: int
    n: int
    coverage: float


def word_similarity(
    pairs: Sequence[WordPair], vectors: Mapping[str, NDArray], *, seed: int
) -> WordSimilarity:
    """Spearman correlation of cosine and gold score over the covered pairs.

    Args:
        pairs: two words and a gold score.
        vectors: vector (D,) of each word; a pair with a missing word is not covered.
        seed: of the interval.

    Raises:
        ValueError: no pairs, or a vector is zero or not finite.
    """
    from scipy.stats import spearmanr

    if not pairs:
        raise ValueError("expected at least one word pair; got none")
    covered = [pair for pair in pairs if pair[0] in vectors and pair[1] in vectors]
    columns: dict[str, dict[str, float]] = {"cosine": {}, "gold": {}}
    if covered:
        first, second = (
            unit_rows([vectors[word] for word in side])
            for side in ([a for a, _, _ in covered], [b for _, b, _ in covered])
        )
        for row, (pair, cosine) in enumerate(
            zip(covered, (first * second).sum(axis=1).tolist(), strict=True)
        ):
            columns["cosine"][f"{row:06d}"] = cosine
            columns["gold"][f"{row:06d}"] = float(pair[2])
    spearman = aggregate(columns, how="spearman", columns=("cosine", "gold"), seed=seed)
    p_value = None
    if spearman.value is not None and len(covered) > 2:
        test = spearmanr(list(columns["cosine"].values()), list(columns["gold"].values()))
        p_value = float(test.pvalue)
    return WordSimilarity(spearman, p_value, len(covered), len(covered) / len(pairs))


def analogies(
    questions: Sequence[Analogy], vectors: Mapping[str, NDArray], *, topk: int = 1, seed: int
) -> Analogies:
    """Answer analogies by 3CosAdd: is d among the ``topk`` words nearest to b − a + c?

    Vectors are scaled to length 1 first. Candidates are all words with a vector except a, b and c.

    Args:
        questions: (a, b, c, d), as in ("man", "king", "woman", "queen").
        vectors: vector (D,) of each word.
        topk: at least 1.
        seed: of the interval.

    Raises:
        ValueError: no questions, ``topk`` below 1, or a vector is zero or not finite.
    """
    if not questions or topk < 1:
        raise ValueError(f"expected questions and topk >= 1; got {len(questions)} and {topk}")
    words = list(vectors)
    rows_of = {word: row for row, word in enumerate(words)}
    covered = [question for question in questions if all(word in rows_of for word in question)]
    hits = {}
    if covered:
        unit = unit_rows([vectors[word] for word in words])
        rows = np.array([[rows_of[word] for word in question] for question in covered])
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            for offset, hit in enumerate(_three_cos_add(unit, block, topk)):
                hits[f"{start + offset:06d}"] = float(hit)
    accuracy = aggregate({"hit": hits}, how="mean", columns=("hit",), seed=seed)
    return Analogies(accuracy, topk, len(covered), len(covered) / len(questions))


def _three_cos_add(unit: Vectors, rows: NDArray[np.int64], topk: int) -> NDArray[np.bool_]:
    """Whether each question, a row (a, b, c, d) of row numbers in ``unit``, is answered."""
    a, b, c, d = rows.T
    scores = (unit[b] - unit[a] + unit[c]) @ unit.T
    here = np.arange(len(rows))
    wanted = scores[here, d].copy()
    for excluded in (a, b, c):
        scores[here, excluded] = -np.inf
    # An answer that is one of the three given words never counts, and one that ties with
    # other words is not nearer than they are.
    excluded_answer = np.isneginf(scores[here, d])
    scores[here, d] = -np.inf
    hits: NDArray[np.bool_] = ((scores >= wanted[:, None]).sum(axis=1) < topk) & ~excluded_answer
    return hits


def unit_rows(vectors: ArrayLike) -> Vectors:
    """Scale the rows of (N, D) to length 1, in double precision."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"expected vectors (N, D) with N >= 1; got {rows.shape}")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        row = int(np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))[0])
        raise ValueError(f"vector {row} is zero or not finite")
    unit: Vectors = rows / lengths
    return unit
