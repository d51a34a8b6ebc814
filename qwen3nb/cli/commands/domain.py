"""The command `qwen3nb domain`: models on one's own queries and documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb import paths
from qwen3nb.cli.options import (
    ALPHA,
    ENCODER,
    FILE,
    MIRROR,
    NO_CACHE,
    READ_LIMIT,
    TESTED,
    THRESHOLD,
    hide_library_bars,
    model_option,
    out_option,
    seed_option,
)
from qwen3nb.cli.program import Command
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.format import number_text
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result
    from qwen3nb.report.render.table import Table

_NOTES = 10  # printed; a record keeps all


@click.command(cls=Command, writes=True, unless=["output", "check"])
@click.option("--queries", required=True, type=FILE, help="TOML: queries and grades.")
@click.option("--documents", required=True, type=FILE, help="JSONL, CSV, SQLite or DuckDB.")
@model_option(
    "models",
    several=True,
    help="bm25, a name, a folder, a hub id or a fusion such as bm25+all-MiniLM-L6-v2; LABEL=MODEL "
    "gives it a label. Or a label of the query file. Repeat for more; the first is the model "
    "in use.  [default: those in the query file]",
)
@click.option("--preset", help="A known document layout: gh-star-search.")
@click.option("--table", help="Table of a database.  [default: the only table]")
@click.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@click.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@click.option(
    "--date",
    "on",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Reference date of recency; required by presets with recency.",
)
@click.option(
    "--boost/--no-boost", default=True, help="Whether stars and recency count besides the cosine."
)
@click.option("--name", help="Name of the task.  [default: that of the document file]")
@out_option("output", help="Folder of the records.  [default: results/]")
@click.option(
    "--reports",
    type=FILE,
    help="Folder of the automatic reports.  [default: eval_results/]",
)
@click.option("--no-report", is_flag=True, help="Write no report of the comparison.")
@click.option("--check", is_flag=True, help="Only check the data; load no model.")
@TESTED
@ALPHA
@THRESHOLD
@click.option("--fresh", is_flag=True, help="Score again even if the record exists.")
@click.option("--runs", is_flag=True, help="Keep run and qrels beside each record (TREC format).")
@seed_option("Seed, stored in the record.")
@ENCODER
@NO_CACHE
@MIRROR
@READ_LIMIT
def domain(
    *,
    models: Sequence[str],
    output: Path | None,
    check: bool,
    reports: Path | None,
    no_report: bool,
    no_cache: bool,
    seed: int,
    tested: Sequence[str],
    alpha: float,
    threshold: float,
    **options: Any,
) -> None:
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
    from qwen3nb.datasets.custom.queries import model_entry, read_queries
    from qwen3nb.datasets.rows import DataError

    of_data = ("documents", "preset", "table", "id_column", "text", "on", "boost", "name")
    query_file = read_queries(file := options.pop("queries"))
    collection = _collection(query_file, **{name: options.pop(name) for name in of_data})
    given = [model_entry(each, query_file) for each in models] or list(query_file.by_use)
    _print_models(given)
    if check:
        return
    if not given:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {file}")
    from qwen3nb.evaluation.retrieval.custom import evaluate_domain
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.metrics.retrieval import RECORDED

    for metric in tested:
        one_of("metric", metric, RECORDED["own data"])
    run = evaluate_domain(
        given,
        collection,
        output=output,
        seed=seed,
        load=_load_quietly,
        cache=not no_cache,
        **options,
    )
    _print_results(run, output)
    folder = None if no_report else reports or paths.root() / "eval_results"
    rule = {"tested": tuple(tested), "alpha": alpha, "threshold": threshold, "seed": seed}
    _report(run, given[0], folder, rule)
    if run.failures:
        failed = "\n".join(run.failure_lines())
        raise EvaluationError(f"{len(run.failures)} models failed\n{failed}")


def _collection(
    queries: Any,
    documents: Path,
    *,
    preset: str | None,
    on: datetime | None,
    boost: bool,
    name: str | None,
    **layout: str | None,
) -> Domain:
    """Read the documents, and print what they and the queries hold."""
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.rows import printable

    domain = load_domain(
        queries,
        documents,
        layout=find_layout(preset, **layout),
        boost=boost,
        on=on and on.date(),
        name=name,
    )
    boosts = ", ".join(f"{key} {value}" for key, value in domain.recipe.items()) or "none"
    click.echo(
        f"{domain.name}: {len(domain.texts):,} documents, {len(domain.queries):,} queries "
        f"({len(domain.dropped)} dropped), relevant from grade {domain.threshold}; "
        f"boosts: {boosts}"
    )
    notes = [printable(note) for note in domain.notes[:_NOTES]]
    if len(domain.notes) > _NOTES:
        notes.append(f"... and {len(domain.notes) - _NOTES} more")
    counts = [f"{what}: {number:,}" for what, number in domain.counts.items()]
    for line in (*counts, *notes):
        click.echo(f"  {line}", err=True)
    return domain


def _load_quietly(spec: str, **options: Any) -> Any:
    """Load a model without the progress bars of its library, which loads only now."""
    from qwen3nb.models.load import load_model

    hide_library_bars()
    return load_model(spec, **options)


def _print_models(models: Sequence[Any]) -> None:
    """Print label and spec of each model, the model in use first, and which are not there."""
    from qwen3nb.models.kinds.resolve import find_source

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
    from qwen3nb.report.render.console import print_table

    if run.results:
        print_table(_table(run.results))
    for result in run.results:
        reused = result.model.label in run.reused
        click.echo(f"{result.model.label}: {times_text(result, reused=reused)}")
        click.echo(f"  {paths.shown(result.path(output or paths.results()))}")
    for name, reason in run.skipped.items():
        click.echo(f"{name}: not compared, {reason}")


def _table(results: Sequence[Result]) -> Table:
    """One row per metric and model: mean, 95 % interval, number of queries."""
    from qwen3nb.report.render.table import Table

    labels = [str(result.model.label) for result in results]
    return Table.of(
        {
            "metric": metric,
            "model": label + (f" {result.model.identity[:8]}" if labels.count(label) > 1 else ""),
            "mean": number_text(result.metrics[metric].value),
            "95 % interval": f"{number_text(result.metrics[metric].low)} to "
            f"{number_text(result.metrics[metric].high)}",
            "queries": result.metrics[metric].n,
        }
        for metric in results[0].metrics
        for result, label in zip(results, labels, strict=True)
    )


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
