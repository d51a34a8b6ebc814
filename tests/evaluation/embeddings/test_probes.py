import math

import numpy as np
import pytest
from sklearn import metrics

from qwen3nb.answers.probes import probe
from qwen3nb.datasets.pairs import load_analogies, load_word_pairs
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.embeddings.probes import (
    analogies,
    clusters,
    linear_probe,
    word_similarity,
)
from qwen3nb.models.load import load_encoder

# Angles on a circle: cosine is that of the difference.
WORDS = {
    name: np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
    for name, angle in {"sun": 0, "moon": 10, "star": 40, "mud": 90}.items()
}


def test_word_similarity_by_hand():
    """Cosines fall 10°, 30°, 50°, 90°; gold agrees but for the first two: ρ = 1 − 6·2/(4·15)."""
    pairs = [
        ("sun", "moon", 8.0),
        ("moon", "star", 9.0),
        ("star", "mud", 3.0),
        ("sun", "mud", 1.0),
        ("sun", "unheard", 5.0),
    ]
    result = word_similarity(pairs, WORDS)
    assert result.spearman.value == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert (result.n, result.coverage) == (4, 0.8)
    assert result.p_value == pytest.approx(0.2)


def test_what_cannot_be_correlated_is_undefined():
    constant = word_similarity([("sun", "moon", 5), ("sun", "mud", 5)], WORDS)
    assert constant.spearman.value is None
    assert "constant" in constant.spearman.undefined
    assert constant.p_value is None
    none = word_similarity([("a", "b", 1.0)], WORDS)
    assert (none.spearman.undefined, none.n, none.coverage) == ("no queries", 0, 0.0)
    with pytest.raises(ValueError, match="at least one word pair"):
        word_similarity([], WORDS)
    with pytest.raises(ValueError, match=r"vectors \[1\] are zero"):
        word_similarity([("sun", "x", 1), ("x", "sun", 2)], {**WORDS, "x": np.zeros(2)})


FAMILY = {
    "man": [1, 0, 0.2],
    "woman": [0, 1, 0.2],
    "king": [1, 0, 1],
    "queen": [0, 1, 1],
    "throne": [0.3, 0.3, 1.2],
}


def test_analogy_by_hand():
    """king − man + woman is nearest to queen; without exclusion king itself would compete."""
    questions = [("man", "king", "woman", "queen"), ("man", "king", "woman", "throne")]
    result = analogies([*questions, ("man", "king", "woman", "empress")], FAMILY)
    assert (result.accuracy.value, result.n, result.coverage) == (0.5, 2, 2 / 3)
    assert analogies(questions, FAMILY, topk=2).accuracy.value == 1.0


@pytest.mark.parametrize(
    ("question", "words", "topk", "accuracy"),
    [
        # If a is c, the nearest word is b itself; only the exclusion rules it out.
        ("abad", {"a": [1, 0], "b": [0, 1], "d": [0.1, 1], "e": [1, 0.1]}, 1, 1.0),
        ("abab", {"a": [1, 0], "b": [0, 1], "d": [0.1, 1], "e": [1, 0.1]}, 4, 0.0),
        # An answer that ties with another word is not nearer than it.
        ("abcd", dict.fromkeys("abcde", (1.0, 0.0)), 1, 0.0),
        ("abcd", dict.fromkeys("abcde", (1.0, 0.0)), 2, 1.0),
    ],
)
def test_given_words_and_ties_are_no_answer(question, words, topk, accuracy):
    assert analogies([tuple(question)], words, topk=topk).accuracy.value == accuracy


def test_files_of_words(tmp_path):
    (tmp_path / "w.csv").write_text("word1,word2,score\nlove,sex,6.77\n\ncat,dog,7\n")
    assert load_word_pairs(tmp_path / "w.csv") == [("love", "sex", 6.77), ("cat", "dog", 7.0)]
    (tmp_path / "q.txt").write_text(": capitals\nOslo Norway Rome Italy\n")
    assert load_analogies(tmp_path / "q.txt") == [("Oslo", "Norway", "Rome", "Italy")]
    (tmp_path / "q.txt").write_text("a b c\n")
    with pytest.raises(DataError, match="q.txt:1: expected four words; got 3"):
        load_analogies(tmp_path / "q.txt")


def test_clusters_that_are_there_are_found():
    draw = np.random.default_rng(0)
    labels = [name for name in "xyz" for _ in range(20)]
    centres = dict(zip("xyz", np.eye(3), strict=True))
    vectors = [centres[label] + draw.normal(0, 0.05, 3) for label in labels]
    result = clusters(vectors, labels)
    assert {name: each.value for name, each in result.scores.items()} == dict.fromkeys(
        ("ARI", "NMI", "V-measure", "homogeneity", "completeness"), pytest.approx(1.0)
    )
    assert (result.n, result.clusters, result.seeds, result.scaled) == (60, 3, (42,), False)
    chance = clusters(draw.normal(size=(60, 3)), labels, seeds=(1, 2))
    assert abs(chance.scores["ARI"].value) < 0.15
    assert chance.scores["NMI"].value == pytest.approx(chance.scores["V-measure"].value)
    assert clusters(vectors, labels) == result
    with pytest.raises(ValueError, match="at least two labels"):
        clusters(vectors, ["x"] * 60)


@pytest.mark.parametrize("kind", [np.float32, np.float64, list])
@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_clusters_are_those_of_scikit_learn(kind, spread):
    """The groups lie in one direction at different distances, which scaling would hide."""
    from sklearn.cluster import KMeans

    draw = np.random.default_rng(3)
    labels = np.repeat(["near", "far", "further"], 40)
    distances = np.repeat([2.0, 6.0, 12.0], 40)
    rows = distances[:, None] * [1.0, 0.5] + draw.normal(0, spread, (120, 2))
    vectors = rows.tolist() if kind is list else rows.astype(kind)
    groups = KMeans(3, random_state=42).fit_predict(vectors)

    result = clusters(vectors, labels)

    assert result.scores["ARI"].value == metrics.adjusted_rand_score(labels, groups)
    assert result.scores["V-measure"].value == metrics.v_measure_score(labels, groups)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scaled = clusters(rows, labels, scale=True)
    groups = KMeans(3, random_state=42).fit_predict(unit)
    assert scaled.scores["ARI"].value == metrics.adjusted_rand_score(labels, groups)
    assert scaled.scaled
    assert scaled.scores["ARI"].value < result.scores["ARI"].value - 0.3


def test_analogies_scale_vectors_only_on_request():
    """By hand: b − a + c is (10, 1), nearest to "long"; from vectors of length 1 it is (1, 1)."""
    words = {"a": [1.0, 0.0], "b": [10.0, 0.0], "c": [1.0, 1.0]}
    words |= {"long": [10.0, 1.0], "short": [1.0, 1.2]}
    plain = analogies([("a", "b", "c", "long")], words)
    assert (plain.accuracy.value, plain.scaled) == (1.0, False)
    scaled = analogies([("a", "b", "c", "long")], words, scale=True)
    assert (scaled.accuracy.value, scaled.scaled) == (0.0, True)
    assert analogies([("a", "b", "c", "short")], words, scale=True).accuracy.value == 1.0


def test_transfer_equals_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(0)
    labels = draw.choice(["a", "b", "c"], 200, p=[0.6, 0.3, 0.1])
    vectors = draw.normal(size=(200, 5)) + 1.2 * (labels[:, None] == ["a", "b", "c", "", ""])
    result = linear_probe(vectors[:120], labels[:120], vectors[120:], labels[120:], seed=0)
    guess = (
        LogisticRegression(max_iter=1000).fit(vectors[:120], labels[:120]).predict(vectors[120:])
    )
    assert result.accuracy.value == pytest.approx((guess == labels[120:]).mean())
    expected = metrics.f1_score(labels[120:], guess, average="macro")
    assert result.macro_f1.value == pytest.approx(expected)
    assert result.macro_f1.low < expected < result.macro_f1.high
    assert (result.n, result.n_train) == (80, 120)


@pytest.mark.integration
def test_an_encoder_is_probed(tmp_path):
    """A random encoder carries no information: no clusters, no direction that is shared."""
    (tmp_path / "mine.csv").write_text("cat,dog,7\nsun,mud,1\nold,new,3\n")
    encoder = load_encoder("random", show_progress=False)
    (tmp_path / "capitals.txt").write_text(": capitals\nOslo Norway Rome Italy\nup down in out\n")
    probes = probe(encoder, words=[tmp_path / "mine.csv"], questions=[tmp_path / "capitals.txt"])
    assert list(probes.words) == ["mine"]
    assert (probes.analogies["capitals"].n, probes.analogies["capitals"].coverage) == (2, 1.0)
    assert abs(probes.clusters.scores["ARI"].value) < 0.05
    assert abs(probes.geometry.mean_cosine) < 0.01
    assert probes.transfer.accuracy.value < 0.5
    rows = probes.table().rows
    assert len(rows) == 1 + 1 + 5 + 2 + 2
    assert [row[0].text for row in rows[:2]] == ["mine", "capitals"]
    assert "vectors of length 1" in str(rows[1][1])
    assert "vectors as they are" in str(rows[2][0])
    assert rows[0][3].detail == "100.0% covered"
