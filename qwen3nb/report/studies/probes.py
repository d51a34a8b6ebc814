"""Table of the probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.embeddings.probes import Probes
    from qwen3nb.evaluation.embeddings.word_similarity import WordSimilarity

__all__ = ["probes_table"]


def probes_table(probes: Sequence[Probes]) -> Table:
    """A row per model and measure, with its sample size."""
    rows = tuple(row for each in probes for row in _rows(each))
    return Table(
        ("model", "probe", "measure", "value", "n"),
        rows,
        f"Intervals: 95 %, {interval_words(['wilson', 'fisher'])} (correlations), over pairs or "
        "texts, for clusters over seeds of k-means. V-measure equals NMI with the arithmetic mean.",
    )


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
