"""The command that writes what a paper shows of the results, and its parts for other uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb.cli.errors import readable_records, without_traceback
from qwen3nb.cli.options import TIER, seed_option
from qwen3nb.report.render.figure import FORMATS, PAPER_STYLES
from qwen3nb.report.render.table import TABLE_FORMATS

if TYPE_CHECKING:
    from qwen3nb.report.paper.contents import Choice

__all__ = ["PAPER_COMMANDS"]

_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Output folder."
)
_MODELS = click.option(
    "--models", default="", help="Comma-separated names of the models to show.  [default: all]"
)
_TASKS = click.option(
    "--tasks", default="", help="Comma-separated tasks to show in place of the tier's."
)
_SEED = seed_option("Seed of the bootstrap and permutation draws.")


@click.command()
@click.option(
    "--style", type=click.Choice(list(PAPER_STYLES)), default="plain", show_default=True,
    help="Widths and font: ACL's two columns, NeurIPS' one, or those of an article.",
)  # fmt: skip
@click.option(
    "--out", default="paper", show_default=True,
    type=click.Path(path_type=Path, file_okay=False), help="Output folder.",
)  # fmt: skip
@TIER
@_MODELS
@_TASKS
@_SEED
@without_traceback
def paper(style: str, out: Path, tier: str | None, models: str, tasks: str, seed: int) -> None:
    """Write figures, tables, captions and references, and an article that compiles.

    Trainings and adapters are left out where models or tasks are named.

    \b
    qwen3nb paper --style acl
    qwen3nb paper --style neurips --models all-MiniLM-L6-v2,bm25
    """
    from qwen3nb.report.paper.files import write_paper

    files = write_paper(
        readable_records(), out, style=style, choice=_choice(tier, models, tasks, seed)
    )
    for file in files:
        click.echo(file)
    click.echo(f"To see it: cd {out} && pdflatex paper && bibtex paper && pdflatex paper", err=True)


def _choice(tier: str | None, models: str, tasks: str, seed: int) -> Choice:
    from qwen3nb.evaluation.mteb.select import split_names
    from qwen3nb.report.paper.contents import Choice

    return Choice(tier or "", tuple(split_names(models)), tuple(split_names(tasks)), seed)


@click.command(hidden=True)
@click.option("--format", type=click.Choice(FORMATS), default="pdf", show_default=True)
@_OUT
@TIER
@_MODELS
@_TASKS
@click.option(
    "--columns",
    type=click.Choice(["1", "2"]),
    help="Width: one column (3.35 in) or two (6.9 in).  [default: that of each figure]",
)
@without_traceback
def figures(
    format: str, out: Path, tier: str | None, models: str, tasks: str, columns: str | None
) -> None:
    """Write the figures of `qwen3nb paper` alone, and captions.md, in another format.

    \b
    qwen3nb figures --format svg --out slides --columns 1
    """
    from qwen3nb.report.paper.files import write_figures

    choice = _choice(tier, models, tasks, 0)
    for file in write_figures(
        readable_records(), out, format=format, columns=int(columns or 0), choice=choice
    ):
        click.echo(file)


@click.command(hidden=True)
@click.option("--format", type=click.Choice(list(TABLE_FORMATS)), default="latex",
              show_default=True)  # fmt: skip
@_OUT
@TIER
@_MODELS
@_TASKS
@_SEED
@without_traceback
def tables(format: str, out: Path, tier: str | None, models: str, tasks: str, seed: int) -> None:
    """Write the tables of `qwen3nb paper` alone: LaTeX, CSV (full precision) or Markdown.

    \b
    qwen3nb tables --format csv --out tables
    """
    from qwen3nb.report.paper.files import write_tables

    choice = _choice(tier, models, tasks, seed)
    for file in write_tables(readable_records(), out, format=format, choice=choice):
        click.echo(file)


PAPER_COMMANDS = (paper, figures, tables)
