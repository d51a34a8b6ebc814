"""What are vectors good for besides search? Words, clusters, classes, and their geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qwen3nb.answers.answer import Answer
from qwen3nb.evaluation.embeddings.probes import Probes
from qwen3nb.evaluation.embeddings.probes import probe as run_probes
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import loaded
from qwen3nb.models.model import Model
from qwen3nb.report.render.table import Conclusion, Table
from qwen3nb.utils.format import number_text
from qwen3nb.utils.imports import DataFrame


@dataclass(frozen=True, repr=False)
class ProbedVectors(Answer, Probes):
    """Probes of one encoder's vectors."""

    @property
    def conclusion(self) -> Conclusion:
        """The probes of the vectors compared with guessing."""
        clusters = self.clusters
        sentences = [
            f"A linear probe on the vectors of {self.label} names the right one of "
            f"{clusters.clusters} sub-packages for {_percent(self.transfer.accuracy)} of texts; "
            f"guessing, for {1 / clusters.clusters:.1%}.",
            "Clusters by k-means agree with them by a V-measure of "
            f"{number_text(clusters.scores['V-measure'].value)}.",
        ]
        if self.words:
            name, words = next(iter(self.words.items()))
            sentences.append(
                f"Its similarities of words correlate with people's by "
                f"{number_text(words.spearman.value)} (Spearman, {name})."
            )
        return Conclusion(" ".join(sentences))

    def table(self) -> Table:
        """A row per measure with its sample size."""
        return Table.of(
            self._rows(),
            ("probe", "measure", "value", "n"),
            note="A mean cosine of 0 would be random directions. V-measure equals NMI with the "
            "arithmetic mean.",
            method=f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), "
            "over pairs or texts, for clusters over seeds of k-means.",
            name="probes",
            caption="Probes of the vectors: words, clusters, classes and geometry, each with its "
            "sample size.",
        )

    def _rows(self) -> list[tuple[object, ...]]:
        """Return probe, measure, value and sample, as cells."""
        transfer, geometry = self.transfer, self.geometry
        split = (f"{transfer.n} texts", f"{transfer.n_train} for training")
        texts = f"{geometry.texts} texts"
        return [
            *self._rows_on_words(),
            *self._rows_on_clusters(),
            ("transfer", "accuracy", transfer.accuracy, split),
            ("transfer", "macro F1", transfer.macro_f1, split),
            ("geometry", "mean cosine", f"{geometry.mean_cosine:.3f}", texts),
            ("geometry", "effective rank", f"{geometry.effective_rank:.1f}", texts),
        ]

    def _rows_on_words(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for name, words in self.words.items():
            p_value = ""
            if words.p_value is not None:
                p_value = f"p = {words.p_value:.1e}"
            sample = (f"{words.n} pairs", f"{words.coverage:.1%} covered")
            rows.append((name, ("Spearman", p_value), words.spearman, sample))
        for name, analogies in self.analogies.items():
            rule = "b − a + c, as they are"
            if analogies.scaled:
                rule = "3CosAdd, vectors of length 1"
            measure = (f"top-{analogies.topk} accuracy", rule)
            sample = (f"{analogies.n} questions", f"{analogies.coverage:.1%} covered")
            rows.append((name, measure, analogies.accuracy, sample))
        return rows

    def _rows_on_clusters(self) -> list[tuple[object, ...]]:
        clusters = self.clusters
        vectors = "vectors of length 1" if clusters.scaled else "vectors as they are"
        sample = (f"{clusters.n} texts", f"{clusters.clusters} labels")
        rows: list[tuple[object, ...]] = []
        for measure, score in clusters.scores.items():
            rows.append((("clusters", vectors), measure, score, sample))
        return rows

    def to_frame(self) -> DataFrame:
        """Return a row per measure: its value, interval and sample size."""
        import pandas as pd

        scores: list[tuple[str, str, Aggregate]] = []
        for name, words in self.words.items():
            scores.append((name, "Spearman", words.spearman))
        for name, analogies in self.analogies.items():
            scores.append((name, "accuracy", analogies.accuracy))
        for measure, score in self.clusters.scores.items():
            scores.append(("clusters", measure, score))
        scores.append(("transfer", "accuracy", self.transfer.accuracy))
        scores.append(("transfer", "macro F1", self.transfer.macro_f1))
        rows = []
        for probe_name, measure, score in scores:
            rows.append((probe_name, measure, score.value, score.low, score.high, score.n))
        return pd.DataFrame(rows, columns=["probe", "measure", "value", "low", "high", "n"])


def _percent(score: Aggregate) -> str:
    return f"{score.value:.1%}" if score.value is not None else "an unknown share"


def probe(
    model: Model | Encoder | Path | str,
    *,
    words: Sequence[Path | str] = (),
    questions: Sequence[Path | str] = (),
    seed: int = 0,
) -> ProbedVectors:
    """Run all probes on a model: words from files, the rest on built-in data.

    Args:
        model: the model, its encoder, or its spec.
        words: files or folders of word pairs, such as `qwen3nb.datasets.mirrored_words` has.
        questions: files of analogies; the candidates are the words of each file.
        seed: of the linear probe.

    Raises:
        DataError: a word file cannot be used.
    """
    encoder = loaded(model)
    return ProbedVectors(**vars(run_probes(encoder, words=words, questions=questions, seed=seed)))
