"""Probe vectors without retrieval: word similarity, clustering, classification, geometry.

Each probe is a plain function on vectors (those on words are in `word_similarity`);
`probe` runs them all on an encoder. Each result gives the number of items it is based on,
and an undefined value gives the reason.

Shapes: N texts, D dimensions.

References:
    Wang and Isola 2020, arXiv:2005.10242 (alignment and uniformity); Ethayarajh 2019,
    arXiv:1909.00512 (anisotropy); Rosenberg and Hirschberg 2007 (V-measure).
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.datasets.words import load_analogies, load_word_pairs
from qwen3nb.evaluation.embeddings.word_similarity import (
    Analogies,
    Vectors,
    WordSimilarity,
    analogies,
    unit_rows,
    word_similarity,
)
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.models.encoders.base import Encoder

__all__ = [
    "Clusters",
    "LinearProbe",
    "Probes",
    "VectorSpread",
    "alignment",
    "anisotropy",
    "clusters",
    "linear_probe",
    "probe",
    "uniformity",
]

CLUSTER_SEEDS = (42, 43, 44, 45, 46)
SAME = 4.0  # lowest AuthorSTS grade of two sentences that mean the same
_BLOCK = 1024  # rows compared at once


@dataclass(frozen=True)
class Clusters:
    """Agreement of k-means clusters with labels: mean over seeds, with an interval.

    Attributes:
        scores: ``ARI``, ``NMI``, ``V-measure``, ``homogeneity``, ``completeness``. NMI with
            the arithmetic mean equals the V-measure; both names are in use.
        n: number of texts.
        clusters: number of clusters, k, which is the number of labels.
        seeds: seeds of the initialisations.
    """

    scores: Mapping[str, Aggregate]
    n: int
    clusters: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class LinearProbe:
    """Accuracy of a logistic regression on frozen vectors.

    Attributes:
        accuracy: on the test texts, with its confidence interval.
        macro_f1: mean F1 over classes, with its confidence interval.
        n: number of test texts.
        n_train: number of training texts.
    """

    accuracy: Aggregate
    macro_f1: Aggregate
    n: int
    n_train: int


@dataclass(frozen=True)
class VectorSpread:
    """Spread of vectors of length 1.

    Attributes:
        uniformity: from −4 (evenly spread, in many dimensions) to 0 (all identical).
        anisotropy: mean cosine of different texts.
        alignment: mean squared distance between texts that mean the same, or None.
        n: number of texts.
        n_pairs: number of pairs of texts that mean the same.
    """

    uniformity: float
    anisotropy: float
    alignment: float | None
    n: int
    n_pairs: int


@dataclass(frozen=True)
class Probes:
    """All probes of one encoder; ``words`` and ``analogies`` by data set name."""

    label: str
    words: Mapping[str, WordSimilarity]
    analogies: Mapping[str, Analogies]
    clusters: Clusters
    transfer: LinearProbe
    geometry: VectorSpread


def clusters(
    vectors: ArrayLike, labels: Sequence[Hashable], *, seeds: Sequence[int] = CLUSTER_SEEDS
) -> Clusters:
    """Cluster vectors (N, D) with k-means (k: number of labels, ten starts per seed).

    Raises:
        ValueError: fewer than two labels, or not one per vector.
    """
    from sklearn import metrics
    from sklearn.cluster import KMeans

    unit = unit_rows(vectors)
    names = sorted(set(labels), key=str)
    if len(labels) != len(unit) or len(names) < 2:
        raise ValueError(
            f"expected one label per vector and at least two labels; got {len(unit)} vectors, "
            f"{len(labels)} labels, {len(names)} of them distinct"
        )
    truth = [names.index(label) for label in labels]
    measures = {
        "ARI": metrics.adjusted_rand_score,
        "NMI": metrics.normalized_mutual_info_score,
        "V-measure": metrics.v_measure_score,
        "homogeneity": metrics.homogeneity_score,
        "completeness": metrics.completeness_score,
    }
    drawn: dict[str, dict[str, float]] = {name: {} for name in measures}
    for seed in seeds:
        groups = KMeans(len(names), random_state=seed, n_init=10).fit_predict(unit)
        for name, measure in measures.items():
            drawn[name][f"seed-{seed}"] = float(measure(truth, groups))
    scores = {
        name: aggregate(drawn, how="mean", columns=(name,), seed=seeds[0]) for name in measures
    }
    return Clusters(scores, len(unit), len(names), tuple(seeds))


def linear_probe(
    train: ArrayLike,
    train_labels: Sequence[Hashable],
    test: ArrayLike,
    test_labels: Sequence[Hashable],
    *,
    seed: int,
) -> LinearProbe:
    """Fit a logistic regression (at most 1,000 iterations) from vectors (N, D) to labels.

    Raises:
        ValueError: fewer than two training labels, or not one per vector.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    names = sorted({*train_labels, *test_labels}, key=str)
    number = {name: index for index, name in enumerate(names)}
    model = LogisticRegression(max_iter=1000, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # an unconverged fit is not a result
        model.fit(np.asarray(train), [number[label] for label in train_labels])
    predicted = model.predict(np.asarray(test)).tolist()
    columns: dict[str, dict[str, float]] = {"hit": {}, "truth": {}, "predicted": {}}
    for row, (label, guess) in enumerate(zip(test_labels, predicted, strict=True)):
        name = f"{row:06d}"
        columns["truth"][name], columns["predicted"][name] = number[label], guess
        columns["hit"][name] = float(number[label] == guess)
    return LinearProbe(
        aggregate(columns, how="mean", columns=("hit",), seed=seed),
        aggregate(columns, how="macro_f1", columns=("truth", "predicted"), seed=seed),
        len(test_labels),
        len(train_labels),
    )


def uniformity(vectors: ArrayLike, *, t: float = 2.0) -> float:
    """Logarithm of the mean of exp(−t ‖x − y‖²) over pairs of distinct rows of (N, D).

    Raises:
        ValueError: fewer than two vectors, or one that is zero or not finite.
    """
    unit = _two_or_more(vectors)
    total = 0.0
    for start in range(0, len(unit), _BLOCK):
        distances = np.maximum(2 - 2 * unit[start : start + _BLOCK] @ unit.T, 0)
        total += float(np.exp(-t * distances).sum())
    n = len(unit)
    # A row's distance to itself is 0, which adds n ones.
    return float(np.log(max(total - n, np.finfo(float).tiny) / (n * (n - 1))))


def alignment(first: ArrayLike, second: ArrayLike, *, alpha: float = 2.0) -> float:
    """Mean of ‖x − y‖^alpha over rows of (N, D) and (N, D) that mean the same.

    Raises:
        ValueError: no rows, unequal shapes, or a vector that is zero or not finite.
    """
    left, right = unit_rows(first), unit_rows(second)
    if left.shape != right.shape:
        raise ValueError(f"expected two arrays of equal shape; got {left.shape} and {right.shape}")
    return float((np.linalg.norm(left - right, axis=1) ** alpha).mean())


def anisotropy(vectors: ArrayLike) -> float:
    """Mean cosine of distinct rows of (N, D): 0 if directions cancel out, 1 if all are equal.

    Raises:
        ValueError: fewer than two vectors, or one that is zero or not finite.
    """
    unit = _two_or_more(vectors)
    n = len(unit)
    return float((np.square(unit.sum(axis=0)).sum() - n) / (n * (n - 1)))


def probe(
    encoder: Encoder,
    *,
    words: Sequence[Path | str] = (),
    questions: Sequence[Path | str] = (),
    seed: int = 0,
) -> Probes:
    """Run all probes on an encoder: words from files, the rest on built-in data.

    Words are encoded as they are written, without a prompt. Clustering and classification
    use the PyDocs sample, labelled by sub-package; the geometry is that of AuthorSTS, whose
    pairs graded 4 or 5 count as equal in meaning.

    Args:
        encoder: from `load_encoder`.
        words: files or folders for `load_word_pairs`, such as a mirror's
            ``local/wordsim353``; `mirrored_words` lists them.
        questions: files for `load_analogies`; the candidates are the words of each file.
        seed: seed of the confidence intervals.

    Raises:
        DataError: a word file cannot be used.
        EncoderError: a vector is zero or not finite.
    """
    alike, solved = {}, {}
    for file in map(Path, words):
        pairs = load_word_pairs(file)
        vectors = _of_words(encoder, {word for pair in pairs for word in pair[:2]})
        alike[_name(file)] = word_similarity(pairs, vectors, seed=seed)
    for file in map(Path, questions):
        loaded = load_analogies(file)
        vectors = _of_words(encoder, {word for question in loaded for word in question})
        solved[_name(file)] = analogies(loaded, vectors, seed=seed)
    grouped, learnt = _pydocs(encoder, seed=seed)
    return Probes(encoder.label, alike, solved, grouped, learnt, _geometry(encoder))


def _name(file: Path) -> str:
    return file.name if file.is_dir() else file.name.partition(".")[0]


def _of_words(encoder: Encoder, words: set[str]) -> dict[str, Vectors]:
    listed = sorted(words)
    return dict(zip(listed, encoder.encode(listed), strict=True))


def _pydocs(encoder: Encoder, *, seed: int) -> tuple[Clusters, LinearProbe]:
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

    grouping = embedded_task("PyDocsSampleClustering")
    grouping.load_data()
    rows = grouping.dataset["test"]
    learning = embedded_task("PyDocsSampleClassification")
    learning.load_data()
    train, test = learning.dataset["train"], learning.dataset["test"]
    return (
        clusters(encoder.encode(list(rows["sentences"])), list(rows["labels"])),
        linear_probe(
            encoder.encode(list(train["text"])),
            list(train["label"]),
            encoder.encode(list(test["text"])),
            list(test["label"]),
            seed=seed,
        ),
    )


def _geometry(encoder: Encoder) -> VectorSpread:
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts

    rows = author_sts()
    texts = sorted({text for first, second, _ in rows for text in (first, second)})
    vectors = encoder.encode(texts)
    same = [(first, second) for first, second, grade in rows if grade >= SAME]
    left, right = (encoder.encode([pair[side] for pair in same]) for side in (0, 1))
    return VectorSpread(
        uniformity(vectors), anisotropy(vectors), alignment(left, right), len(texts), len(same)
    )


def _two_or_more(vectors: ArrayLike) -> Vectors:
    unit = unit_rows(vectors)
    if len(unit) < 2:
        raise ValueError("expected at least two vectors; got one")
    return unit
