"""Commands that write what a paper needs: figures and tables, from the results alone."""

from __future__ import annotations

from pathlib import Path

import click

from qwen3nb.cli.errors import plainly
from qwen3nb.report.render.figure import FORMATS
from qwen3nb.report.render.table import TABLE_FORMATS
from qwen3nb.tiers import TIERS

__all__ = ["FIGURE_COMMANDS"]

_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="A folder."
)
_TIER = click.option("--tier", type=click.Choice(list(TIERS)), default="smoke", show_default=True)


@click.command()
@click.option("--format", type=click.Choice(FORMATS), default="pdf", show_default=True)
@_OUT
@_TIER
@click.option(
    "--columns",
    type=click.Choice(["1", "2"]),
    help="As wide as one column (3.35 in) or two (6.9 in); by default each as it is made.",
)
@plainly
def figures(format: str, out: Path, tier: str, columns: str | None) -> None:
    """Write every figure that the results give, and captions.md, for a paper.

    \b
    qwen3nb figures --format pdf --out paper/figures
    qwen3nb figures --format svg --out slides --tier fast --columns 1
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.paper import write_figures

    wide = int(columns or 0)
    for file in write_figures(load_results(), out, tier=tier, format=format, columns=wide):
        click.echo(file)


@click.command()
@click.option("--format", type=click.Choice(list(TABLE_FORMATS)), default="latex",
              show_default=True)  # fmt: skip
@_OUT
@_TIER
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@plainly
def tables(format: str, out: Path, tier: str, seed: int) -> None:
    """Write every table that the results give: LaTeX, CSV (values in full) or Markdown.

    \b
    qwen3nb tables --format latex --out paper/tables
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.paper import write_tables

    for file in write_tables(load_results(), out, tier=tier, format=format, seed=seed):
        click.echo(file)


FIGURE_COMMANDS = (figures, tables)
