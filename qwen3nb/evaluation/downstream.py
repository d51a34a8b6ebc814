"""What a classifier on an encoder gains from more labelled texts.

A classifier learns from labelled texts and labels others. There are two:

- `Frozen`: a logistic regression on the encoder's vectors. The encoder stays as it is.
- `Tuned`: the encoder and a head, trained together by the Trainer of transformers; or only the
  head. The head is for texts or for words (`qwen3nb.models.classifier`).

Any other function with the arguments and the result of `Classify` can be compared with them.

`learning_curve` trains a classifier on the first texts of each of several draws, and scores it on
the same test texts. Its intervals say what to expect of another draw and other test texts of the
same kind: both are random, in a crossed design (`crossed_interval`). They are not from resampling,
which is too narrow for a handful of draws.

Shapes: S draws, n test texts, D dimensions.

References:
    Zou and Donner 2008 (MOVER); Cortes et al. 1994, NIPS (learning curves).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.interference_ratio import crossed_interval
from qwen3nb.datasets.pydocs.labelled import Draws, Label, LabelledTexts
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.models.classifier import Classifier, load_classifier
from qwen3nb.models.gate.weights import quiet_transformers
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    import pandas as pd

SIZES = (25, 50, 100, 200)
_IGNORED = -100  # the label of a token that torch leaves out of the loss
_TEXTS_AT_ONCE = 64

Classify = Callable[[LabelledTexts, Sequence[str], int], Sequence[Label]]
Score = Callable[[Label, Label], float]


class CanEncode(Protocol):
    """What `Frozen` needs of an encoder, such as `q.Model`."""

    def encode(self, texts: Sequence[str]) -> Any:
        """Return vectors (n, D)."""


@dataclass(frozen=True)
class Frozen:
    """A logistic regression on the vectors of an encoder."""

    encoder: CanEncode
    # inverse of the penalty, scikit-learn's C; its own default of 1 is too small for vectors of
    # length 1 and few texts
    strength: float = 10.0

    def __call__(self, train: LabelledTexts, texts: Sequence[str], seed: int) -> list[Label]:
        """Learn from labelled texts and return the labels of others; it has no use for the seed.

        Raises:
            ValueError: labels per word, which vectors of whole texts cannot give.
        """
        from sklearn.linear_model import LogisticRegression

        if not all(isinstance(label, str) for label in train.labels):
            raise ValueError(
                "expected one label per text; got labels per word. Use Tuned with head='token', "
                "and encoder_learns=False to keep the encoder as it is"
            )
        if len(train.names) == 1:  # nothing to tell apart yet
            return [train.labels[0]] * len(texts)
        model = LogisticRegression(C=self.strength, max_iter=2000)
        model.fit(np.asarray(self.encoder.encode(train.texts)), list(train.labels))
        predicted = model.predict(np.asarray(self.encoder.encode(list(texts))))
        return [str(label) for label in predicted]


@dataclass(frozen=True)
class Tuned:
    """An export and a head, trained together by the Trainer of transformers."""

    export: str | Path
    labels: Sequence[str]  # all labels that there are
    head: str = "sequence"  # or ``token``, for labels per word
    epochs: int = 10
    learning_rate: float = 5e-5  # its peak; small models need a larger one
    batch_size: int = 16
    encoder_learns: bool = True  # else only the head learns
    device: str = "cpu"

    def __call__(self, train: LabelledTexts, texts: Sequence[str], seed: int) -> list[Label]:
        """Learn from labelled texts and return the labels of others.

        Raises:
            SpecError: no such export; see `load_classifier`.
            ValueError: labels that the head does not have, or that are not of its kind.
        """
        classifier = self.trained(train, seed)
        return predict(classifier, texts, head=self.head)

    def trained(self, train: LabelledTexts, seed: int) -> Classifier:
        """Return the classifier after training; the seed decides its head and the order of texts.

        Raises:
            SpecError: no such export; see `load_classifier`.
            ValueError: labels that the head does not have, or that are not of its kind.
        """
        from transformers import set_seed

        self._check(train)
        with quiet_transformers(logging.ERROR):  # it would report the new head each time
            set_seed(seed)
            classifier = load_classifier(
                self.export, self.labels, head=self.head, device=self.device
            )
            if not self.encoder_learns:
                classifier.model.base_model.requires_grad_(False)
            self._train(classifier, train, seed)
        return classifier

    def _check(self, train: LabelledTexts) -> None:
        unknown = sorted(set(train.names) - set(self.labels))
        if unknown:
            raise ValueError(
                f"expected the labels {', '.join(self.labels)}; got {unknown[0]!r:.60}"
            )
        for label in train.labels:
            if isinstance(label, str) != (self.head == "sequence"):
                raise ValueError(
                    f"a {self.head} head learns from one label per "
                    f"{'text' if self.head == 'sequence' else 'word'}; got {label!r:.60}"
                )

    def _train(self, classifier: Classifier, train: LabelledTexts, seed: int) -> None:
        from transformers import (
            DataCollatorForTokenClassification,
            DataCollatorWithPadding,
            Trainer,
            TrainingArguments,
        )
        from transformers.trainer_callback import PrinterCallback

        model, tokenizer = classifier
        collator = DataCollatorWithPadding(tokenizer)
        if self.head == "token":
            collator = DataCollatorForTokenClassification(tokenizer)
        with tempfile.TemporaryDirectory(prefix="qwen3nb-") as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                num_train_epochs=self.epochs,
                learning_rate=self.learning_rate,
                per_device_train_batch_size=self.batch_size,
                warmup_steps=0.1,  # a share of all steps
                weight_decay=0.01,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=model.device.type == "cpu",
                seed=seed,
            )
            trainer = Trainer(
                model=model,
                args=arguments,
                train_dataset=training_rows(classifier, train),
                data_collator=collator,
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        model.eval()


def training_rows(classifier: Classifier, train: LabelledTexts) -> list[dict[str, Any]]:
    """Return the token ids of each text and its label as a number, or those of its tokens.

    A word's label is that of its first token. Other tokens are left out of the loss.
    """
    number_of_label = classifier.model.config.label2id
    rows = []
    for text, label in zip(train.texts, train.labels, strict=True):
        row = dict(classifier.tokenizer(text, truncation=True, return_offsets_mapping=True))
        offsets = row.pop("offset_mapping")
        row.pop("token_type_ids", None)
        if isinstance(label, str):
            row["labels"] = number_of_label[label]
        else:
            row["labels"] = [_IGNORED] * len(row["input_ids"])
            for token, word in first_tokens(text, offsets):
                row["labels"][token] = number_of_label[label[word]]
        rows.append(row)
    return rows


def first_tokens(text: str, offsets: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the position of the first token of each word, and that of the word.

    Words are separated by blanks. Words beyond the maximum length are missing.

    Args:
        text: the text.
        offsets: where each token begins and ends in it, as a tokenizer returns; nowhere for
            padding.
    """
    word_of_character = []
    words = 0
    for position, character in enumerate(text):
        follows_blank = position == 0 or text[position - 1].isspace()
        if not character.isspace() and follows_blank:
            words += 1
        word_of_character.append(words - 1)
    token_of_word: dict[int, int] = {}
    for token, (start, end) in enumerate(offsets):
        is_in_text = end > start and not text[start:end].isspace()
        if is_in_text:  # the token may begin with the blank before the word
            token_of_word.setdefault(word_of_character[end - 1], token)
    return [(token, word) for word, token in token_of_word.items()]


def predict(classifier: Classifier, texts: Sequence[str], *, head: str) -> list[Label]:
    """Return the label of each text; for a token head, those of its words.

    Words beyond the maximum length get the first label.
    """
    import torch

    model, tokenizer = classifier
    names = model.config.id2label
    labels: list[Label] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[start : start + _TEXTS_AT_ONCE])
        encoded = tokenizer(
            batch,
            truncation=True,
            padding=True,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        places = encoded.pop("offset_mapping").tolist()
        encoded.pop("token_type_ids", None)
        with torch.inference_mode():
            logits = model(**encoded.to(model.device)).logits
        numbers = logits.argmax(-1).tolist()
        for text, offsets, number in zip(batch, places, numbers, strict=True):
            if head == "sequence":
                labels.append(names[number])
                continue
            words = [names[0]] * len(text.split())
            for token, word in first_tokens(text, offsets):
                words[word] = names[number[token]]
            labels.append(tuple(words))
    return labels


def is_right(truth: Label, predicted: Label) -> float:
    """Return 1 if the label of a text is right, else 0; the mean over texts is the accuracy."""
    return float(truth == predicted)


def f1_of(name: str) -> Score:
    """Return what scores the labels of a text's words: the F1 of one label.

    It is the harmonic mean of the share of its words that are found, and of the share of found
    words that are right; 0 if none is found.

    >>> f1_of("code")(("code", "other", "code"), ("code", "code", "other"))
    0.5
    """

    def score(truth: Label, predicted: Label) -> float:
        pairs = list(zip(truth, predicted, strict=True))
        right = sum(pair == (name, name) for pair in pairs)
        labelled = [label for pair in pairs for label in pair].count(name)
        if labelled == 0:
            return 0.0
        return 2 * right / labelled

    return score


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Scores of a classifier by the number of texts that it learnt from.

    A difference of two curves, ``tuned - frozen``, is one as well: it compares them on the same
    draws and test texts, so its intervals are narrower than those of both.
    """

    scores: Mapping[int, Array]  # (S, n) for each number of texts
    bounds: Interval = (0.0, 1.0)  # of a score

    def mean(self, size: int) -> float:
        """The mean score after so many texts, over draws and test texts."""
        return float(self.scores[size].mean())

    def interval(self, size: int) -> Interval | None:
        """The 95 % interval for other draws and other test texts; None if nothing varies.

        With one draw, it is for other test texts alone.
        """
        scores = self.scores[size]
        influence = scores.mean(axis=0) / scores.shape[1]  # of each text on the mean
        interval = crossed_interval(self.mean(size), scores.mean(axis=1), [influence])
        if interval is None:
            return None
        low, high = interval
        least, most = self.bounds
        return max(low, least), min(high, most)

    def __sub__(self, other: LearningCurve) -> LearningCurve:
        """Return the differences of the scores, draw by draw and text by text.

        Raises:
            ValueError: curves of other sizes, draws or test texts.
        """
        shapes = {size: scores.shape for size, scores in self.scores.items()}
        other_shapes = {size: scores.shape for size, scores in other.scores.items()}
        if shapes != other_shapes:
            raise ValueError(
                "expected curves of the same sizes, draws and test texts; got scores of the "
                f"shapes {shapes} and {other_shapes}"
            )
        differences = {size: self.scores[size] - other.scores[size] for size in self.scores}
        return LearningCurve(differences, bounds=(-1.0, 1.0))

    def to_frame(self) -> pd.DataFrame:
        """Return a row per number of texts: mean, ends of the interval, draws and test texts."""
        import pandas as pd

        rows = []
        for size, scores in self.scores.items():
            low, high = self.interval(size) or (None, None)
            draws, tested = scores.shape
            rows.append((size, self.mean(size), low, high, draws, tested))
        columns = ["texts", "mean", "low", "high", "draws", "test texts"]
        return pd.DataFrame(rows, columns=columns).set_index("texts")


def learning_curve(
    classify: Classify,
    draws: Draws,
    *,
    sizes: Sequence[int] = SIZES,
    score: Score = is_right,
    name: str = "learning curve",
    show_progress: bool = True,
) -> LearningCurve:
    """Train a classifier on the first texts of each draw, and score it on the test texts.

    Args:
        classify: `Frozen`, `Tuned` or a function of labelled texts, texts and a seed, which returns
            the labels of the texts. Each draw has a seed of its own: 0, 1, and so on.
        draws: from `qwen3nb.datasets.pydocs.labelled.draw`.
        sizes: numbers of texts to learn from.
        score: of a test text, from its true and its predicted label; the accuracy by default.
        name: shown beside the progress bar.
        show_progress: whether to show a progress bar.

    Raises:
        ValueError: a size below 1 or above that of a draw, or another number of labels than texts.
    """
    most = min(len(train) for train in draws.training)
    if not sizes or min(sizes) < 1 or max(sizes) > most:
        raise ValueError(f"expected sizes from 1 to {most}, those of a draw; got {list(sizes)}")
    scores = {}
    steps = len(sizes) * len(draws.training)
    with tqdm(total=steps, desc=name, unit="training", disable=not show_progress) as bar:
        for size in sizes:
            rows = []
            for seed, train in enumerate(draws.training):
                predicted = classify(train.first(size), draws.test.texts, seed)
                rows.append(_scores(draws.test, predicted, score))
                bar.update(1)
            scores[size] = np.array(rows)
    return LearningCurve(scores)


def _scores(test: LabelledTexts, predicted: Sequence[Label], score: Score) -> NDArray[np.float64]:
    if len(predicted) != len(test):
        raise ValueError(
            f"expected a label for each of the {len(test)} test texts; the classifier returned "
            f"{len(predicted)}"
        )
    pairs = zip(test.labels, predicted, strict=True)
    return np.array([score(truth, label) for truth, label in pairs])
