"""What the explorer draws: the traces and the layout that its page and plotly share."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from qwen3nb.metrics.intervals import Array
from qwen3nb.report.render.model_styles import model_colors

__all__ = ["GOLDEN", "JITTER", "jitter", "traces_and_layout"]

JITTER = 0.012  # as a share of the score range, so that equal points do not overlap
GOLDEN = (5**0.5 - 1) / 2


def jitter(count: int) -> tuple[Array, Array]:
    """Return deterministic small offsets of ``count`` points: two arrays of shape (count,)."""
    turns = np.arange(count) * GOLDEN
    radius = JITTER * np.sqrt((np.arange(count) * GOLDEN * GOLDEN) % 1)
    return radius * np.cos(2 * np.pi * turns), radius * np.sin(2 * np.pi * turns)


def traces_and_layout(across: str, up: str, *, metric: str) -> dict[str, Any]:
    """Return the trace of the points without their values, the line of ties, and the layout."""
    axis = {"range": [-0.04, 1.04], "zeroline": False}
    return {
        "points": {
            "type": "scatter",
            "mode": "markers",
            "marker": {"size": 9, "opacity": 0.55, "color": model_colors([across])[across]},
            "hovertemplate": "%{customdata[0]}<br>x-axis %{customdata[1]:.3f}, "
            "y-axis %{customdata[2]:.3f}<extra></extra>",
        },
        "even": {
            "type": "scatter", "x": [0, 1], "y": [0, 1], "mode": "lines",
            "line": {"dash": "dot", "width": 1}, "hoverinfo": "skip",
        },
        "layout": {
            "showlegend": False,
            "hovermode": "closest",
            "dragmode": "pan",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 60, "r": 10, "t": 10, "b": 50},
            "height": 420,
            "xaxis": {**axis, "title": {"text": f"{metric}, {html.escape(across)}"}},
            "yaxis": {**axis, "title": {"text": f"{metric}, {html.escape(up)}"}},
            "template": "none",
        },
    }  # fmt: skip
