"""The command `qwen3nb domain` and the table it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb import paths
from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import (
    ALPHA,
    BATCH_SIZE,
    CACHE_LIMIT,
    DEVICE,
    DIMENSIONS,
    DTYPE,
    FILE,
    MAX_LENGTH,
    MIRROR,
    NO_CACHE,
    POOLING,
    READ_LIMIT,
    TESTED,
    THRESHOLD,
    hide_library_bars,
    seed_option,
    use_mirror,
)
from qwen3nb.cli.spellings import model_option, out_option
from qwen3nb.cli.study_root import in_study
from qwen3nb.utils.choices import one_of
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
@model_option(
    "models", several=True,
    help="bm25, a name, a folder, a hub id or a fusion such as bm25+all-MiniLM-L6-v2; LABEL=MODEL "
    "gives it a label. Or a label of the query file. Repeat for more; the first is the model "
    "in use.  [default: those in the query file]",
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
@out_option(
    "output_dir", earlier=["--output-dir"], help="Folder of the records.  [default: results/]"
)
@click.option(
    "--reports", type=FILE,
    help="Folder of the automatic reports.  [default: eval_results/]",
)  # fmt: skip
@click.option("--no-report", is_flag=True, help="Write no report of the comparison.")
@click.option("--check", is_flag=True, help="Only check the data; load no model.")
@TESTED
@ALPHA
@THRESHOLD
@click.option("--fresh", is_flag=True, help="Score again even if the record exists.")
@click.option("--runs", is_flag=True, help="Keep run and qrels beside each record (TREC format).")
@seed_option("Seed, stored in the record.")
@POOLING
@MAX_LENGTH
@DIMENSIONS
@BATCH_SIZE
@DEVICE
@DTYPE
@NO_CACHE
@CACHE_LIMIT
@MIRROR
@READ_LIMIT
@without_traceback
@in_study(writes=True, unless=["output_dir", "check"])
def domain(**options: Any) -> None:
    """Evaluate models on your own queries and documents, and say which one to take.

    \b
    qwen3nb domain --queries queries.toml --documents docs.jsonl --text "{title}. {body}" \\
        --model all-MiniLM-L6-v2 --model runs/encoder
    qwen3nb domain --queries eval_config.toml --documents stars.db --preset gh-star-search \\
        --date 2026-01-31 --model bm25 --model encoder --model both=bm25+encoder
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
    no_cache: bool = False,
    mirror: Path | None = None,
    seed: int = 0,
    tested: Sequence[str] = ("MRR@10", "nDCG@10"),
    alpha: float = 0.05,
    threshold: float = 0.05,
    **options: Any,
) -> EvaluationRun | None:
    """Check the data, evaluate the models, print and report; return None if only checked.

    Raises:
        DataError: invalid data, or no model given.
        SpecError: no such model.
        ValueError: an unknown metric or preset; lists those there are.
        EvaluationError: one or more models failed; the others are printed and saved.
    """
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.custom.queries import model_entry, read_queries
    from qwen3nb.datasets.rows import DataError

    use_mirror(mirror)
    query_file = read_queries(queries)
    layout = find_layout(preset, table=table, id_column=id_column, text=text)
    day = on.date() if isinstance(on, datetime) else on
    collection = load_domain(
        query_file, documents, layout=layout, boost=not no_boost, on=day, name=name
    )
    _print_summary(collection)
    given = [model_entry(each, query_file) for each in models] or list(query_file.by_use)
    _print_models(given)
    if check:
        return None
    if not given:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {queries}")
    from qwen3nb.evaluation.retrieval.custom import DOMAIN_METRICS, evaluate_domain
    from qwen3nb.evaluation.run import EvaluationError

    for metric in tested:
        one_of("metric", metric, DOMAIN_METRICS)
    run = evaluate_domain(
        given, collection, output=output_dir, seed=seed, load=_load_quietly, cache=not no_cache,
        **options,
    )  # fmt: skip
    _print_results(run, output_dir)
    folder = None if no_report else reports or paths.root() / "eval_results"
    rule = {"tested": tuple(tested), "alpha": alpha, "threshold": threshold, "seed": seed}
    _report(run, given[0], folder, rule)
    if run.failures:
        failed = "\n".join(run.failure_lines())
        raise EvaluationError(f"{len(run.failures)} models failed\n{failed}")
    return run


def _load_quietly(spec: str, **options: Any) -> Any:
    """Load a model without the progress bars of its library, which loads only now."""
    from qwen3nb.models.load import load_model

    hide_library_bars()
    return load_model(spec, **options)


def _print_models(models: Sequence[Any]) -> None:
    """Print label and spec of each model, the model in use first, and which are not there."""
    from qwen3nb.models.sources.resolve import find_source

    names, missing = [], []
    for each in models:
        spec = str(getattr(each, "spec", each))
        label = getattr(each, "label", "")
        try:
            source = find_source(spec)
            label = label or source.label
        except ValueError as error:
            label = label or spec
            missing.append(f"{label}: {error}")
        names.append(label if label == spec else f"{label} ({spec})")
    if names:
        click.echo(f"in use: {names[0]}; candidates: {', '.join(names[1:]) or 'none'}")
    for line in missing:
        click.echo(f"  {line}", err=True)


def _print_results(run: EvaluationRun, output: Path | None) -> None:
    """Print the table, and the time and the record of each model."""
    from qwen3nb.report.comparison.candidates import times_text

    if run.results:
        from qwen3nb.report.render.console import terminal

        terminal().print(domain_table(run.results))
    for result in run.results:
        reused = result.model.label in run.reused
        click.echo(f"{result.model.label}: {times_text(result, reused=reused)}")
        click.echo(f"  {paths.shown(result.path(output or paths.results()))}")
    for name, reason in run.skipped.items():
        click.echo(f"{name}: not compared, {reason}")


def _report(run: EvaluationRun, first: Any, folder: Path | None, rule: dict[str, Any]) -> None:
    """Compare the models with the first; write the report, and print the decision last."""
    from qwen3nb.evaluation.retrieval.custom import entry_name
    from qwen3nb.report.comparison.candidates import compare_candidates

    current = entry_name(first)
    if current in run.failures:
        say(f"No decision: {current}, the model in use, failed.", bold=True)
        return
    if len(run.results) < 2:
        say(f"No decision: there is no other model to compare with {current}.", bold=True)
        return
    used = run.results[0]
    report = compare_candidates(run.results, current=used.model.label, task=used.task.key, **rule)
    for each in report.recommendations:
        click.echo(f"{each.model}: {each.text}")
    if folder is not None:
        for file in _written(folder, {".json": report.to_json(), ".md": report.to_markdown()}):
            click.echo(paths.shown(file))
    say(report.headline, bold=True)


def _written(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write a report as files of the same stem, by suffix; two of one second differ in a number."""
    from qwen3nb.utils.files.turns import turn
    from qwen3nb.utils.secrets import write_public

    name = f"evaluation_{datetime.now():%Y%m%d_%H%M%S}"
    with turn(folder / name):
        stems = chain([name], (f"{name}_{number}" for number in count(2)))
        stem = next(each for each in stems if not any(folder.glob(f"{each}.*")))
        return [write_public(folder / f"{stem}{end}", text) for end, text in texts.items()]


def _print_summary(domain: Domain) -> None:
    from qwen3nb.datasets.rows import printable

    boosts = ", ".join(f"{key} {value}" for key, value in domain.recipe.items()) or "none"
    click.echo(
        f"{domain.name}: {len(domain.texts):,} documents, {len(domain.queries):,} queries "
        f"({len(domain.dropped)} dropped), relevant from grade {domain.threshold}; "
        f"boosts: {boosts}"
    )
    for what, number in domain.counts.items():
        click.echo(f"  {what}: {number:,}", err=True)
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
