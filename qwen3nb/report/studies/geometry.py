"""Figures of the sanity check: spectrum of a model's vectors, and cosines between texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.evaluation.embeddings.probes import isotropic
from qwen3nb.report.render.figure import COLORS, GREY, Figure, grid, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.evaluation.embeddings.sanity_check import SanityCheck

_FLOOR = 1e-6  # below this, float32 vectors contain only rounding errors


def spectrum_figure(look: SanityCheck) -> Figure | None:
    """Normalised singular values beside those of random directions; None without vectors."""
    geometry = look.geometry
    if geometry is None:
        return None
    chance = isotropic(geometry.texts, geometry.dimension)

    def draw(width: float) -> MplFigure:
        import matplotlib.pyplot as plt

        rank = np.arange(1, len(geometry.singular_values) + 1)
        figure, axis = plt.subplots(figsize=(width, 2.3))
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
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(width, 1.9))
        axis.hist(cosines, bins=np.linspace(-1, 1, 101).tolist(), color=COLORS[0])
        axis.axvline(mean, color=COLORS[1], linewidth=1.5)
        # On the side where there is room for the label.
        offset, side = ((-2, 3), "left") if mean < 0.5 else ((2, 3), "right")
        axis.annotate(
            f"mean {mean:z.3f}",
            (mean, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            va="bottom",
        )
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
