"""The quick look, said on standard output."""

from __future__ import annotations

import json

import click

from qwen3nb.evaluation.embeddings.sanity_check import quick_look
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion
from qwen3nb.report.leaderboard.tables import checks_table
from qwen3nb.report.render.console import print_table

__all__ = ["say_quick_look"]


def say_quick_look(model: Encoder | BM25 | Fusion, *, as_json: bool = False) -> str:
    """Print the checks of ``model`` as a table or as JSON; the verdict on all of them."""
    look = quick_look(model)
    if as_json:
        click.echo(json.dumps(look.as_dict(), indent=2, allow_nan=False))
    else:
        print_table(checks_table(look))
        click.echo(f"{look.model}: {look.verdict}")
    return look.verdict
