"""The probes: table, figure, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from qwen3nb.evaluation.embeddings.probes import Probes
    from qwen3nb.evaluation.embeddings.word_similarity import WordSimilarity

__all__ = ["probes_conclusion", "probes_figure", "probes_table"]


def probes_table(probes: Sequence[Probes]) -> Table:
    """A row per model and measure, with its sample size."""
    rows = tuple(row for each in probes for row in _rows(each))
    return Table(
        ("model", "probe", "measure", "value", "n"),
        rows,
        f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), over pairs or "
        "texts, for clusters over seeds of k-means. V-measure equals NMI with the arithmetic mean.",
        name="probes",
        caption="What the vectors tell about words, clusters and classes, and how they are spread, "
        "each with its sample size.",
    )


def probes_figure(probes: Probes) -> Figure:
    """Draw the scores of the probes with their intervals."""
    return forest_figure(
        [
            ForestRow(name, value.value, value.low, value.high, note=f"n = {value.n}")
            for name, value in _scores(probes).items()
        ],
        xlabel="score, at most 1",
        zero=None,
        number=".3f",
        name="probes",
        caption=f"Probes of {probes.label}, each with its 95 % interval over pairs or texts, of "
        "clusters over seeds of k-means. They have different units: compare models, not rows.",
    )


def _scores(probes: Probes) -> dict[str, Aggregate]:
    """Return the main score of each probe by name."""
    return {
        **{f"{name}, Spearman": each.spearman for name, each in probes.words.items()},
        **{f"{name}, accuracy": each.accuracy for name, each in probes.analogies.items()},
        "clusters, V-measure": probes.clusters.scores["V-measure"],
        "linear probe, accuracy": probes.transfer.accuracy,
        "linear probe, macro F1": probes.transfer.macro_f1,
    }


def probes_conclusion(probes: Probes) -> Conclusion:
    """Say what the vectors are good for, beside the level of guessing."""
    labels, learnt = probes.clusters.clusters, probes.transfer
    right = _percent(learnt.accuracy)
    parts = [
        f"A linear probe on the vectors of {probes.label} names the right one of {labels} "
        f"sub-packages for {right} of {learnt.n} texts, where guessing evenly is right for "
        f"{1 / labels:.1%}; k-means recovers them with a V-measure of "
        f"{_valued(probes.clusters.scores['V-measure'])}, n = {probes.clusters.n}.",
    ]
    parts += [
        f"On {name}, similarities of words correlate with those by people: Spearman "
        f"{_valued(each.spearman)}, n = {each.n}."
        for name, each in probes.words.items()
    ]
    parts.append(
        f"Two different texts have a mean cosine of {probes.geometry.anisotropy:.3f}; 0 would be "
        "random directions."
    )
    return Conclusion(" ".join(parts))


def _valued(score: Aggregate) -> str:
    if score.value is None:
        return f"undefined ({score.undefined})"
    ends = None if score.low is None or score.high is None else (score.low, score.high)
    return f"{score.value:.3f} {interval_text(ends, sign=False, absent='')}".strip()


def _percent(score: Aggregate) -> str:
    if score.value is None:
        return f"an undefined share ({score.undefined})"
    if score.low is None or score.high is None:
        return f"{score.value:.1%}"
    return f"{score.value:.1%} [{score.low:.1%}, {score.high:.1%}]"


def _rows(probes: Probes) -> list[tuple[Cell, ...]]:
    model, geometry = Cell(probes.label), probes.geometry
    rows: list[tuple[Cell, ...]] = [
        (model, Cell(name), Cell("Spearman", _test(words)), number(words.spearman),
         Cell(f"{words.n} pairs", f"{words.coverage:.1%} covered"))
        for name, words in probes.words.items()
    ]  # fmt: skip
    rows += [
        (model, Cell(name), Cell(f"top-{solved.topk} accuracy", "3CosAdd"), number(solved.accuracy),
         Cell(f"{solved.n} questions", f"{solved.coverage:.1%} covered"))
        for name, solved in probes.analogies.items()
    ]  # fmt: skip
    texts = Cell(f"{probes.clusters.n} texts", f"{probes.clusters.clusters} labels")
    rows += [
        (model, Cell("clusters"), Cell(name), number(value), texts)
        for name, value in probes.clusters.scores.items()
    ]
    learnt = Cell(f"{probes.transfer.n} texts", f"{probes.transfer.n_train} for training")
    rows.append(
        (model, Cell("transfer"), Cell("accuracy"), number(probes.transfer.accuracy), learnt)
    )
    rows.append(
        (model, Cell("transfer"), Cell("macro F1"), number(probes.transfer.macro_f1), learnt)
    )
    for name, value, n in (
        ("uniformity", geometry.uniformity, f"{geometry.n} texts"),
        ("alignment", geometry.alignment, f"{geometry.n_pairs} pairs"),
        ("anisotropy", geometry.anisotropy, f"{geometry.n} texts"),
    ):
        shown = Cell("undefined") if value is None else Cell(f"{value:.3f}")
        rows.append((model, Cell("geometry"), Cell(name), shown, Cell(n)))
    return rows


def _test(words: WordSimilarity) -> str:
    return "" if words.p_value is None else f"p = {words.p_value:.1e}"
