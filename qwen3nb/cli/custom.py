"""The command `qwen3nb domain` and the table it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb import paths
from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import (
    DEVICE,
    DIMENSIONS,
    DTYPE,
    FILE,
    POOLING,
    READ_LIMIT,
    hide_library_bars,
    seed_option,
)
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from rich.table import Table

    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result

__all__ = ["domain", "domain_table", "run_domain"]

_NOTES = 10  # printed; a record keeps all


@click.command()
@click.option("--queries", required=True, type=FILE, help="TOML: queries and grades.")
@click.option("--documents", required=True, type=FILE, help="JSONL, CSV, SQLite or DuckDB.")
@click.option(
    "--model", "models", multiple=True,
    help="A folder, a registry name, a hub id, bm25 or random; repeat for more. The first "
    "is the model in use.  [default: those in the query file]",
)  # fmt: skip
@click.option("--preset", help="A known document layout: gh-star-search.")
@click.option("--table", help="Table of a database.  [default: the only table]")
@click.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@click.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@click.option(
    "--date", "on", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD",
    help="Reference date of recency; required by presets with recency.",
)  # fmt: skip
@click.option("--no-boost", is_flag=True, help="Use the cosine only, without stars and recency.")
@click.option("--name", help="Name of the task.  [default: that of the document file]")
@click.option("--output-dir", type=FILE, help="Folder of the records.  [default: results/]")
@click.option(
    "--reports", type=FILE, help="Folder of the automatic reports.  [default: eval_results/]"
)
@click.option("--no-report", is_flag=True, help="Write no report of the comparison.")
@click.option("--check", is_flag=True, help="Only check the data; load no model.")
@click.option("--fresh", is_flag=True, help="Score again even if the record exists.")
@click.option("--runs", is_flag=True, help="Keep run and qrels beside each record (TREC format).")
@seed_option("Seed, stored in the record.")
@POOLING
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens.  [default: the model's]")
@DIMENSIONS
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@DEVICE
@DTYPE
@READ_LIMIT
@without_traceback
def domain(**options: Any) -> None:
    """Evaluate models on your own queries and documents.

    \b
    qwen3nb domain --queries queries.toml --documents docs.jsonl --text "{title}. {body}" \\
        --model all-MiniLM-L6-v2 --model runs/encoder
    qwen3nb domain --queries eval_config.toml --documents stars.db --preset gh-star-search \\
        --date 2026-01-31 --model bm25 --model encoder
    qwen3nb domain --queries queries.toml --documents docs.csv --id-column name --check

    Documents are JSONL or CSV (or .gz), or a table of a SQLite or DuckDB file, which is
    opened read-only. For the format of the query file see qwen3nb.datasets.custom.queries.
    The scores of every query are saved in one record per model. Two or more models are
    compared with the model in use (models.current, or the first), as `qwen3nb compare` does;
    the report is written to eval_results/evaluation_<time>.json and .md.
    """
    run_domain(**options)


def run_domain(
    *,
    queries: Path,
    documents: Path,
    models: Sequence[Any] = (),
    preset: str | None = None,
    table: str | None = None,
    id_column: str | None = None,
    text: str | None = None,
    on: datetime | date | None = None,
    no_boost: bool = False,
    name: str | None = None,
    output_dir: Path | None = None,
    check: bool = False,
    reports: Path | None = None,
    no_report: bool = False,
    **options: Any,
) -> EvaluationRun | None:
    """Check the data, evaluate the models, print and report; return None if only checked.

    Raises:
        DataError: invalid data, or no model given.
        EvaluationError: one or more models failed; the others are printed and saved.
    """
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.custom.queries import read_queries
    from qwen3nb.datasets.rows import DataError

    query_file = read_queries(queries)
    layout = find_layout(preset, table=table, id_column=id_column, text=text)
    day = on.date() if isinstance(on, datetime) else on
    collection = load_domain(
        query_file, documents, layout=layout, boost=not no_boost, on=day, name=name
    )
    _print_summary(collection)
    if check:
        return None
    models = models or sorted(query_file.models, key=lambda each: each.name != "current")
    if not models:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {queries}")
    from qwen3nb.evaluation.retrieval.custom import evaluate_domain
    from qwen3nb.evaluation.run import EvaluationError

    hide_library_bars()
    run = evaluate_domain(models, collection, output=output_dir, **options)
    _print_results(run, output_dir)
    if len(run.results) > 1:
        _report(run.results, None if no_report else reports or paths.root() / "eval_results")
    if run.failures:
        failed = "\n".join(run.failure_lines())
        raise EvaluationError(f"{len(run.failures)} models failed\n{failed}")
    return run


def _print_results(run: EvaluationRun, output: Path | None) -> None:
    """Print the table, and the time and the record of each model."""
    if run.results:
        from qwen3nb.report.render.console import terminal

        terminal().print(domain_table(run.results))
    for result in run.results:
        cost = result.cost
        took = f"{cost.seconds:.1f} s, {cost.encoded:,} texts encoded, {cost.cached:,} cached"
        took = f"record reused ({took} then)" if result.model.label in run.reused else took
        click.echo(f"{result.model.label}: {took}; {result.path(output or paths.results())}")


def _report(results: Sequence[Result], folder: Path | None) -> None:
    """Compare the models with the first; write the report, and print the decision last."""
    from qwen3nb.report.comparison.candidates import compare_candidates
    from qwen3nb.utils.secrets import write_public

    report = compare_candidates(
        results, current=results[0].model.label, task=results[0].task.key,
    )  # fmt: skip
    if folder is not None:
        stem = folder / f"evaluation_{datetime.now():%Y%m%d_%H%M%S}"
        for suffix, text in ((".json", report.to_json()), (".md", report.to_markdown())):
            click.echo(write_public(stem.with_suffix(suffix), text))
    say(report.headline, bold=True)


def _print_summary(domain: Domain) -> None:
    from qwen3nb.datasets.rows import printable

    boosts = ", ".join(f"{key} {value}" for key, value in domain.recipe.items()) or "none"
    click.echo(
        f"{domain.name}: {len(domain.texts):,} documents, {len(domain.queries):,} queries "
        f"({len(domain.dropped)} dropped), relevant from grade {domain.threshold}; "
        f"boosts: {boosts}"
    )
    for what, count in domain.counts.items():
        click.echo(f"  {what}: {count:,}", err=True)
    for note in domain.notes[:_NOTES]:
        click.echo(f"  {printable(note)}", err=True)
    if len(domain.notes) > _NOTES:
        click.echo(f"  ... and {len(domain.notes) - _NOTES} more", err=True)


def domain_table(results: Sequence[Result]) -> Table:
    """One row per metric and model: mean, 95 % interval, number of queries."""
    from rich.table import Table
    from rich.text import Text

    from qwen3nb.datasets.rows import printable

    table = Table("metric")
    table.add_column("model", overflow="fold")
    for head in ("mean", "95 % interval", "queries"):
        table.add_column(head, justify="right", no_wrap=True)
    labels = [str(result.model.label) for result in results]
    for metric in results[0].metrics:
        for row, (result, label) in enumerate(zip(results, labels, strict=True)):
            value = result.metrics[metric]
            mark = f" {result.model.identity[:8]}" if labels.count(label) > 1 else ""
            table.add_row(
                metric if row == 0 else "",
                Text(printable(label + mark)),
                _number(value.value),
                f"{_number(value.low)} to {_number(value.high)}",
                str(value.n),
                end_section=row == len(results) - 1,
            )
    return table


def _number(value: float | None) -> str:
    return "?" if value is None or not math.isfinite(value) else f"{value:.3f}"
