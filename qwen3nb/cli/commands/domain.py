"""The command `qwen3nb domain`: evaluate models on your own queries and documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.utils.atomic_files import turn
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.format import interval_text, number_text
from qwen3nb.utils.secrets import write_public
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result

_NOTES = 10  # printed; a record keeps all


@click.command(cls=Command, writes=True, unless=["output", "check"])
@opt.option(
    "--queries", required=True, type=opt.FILE, help="TOML, JSON, JSONL or YAML: queries and grades."
)
@opt.option(
    "--relevance-threshold",
    type=click.IntRange(1, 3),
    help="Lowest grade that counts as relevant in binary metrics; by default the file's, or 2.",
)
@opt.option("--documents", required=True, type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.model_option(
    "models",
    several=True,
    help="bm25, a name, a folder, a hub id or a fusion such as bm25+all-MiniLM-L6-v2; LABEL=MODEL "
    "gives it a label. Or a label of the query file. Repeat for more; the first is the model "
    "in use.  [default: those in the query file]",
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
    help="Reference date of recency; required by presets with recency.",
)
@opt.option("--boost/--no-boost", default=True, help="Add stars and recency to the cosine.")
@opt.option("--name", help="Name of the task.  [default: name of the document file]")
@opt.out_option("output", help="Folder of the records.  [default: results/]")
@opt.option(
    "--reports", type=opt.FILE, help="Folder of the automatic reports.  [default: eval_results/]"
)
@opt.flag("--no-report", help="Write no report of the comparison.")
@opt.flag("--check", help="Only check the data; load no model.")
@opt.RULE
@opt.FRESH
@opt.flag("--runs", help="Keep run and qrels next to each record (TREC format).")
@opt.seed_option("Seed, stored in the record.")
@opt.ENCODER
@opt.NO_CACHE
@opt.MIRROR
@opt.READ_LIMIT
def domain(
    *,
    queries: Path,
    models: Sequence[str],
    output: Path | None,
    check: bool,
    reports: Path | None,
    no_report: bool,
    no_cache: bool,
    **options: Any,
) -> None:
    """Evaluate models on your own queries and documents, and recommend one.

    \b
    qwen3nb domain --queries queries.toml --documents docs.jsonl --text "{title}. {body}" \\
        --model all-MiniLM-L6-v2 --model runs/encoder
    qwen3nb domain --queries eval_config.toml --documents stars.db --preset gh-star-search \\
        --date 2026-01-31 --model bm25 --model encoder --model both=bm25+encoder
    qwen3nb domain --queries queries.toml --documents docs.csv --id-column name --check

    Documents are JSONL or CSV (or .gz), or a table of a SQLite or DuckDB file, which is
    opened read-only. For the format of the query file see qwen3nb.datasets.custom.queries; a
    golden set in JSON is [{"query": "sort a list", "relevance_grades": {"list.sort": 3}}].
    The scores of every query are saved in one record per model. Two or more models are
    compared with the model in use (models.current, or the first), as `qwen3nb compare` does;
    the report is written to eval_results/evaluation_<time>.json and .md.
    """
    from qwen3nb.datasets.custom.queries import model_entry, read_queries
    from qwen3nb.datasets.rows import DataError

    query_file = read_queries(queries)
    collection = _collection(query_file, options)
    given = [model_entry(each, query_file) for each in models] or list(query_file.by_use)
    _print_models(given)
    if check:
        return
    if not given:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {queries}")
    from qwen3nb.evaluation.retrieval.custom import entry_name, evaluate_domain
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.metrics.retrieval import RECORDED

    rule = {name: options.pop(name) for name in ("tested", "alpha", "margin")}
    rule["tested"] = rule["tested"] or ("MRR@10", "nDCG@10")
    for metric in rule["tested"]:
        one_of("metric", metric, RECORDED["own data"])
    opt.hide_library_bars()
    run = evaluate_domain(given, collection, output=output, cache=not no_cache, **options)
    current = entry_name(given[0])
    if current in run.failures:
        say(f"No decision: {current}, the model in use, failed.", bold=True)
    elif len(run.results) < 2:
        say(f"No decision: there is no other model to compare with {current}.", bold=True)
    else:
        folder = None if no_report else reports or paths.root() / "eval_results"
        _report(run.results, folder, **rule, seed=options["seed"])
    _print_results(run, output, rule["tested"])
    if run.failures:
        failed = "\n".join(run.failure_lines())
        raise EvaluationError(f"{len(run.failures)} models failed\n{failed}")


def _collection(queries: Any, options: dict[str, Any]) -> Domain:
    """Read the documents as described by ``options``, and print a summary of the data."""
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.rows import printable

    layout = {name: options.pop(name) for name in ("preset", "table", "id_column", "text")}
    on = options.pop("on")
    domain = load_domain(
        queries,
        options.pop("documents"),
        layout=find_layout(**layout),
        boost=options.pop("boost"),
        on=on and on.date(),
        name=options.pop("name"),
        relevance_threshold=options.pop("relevance_threshold"),
    )
    boosts = ", ".join(f"{key} {value}" for key, value in domain.recipe.items()) or "none"
    click.echo(
        f"{domain.name}: {len(domain.texts):,} documents, {len(domain.queries):,} queries "
        f"({len(domain.dropped)} dropped), relevant from grade {domain.threshold}; "
        f"boosts: {boosts}"
    )
    more = len(domain.notes) - _NOTES
    lines = [f"{what}: {number:,}" for what, number in domain.counts.items()]
    lines += [printable(note) for note in domain.notes[:_NOTES]]
    for line in [*lines, *[f"... and {more} more"] * (more > 0)]:
        click.echo(f"  {line}", err=True)
    return domain


def _print_models(models: Sequence[Any]) -> None:
    """Print label and spec of each model, the model in use first, and which are missing."""
    from qwen3nb.models.kinds.resolve import find_source

    names = []
    for each in models:
        spec = str(getattr(each, "spec", each))
        label = getattr(each, "label", "") or spec
        try:
            find_source(spec)
        except ValueError as error:
            click.echo(f"  {label}: {error}", err=True)
        names.append(label if label == spec else f"{label} ({spec})")
    if names:
        click.echo(f"in use: {names[0]}; candidates: {', '.join(names[1:]) or 'none'}")


def _print_results(run: EvaluationRun, output: Path | None, metrics: Sequence[str]) -> None:
    """Print means with 95 % intervals of ``metrics``, and the time and record of each model."""
    from qwen3nb.answers.candidates import times_text
    from qwen3nb.report.render.table import number

    rows = [
        {
            "metric": metric,
            "model": f"{result.model.label} {result.model.identity[:8]}",
            "mean": number_text(result.metrics[metric].value),
            "95 % interval": interval_text(number(result.metrics[metric]).interval, sign=False),
            "queries": result.metrics[metric].n,
        }
        for metric in metrics
        for result in run.results
    ]
    if rows:
        opt.print_table(rows)
    for result in run.results:
        label = result.model.label
        click.echo(f"{label}: {times_text(result, reused=label in run.reused)}")
        click.echo(f"  {paths.shown(result.path(output or paths.results()))}")
    for name, reason in run.skipped.items():
        click.echo(f"{name}: not compared, {reason}")


def _report(results: Sequence[Result], folder: Path | None, **rule: Any) -> None:
    """Compare the models with the first; print the decision and the path of the report."""
    from qwen3nb.answers.candidate_rules import NothingFoundError
    from qwen3nb.answers.candidates import compare_candidates

    used = results[0]
    try:
        report = compare_candidates(results, current=used.model.label, task=used.task.key, **rule)
    except NothingFoundError as error:
        say(f"No decision: {error}", bold=True)
        return
    say(report.headline, bold=True)
    opt.print_table(report.tables()["Recommendation"])
    if folder is None:
        return
    name = f"evaluation_{datetime.now():%Y%m%d_%H%M%S}"
    with turn(folder / name):  # two reports of the same second get different numbers
        stems = chain([name], (f"{name}_{number}" for number in count(2)))
        stem = next(each for each in stems if not any(folder.glob(f"{each}.*")))
        for end, text in ((".json", report.to_json()), (".md", report.to_markdown())):
            click.echo(paths.shown(write_public(folder / f"{stem}{end}", text)))
