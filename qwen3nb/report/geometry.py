"""Figures of the first look: how many directions a model's vectors use, and how alike they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.report.look import COLORS, style
from qwen3nb.tasks.geometry import isotropic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qwen3nb.tasks.intrinsic import QuickLook

__all__ = ["cosine_figure", "spectrum_figure"]

_GREY = "#7d8590"
_FLOOR = 1e-6  # below it, float32 vectors have rounding errors only


def spectrum_figure(look: QuickLook) -> Figure | None:
    """Singular values over the largest, beside those of random directions; None without vectors."""
    import matplotlib.pyplot as plt

    found = look.geometry
    if found is None:
        return None
    chance = isotropic(found.texts, found.dimension)
    place = np.arange(1, len(found.singular_values) + 1)
    with style():
        figure, axis = plt.subplots(figsize=(6.2, 2.9))
        for geometry, color, name in (
            (chance, _GREY, "random directions"),
            (found, COLORS[0], look.model.replace("$", r"\$")),  # no formula
        ):
            values = geometry.singular_values / geometry.singular_values[0]
            axis.plot(
                place, np.where(values < _FLOOR, np.nan, values), color=color, linewidth=1.8,
                label=f"effective rank {geometry.effective_rank:.0f}: {name}",
            )  # fmt: skip
        axis.axvline(found.effective_rank, color=COLORS[1], linewidth=1.2, linestyle="--")
        axis.set_yscale("log")
        axis.set_ylim(bottom=min(axis.get_ylim()[0], 0.01))
        axis.set_xlabel(f"singular value, of {len(place)}; dashed: effective rank")
        axis.set_ylabel("size, largest = 1")
        axis.set_title(f"{found.texts:,} texts, {found.dimension} dimensions")
        axis.grid(axis="y", color=_GREY, alpha=0.25, linewidth=0.6)
        axis.legend()
    return figure


def cosine_figure(look: QuickLook) -> Figure | None:
    """How the cosines of all pairs of texts are spread; None without vectors."""
    import matplotlib.pyplot as plt

    found = look.geometry
    if found is None:
        return None
    with style():
        figure, axis = plt.subplots(figsize=(6.2, 2.3))
        axis.hist(found.cosines, bins=np.linspace(-1, 1, 101).tolist(), color=COLORS[0])
        axis.axvline(found.mean_cosine, color=COLORS[1], linewidth=1.5)
        right = found.mean_cosine < 0.5  # where there is room for the label
        axis.annotate(
            f"mean {found.mean_cosine:z.3f}",
            (found.mean_cosine, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-2 if right else 2, 3),
            textcoords="offset points",
            color=COLORS[1],
            ha="left" if right else "right",
            va="bottom",
        )
        axis.set_xlim(min(-0.25, float(found.cosines.min())), 1)
        axis.set_xlabel(f"cosine of two texts, {len(found.cosines):,} pairs")
        axis.set_ylabel("pairs")
    return figure
