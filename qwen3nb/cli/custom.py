"""`qwen3nb domain`: its options, what it runs, the table it shows.

Heavy imports wait inside, so that `--help` answers at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS

if TYPE_CHECKING:
    from rich.table import Table

    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result

__all__ = ["domain_options", "domain_table", "run_domain"]

_NOTES = 10  # shown; a record keeps all
_FILE = click.Path(path_type=Path)
_OPTIONS = (
    click.option("--queries", required=True, type=_FILE, help="TOML: queries and grades."),
    click.option("--documents", required=True, type=_FILE, help="JSONL, CSV, SQLite or DuckDB."),
    click.option(
        "--model", "models", multiple=True,
        help="A folder, a registry name, a hub id, random; again for more. Without: those of "
        "the queries' file.",
    ),
    click.option("--preset", help="A known layout of documents: gh-star-search."),
    click.option("--table", help="Of a database; by default its only one."),
    click.option("--id-column", help="By default id.", metavar="NAME"),
    click.option("--text", metavar="TEMPLATE", help="Such as '{title}. {body}'; default {text}."),
    click.option(
        "--date", "on", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD",
        help="The day recency is counted from; presets with recency need it.",
    ),
    click.option("--no-boost", is_flag=True, help="Cosine alone: no stars, no recency."),
    click.option("--name", help="Of the task; by default the documents' file's."),
    click.option("--output-dir", type=_FILE, help="For records; by default results/."),
    click.option("--check", is_flag=True, help="Check the data, load no model."),
    click.option("--fresh", is_flag=True, help="Score again although the record is there."),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the intervals."),
    click.option("--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto"),
    click.option("--max-length", type=click.IntRange(min=1), help="By default the model's."),
    click.option("--device", default="auto", show_default=True),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True),
)  # fmt: skip


def domain_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command the options of `run_domain`, in the order of the help."""
    return functools.reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)


def run_domain(
    *,
    queries: Path,
    documents: Path,
    models: Sequence[str] = (),
    preset: str | None = None,
    table: str | None = None,
    id_column: str | None = None,
    text: str | None = None,
    on: datetime | date | None = None,
    no_boost: bool = False,
    name: str | None = None,
    output_dir: Path | None = None,
    check: bool = False,
    **options: Any,
) -> EvaluationRun | None:
    """Check the data, score the models, show the table; None if only checked.

    Raises:
        DataError: the data, or no model is asked for.
        EvaluationError: one or more models failed; the others are shown and saved.
    """
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.custom.queries import read_queries
    from qwen3nb.datasets.rows import DataError

    asked = read_queries(queries)
    layout = find_layout(preset, table=table, id_column=id_column, text=text)
    day = on.date() if isinstance(on, datetime) else on
    domain = load_domain(asked, documents, layout=layout, boost=not no_boost, on=day, name=name)
    _say(domain)
    if check:
        return None
    chosen = models or asked.models
    if not chosen:
        raise DataError(f"no model: give one with --model, or [models.NAME] in {queries}")
    from qwen3nb.cli.tasks import no_library_bars
    from qwen3nb.evaluation.retrieval.custom import evaluate_domain

    no_library_bars()
    found = evaluate_domain(chosen, domain, output=output_dir, **options)
    _show(found, output_dir)
    return found


def _show(found: EvaluationRun, output: Path | None) -> None:
    """The table and where the records are; then what failed, as an error."""
    from rich.console import Console

    from qwen3nb import paths
    from qwen3nb.evaluation.run import EvaluationError

    if found.results:
        Console().print(domain_table(found.results))
    for result in found.results:
        again = " (was there)" if result.model.label in found.reused else ""
        click.echo(f"{result.path(output or paths.results())}{again}")
    if found.failures:
        failed = "\n".join(found.failure_lines())
        raise EvaluationError(f"{len(found.failures)} models failed\n{failed}")


def _say(domain: Domain) -> None:
    boosts = ", ".join(f"{key} {value}" for key, value in domain.recipe.items()) or "none"
    click.echo(
        f"{domain.name}: {len(domain.texts):,} documents, {len(domain.queries):,} queries "
        f"({len(domain.dropped)} dropped), relevant from grade {domain.threshold}; "
        f"boosts: {boosts}"
    )
    for note in domain.notes[:_NOTES]:
        click.echo(f"  {note}", err=True)
    if len(domain.notes) > _NOTES:
        click.echo(f"  ... and {len(domain.notes) - _NOTES} more", err=True)


def domain_table(results: Sequence[Result]) -> Table:
    """Per metric a row for each model: mean, 95 % bootstrap interval, number of queries."""
    from rich.table import Table
    from rich.text import Text

    from qwen3nb.datasets.rows import printable

    shown = Table("metric")
    shown.add_column("model", overflow="fold")
    for head in ("mean", "95 % interval", "queries"):
        shown.add_column(head, justify="right", no_wrap=True)
    labels = [str(result.model.label) for result in results]
    for metric in results[0].metrics:
        for place, (result, label) in enumerate(zip(results, labels, strict=True)):
            value = result.metrics[metric]
            mark = f" {result.model.identity[:8]}" if labels.count(label) > 1 else ""
            shown.add_row(
                metric if place == 0 else "",
                Text(printable(label + mark)),
                _number(value.value),
                f"{_number(value.low)} to {_number(value.high)}",
                str(value.n),
                end_section=place == len(results) - 1,
            )
    return shown


def _number(value: float | None) -> str:
    return "?" if value is None or not math.isfinite(value) else f"{value:.3f}"
