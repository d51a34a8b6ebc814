"""The command `qwen3nb queries`: generate queries from documents, and measure their worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.documents import DocumentLayout, Documents
    from qwen3nb.datasets.generated.queries import Generation, KindReport

_KINDS = ("title", "phrases", "masked", "question", "written")


@click.command(cls=Command)
@opt.option("--documents", type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.option("--out", type=opt.FILE, help="File to write.  [default: generated.toml]")
@opt.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="How to make them; repeatable.  [default: all but written]",
)
@opt.option("--number", minimum=1, default=50, help="Queries of each kind.")
@opt.option(
    "--worth",
    metavar="DATA",
    help="Measure against real queries: a file with grades, a BEIR folder, an MTEB task.",
)
@opt.model_option("models", repeatable=True, help="For --worth: three models or more.")
@opt.option(
    "--dimensions", metavar="N,N", default="", help="For --worth: take encoders also with fewer."
)
@opt.option("--writer", metavar="MODEL", help="Language model for --kind written; api:URL#MODEL.")
@opt.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@opt.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@opt.option("--title", metavar="TEMPLATE", help="Title.  [default: {title}, if there is one]")
@opt.option("--table", help="Table of a database.  [default: the only table]")
@opt.seed_option("Which documents are drawn.")
def queries(
    *,
    documents: Path | None,
    out: Path | None,
    kinds: Sequence[str],
    number: int,
    worth: str | None,
    models: Sequence[str],
    dimensions: str,
    writer: str | None,
    id_column: str | None,
    text: str | None,
    title: str | None,
    table: str | None,
    seed: int,
) -> None:
    """Generate queries from documents, or measure what such queries are worth.

    \b
    qwen3nb queries --documents docs.jsonl --text "{title}. {body}"
    qwen3nb queries --documents docs.jsonl --text "{title}. {body}" \\
        --kind masked --number 200 --out masked.toml
    qwen3nb domain --queries generated.toml --documents docs.jsonl \\
        --text "{title}. {body}" --model bm25,encoder
    qwen3nb queries --worth queries.toml --documents docs.jsonl \\
        --text "{title}. {body}" --model bm25,encoder,random

    Each query is made from one document, which is the relevant one: its title, its most telling
    phrases, one of its sentences without the rarest words, or a question by a template. A language
    model writes some if you name one. Queries that fit another document as well are left out.

    Nobody asked these queries. They are marked wherever they go. --worth says, on documents with
    real queries, whether both order models alike, and decide alike between them.
    """
    from qwen3nb.datasets.custom.documents import find_layout

    layout = find_layout(id_column=id_column, text=text, table=table)
    if worth is not None:
        if "written" in kinds or writer is not None:
            raise click.UsageError("--worth measures queries by rules, without --writer")
        _measure(
            worth,
            documents,
            models,
            layout=layout,
            title=title,
            kinds=kinds,
            number=number,
            dimensions=dimensions,
            seed=seed,
        )
        return
    if documents is None:
        raise click.UsageError("queries are made from documents: give --documents FILE")
    if models:
        raise click.UsageError("models are compared with real queries: give --worth, too")
    if writer is not None and not kinds:
        kinds = _KINDS
    if "written" in kinds and writer is None:
        raise click.UsageError("--kind written needs a language model: --writer MODEL")
    _write(
        documents,
        out or Path("generated.toml"),
        layout=layout,
        title=title,
        kinds=kinds,
        number=number,
        seed=seed,
        writer=writer,
    )


def _write(
    documents: Path,
    file: Path,
    *,
    layout: DocumentLayout,
    title: str | None,
    kinds: Sequence[str],
    number: int,
    seed: int,
    writer: str | None,
) -> None:
    """Generate queries, and write their file."""
    from qwen3nb.datasets.custom.documents import read_documents
    from qwen3nb.datasets.generated.query_file import check_target, write_query_file

    check_target(file)
    collection = read_documents(documents, layout)
    titles = _titles(documents, layout, title)
    generation = _generate(
        collection, titles, kinds=kinds, number=number, seed=seed, writer=writer, file=file
    )
    _print_reports(generation, collection)
    write_query_file(file, generation, source=documents.name)
    count = len(generation.queries)
    say(f"{paths.shown(file)}: {count:,} generated queries", bold=True)


def _measure(
    data: str,
    documents: Path | None,
    models: Sequence[str],
    *,
    layout: DocumentLayout,
    title: str | None,
    kinds: Sequence[str],
    number: int,
    dimensions: str,
    seed: int,
) -> None:
    """Print what generated queries are worth against real ones."""
    from qwen3nb.answers.query_worth import query_worth
    from qwen3nb.datasets.generated.queries import BY_RULE

    if documents is None and Path(data).is_file():
        raise click.UsageError(f"{data} has queries; give their --documents, too")
    titles = None
    if documents is not None:
        titles = _titles(documents, layout, title)
    opt.hide_library_bars()
    worth = query_worth(
        models,
        data,
        documents=documents,
        layout=layout,
        titles=titles,
        kinds=kinds or BY_RULE,
        number=number,
        dimensions=_lengths(dimensions),
        seed=seed,
    )
    opt.print_text(worth.conclusion.text, bold=True)
    opt.print_table(worth.table())
    opt.print_table(worth.scores_table())


def _lengths(text: str) -> list[int]:
    """Return the numbers of dimensions in a list with commas."""
    try:
        lengths = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths):
        raise click.UsageError(f"--dimensions {text}: expected numbers, such as 128,32")
    return lengths


def _titles(file: Path, layout: DocumentLayout, template: str | None) -> dict[str, str]:
    """Return the title of each document; empty without a column of titles."""
    from qwen3nb.datasets.custom.documents import read_documents
    from qwen3nb.datasets.rows import DataError

    of_titles = replace(layout, text=template or "{title}", stars=None, updated=None)
    try:
        return dict(read_documents(file, of_titles).texts)
    except DataError:
        if template is not None:
            raise
        return {}


def _generate(
    documents: Documents,
    titles: dict[str, str],
    *,
    kinds: Sequence[str],
    number: int,
    seed: int,
    writer: str | None,
    file: Path,
) -> Generation:
    """Generate the queries; what a language model wrote is kept until they are all there."""
    from qwen3nb.datasets.generated.queries import BY_RULE, generate_queries
    from qwen3nb.datasets.generated.written import QueryWriter, journal_of
    from qwen3nb.utils.journal import Journal

    query_writer = None
    model = ""
    if writer is not None and "written" in kinds:
        from qwen3nb.models.generation import load_generator

        generator = load_generator(writer)
        model = generator.label  # an address may have a password
        query_writer = QueryWriter(generator, writer, Journal(journal_of(file)))
    generation = generate_queries(
        documents.texts,
        titles=titles,
        kinds=kinds or BY_RULE,
        number=number,
        seed=seed,
        writer=query_writer,
        model=model,
    )
    journal_of(file).unlink(missing_ok=True)
    return generation


def _print_reports(generation: Generation, documents: Documents) -> None:
    """Print what was made of the documents, and how easy it is for a lexical search."""
    from qwen3nb.evaluation.studies.lexical_share import found_first

    firsts = found_first(generation.queries, documents.texts)
    rows = [_report_row(report, firsts) for report in generation.reports]
    opt.print_table(rows, note="bm25 first: share of queries whose document BM25 ranks first.")
    for report in generation.reports:
        if len(report.queries) < report.wanted:
            reason = report.reasons or "every document has one"
            made = f"{len(report.queries):,} of {report.wanted:,}"
            click.echo(f"  {report.kind}: {made}; {reason}", err=True)


def _report_row(report: KindReport, firsts: dict[str, bool]) -> dict[str, object]:
    """Return a row on the queries of a kind."""
    found = [firsts[query.id] for query in report.queries]
    row: dict[str, object] = {
        "kind": str(report.kind),
        "queries": f"{len(report.queries):,}",
        "left out": f"{sum(report.refusals.values()):,}",
        "bm25 first": "",
        "a word of its own": "",
        "example": "",
    }
    if found:
        row["bm25 first"] = f"{sum(found) / len(found):.0%}"
        row["a word of its own"] = f"{report.unique_share:.0%}"
        row["example"] = report.queries[0].text[:60]
    return row
