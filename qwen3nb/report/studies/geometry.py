"""Figures of the first look: how many directions a model's vectors use, and how alike they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.evaluation.embeddings.geometry import isotropic
from qwen3nb.report.render.figure import COLORS, GREY, Figure, grid, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.evaluation.embeddings.geometry import Geometry
    from qwen3nb.evaluation.embeddings.sanity_check import SanityCheck

__all__ = ["cosine_figure", "spectrum_figure"]

_FLOOR = 1e-6  # below it, float32 vectors have rounding errors only


def spectrum_figure(look: SanityCheck) -> Figure | None:
    """Singular values over the largest, beside those of random directions; None without vectors."""
    found = look.geometry
    if found is None:
        return None
    chance = isotropic(found.texts, found.dimension)
    summary = (
        f"effective rank {found.effective_rank:.0f} of {found.dimension} dimensions "
        f"(random directions: {chance.effective_rank:.0f})"
    )
    return Figure(
        name="spectrum",
        draw=lambda width: _spectrum(look.model, found, chance, width),
        caption=f"Singular values of the vectors of n = {found.texts:,} texts: {summary}. A line "
        "near that of random directions uses the space it has.",
        alt=f"Spectrum of the vectors: {summary}.",
    )


def _spectrum(model: str, found: Geometry, chance: Geometry, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    place = np.arange(1, len(found.singular_values) + 1)
    figure, axis = plt.subplots(figsize=(width, 2.3))
    for geometry, color, name in (
        (chance, GREY, "random directions"),
        (found, COLORS[0], plain(model)),
    ):
        values = geometry.singular_values / geometry.singular_values[0]
        axis.plot(
            place, np.where(values < _FLOOR, np.nan, values), color=color, linewidth=1.6,
            label=f"effective rank {geometry.effective_rank:.0f}: {name}",
        )  # fmt: skip
    axis.axvline(found.effective_rank, color=COLORS[1], linewidth=1.2, linestyle="--")
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylim(bottom=min(axis.get_ylim()[0], 0.01))
    axis.set_xlabel(f"singular value, of {len(place)}; dashed: effective rank")
    axis.set_ylabel("size, largest = 1")
    grid(axis, which="y")
    axis.legend()
    return figure


def cosine_figure(look: SanityCheck) -> Figure | None:
    """How the cosines of all pairs of texts are spread; None without vectors."""
    found = look.geometry
    if found is None:
        return None
    summary = f"mean {found.mean_cosine:z.3f} over n = {len(found.cosines):,} pairs"
    return Figure(
        name="cosines",
        draw=lambda width: _cosines(found, width),
        caption=f"Cosine of any two of {found.texts:,} texts: {summary}. A hill near 0 leaves room "
        "to tell texts apart, one near 1 does not.",
        alt=f"Histogram of cosines between texts: {summary}.",
    )


def _cosines(found: Geometry, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, 1.9))
    axis.hist(found.cosines, bins=np.linspace(-1, 1, 101).tolist(), color=COLORS[0])
    axis.axvline(found.mean_cosine, color=COLORS[1], linewidth=1.5)
    right = found.mean_cosine < 0.5  # where there is room for the label
    axis.annotate(
        f"mean {found.mean_cosine:z.3f}",
        (found.mean_cosine, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-2 if right else 2, 3),
        textcoords="offset points",
        ha="left" if right else "right",
        va="bottom",
    )
    axis.set_xlim(min(-0.25, float(found.cosines.min())), 1)
    axis.set_xlabel(f"cosine of two texts, {len(found.cosines):,} pairs")
    axis.set_ylabel("pairs")
    return figure
