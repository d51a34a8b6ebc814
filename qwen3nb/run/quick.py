"""The quick look, said on standard output."""

from __future__ import annotations

import json

import click

from qwen3nb.models.bm25 import BM25
from qwen3nb.models.encoders import Encoder
from qwen3nb.models.fusion import Fusion
from qwen3nb.report.terminal import print_table
from qwen3nb.report.views import checks_table
from qwen3nb.tasks.intrinsic import quick_look

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
