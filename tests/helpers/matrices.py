"""Score matrices with given scores."""

from __future__ import annotations

from qwen3nb.analysis.stats.score_matrix import join


def table(*rows, task="task"):
    """A matrix of systems s0, s1, … with these rows of scores."""
    columns = {
        f"s{i}": {f"q{j:04d}": float(v) for j, v in enumerate(row)} for i, row in enumerate(rows)
    }
    return join(columns, task=task, metric="nDCG@10")
