"""The probes and the spread of vectors: table, figures, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.evaluation.embeddings.probes import isotropic
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.embeddings.probes import Probes
    from qwen3nb.evaluation.embeddings.sanity_check import SanityCheck

_FLOOR = 1e-6  # below this, float32 vectors contain only rounding errors


def probes_table(probes: Sequence[Probes]) -> Table:
    """A row per model and measure, with its sample size."""
    return Table.of(
        ((each.label, *row) for each in probes for row in _rows(each)),
        ("model", "probe", "measure", "value", "n"),
        note=f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), over pairs "
        "or texts, for clusters over seeds of k-means. V-measure equals NMI with the arithmetic "
        "mean.",
        name="probes",
        caption="What the vectors tell about words, clusters and classes, and how they are spread, "
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
        yield name, (f"top-{solved.topk} accuracy", "3CosAdd"), solved.accuracy, n
    for name, value in clusters.scores.items():
        yield "clusters", name, value, (f"{clusters.n} texts", f"{clusters.clusters} labels")
    texts = (f"{learnt.n} texts", f"{learnt.n_train} for training")
    yield "transfer", "accuracy", learnt.accuracy, texts
    yield "transfer", "macro F1", learnt.macro_f1, texts
    for name, spread, size in (
        ("uniformity", geometry.uniformity, f"{geometry.n} texts"),
        ("alignment", geometry.alignment, f"{geometry.n_pairs} pairs"),
        ("anisotropy", geometry.anisotropy, f"{geometry.n} texts"),
    ):
        yield "geometry", name, "undefined" if spread is None else f"{spread:.3f}", size


def probes_figure(probes: Probes) -> Figure:
    """Draw the scores of the probes with their intervals."""
    scores = {
        **{f"{name}, Spearman": each.spearman for name, each in probes.words.items()},
        **{f"{name}, accuracy": each.accuracy for name, each in probes.analogies.items()},
        "clusters, V-measure": probes.clusters.scores["V-measure"],
        "linear probe, accuracy": probes.transfer.accuracy,
        "linear probe, macro F1": probes.transfer.macro_f1,
    }
    return forest_figure(
        [
            ForestRow(name, value.value, value.low, value.high, note=f"n = {value.n}")
            for name, value in scores.items()
        ],
        xlabel="score, at most 1",
        zero=None,
        number=".3f",
        name="probes",
        caption=f"Probes of {probes.label}, each with its 95 % interval over pairs or texts, of "
        "clusters over seeds of k-means. They have different units: compare models, not rows.",
    )


def probes_conclusion(probes: Probes) -> Conclusion:
    """Say what the vectors are good for, compared with guessing."""
    clusters, learnt = probes.clusters, probes.transfer
    parts = [
        f"A linear probe on the vectors of {probes.label} names the right one of "
        f"{clusters.clusters} sub-packages for {_text(learnt.accuracy, '.1%')} of {learnt.n} "
        f"texts, where guessing evenly is right for {1 / clusters.clusters:.1%}; k-means recovers "
        f"them with a V-measure of {_text(clusters.scores['V-measure'])}, n = {clusters.n}."
    ]
    parts += [
        f"On {name}, similarities of words correlate with those by people: Spearman "
        f"{_text(each.spearman)}, n = {each.n}."
        for name, each in probes.words.items()
    ]
    parts.append(
        f"Two different texts have a mean cosine of {probes.geometry.anisotropy:.3f}; 0 would be "
        "random directions."
    )
    return Conclusion(" ".join(parts))


def _text(score: Aggregate, spec: str = ".3f") -> str:
    if score.value is None:
        return f"{'an undefined share' if '%' in spec else 'undefined'} ({score.undefined})"
    cell = number(score, spec)
    return f"{cell.text} {cell.detail}".strip()


def spectrum_figure(look: SanityCheck) -> Figure | None:
    """Normalised singular values beside those of random directions; None without vectors."""
    geometry = look.geometry
    if geometry is None:
        return None
    chance = isotropic(geometry.texts, geometry.dimension)

    def draw(width: float) -> MplFigure:
        rank = np.arange(1, len(geometry.singular_values) + 1)
        figure, (axis,), _ = panels(1, width, height=2.3)
        for each, color, name in (
            (chance, GREY, "random directions"),
            (geometry, COLORS[0], plain(look.model)),
        ):
            values = each.singular_values / each.singular_values[0]
            shown = np.where(values < _FLOOR, np.nan, values)
            label = f"effective rank {each.effective_rank:.0f}: {name}"
            axis.plot(rank, shown, color=color, linewidth=1.6, label=label)
        axis.axvline(geometry.effective_rank, color=COLORS[1], linewidth=1.2, linestyle="--")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_ylim(bottom=min(axis.get_ylim()[0], 0.01))
        axis.set_xlabel(f"singular value, of {len(rank)}; dashed: effective rank")
        axis.set_ylabel("size, largest = 1")
        grid(axis, which="y")
        axis.legend()
        return figure

    summary = (
        f"effective rank {geometry.effective_rank:.0f} of {geometry.dimension} dimensions "
        f"(random directions: {chance.effective_rank:.0f})"
    )
    return Figure(
        name="spectrum",
        draw=draw,
        caption=f"Singular values of the vectors of n = {geometry.texts:,} texts: {summary}. "
        "Vectors whose line is near that of random directions use all dimensions.",
        alt=f"Spectrum of the vectors: {summary}.",
    )


def cosine_figure(look: SanityCheck) -> Figure | None:
    """Histogram of the cosines of all pairs of texts; None without vectors."""
    geometry = look.geometry
    if geometry is None:
        return None
    cosines, mean = geometry.cosines, geometry.mean_cosine

    def draw(width: float) -> MplFigure:
        figure, (axis,), _ = panels(1, width, height=1.9)
        axis.hist(cosines, bins=np.linspace(-1, 1, 101).tolist(), color=COLORS[0])
        axis.axvline(mean, color=COLORS[1], linewidth=1.5)
        # On the side where there is room for the label.
        offset, side = ((-2, 3), "left") if mean < 0.5 else ((2, 3), "right")
        at: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "bottom"}
        at |= {"xytext": offset, "textcoords": "offset points"}
        axis.annotate(f"mean {mean:z.3f}", (mean, 1.0), **at)
        axis.set_xlim(min(-0.25, float(cosines.min())), 1)
        axis.set_xlabel(f"cosine of two texts, {len(cosines):,} pairs")
        axis.set_ylabel("pairs")
        return figure

    summary = f"mean {mean:z.3f} over n = {len(cosines):,} pairs"
    return Figure(
        name="cosines",
        draw=draw,
        caption=f"Cosines between any two of {geometry.texts:,} texts: {summary}. A peak near 0 "
        "leaves room to distinguish texts, a peak near 1 does not.",
        alt=f"Histogram of cosines between texts: {summary}.",
    )
