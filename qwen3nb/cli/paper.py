"""Commands that write figures and tables for a paper from the results."""

from __future__ import annotations

from pathlib import Path

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import TIER, seed_option
from qwen3nb.report.render.figure import FORMATS
from qwen3nb.report.render.table import TABLE_FORMATS

__all__ = ["PAPER_COMMANDS"]

_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Output folder."
)


@click.command()
@click.option("--format", type=click.Choice(FORMATS), default="pdf", show_default=True)
@_OUT
@TIER
@click.option(
    "--columns",
    type=click.Choice(["1", "2"]),
    help="Width: one column (3.35 in) or two (6.9 in).  [default: that of each figure]",
)
@without_traceback
def figures(format: str, out: Path, tier: str | None, columns: str | None) -> None:
    """Write all figures that the results support, and captions.md, for a paper.

    \b
    qwen3nb figures --format pdf --out paper/figures
    qwen3nb figures --format svg --out slides --tier fast --columns 1
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.paper import write_figures

    results, wide = load_results(), int(columns or 0)
    for file in write_figures(results, out, tier=tier or "", format=format, columns=wide):
        click.echo(file)


@click.command()
@click.option("--format", type=click.Choice(list(TABLE_FORMATS)), default="latex",
              show_default=True)  # fmt: skip
@_OUT
@TIER
@seed_option("Seed of the bootstrap and permutation draws.")
@without_traceback
def tables(format: str, out: Path, tier: str | None, seed: int) -> None:
    """Write all tables that the results support, as LaTeX, CSV (full precision) or Markdown.

    \b
    qwen3nb tables --format latex --out paper/tables
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.paper import write_tables

    results = load_results()
    for file in write_tables(results, out, tier=tier or "", format=format, seed=seed):
        click.echo(file)


PAPER_COMMANDS = (figures, tables)
