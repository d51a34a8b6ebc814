"""An interactive plot of two models query by query: which one answers which query better?

The page contains the numbers; the book's copy of plotly's script draws them, and nothing is
fetched. Readers without scripts have the table of the largest differences.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.alignment import ScoreMatrix, pair_results
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["Explorer", "explore", "query_texts"]

_JITTER = 0.012  # as a share of the score range, so that equal points do not overlap
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Explorer:
    """The scores of two or more models on the queries that all of them answered.

    Attributes:
        matrix: scores by model and query.
        texts: query texts by id; a query without a text is shown by its id.
        note: why there are no texts; empty if there are.
    """

    matrix: ScoreMatrix
    texts: Mapping[str, str]
    note: str = ""

    @property
    def models(self) -> list[str]:
        """Names of the models, the best mean first."""
        order = np.argsort(-self.matrix.scores.mean(axis=1), kind="stable")
        return [self.matrix.systems[index] for index in order]

    def figure(self, first: str = "", second: str = "") -> Figure:
        """Draw a point per query, with one model's score on each axis.

        Args:
            first: name of the model on the x-axis; by default the best.
            second: name of the model on the y-axis; by default the second best.

        Raises:
            ValueError: an unknown model; lists the known ones.
        """
        from plotly.graph_objects import Figure, Scatter

        across, up = first or self.models[0], second or self.models[1]
        x, y = self.matrix.column(across), self.matrix.column(up)
        dx, dy = _jitter(len(x))
        points = Scatter(
            x=(x + dx).tolist(),
            y=(y + dy).tolist(),
            customdata=[
                [self._wrapped(query), float(a), float(b)]
                for query, a, b in zip(self.matrix.queries, x, y, strict=True)
            ],
            mode="markers",
            marker={"size": 9, "opacity": 0.55, "color": model_colors([across])[across]},
            hovertemplate="%{customdata[0]}<br>x-axis %{customdata[1]:.3f}, "
            "y-axis %{customdata[2]:.3f}<extra></extra>",
        )
        even = Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"dash": "dot", "width": 1},
                       hoverinfo="skip")  # fmt: skip
        return Figure([points, even], self._layout(across, up))

    def _layout(self, across: str, up: str) -> dict[str, Any]:
        axis = {"range": [-0.04, 1.04], "zeroline": False}
        metric = self.matrix.metric
        return {
            "showlegend": False,
            "hovermode": "closest",
            "dragmode": "pan",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 60, "r": 10, "t": 10, "b": 50},
            "height": 460,
            "xaxis": {**axis, "title": {"text": f"{metric}, {html.escape(across)}"}},
            "yaxis": {**axis, "title": {"text": f"{metric}, {html.escape(up)}"}},
            "template": "none",
        }

    def _wrapped(self, query: str) -> str:
        """Return a query's text for a hover box, in lines of 60 characters, escaped."""
        text = " ".join(self.texts.get(query, query).split())
        lines = textwrap.wrap(text, 60, max_lines=5, placeholder=" …") or [query]
        return "<br>".join(html.escape(line) for line in lines)

    def table(self, *, most: int = 12) -> Table:
        """Return the queries on which the two best models differ most."""
        across, up = self.models[0], self.models[1]
        first, second = self.matrix.column(across), self.matrix.column(up)
        order = np.argsort(-np.abs(first - second), kind="stable")[:most]
        rows = tuple(
            (
                Cell(self.texts.get(self.matrix.queries[i], self.matrix.queries[i])),
                *(Cell(f"{v:.3f}", value=float(v)) for v in (first[i], second[i])),
                Cell(f"{first[i] - second[i]:+.3f}", value=float(first[i] - second[i])),
            )
            for i in order
        )
        return Table(
            ("query", f"{across}\n{self.matrix.metric}", f"{up}\n{self.matrix.metric}", "Δ"),
            rows,
            f"{short_task(self.matrix.task)}: the {len(rows)} queries of {len(first)} on which "
            "the two models with the best means differ most. Selected by their difference, they "
            "say nothing about the mean.",
            kind="words",
        )

    def _data(self) -> dict[str, Any]:
        """Return the data that the page's script draws."""
        dx, dy = _jitter(len(self.matrix.queries))
        return {
            "figure": json.loads(self.figure().to_json()),
            "metric": self.matrix.metric,
            "models": self.models,
            "scores": {name: self.matrix.column(name).tolist() for name in self.models},
            "colors": model_colors(self.models),
            "texts": [self.texts.get(query, query) for query in self.matrix.queries],
            "ids": list(self.matrix.queries),
            "jitter": [dx.tolist(), dy.tolist()],
        }

    def _repr_html_(self) -> str:
        data = json.dumps(self._data(), allow_nan=False).replace("<", "\\u003c")
        boxes = "".join(
            f'<label>{caption} <select data-axis="{axis}">'
            + "".join(
                f"<option{' selected' if i == selected else ''}>{html.escape(name)}</option>"
                for i, name in enumerate(self.models)
            )
            + "</select></label>"
            for caption, axis, selected in (("x-axis", "x", 0), ("y-axis", "y", 1))
        )
        alt = (
            f"A point per query of {short_task(self.matrix.task)}: {self.matrix.metric} of one "
            f"model on the x-axis, another on the y-axis; {len(self.matrix.queries)} queries."
        )
        return (
            f'<div class="q-explorer"><div class="q-controls">{boxes}</div>'
            f'<div class="q-plot" role="img" aria-label="{html.escape(alt, quote=True)}"></div>'
            '<div class="q-chosen" role="status">Click on a point to see the query and '
            "every model's score on it.</div>"
            f"{_note(self.note)}<noscript><p>This figure needs JavaScript; the table below does "
            "not.</p></noscript>"
            f'<script type="application/json">{data}</script></div>'
        )


def _jitter(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return deterministic small offsets of ``count`` points: two arrays of shape (count,)."""
    turns = np.arange(count) * _GOLDEN
    radius = _JITTER * np.sqrt((np.arange(count) * _GOLDEN * _GOLDEN) % 1)
    return radius * np.cos(2 * np.pi * turns), radius * np.sin(2 * np.pi * turns)


@dataclass(frozen=True)
class NoExplorer:
    """The reason why there is no explorer, shown in its place."""

    why: str

    def table(self) -> Table:
        """Return an empty table that gives the reason."""
        return Table(("query",), (), self.why)

    def _repr_html_(self) -> str:
        return _note(self.why)


def _note(text: str) -> str:
    return f'<p class="q-note">{html.escape(text)}</p>' if text else ""


def explore(
    results: Iterable[Result],
    *,
    task: str,
    metric: str = "nDCG@10",
    texts: Mapping[str, str] | None = None,
) -> Explorer | NoExplorer:
    """Return the explorer of a task, or the reason why there is none.

    Args:
        results: any records.
        task: name of the task.
        metric: a per-query metric between 0 and 1.
        texts: query texts by id; by default read with `query_texts`. If the data are not
            available, ids are shown instead and a note gives the reason.
    """
    pairing = pair_results(latest(results), metric=metric, tasks=[task])
    if not pairing.matrices:
        reasons = "; ".join(pairing.left_out) or "there is none"
        return NoExplorer(f"Two models with {metric} on {task} are needed: {reasons}.")
    if texts is not None:
        return Explorer(pairing.matrices[0], texts)
    try:
        return Explorer(pairing.matrices[0], query_texts(task))
    except (ValueError, OSError) as error:
        cause = " ".join(str(error).split())[:200]
        return Explorer(pairing.matrices[0], {}, f"Query texts are not available: {cause}")


def query_texts(task: str) -> dict[str, str]:
    """Return the query texts of a retrieval or reranking task, by id.

    Raises:
        ValueError: an unknown task, or one without queries.
        OSError: its data are not available locally and cannot be downloaded.
    """
    from qwen3nb.datasets.find_collections import from_mteb
    from qwen3nb.evaluation.mteb.select import select_tasks

    (selected,) = select_tasks(names=[task])
    return {key: text for each in from_mteb(selected) for key, text in each.queries.items()}
