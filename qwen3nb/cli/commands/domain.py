"""The command `qwen3nb domain`: evaluate models on your own queries and documents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import EncoderArguments, RuleArguments
from qwen3nb.cli.commands.records import REGRESSION
from qwen3nb.cli.how_to_judge import SearchArguments
from qwen3nb.cli.program import Command
from qwen3nb.utils.atomic_files import exclusive_lock
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import interval_text, number_text
from qwen3nb.utils.secrets import write_public
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.answers.decision import Decision
    from qwen3nb.datasets.custom.load import Domain
    from qwen3nb.datasets.custom.queries import ModelEntry, QueryFile
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.records.record import Result

_MOST_NOTES = 10  # printed; a record keeps all


@click.command(cls=Command, writes=True, unless=["output", "check"])
@opt.option(
    "--queries",
    required=True,
    type=opt.FILE,
    help="Queries and grades: TOML, JSON, CSV, a BEIR folder …",
)
@opt.option("--judgements", type=opt.FILE, help="Grades, if elsewhere: qrels, CSV, JSON …")
@opt.option(
    "--relevance-threshold",
    type=click.FloatRange(0, 1000, min_open=True),
    help="Lowest relevant grade.  [default: the file's, else 2, or 1 if none is 2]",
)
@opt.option(
    "--complete",
    is_flag=True,
    help="What has no grade is not relevant.",
)
@opt.option(
    "--documents",
    type=opt.FILE,
    help="JSONL, CSV, Parquet, a database or a folder.  [default: those of the queries]",
)
@opt.model_option(
    "models",
    repeatable=True,
    help="Folder, name, hub id, LABEL=MODEL, or a fusion: bm25+encoder by rank, bm25+encoder@cv "
    "by weights that the grades choose; repeatable, the first is in use.  [default: those in the "
    "query file]",
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
@opt.CHUNKS
@opt.option("--name", help="Name of the task.  [default: of the documents]")
@opt.out_option("output", help="Folder of the records.  [default: results/]")
@opt.option("--reports", type=opt.FILE, help="Folder of reports.  [default: eval_results/]")
@opt.flag("--no-report", help="Write no report of the comparison.")
@opt.flag("--check", help="Only check the data; load no model.")
@opt.option(
    "--gate",
    "before",
    type=opt.FILE,
    help=f"Query file before a change: exit with {REGRESSION} if the model in use is worse than "
    "the one there.",
)
@opt.option("--summary", type=opt.FILE, help="With --gate: ten lines for a pull request.")
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
    judgements: Path | None,
    documents: Path | None,
    models: Sequence[str],
    output: Path | None,
    check: bool,
    before: Path | None,
    summary: Path | None,
    reports: Path | None,
    no_report: bool,
    preset: str | None,
    table: str | None,
    id_column: str | None,
    text: str | None,
    on: datetime | None,
    boost: bool,
    chunks: str,
    name: str | None,
    relevance_threshold: float | None,
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
    qwen3nb domain --queries queries.tsv --judgements qrels.txt \\
        --documents docs.csv --id-column name --check

    The guide lists the formats of queries, grades and documents, each with an example. A golden set
    in JSON is [{"query": "sort a list", "relevance_grades": {"list.sort": 3}}]. --check prints what
    was understood. Databases are opened read-only.
    The scores of every query are saved in one record per model. Two or more models are
    compared with the model in use (models.current, or the first), as `qwen3nb compare` does;
    the report is written to eval_results/evaluation_<time>.json and .md.
    """
    from qwen3nb.datasets.custom.documents import find_layout
    from qwen3nb.datasets.custom.joined import join_judgements
    from qwen3nb.datasets.custom.load import load_domain
    from qwen3nb.datasets.custom.queries import model_entry, read_queries
    from qwen3nb.datasets.rows import DataError

    if judgements is None:
        query_file = read_queries(queries)
    else:
        query_file = join_judgements(queries, judgements)
    collection = load_domain(
        query_file,
        documents,
        layout=find_layout(preset, table=table, id_column=id_column, text=text),
        boost=boost,
        on=on.date() if on else None,
        name=name,
        relevance_threshold=_whole(relevance_threshold),
        complete=complete,
    )
    _print_collection(collection)
    if summary is not None and before is None:
        raise click.UsageError("--summary is of a change: give the query file before it by --gate")
    candidates = [model_entry(spec, query_file) for spec in models] or list(query_file.by_use)
    file_before = None if before is None else read_queries(before)
    _print_models(candidates)
    _check_metrics(tested)
    if check:
        return
    if not candidates:
        raise DataError(f"no model given; use --model, or a table [models.NAME] in {queries}")
    from qwen3nb.evaluation.retrieval.custom import entry_name, evaluate_domain

    evaluated = list(candidates)
    if file_before is not None:
        evaluated.append(_in_use_before(file_before))
    opt.hide_library_bars()
    run = evaluate_domain(
        evaluated,
        collection,
        output=output,
        cache=not no_cache,
        fresh=fresh,
        runs=runs,
        seed=seed,
        metrics=tested,
        chunks=chunks,
        **options,
    )
    if no_report:
        folder = None
    else:
        folder = reports or paths.root() / "eval_results"
    rule = RuleArguments(tested=tested, alpha=alpha, margin=margin)
    decision = _print_decision(run, entry_name(candidates[0]), folder, rule, seed=seed)
    if decision is not None and decision.unjudged:
        arguments = SearchArguments(
            queries, judgements, documents, id_column=id_column, text=text, models=candidates
        )
        if not _print_verdict_of_judge(run.results):
            _print_how_to_judge(arguments)
    _print_results(run, output, tested)
    _raise_failures(run)
    if file_before is not None:
        _gate(run, file_before, query_file, rule, summary, seed=seed)


def _in_use_before(file: QueryFile) -> ModelEntry:
    """Return the model in use of a query file before a change, under a label of its own."""
    from qwen3nb.answers.pull_request import BEFORE
    from qwen3nb.datasets.rows import DataError

    if not file.models:
        raise DataError(f"{file.file}: no model in use; expected a table [models.current]")
    return replace(file.by_use[0], label=BEFORE)


def _gate(
    run: EvaluationRun,
    file_before: QueryFile,
    file: QueryFile,
    rule: RuleArguments,
    summary: Path | None,
    *,
    seed: int,
) -> None:
    """Compare the model in use with the one before; exit if it is worse."""
    from qwen3nb.answers.pull_request import BEFORE, find_record, pull_request, query_changes
    from qwen3nb.evaluation.retrieval.custom import SAME_MODEL

    after = run.results[0]
    before = run.results[-1]
    if BEFORE in run.skipped:  # it equals a model that is evaluated
        equal_label = run.skipped[BEFORE].removeprefix(SAME_MODEL)
        before = find_record(run.results, equal_label) or after
    entry = file_before.by_use[0]
    outcome = pull_request(
        before,
        after,
        name_before=entry.label or entry.spec,
        data_changes=query_changes(file_before, file),
        seed=seed,
        **rule,
    )
    opt.print_text(f"{outcome.title}.", bold=True)
    for reason in outcome.reasons:
        say(reason, fg="red", err=True)
    if summary is not None:
        click.echo(paths.shown(write_public(summary, outcome.text)))
    if not outcome.passes:
        sys.exit(REGRESSION)


def _whole(threshold: float | None) -> float | None:
    """Return 2 for 2.0, as query files state it."""
    if threshold is not None and threshold.is_integer():
        return int(threshold)
    return threshold


def _check_metrics(metrics: Sequence[str]) -> None:
    from qwen3nb.metrics.retrieval import OF_JUDGED_DOCUMENTS, RECORDED, find_measure

    for metric in metrics:
        if find_measure(metric) is None:
            check_choice("metric", metric, [*RECORDED["own data"], *OF_JUDGED_DOCUMENTS])


def _print_decision(
    run: EvaluationRun, current: str, folder: Path | None, rule: RuleArguments, *, seed: int
) -> Decision | None:
    """Print which model to use, and write a report; or say why there is no decision."""
    if current in run.failures:
        opt.print_text(f"No decision: {current}, the model in use, failed.", bold=True)
    elif len(run.results) < 2:
        opt.print_text(
            f"No decision: there is no other model to compare with {current}.", bold=True
        )
    else:
        return _report(run.results, folder, rule, seed=seed)
    return None


def _print_verdict_of_judge(results: Sequence[Result]) -> bool:
    """Print the verdict of `qwen3nb judge` on these models, if it is final; return whether it is.

    It rests on sampled grades and has a test of its own, so that it may decide earlier.
    """
    from qwen3nb.answers.own_data import collection_name
    from qwen3nb.evaluation.judged import load_verdict

    judged = load_verdict(collection_name(results[0]))
    if judged is None or not judged.is_final:
        return False
    labels = [result.model.label for result in results]
    if labels[0] != judged.current or set(labels[1:]) != set(judged.candidates):
        return False
    opt.print_text(judged.sentence, bold=True)
    return True


def _print_how_to_judge(arguments: SearchArguments) -> None:
    """Print the commands that grade what is unjudged, and decide with these grades."""
    commands = arguments.commands()
    if commands:
        say("Judge, then decide with the grades:", err=True)
    for command in commands:
        say(f"  {command}", err=True)


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
        f"relevant from grade {collection.threshold:g}; boosts: {boosts or 'none'}"
    )
    for line in collection.understood:
        click.echo(f"  {printable(line)}", err=True)
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
    from qwen3nb.answers.long_documents import long_documents
    from qwen3nb.models.search.words import words_read
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
        for sentence in long_documents(result):
            opt.print_text(f"  {sentence}")
        click.echo(f"  {paths.shown(result.path(output or paths.results()))}")
        words = words_read(result.model.settings, result.search.words)
        if words:
            click.echo(f"  BM25 reads {words}")
    for name, reason in run.skipped.items():
        opt.print_text(f"{name}: not compared, {reason}")


def _report(
    results: Sequence[Result], folder: Path | None, rule: RuleArguments, *, seed: int
) -> Decision | None:
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
        return None
    opt.print_decision(report.decision)
    opt.print_table(report.table())
    if folder is None:
        return report.decision
    # Such as evaluation_20260131_093000.
    stem = f"evaluation_{datetime.now():%Y%m%d_%H%M%S}"
    with exclusive_lock(folder / stem):  # two reports of the same second get different numbers
        stem = _new_stem(folder, stem)
        json_file = write_public(folder / f"{stem}.json", report.to_json())
        click.echo(paths.shown(json_file))
        markdown_file = write_public(folder / f"{stem}.md", report.to_markdown())
        click.echo(paths.shown(markdown_file))
    return report.decision


def _new_stem(folder: Path, stem: str) -> str:
    """Return a name that no file in a folder has: with a number if needed."""
    numbered = stem
    number = 1
    while any(folder.glob(f"{numbered}.*")):
        number += 1
        numbered = f"{stem}_{number}"
    return numbered
