"""Commands that begin a study, run the demo and build the book."""

import shlex
from pathlib import Path

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command


@click.command(cls=Command)
@opt.paths_given(folder="--out")
@opt.option("--title", default="", help="Title of the book.  [default: the folder's name]")
@opt.option("--author", default="", help="Authors of the book, separated by commas.")
def new(folder: Path, title: str, author: str) -> None:
    """Begin a study of your own in FOLDER: notebooks, book, sweep, example queries.

    \b
    qwen3nb new my-study
    qwen3nb new search --title "Which encoder for our search?" --author "Ada Lovelace"
    """
    from qwen3nb.study import create_study

    study = create_study(folder, title=title, author=author)
    click.echo(f"{study}\n")
    if outer := next(filter(paths.is_study, study.parents), None):
        click.echo(f"It is inside the study {outer}, whose book does not show its runs.\n")
    click.echo("Next:")
    click.echo(f"  cd {shlex.quote(str(folder))}")
    click.echo("  qwen3nb eval --model bm25 --tier smoke         # a first record")
    click.echo("  qwen3nb book                                   # _build/html/index.html")


@click.command(cls=Command, writes=True, study=paths.runs)
@opt.option(
    "--at-once", least=0, default=0, help="Parallel runs; 0 for one per core, at most four."
)
@opt.PASS_ENV
def demo(at_once: int) -> None:
    """Train toy models, extract and evaluate them next to baselines, and build the book.

    Steps already finished with the same inputs are reused.

    \b
    qwen3nb demo --at-once 2
    """
    from qwen3nb.demo.pipeline import run_demo

    click.echo(f"\nOpen {run_demo(at_once=at_once)}")


@click.command(cls=Command, writes=True, study=paths.book)
@opt.TIER
@opt.flag("--lessons", help="Also run the lessons and the page that tests the statistics.")
@opt.PASS_ENV
def book(tier: str | None, lessons: bool) -> None:
    """Build the book from the current results, in strict mode, and check it.

    Pages without data are left out. `jupyter-book build book` also updates the pages, but checks
    less.

    \b
    qwen3nb book
    qwen3nb book --tier smoke --lessons
    """
    from qwen3nb.book.build import build_book

    click.echo(f"Open {build_book(tier=tier or '', lessons=lessons)}")
