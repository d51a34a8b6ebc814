"""The command `qwen3nb migrate`: rehearse the change from one model to another on own data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.commands.notebooks import run_and_print
from qwen3nb.cli.program import Command

if TYPE_CHECKING:
    from qwen3nb.answers.migration import Migration
    from qwen3nb.report.render.table import Table

_LONGEST_NAME = 120  # characters of the name of a page
_THRESHOLD = opt.option(
    "--threshold",
    "thresholds",
    type=float,
    multiple=True,
    metavar="SIMILARITY",
    help="A similarity of OLD to carry over to NEW; repeatable.",
)
_TOTAL = opt.option(
    "--documents-total",
    minimum=1,
    help="Documents of the real collection, for hours and bytes.  [default: these]",
)
_MAP = opt.option(
    "--map", "map_file", type=opt.FILE, help="Write the best linear map to a .safetensors file."
)


@click.command(cls=Command)
@click.argument("old")
@click.argument("new")
@opt.option("--queries", required=True, type=opt.FILE, help="A query a line, or a query file.")
@opt.option("--documents", required=True, type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@opt.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@_THRESHOLD
@_TOTAL
@_MAP
@opt.option(
    "--relevance-threshold",
    type=click.IntRange(1, 3),
    help="Lowest relevant grade.  [default: the file's, or 2]",
)
@opt.flag("--complete", help="What has no grade is not relevant.")
@opt.option(
    "--margin", type=click.FloatRange(min=0), default=0.05, help="Smallest gain to migrate."
)
@opt.option("--old-dimensions", minimum=1, help="Leading dimensions of OLD.  [default: all]")
@opt.option("--new-dimensions", minimum=1, help="Leading dimensions of NEW.  [default: all]")
@opt.flag("--no-page", help="Print here; write no page.")
@opt.FRESH
@opt.seed_option("Seed of orders, folds and tests.")
@opt.BATCH_SIZE
@opt.DEVICE
@opt.CACHE_LIMIT
@opt.PASS_ENV
def migrate(
    *,
    old: str,
    new: str,
    queries: Path,
    documents: Path,
    text: str | None,
    id_column: str | None,
    thresholds: Sequence[float],
    documents_total: int | None,
    map_file: Path | None,
    relevance_threshold: int | None,
    complete: bool,
    margin: float,
    old_dimensions: int | None,
    new_dimensions: int | None,
    no_page: bool,
    fresh: bool,
    seed: int,
    batch_size: int,
    device: str,
) -> None:
    """Rehearse the change from one model to another on your own data.

    \b
    qwen3nb migrate bm25 encoder --queries queries.txt \\
        --documents docs.jsonl --text "{title}. {body}"
    qwen3nb migrate all-MiniLM-L6-v2 encoder --queries queries.toml \\
        --documents docs.jsonl --text "{title}. {body}" \\
        --threshold 0.62 --documents-total 2000000
    qwen3nb migrate old=runs/a new=runs/b --queries queries.txt \\
        --documents docs.jsonl --map map.safetensors

    It says whether to migrate, and shows how far rankings and thresholds change. It measures
    search while documents are encoded anew, what a linear map of the old vectors would keep, and
    hours and bytes. Queries without grades are enough for all but the verdict. In a study, it
    publishes a page.
    """
    from qwen3nb.evaluation.migration.map_file import check_map_file

    if map_file is not None:
        check_map_file(map_file)
    opt.hide_library_bars()
    if paths.find_root() is not None and not no_page:
        parameters = {
            "old": old,
            "new": new,
            "query_file": str(queries),
            "documents": str(documents),
            "text": text,
            "id_column": id_column,
            "thresholds": ",".join(f"{value:g}" for value in thresholds),
            "documents_total": documents_total,
            "map_file": None if map_file is None else str(map_file),
            "relevant_from": relevance_threshold,
            "complete": complete,
            "margin": margin,
            "old_dimensions": old_dimensions,
            "new_dimensions": new_dimensions,
            "seed": seed,
            "batch_size": batch_size,
            "device": device,
        }
        given = {name: value for name, value in parameters.items() if value is not None}
        name = _page_name(old, new, documents)
        run_and_print("migration", given, fresh=fresh, name=name)
        return
    from qwen3nb.answers.migration import migration

    found = migration(
        old,
        new,
        queries=queries,
        documents=documents,
        text=text or "",
        id_column=id_column or "",
        thresholds=thresholds,
        documents_total=documents_total or 0,
        map_file=map_file,
        relevance_threshold=relevance_threshold or 0,
        complete=complete,
        margin=margin,
        old_dimensions=old_dimensions or 0,
        new_dimensions=new_dimensions or 0,
        seed=seed,
        batch_size=batch_size,
        device=device,
    )
    _print_migration(found)
    if map_file is not None:
        click.echo(paths.shown(map_file))


def _page_name(old: str, new: str, documents: Path) -> str:
    """Return the name of the page: one for each pair of models on a collection."""
    parts = ["migration", old, "to", new, "on", documents.stem]
    name = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts)
    return name[:_LONGEST_NAME].rstrip("-.")


def _print_migration(found: Migration) -> None:
    """Print the decision, then each part with its sentence and its table."""
    opt.print_text(found.conclusion, bold=True)
    for sentence in (found.mixed_conclusion, found.map_conclusion):
        if sentence is not None:
            opt.print_text(sentence)
    for table in _tables(found):
        opt.print_table(table)


def _tables(found: Migration) -> Iterator[Table]:
    tables = (
        found.scores_table(),
        found.table(),
        found.changes_table(),
        found.thresholds_table(),
        found.mixed_table(),
        found.map_table(),
        found.costs_table(),
    )
    for table in tables:
        if table is not None:
            yield table
