"""Table and conclusion of the probes of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.table import Conclusion, Table, score_text

if TYPE_CHECKING:
    from qwen3nb.evaluation.embeddings.probes import Probes


def probes_table(probes: Sequence[Probes]) -> Table:
    """A row per measure, and per model if there are several, with its sample size."""
    several = len(probes) > 1
    return Table.of(
        ((*[each.label] * several, *row) for each in probes for row in _rows(each)),
        (*["model"] * several, "probe", "measure", "value", "n"),
        note=f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), over pairs "
        "or texts, for clusters over seeds of k-means. V-measure equals NMI with the arithmetic "
        "mean.",
        name="probes",
        caption="Probes of the vectors: words, clusters, classes and geometry, "
        "each with its sample size.",
    )


def _rows(probes: Probes) -> Iterator[tuple[Any, ...]]:
    clusters, learnt, geometry = probes.clusters, probes.transfer, probes.geometry
    for name, words in probes.words.items():
        p = "" if words.p_value is None else f"p = {words.p_value:.1e}"
        n = (f"{words.n} pairs", f"{words.coverage:.1%} covered")
        yield name, ("Spearman", p), words.spearman, n
    for name, solved in probes.analogies.items():
        n = (f"{solved.n} questions", f"{solved.coverage:.1%} covered")
        rule = "3CosAdd, vectors of length 1" if solved.scaled else "b − a + c, as they are"
        yield name, (f"top-{solved.topk} accuracy", rule), solved.accuracy, n
    vectors = "vectors of length 1" if clusters.scaled else "vectors as they are"
    for name, value in clusters.scores.items():
        yield (
            ("clusters", vectors),
            name,
            value,
            (f"{clusters.n} texts", f"{clusters.clusters} labels"),
        )
    split = (f"{learnt.n} texts", f"{learnt.n_train} for training")
    yield "transfer", "accuracy", learnt.accuracy, split
    yield "transfer", "macro F1", learnt.macro_f1, split
    texts = f"{geometry.texts} texts"
    yield "geometry", "mean cosine", f"{geometry.mean_cosine:.3f}", texts
    yield "geometry", "effective rank", f"{geometry.effective_rank:.1f}", texts


def probes_conclusion(probes: Probes) -> Conclusion:
    """Compare the probes of the vectors with guessing."""
    clusters, learnt = probes.clusters, probes.transfer
    parts = [
        f"A linear probe on the vectors of {probes.label} names the right one of "
        f"{clusters.clusters} sub-packages for {score_text(learnt.accuracy, '.1%')} of {learnt.n} "
        f"texts, where guessing evenly is right for {1 / clusters.clusters:.1%}; k-means recovers "
        f"them with a V-measure of {score_text(clusters.scores['V-measure'])}, n = {clusters.n}."
    ]
    parts += [
        f"On {name}, similarities of words correlate with those by people: Spearman "
        f"{score_text(each.spearman)}, n = {each.n}."
        for name, each in probes.words.items()
    ]
    parts.append(
        f"Two different texts have a mean cosine of {probes.geometry.mean_cosine:.3f}; 0 would be "
        "random directions."
    )
    return Conclusion(" ".join(parts))
