"""Probe vectors without retrieval: word similarity, clustering, classification, geometry.

Each probe is a function of vectors; `probe` runs all of them on an encoder. Each result includes
the number of items, and the reason if a value is undefined.

Except for the lengths, the geometry is that of vectors scaled to length 1. Only the variances are
centred: a direction shared by all texts should remain visible. Clusters and analogies take vectors
as they are, unless ``scale`` is set; their results say which.

Shapes: N texts, D dimensions.

References:
    Finkelstein et al. 2002 (WordSim-353); Hill et al. 2015, arXiv:1408.3456 (SimLex-999);
    Mikolov et al. 2013, NAACL, and Levy and Goldberg 2014, CoNLL (analogies, 3CosAdd); Ethayarajh
    2019, arXiv:1909.00512 (anisotropy: the mean cosine); Rosenberg and Hirschberg 2007
    (V-measure); Roy and Vetterli 2007, EUSIPCO (effective rank).
"""

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from numpy.typing import ArrayLike, NDArray

from qwen3nb.datasets.pairs import Analogy, WordPair, load_analogies, load_word_pairs
from qwen3nb.metrics.aggregate import Aggregate, aggregate, means, numbered
from qwen3nb.models.encoders.base import Encoder

COLLAPSED_VARIANCE = 1e-6  # a dimension with less variance carries no information
CLUSTER_SEEDS = (42, 43, 44, 45, 46)
_STARTS = 10  # of k-means per seed
_BLOCK = 1024  # questions scored at once
Vectors = NDArray[np.float64]


@dataclass(frozen=True)
class WordSimilarity:
    """Correlation of the cosine of two words' vectors with human judgements."""

    spearman: Aggregate  # with its interval over pairs, or why it is undefined
    p_value: float | None  # two-sided p-value of no correlation (t-distribution), or None
    n: int  # number of pairs with vectors for both words
    coverage: float  # share of all


@dataclass(frozen=True)
class Analogies:
    """Accuracy on analogy questions."""

    accuracy: Aggregate  # share of questions with the answer among the ``topk`` nearest words
    topk: int
    n: int  # number of questions with vectors for all four words
    coverage: float  # share of all
    scaled: bool = False  # whether vectors were scaled to length 1 first


@dataclass(frozen=True)
class Clusters:
    """Agreement of k-means clusters with labels: mean over seeds, with an interval."""

    # ``ARI``, ``NMI``, ``V-measure``, ``homogeneity``, ``completeness``; NMI with the arithmetic
    # mean equals the V-measure
    scores: Mapping[str, Aggregate]
    n: int  # number of texts
    clusters: int  # number of clusters, k, which is the number of labels
    seeds: tuple[int, ...]
    scaled: bool = False  # whether vectors were scaled to length 1 first


@dataclass(frozen=True)
class LinearProbe:
    """Accuracy and mean F1 over classes of a logistic regression on frozen vectors.

    They are measured on ``n`` test texts, after ``n_train`` training texts.
    """

    accuracy: Aggregate
    macro_f1: Aggregate
    n: int
    n_train: int


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometry of a set of vectors."""

    lengths: Vectors  # length of every vector before scaling, (N,)
    variances: Vectors  # variance of every dimension over the texts, (D,)
    cosines: Vectors  # cosine of every pair of texts, (N (N - 1) / 2,)
    singular_values: Vectors  # singular values of the (N, D) matrix, descending, (min(N, D),)

    @property
    def texts(self) -> int:
        """Number of texts, N."""
        return len(self.lengths)

    @property
    def dimension(self) -> int:
        """Dimension of the vectors, D."""
        return len(self.variances)

    @property
    def collapsed(self) -> int:
        """Number of dimensions with a variance below `COLLAPSED_VARIANCE`."""
        return int((self.variances < COLLAPSED_VARIANCE).sum())

    @property
    def mean_cosine(self) -> float:
        """Mean cosine over all pairs: 0 for random directions, 1 for identical ones."""
        return float(self.cosines.mean())

    @property
    def effective_rank(self) -> float:
        """Exponential of the entropy of the singular values, normalised to sum to 1.

        The effective number of directions in use, from 1 (a single direction) to the number of
        values (all equal); Roy and Vetterli 2007, definition 1.
        """
        shares = self.singular_values / self.singular_values.sum()
        shares = shares[shares > 0]  # p log p -> 0 for p -> 0
        return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass(frozen=True)
class Probes:
    """All probes of one encoder; ``words`` and ``analogies`` by data set name."""

    label: str
    words: Mapping[str, WordSimilarity]
    analogies: Mapping[str, Analogies]
    clusters: Clusters
    transfer: LinearProbe
    geometry: Geometry


def word_similarity(pairs: Sequence[WordPair], vectors: Mapping[str, NDArray]) -> WordSimilarity:
    """Spearman correlation of cosine and gold score, over pairs whose words have a vector (D,).

    Raises:
        ValueError: no pairs, or a vector is zero or not finite.
    """
    if not pairs:
        raise ValueError("expected at least one word pair; got none")
    first_vectors, second_vectors, gold = [], [], []
    for first_word, second_word, score in pairs:
        if first_word in vectors and second_word in vectors:
            first_vectors.append(vectors[first_word])
            second_vectors.append(vectors[second_word])
            gold.append(float(score))
    cosines: list[float] = []
    if gold:
        # The dot product of unit vectors is their cosine.
        products = _unit_rows(first_vectors) * _unit_rows(second_vectors)
        cosines = products.sum(axis=1).tolist()
    columns = {"cosine": numbered(cosines), "gold": numbered(gold)}  # by number of the pair
    spearman = aggregate(columns, how="spearman", columns=("cosine", "gold"))
    p_value = None
    if spearman.value is not None and len(gold) > 2:
        p_value = float(scipy.stats.spearmanr(cosines, gold).pvalue)
    coverage = len(gold) / len(pairs)
    return WordSimilarity(spearman, p_value, n=len(gold), coverage=coverage)


def analogies(
    questions: Sequence[Analogy],
    vectors: Mapping[str, NDArray],
    *,
    topk: int = 1,
    scale: bool = False,
) -> Analogies:
    """Answer analogies: d should be among the ``topk`` words nearest to b − a + c, by cosine.

    A question is (a, b, c, d), as in ("man", "king", "woman", "queen"). Candidates are all words
    with a vector (D,) except a, b and c. With ``scale``, b − a + c is computed from vectors of
    length 1, which is 3CosAdd; otherwise from the vectors as they are.

    Raises:
        ValueError: no questions, ``topk`` below 1, or a vector is zero or not finite.
    """
    if not questions or topk < 1:
        raise ValueError(f"expected questions and topk >= 1; got {len(questions)} and {topk}")
    row_of_word = {word: row for row, word in enumerate(vectors)}
    rows = []  # of the words of each question
    for question in questions:
        if all(word in row_of_word for word in question):
            rows.append([row_of_word[word] for word in question])
    hits: list[float] = []
    if rows:
        unit = _unit_rows(list(vectors.values()))
        added = unit  # (N, D): what b - a + c is computed from
        if not scale:
            added = np.asarray(list(vectors.values()), dtype=np.float64)
        for start in range(0, len(rows), _BLOCK):
            block = np.array(rows[start : start + _BLOCK])
            hits += _are_answered(added, unit, block, topk).tolist()
    accuracy = aggregate({"hit": numbered(hits)}, how="mean", columns=("hit",))
    coverage = len(rows) / len(questions)
    return Analogies(accuracy, topk, n=len(rows), coverage=coverage, scaled=scale)


def _are_answered(
    added: Vectors, unit: Vectors, rows: NDArray[np.int64], topk: int
) -> NDArray[np.bool_]:
    """Return whether each question, a row (a, b, c, d) of row numbers, is answered.

    b − a + c is computed from ``added`` (N, D), and compared with ``unit`` (N, D).
    """
    a, b, c, d = rows.T  # row numbers, (Q,) each
    # (Q, N): each question with all words.
    scores = (added[b] - added[a] + added[c]) @ unit.T
    question = np.arange(len(rows))
    score_of_answer = scores[question, d].copy()
    for given_word in (a, b, c):
        scores[question, given_word] = -np.inf
    # An answer that is one of the given words never counts.
    answer_is_given = np.isneginf(scores[question, d])
    scores[question, d] = -np.inf
    # Another word with the same score counts as nearer.
    words_nearer = (scores >= score_of_answer[:, None]).sum(axis=1)
    return np.asarray((words_nearer < topk) & ~answer_is_given)


def clusters(
    vectors: ArrayLike,
    labels: Sequence[Hashable],
    *,
    seeds: Sequence[int] = (42,),
    starts: int | Literal["auto"] = "auto",
    scale: bool = False,
) -> Clusters:
    """Cluster vectors (N, D) with k-means, k the number of labels.

    With the defaults, the groups are the same as by scikit-learn's ``KMeans(k, random_state=42)``.

    Args:
        vectors: taken as they are.
        labels: one per vector.
        seeds: scores are means over them.
        starts: starts per seed, of which the best is taken; scikit-learn's ``n_init``.
        scale: whether to scale vectors to length 1 first, so that directions are clustered.

    Raises:
        ValueError: fewer than two labels, not one per vector, or a vector that is not finite, or
            zero where it should be scaled.
    """
    from sklearn import metrics
    from sklearn.cluster import KMeans

    points = np.asarray(vectors)
    if scale:
        points = _unit_rows(vectors)
    names = sorted(set(labels), key=str)
    if points.ndim != 2:
        raise ValueError(f"expected vectors (N, D); got {points.shape}")
    if len(labels) != len(points) or len(names) < 2:
        raise ValueError(
            f"expected one label per vector and at least two labels; got {len(points)} vectors, "
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
    scores: dict[str, dict[str, float]] = {name: {} for name in measures}
    for seed in seeds:
        groups = KMeans(len(names), random_state=seed, n_init=starts).fit_predict(points)
        for name, measure in measures.items():
            scores[name][f"seed-{seed}"] = float(measure(truth, groups))
    return Clusters(
        means(scores), n=len(points), clusters=len(names), seeds=tuple(seeds), scaled=scale
    )


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
    number_of_label = {name: number for number, name in enumerate(names)}
    model = LogisticRegression(max_iter=1000, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # an unconverged fit is not a result
        model.fit(np.asarray(train), [number_of_label[label] for label in train_labels])
    predicted = model.predict(np.asarray(test)).tolist()
    truth = [number_of_label[label] for label in test_labels]
    hits = [number == label for number, label in zip(predicted, truth, strict=True)]
    # By the number of the text.
    columns = {
        "hit": numbered(hits),
        "truth": numbered(truth),
        "predicted": numbered(predicted),
    }
    return LinearProbe(
        accuracy=aggregate(columns, how="mean", columns=("hit",)),
        macro_f1=aggregate(columns, how="macro_f1", columns=("truth", "predicted")),
        n=len(test_labels),
        n_train=len(train_labels),
    )


def vector_geometry(vectors: ArrayLike) -> Geometry:
    """Measure the geometry of ``vectors`` (N, D), N >= 2, without zero vectors."""
    unit = _unit_rows(vectors, min_rows=2)
    return Geometry(
        lengths=np.linalg.norm(np.asarray(vectors, dtype=np.float64), axis=1),
        variances=unit.var(axis=0),
        # Each pair once.
        cosines=(unit @ unit.T)[np.triu_indices(len(unit), k=1)],
        singular_values=np.asarray(np.linalg.svd(unit, compute_uv=False), dtype=np.float64),
    )


def _unit_rows(vectors: ArrayLike, *, min_rows: int = 1) -> Vectors:
    """Scale the rows of (N, D) to length 1, in double precision."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < min_rows:
        raise ValueError(f"expected vectors (N, D) with N >= {min_rows}; got {rows.shape}")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    has_no_direction = ~np.isfinite(lengths) | (lengths == 0)
    invalid = np.flatnonzero(has_no_direction).tolist()
    if invalid:
        raise ValueError(f"vectors {invalid[:8]} are zero or not finite and have no direction")
    return np.asarray(rows / lengths)


def probe(
    encoder: Encoder,
    *,
    words: Sequence[Path | str] = (),
    questions: Sequence[Path | str] = (),
    seed: int = 0,
) -> Probes:
    """Run all probes on an encoder: words from files, the rest on built-in data.

    Words are encoded without a prompt. Clustering and classification use the PyDocs sample,
    labelled by sub-package; the geometry uses the sentences of AuthorSTS.

    Args:
        encoder: from `load_encoder`.
        words: files or folders for `load_word_pairs`, such as a mirror's
            ``local/wordsim353``; `mirrored_words` lists them.
        questions: files for `load_analogies`; the candidates are the words of each file.
        seed: seed of the linear probe.

    Raises:
        DataError: a word file cannot be used.
        EncoderError: a vector is zero or not finite.
    """
    similarities, accuracies = {}, {}
    for file in map(Path, words):
        pairs = load_word_pairs(file)
        # A pair is two words and their score.
        vectors = _word_vectors(encoder, [pair[:2] for pair in pairs])
        similarities[_name(file)] = word_similarity(pairs, vectors)
    for file in map(Path, questions):
        words_of_questions = load_analogies(file)
        vectors = _word_vectors(encoder, words_of_questions)
        accuracies[_name(file)] = analogies(words_of_questions, vectors, scale=True)
    return Probes(
        encoder.label,
        words=similarities,
        analogies=accuracies,
        clusters=_cluster_sample(encoder),
        transfer=_classify_sample(encoder, seed=seed),
        geometry=vector_geometry(encoder.encode(author_sentences())),
    )


def _word_vectors(encoder: Encoder, groups: Iterable[Iterable[str]]) -> dict[str, Vectors]:
    """Return the vector of each word in any of the groups."""
    words: set[str] = set()
    for group in groups:
        words.update(group)
    distinct = sorted(words)
    return dict(zip(distinct, encoder.encode(distinct), strict=True))


def _cluster_sample(encoder: Encoder) -> Clusters:
    """Cluster the PyDocs sample."""
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task  # loads MTEB

    task = embedded_task("PyDocsSampleClustering")
    task.load_data()
    rows = task.dataset["test"]
    vectors = encoder.encode(list(rows["sentences"]))
    return clusters(vectors, list(rows["labels"]), seeds=CLUSTER_SEEDS, starts=_STARTS)


def _classify_sample(encoder: Encoder, *, seed: int) -> LinearProbe:
    """Classify the PyDocs sample."""
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task  # loads MTEB

    task = embedded_task("PyDocsSampleClassification")
    task.load_data()
    train, test = task.dataset["train"], task.dataset["test"]
    return linear_probe(
        train=encoder.encode(list(train["text"])),
        train_labels=list(train["label"]),
        test=encoder.encode(list(test["text"])),
        test_labels=list(test["label"]),
        seed=seed,
    )


def author_sentences() -> list[str]:
    """Return the sentences of AuthorSTS, sorted."""
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts  # loads MTEB

    sentences: set[str] = set()
    for first_sentence, second_sentence, _ in author_sts():
        sentences.update((first_sentence, second_sentence))
    return sorted(sentences)


def _name(file: Path) -> str:
    if file.is_dir():
        return file.name
    return file.name.partition(".")[0]
