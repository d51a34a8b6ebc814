"""Classifiers and their learning curves: scikit-learn as oracle, intervals by simulation."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from qwen3nb.analysis.stats.interference_ratio import crossed_interval
from qwen3nb.datasets.pydocs.labelled import Draws, LabelledTexts, draw
from qwen3nb.evaluation.downstream import (
    Frozen,
    LearningCurve,
    Tuned,
    f1_of,
    first_tokens,
    learning_curve,
    predict,
    training_rows,
)
from qwen3nb.models.classifier import load_classifier

FRUIT, TOOLS = ("an apple", "a pear", "a plum", "a fig"), ("a saw", "a drill", "a file", "an axe")
TEXTS = LabelledTexts(FRUIT + TOOLS, ("fruit",) * 4 + ("tool",) * 4)
WORDS = LabelledTexts(
    ("use axis here", "the axis is  an axis"),
    (("other", "code", "other"), ("other", "code", "other", "other", "code")),
)


class Letters:
    """Vectors of a text: how often it has each letter."""

    def encode(self, texts):
        letters = "abcdefghijklmnopqrstuvwxyz"
        return np.array([[text.count(letter) for letter in letters] for text in texts], float)


def test_frozen_is_scikit_learns_logistic_regression():
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdef"), 6)) for _ in range(80)]
    labels = [word[0] for word in words]
    train = LabelledTexts(tuple(words[:50]), tuple(labels[:50]))
    vectors = Letters().encode(words)
    oracle = LogisticRegression(C=3.0, max_iter=2000).fit(vectors[:50], labels[:50])
    predicted = Frozen(Letters(), strength=3.0)(train, words[50:], 0)
    assert predicted == oracle.predict(vectors[50:]).tolist()
    draws = Draws((train,), LabelledTexts(tuple(words[50:]), tuple(labels[50:])))
    curve = learning_curve(
        Frozen(Letters(), strength=3.0), draws, sizes=[20, 50], show_progress=False
    )
    assert curve.mean(50) == pytest.approx(accuracy_score(labels[50:], predicted))


def test_with_one_label_there_is_nothing_to_tell_apart():
    assert Frozen(Letters())(TEXTS.first(2), ["a saw", "a fig"], 0) == ["fruit", "fruit"]


@pytest.mark.parametrize("seed", range(5))
def test_the_f1_of_a_text_is_scikit_learns(seed):
    random = np.random.default_rng(seed)
    truth, predicted = random.choice(["code", "other"], (2, 12)).tolist()
    expected = f1_score(truth, predicted, pos_label="code", zero_division=0)
    assert f1_of("code")(tuple(truth), tuple(predicted)) == pytest.approx(expected)
    assert f1_of("code")(("other",), ("other",)) == 0


def test_a_curve_by_hand():
    """Always right on fruit; on tools only after four texts. Both draws alike: texts alone vary."""

    def classify(train, texts, seed):
        if len(train) < 4:
            return ["fruit"] * len(texts)
        return ["fruit" if text in FRUIT else "tool" for text in texts]

    draws = Draws((TEXTS, TEXTS), TEXTS)
    curve = learning_curve(classify, draws, sizes=[2, 4], show_progress=False)
    assert [curve.mean(2), curve.mean(4)] == [0.5, 1.0]
    error = np.std([1] * 4 + [0] * 4, ddof=1) / np.sqrt(8)
    low, high = curve.interval(2)
    assert (low, high) == pytest.approx((0.5 - 2.36462 * error, 0.5 + 2.36462 * error), rel=1e-4)
    assert curve.interval(4) is None  # nothing varies
    frame = curve.to_frame()
    assert frame.loc[2, ["draws", "test texts"]].tolist() == [2, 8]
    assert np.isnan(frame.loc[4, "low"])


def test_the_interval_is_the_crossed_one_of_adapters_within_its_bounds():
    scores = np.random.default_rng(1).random((4, 30))
    curve = LearningCurve({10: scores})
    expected = crossed_interval(scores.mean(), scores.mean(axis=1), [scores.mean(axis=0) / 30])
    assert curve.interval(10) == pytest.approx(expected)
    nearly_all = np.ones((2, 10))
    nearly_all[0, 0] = 0
    assert LearningCurve({10: nearly_all}).interval(10)[1] == 1.0


def test_a_difference_is_paired():
    random = np.random.default_rng(2)
    hard = random.random((3, 40)) * 0.5
    first, second = LearningCurve({5: hard + 0.3}), LearningCurve({5: hard + 0.1 * hard})
    difference = first - second
    assert difference.mean(5) == pytest.approx(first.mean(5) - second.mean(5))
    low, high = difference.interval(5)
    assert high - low < 0.5 * (first.interval(5)[1] - first.interval(5)[0])
    with pytest.raises(ValueError, match="same sizes, draws and test texts"):
        first - LearningCurve({6: hard})


@pytest.mark.parametrize("draws", [3, 5])
def test_an_interval_covers_the_truth_over_draws_and_texts(draws):
    """Hits with a chance that differs by draw and by text, around a known mean."""
    random = np.random.default_rng(draws)
    covered = 0
    for _ in range(400):
        by_draw = random.normal(0, 0.05, (draws, 1))
        by_text = random.choice([-0.2, 0.2], (1, 200))
        hits = random.random((draws, 200)) < 0.6 + by_draw + by_text
        low, high = LearningCurve({1: hits.astype(float)}).interval(1)
        covered += low <= 0.6 <= high
    assert covered >= 0.93 * 400


def test_what_cannot_be_drawn_as_a_curve_is_refused():
    draws = draw(TEXTS, draws=1, size=4, test=4)
    with pytest.raises(ValueError, match=r"sizes from 1 to 4.*got \[5\]"):
        learning_curve(Frozen(Letters()), draws, sizes=[5], show_progress=False)
    with pytest.raises(ValueError, match="each of the 4 test texts; the classifier returned 1"):
        learning_curve(lambda *_: ["tool"], draws, sizes=[2], show_progress=False)
    with pytest.raises(ValueError, match="got labels per word"):
        Frozen(Letters())(WORDS, ["a"], 0)


def test_labels_that_a_head_cannot_learn_are_refused(encoder_folder):
    with pytest.raises(ValueError, match="expected the labels fruit, nut; got 'tool'"):
        Tuned(encoder_folder, ["fruit", "nut"])(TEXTS, [], 0)
    with pytest.raises(ValueError, match="a token head learns from one label per word"):
        Tuned(encoder_folder, ["fruit", "tool"], head="token")(TEXTS, [], 0)


@pytest.fixture(scope="module")
def words(encoder_folder):
    return load_classifier(encoder_folder, ["other", "code"], head="token")


def test_the_label_of_a_word_is_that_of_its_first_token(words):
    text = WORDS.texts[1]
    tokens = words.tokenizer(text)
    encoded = words.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    firsts = first_tokens(text, encoded)
    assert [word for _, word in firsts] == [0, 1, 2, 3, 4]
    for token, word in firsts:
        start, end = encoded[token]
        assert text.split()[word].startswith(text[start:end].strip())
    row = training_rows(words, WORDS)[1]
    assert len(row["labels"]) == len(tokens["input_ids"])
    assert [label for label in row["labels"] if label != -100] == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("side", ["left", "right"])
def test_words_get_the_label_of_their_own_token_in_a_padded_batch(words, side):
    words.tokenizer.padding_side = side
    together = predict(words, WORDS.texts, head="token")
    alone = [predict(words, [text], head="token")[0] for text in WORDS.texts]
    assert together == alone
    assert [len(labels) for labels in together] == [3, 5]
    words.tokenizer.padding_side = "right"


def test_words_beyond_the_maximum_length_get_the_first_label(words):
    (labels,) = predict(words, ["axis " * 2000], head="token")
    assert len(labels) == 2000
    assert set(labels[1000:]) == {"other"}


@pytest.mark.integration
def test_training_learns_what_it_is_shown_and_a_seed_gives_the_same(encoder_folder):
    tuned = Tuned(encoder_folder, ["fruit", "tool"], epochs=20, learning_rate=3e-3)
    texts = list(TEXTS.texts)
    assert tuned(TEXTS, texts, 0) == list(TEXTS.labels)
    assert tuned(TEXTS, ["a peach", "a plane"], 3) == tuned(TEXTS, ["a peach", "a plane"], 3)
    marked = Tuned(encoder_folder, ["other", "code"], head="token", epochs=30, learning_rate=3e-3)
    assert marked(WORDS, list(WORDS.texts), 0) == list(WORDS.labels)


@pytest.mark.integration
def test_the_encoder_stays_as_it_is_if_only_the_head_learns(encoder_folder):
    import torch

    before = load_classifier(encoder_folder, ["fruit", "tool"]).model.base_model.state_dict()
    options = {"epochs": 2, "learning_rate": 1e-2}
    fixed = Tuned(encoder_folder, ["fruit", "tool"], encoder_learns=False, **options)
    after = fixed.trained(TEXTS, 0).model
    assert all(torch.equal(after.base_model.state_dict()[name], before[name]) for name in before)
    moved = Tuned(encoder_folder, ["fruit", "tool"], **options).trained(TEXTS, 0).model
    assert not torch.equal(moved.base_model.norm.weight, after.base_model.norm.weight)
