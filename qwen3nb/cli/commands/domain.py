"""The command `qwen3nb domain`: evaluate models on your own queries and documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import EncoderArguments, RuleArguments
from qwen3nb.cli.program import Command
from qwen3nb.utils.atomic_files import exclusive_lock
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import interval_text, number_text
from qwen3nb.utils.secrets import write_public

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result

_MOST_NOTES = 10  # printed; a record keeps all


@click.command(cls=Command, writes=True, unless=["output", "check"])
@opt.option(
    "--queries", required=True, type=opt.FILE, help="Queries and grades: TOML, JSON, JSONL or YAML."
)
@opt.option(
    "--relevance-threshold",
    type=click.IntRange(1, 3),
    help="Lowest relevant grade.  [default: the file's, or 2]",
)
@opt.option(
    "--complete",
    is_flag=True,
    help="What has no grade is not relevant.",
)
@opt.option("--documents", required=True, type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.model_option(
    "models",
    repeatable=True,
    help="Folder, name, hub id, LABEL=MODEL, or a fusion such as bm25+encoder; repeatable, the "
    "first is in use.  [default: those in the query file]",
)
@opt.option("--preset", help="A known document layout: gh-star-search.")
@opt.option("--table", help="Table of a database.  [default: the only table]")
@opt.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@opt.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@opt.option(
    "--date",
    "on",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Reference date of recency, if a preset has it.",
)
@opt.option("--boost/--no-boost", default=True, help="Add stars and recency to the cosine.")
@opt.option("--name", help="Name of the task.  [default: of the documents]")
@opt.out_option("output", help="Folder of the records.  [default: results/]")
@opt.option("--reports", type=opt.FILE, help="Folder of reports.  [default: eval_results/]")
@opt.flag("--no-report", help="Write no report of the comparison.")
@opt.flag("--check", help="Only check the data; load no model.")
@opt.RULE
@opt.FRESH
@opt.flag("--runs", help="Keep each search's run and qrels (TREC format).")
@opt.seed_option("Seed, stored in the record.")
@opt.ENCODER
@opt.NO_CACHE
@opt.MIRROR
@opt.READ_LIMIT
def domain(
    *,
    queries: Path,
    documents: Path,
    models: Sequence[str],
    output: Path | None,
    check: bool,
    reports: Path | None,
    no_report: bool,
    preset: str | None,
    table: str | None,
    id_column: str | None,
    text: str | None,
    on: datetime | None,
    boost: bool,
    name: str | None,
    relevance_threshold: int | None,
    complete: bool,
    tested: Sequence[str],
    alpha: float,
    margin: float,
    fresh: bool,
    runs: bool,
    seed: int,
    no_cache: bool,
    **options: Unpack[EncoderArguments],
) -> None:
    """Evaluate models on your own queries and documents, and recommend one.

    \b
    qwen3nb domain --queries queries.toml --documents docs.jsonl \\
        --text "{title}. {body}" \\
        --model all-MiniLM-L6-v2 --model runs/encoder
    qwen3nb domain --queries eval_config.toml --documents stars.db \\
        --preset gh-star-search \\
        --date 2026-01-31 --model bm25 --model encoder --model both=bm25+encoder
    qwen3nb domain --queries queries.toml --documents docs.csv \\
        --id-column name --check

    Documents are JSONL or CSV (or .gz), or a table of a SQLite or DuckDB file, which is
    opened read-only. For the format of the query file see qwen3nb.datasets.custom.queries; a
    golden set in JSON is [{"query": "sort a list", "relevance_grades": {"list.sort": 3}}].
    The scores of every query are saved in one record per model. Two or more models are
    compared with the model in use (models.current, or the first), as `qwen3nb compare` does;
    the report is written to eval_results/evaluation_<time>.json and .md.
    """
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.custom.queries import model_entry, read_queries
    from qwen3nb.datasets.rows import DataError

    query_file = read_queries(queries)
    collection = load_domain(
        query_file,
        documents,
        layout=find_layout(preset, table=table, id_column=id_column, text=text),
        boost=boost,
        on=on.date() if on else None,
        name=name,
        relevance_threshold=relevance_threshold,
        complete=complete,
    )
    _print_collection(collection)
    candidates = [model_entry(spec, query_file) for spec in models] or list(query_file.by_use)
    _print_models(candidates)
    if check:
        return
    if not candidates:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {queries}")
    from qwen3nb.evaluation.retrieval.custom import entry_name, evaluate_domain

    _check_metrics(tested)
    opt.hide_library_bars()
    run = evaluate_domain(
        candidates,
        collection,
        output=output,
        cache=not no_cache,
        fresh=fresh,
        runs=runs,
        seed=seed,
        **options,
    )
    if no_report:
        folder = None
    else:
        folder = reports or paths.root() / "eval_results"
    rule = RuleArguments(tested=tested, alpha=alpha, margin=margin)
    _print_decision(run, entry_name(candidates[0]), folder, rule, seed=seed)
    _print_results(run, output, tested)
    _raise_failures(run)


def _check_metrics(metrics: Sequence[str]) -> None:
    from qwen3nb.metrics.retrieval import RECORDED

    for metric in metrics:
        check_choice("metric", metric, RECORDED["own data"])


def _print_decision(
    run: EvaluationRun, current: str, folder: Path | None, rule: RuleArguments, *, seed: int
) -> None:
    """Print which model to use, and write a report; or say why there is no decision."""
    if current in run.failures:
        opt.print_text(f"No decision: {current}, the model in use, failed.", bold=True)
    elif len(run.results) < 2:
        opt.print_text(
            f"No decision: there is no other model to compare with {current}.", bold=True
        )
    else:
        _report(run.results, folder, rule, seed=seed)


def _raise_failures(run: EvaluationRun) -> None:
    from qwen3nb.evaluation.run import EvaluationError

    if run.failures:
        causes = "\n".join(run.failure_lines())
        raise EvaluationError(f"{len(run.failures)} models failed\n{causes}")


def _print_collection(collection: Domain) -> None:
    """Print how much data there is, and what is remarkable about it."""
    from qwen3nb.datasets.rows import printable

    documents = f"{len(collection.texts):,} documents"
    queries = f"{len(collection.queries):,} queries ({len(collection.dropped)} dropped)"
    boosts = ", ".join(f"{name} {value}" for name, value in collection.recipe.items())
    opt.print_text(
        f"{collection.name}: {documents}, {queries}, "
        f"relevant from grade {collection.threshold}; boosts: {boosts or 'none'}"
    )
    for description, count in collection.counts.items():
        click.echo(f"  {description}: {count:,}", err=True)
    for note in collection.notes[:_MOST_NOTES]:
        click.echo(f"  {printable(note)}", err=True)
    unprinted = len(collection.notes) - _MOST_NOTES
    if unprinted > 0:
        click.echo(f"  ... and {unprinted} more", err=True)


def _print_models(models: Sequence[object]) -> None:
    """Print label and spec of each model, the model in use first, and which are missing."""
    from qwen3nb.models.kinds.resolve import find_source

    names: list[str] = []
    for model in models:
        spec = str(getattr(model, "spec", model))  # an entry of the query file, or only a spec
        label = getattr(model, "label", "") or spec
        try:
            find_source(spec)
        except ValueError as error:
            click.echo(f"  {label}: {error}", err=True)
        if label == spec:
            names.append(label)
        else:
            names.append(f"{label} ({spec})")
    if names:
        current, *candidates = names
        opt.print_text(f"in use: {current}; candidates: {', '.join(candidates) or 'none'}")


def _print_results(run: EvaluationRun, output: Path | None, metrics: Sequence[str]) -> None:
    """Print means with 95 % intervals, and the time and record of each model.

    The means are those of ``metrics``, by default those that decide (see `tested_by_default`).
    """
    from qwen3nb.answers.candidates import tested_by_default, times_text
    from qwen3nb.report.render.table import number

    rows = []
    for metric in metrics or tested_by_default(run.results):
        for result in run.results:
            score = result.metrics[metric]
            interval = number(score).interval
            rows.append(
                {
                    "model": f"{result.model.label} {result.model.identity[:8]}",
                    "metric": metric,
                    "mean": number_text(score.value),
                    "95 % interval": interval_text(interval, sign=False),
                    "queries": score.n,
                }
            )
    if rows:
        opt.print_table(rows)
    for result in run.results:
        label = result.model.label
        opt.print_text(f"{label}: {times_text(result, reused=label in run.reused)}")
        click.echo(f"  {paths.shown(result.path(output or paths.results()))}")
    for name, reason in run.skipped.items():
        opt.print_text(f"{name}: not compared, {reason}")


def _report(
    results: Sequence[Result], folder: Path | None, rule: RuleArguments, *, seed: int
) -> None:
    """Compare the models with the first; print the decision and the path of the report."""
    from qwen3nb.answers.candidate_rules import NothingFoundError
    from qwen3nb.answers.candidates import compare_candidates

    current = results[0]
    try:
        report = compare_candidates(
            results, current=current.model.label, task=current.task.key, seed=seed, **rule
        )
    except NothingFoundError as error:
        opt.print_text(f"No decision: {error}", bold=True)
        return
    opt.print_decision(report.decision)
    opt.print_table(report.tables()["Recommendation"])
    if folder is None:
        return
    # Such as evaluation_20260131_093000.
    stem = f"evaluation_{datetime.now():%Y%m%d_%H%M%S}"
    with exclusive_lock(folder / stem):  # two reports of the same second get different numbers
        stem = _new_stem(folder, stem)
        json_file = write_public(folder / f"{stem}.json", report.to_json())
        click.echo(paths.shown(json_file))
        markdown_file = write_public(folder / f"{stem}.md", report.to_markdown())
        click.echo(paths.shown(markdown_file))


def _new_stem(folder: Path, stem: str) -> str:
    """Return a name that no file in a folder has: with a number if needed."""
    numbered = stem
    number = 1
    while any(folder.glob(f"{numbered}.*")):
        number += 1
        numbered = f"{stem}_{number}"
    return numbered
