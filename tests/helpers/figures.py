"""Figures of records with given scores, for tests of all of them."""

import functools

import numpy as np

from helpers.records import RERANKING, RETRIEVAL, make
from qwen3nb.answers.board.lead import lead_figure
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.one_model import per_query_figure
from qwen3nb.report.render.figure import ForestRow, forest_figure

ROWS = (
    ForestRow("clear", 0.2, (0.1, 0.3), note="n = 9"),
    ForestRow("unclear", -0.01, (-0.1, 0.1), clear=False),
    ForestRow("gone", None, note="not run"),
)


def records():
    """Four systems with random scores on two tasks."""
    scores = np.random.default_rng(0).random((4, 60))
    return [
        make(label, scores=values, task=task)
        for label, values in zip(
            ("demo-checkpoint-1", "demo-checkpoint-2", "bm25", "demo-init"), scores, strict=True
        )
        for task in (RETRIEVAL, RERANKING)
    ]


@functools.cache
def figures():
    """One of each kind of figure that records give, and a forest plot."""
    results = records()
    return [
        leaderboard(results, tier="smoke").figure(),
        compare(results).figure(),
        compare(results).differences_figure(),
        lead_figure(compare(results), task=RETRIEVAL),
        per_query_figure(results[:2]),
        forest_figure(ROWS, xlabel="x", caption="c"),
    ]
