"""Commands that begin a study, run the demo and build the book."""

import shlex
from pathlib import Path

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command


@click.command(cls=Command)
@click.argument("folder", required=False, type=opt.FOLDER)
@opt.option("--out", "option_folder", type=opt.FOLDER, help="The same as FOLDER.")
@opt.option("--title", default="", help="Title of the book.  [default: the folder's name]")
@opt.option("--author", default="", help="Authors of the book, separated by commas.")
@opt.flag("--update", help="Renew the notebooks and the book of a study, by default of this one.")
@opt.flag("--ci", help="Compare models on each pull request: write a workflow of GitHub.")
@opt.flag("--dry-run", help="With --update: show what would be done.")
def new(
    folder: Path | None,
    option_folder: Path | None,
    title: str,
    author: str,
    update: bool,
    ci: bool,
    dry_run: bool,
) -> None:
    """Begin a study of your own in FOLDER: notebooks, book, sweep, example queries.

    \b
    qwen3nb new my-study
    qwen3nb new search --title "Which encoder for our search?" \\
        --author "Ada Lovelace"
    qwen3nb new --update --dry-run
    qwen3nb new --ci

    With --ci, .github/workflows/search-quality.yml is written, also into the study one is in. It
    fails a pull request whose model in use is worse than the one before, and comments on it.

    With --update, the notebooks and the book of a study are renewed to this release. What you have
    changed stays: values of parameters and cells of your own are carried over; a file that
    cannot be merged is kept, and the new one is put below updates/.
    """
    folder = folder or option_folder
    if update:
        if title or author:
            raise click.UsageError("--title and --author are of a new study; see _config.yml")
        _update(folder, dry_run=dry_run)
        if ci and not dry_run:
            _write_workflow(folder)
        return
    if dry_run:
        raise click.UsageError("--dry-run shows what --update would do; give both")
    if ci and (folder is None or paths.is_study(folder)):
        _write_workflow(folder)
        return
    if folder is None:
        raise click.UsageError("Missing FOLDER, or option --out.")
    _create(folder, title=title, author=author)
    if ci:
        _write_workflow(folder)


def _write_workflow(folder: Path | None) -> None:
    """Write the workflow of a study, by default of the one that one is in."""
    from qwen3nb.study import StudyError
    from qwen3nb.study.workflow import write_workflow

    study = folder or paths.find_root()
    if study is None or not paths.is_study(study):
        raise StudyError("--ci is for a study: give its FOLDER, or go there")
    file = write_workflow(study)
    click.echo(f"\n{paths.shown(file)}: compares models on each pull request.")
    click.echo("Commit it with queries.toml and documents.jsonl, which it evaluates.")


def _create(folder: Path, *, title: str, author: str) -> None:
    """Create a study, and say what to do next."""
    from qwen3nb.study import create_study

    study = create_study(folder, title=title, author=author)
    click.echo(f"{study}\n")
    # The nearest folder above it that is a study, too.
    outer_study = next(filter(paths.is_study, study.parents), None)
    if outer_study:
        click.echo(f"It is inside the study {outer_study}, whose book does not show its runs.\n")
    click.echo("Next:")
    click.echo(f"  cd {shlex.quote(str(folder))}")
    click.echo("  qwen3nb eval --model bm25 --tier smoke         # a first record")
    click.echo("  qwen3nb book                                   # _build/html/index.html")


def _update(folder: Path | None, *, dry_run: bool) -> None:
    """Update a study, and print what is done with each of its files."""
    from qwen3nb.old_names import NEW_OF_OLD
    from qwen3nb.study.update import plan_update

    study = folder.expanduser().resolve() if folder else paths.notebooks().parent
    plan = plan_update(study, new_names=NEW_OF_OLD)
    click.echo(f"{study}\n")
    for update in plan.files:
        click.echo(update.text)
    if not plan.files:
        click.echo("The notebooks and the book are those of this release.")
    elif dry_run:
        click.echo("\nNothing was written; without --dry-run, it is.")
    else:
        backup = plan.apply()
        if backup:
            click.echo(f"\nFiles as they were, and new ones that you have not: {backup}")


@click.command(cls=Command, writes=True, study=paths.runs)
@opt.option(
    "--at-once", minimum=0, default=0, help="Parallel runs; 0 for one per core, at most four."
)
@opt.PASS_ENV
def demo(at_once: int) -> None:
    """Train toy models, extract and evaluate them next to baselines, and build the book.

    \b
    qwen3nb demo --at-once 2

    Steps already finished with the same inputs are reused.
    """
    from qwen3nb.demo.pipeline import run_demo

    click.echo(f"\nOpen {run_demo(at_once=at_once)}")


@click.command(cls=Command, writes=True, study=paths.book)
@opt.TIER
@opt.flag("--lessons", help="Also run the lessons and the page that tests the statistics.")
@opt.PASS_ENV
def book(tier: str | None, lessons: bool) -> None:
    """Build the book from the current results, in strict mode, and check it.

    \b
    qwen3nb book
    qwen3nb book --tier smoke --lessons

    Pages without data are left out; a book of which nothing has changed is kept. `jupyter-book
    build book` also updates the pages, but checks less.
    """
    from qwen3nb.book.build import build_book

    click.echo(f"Open {build_book(tier=tier or '', lessons=lessons)}")
