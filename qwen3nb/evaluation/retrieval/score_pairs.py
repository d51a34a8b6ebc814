"""Score a file of query–document pairs with a reranker."""

from __future__ import annotations

import json
from pathlib import Path

from qwen3nb.datasets.rows import DataError, json_rows
from qwen3nb.models.rerankers.prompt_template import RerankError
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.utils.atomic_files import write_text

__all__ = ["rerank_pairs"]


def rerank_pairs(reranker: Reranker, pairs: Path, output: Path) -> int:
    """Score ``{"query", "document"}`` lines into ``{"p_yes", "log_odds", "truncated"}`` lines.

    Lines keep their order; the file is written atomically. Pairs of one query are
    scored together, wherever they are in the file.

    Returns:
        The number of pairs.

    Raises:
        DataError: a line is not a pair; the message names the line.
        RerankError: a pair cannot be scored.
    """
    rows = list(json_rows(pairs, {"query": str, "document": str}))
    try:
        scores = reranker.score_pairs(rows)
    except RerankError as error:
        raise RerankError(f"{pairs}: {error}") from None
    if not rows:
        raise DataError(f"{pairs}: the file has no pairs")
    columns = (scores.p_yes.tolist(), scores.log_odds.tolist(), scores.truncated.tolist())
    lines = [
        json.dumps({"p_yes": p_yes, "log_odds": log_odds, "truncated": truncated})
        for p_yes, log_odds, truncated in zip(*columns, strict=True)
    ]
    write_text(output, "\n".join(lines) + "\n")
    return len(rows)
