"""Commands that read records: list, verify, plan, compare, and measure interference."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command, readable_records
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.secrets import write_public
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.answers.interference import Interference

REGRESSION = 3  # exit code of a gate that fails; 1 and 2 are errors and wrong usage
TOO_FEW = 3  # exit code if a task has fewer queries than the difference needs
_DEVIATION = click.FloatRange(min=0)
_MARGIN = click.FloatRange(0, 1, min_open=True)
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
_TESTS = opt.options(
    opt.option("--resamples", "n_resamples", minimum=100, default=10_000, help="Draws of a test."),
    opt.seed_option("Seed of the permutation draws."),
)


@click.command(cls=Command, study=paths.results, unless=["results"])
@opt.option(
    "--out",
    "--to",
    "to",
    type=opt.FILE,
    help="Write the score of every query to this .parquet or .csv file.",
)
@opt.labels_option("Label or identity")
@opt.option("--task", "tasks", multiple=True, help="Name; repeatable.")
@opt.option("--tier", choices=TIERS, help="Only tasks and runs of this tier.")
@opt.RESULTS
@opt.JSON
def results(
    to: Path | None,
    results: Path | None,
    models: Sequence[str],
    tasks: Sequence[str],
    tier: str | None,
    as_json: bool,
) -> None:
    """List the records with their main scores, or write the score of every query to a file.

    \b
    qwen3nb results --tier smoke
    qwen3nb results --to scores.parquet

    The file has a row per model, task, split, subset, query and metric. Any program that reads
    Parquet or CSV can continue from there.
    """
    records = readable_records(results).filter(model=models or None, task=tasks or None, tier=tier)
    if to is not None:
        click.echo(f"{records.write_scores(to)}: scores of {len(records)} records")
    elif as_json:
        # By way of pandas' own JSON, which has null for NaN.
        opt.print_json(json.loads(records.to_frame().to_json(orient="records")))
    else:
        from qwen3nb.answers.board.record_list import record_list

        opt.print_table(record_list(records))


@click.command(cls=Command, study=paths.results, unless=["files"])
@click.argument("files", nargs=-1, type=opt.FILE)
@opt.flag("--checksums", help="Only compare checksums.")
@opt.flag("--fresh", help="Verify records again that were consistent and have not changed since.")
@opt.JSON
def verify(files: tuple[Path, ...], checksums: bool, fresh: bool, as_json: bool) -> None:
    """Check that the numbers of records follow from their own scores, and report those that do not.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json

    FILES are records or folders of records; by default all in results/, also records of sets of
    prompts. A record is compared with its checksum and with the list of all records ever written
    (checksums.jsonl); its aggregates and intervals with the scores of its queries; these with run
    and qrels if they were kept (--runs); main score and data with MTEB's own result; and
    all_results.json with the records. The next time, only records whose files have changed since,
    by their times and sizes, are verified.

    Nothing is signed. If someone recomputes every checksum, including the list, these changes are
    not detected: numbers of documents and queries, counts, group, categories, run id, texts
    encoded, versions, cost, times; without a run, scores of other metrics and scores swapped
    between queries; the means in all_results.json; anything in a record that has no MTEB result, or
    whose MTEB result is rewritten or removed as well. Scores that were wrong from the start are not
    detected either, nor is a record removed together with its lines in the list.
    """
    from qwen3nb.records.store import check_files, record_folders
    from qwen3nb.records.verification import folder_problems
    from qwen3nb.utils.progress import tqdm

    folders: list[Path | None] = list(files)
    if not files:
        _, *folders_of_prompts = record_folders()
        folders = [None, *folders_of_prompts]
    records = []
    for path in folders:
        records += _records_at(path)
    problems: dict[Path, Sequence[str]] = {}
    verified = 0
    bar = tqdm(total=len(records), desc="verify", unit="record", leave=False, disable=None)
    with bar, closing(check_files(records, checksums_only=checksums, fresh=fresh)) as checks:
        for file, messages in checks:
            bar.update()
            verified += 1
            if messages:
                problems[file] = messages
    for path in folders:
        folder = path or paths.results()
        if folder.is_dir():
            problems |= folder_problems(folder)
    if as_json:
        _print_problems_as_json(problems, records=len(records))
    else:
        _print_problems(problems)
        consistent = len([file for file in records if file not in problems])
        click.echo(_verified_text(consistent, of=len(records), unchanged=len(records) - verified))
    if problems:
        sys.exit(1)


def _print_problems_as_json(problems: Mapping[Path, Sequence[str]], *, records: int) -> None:
    messages_by_file = {str(file): list(messages) for file, messages in problems.items()}
    opt.print_json({"records": records, "problems": messages_by_file})


def _print_problems(problems: Mapping[Path, Sequence[str]]) -> None:
    for file, messages in problems.items():
        for message in messages:
            click.echo(f"{file}: {message}", err=True)


def _verified_text(consistent: int, *, of: int, unchanged: int) -> str:
    """Say how many records are consistent, and how many of them were not verified again."""
    if not of:
        return "no records yet; `qwen3nb eval` writes some"
    text = f"{consistent} of {of} records are consistent"
    if unchanged:
        text += f"; {unchanged} were before and have not changed since"
        text += " (--fresh verifies them again)"
    return text


def _records_at(path: Path | None) -> list[Path]:
    """Return the record, or those in a folder, which has some; None for the study's, if any."""
    from qwen3nb.records.store import result_files
    from qwen3nb.records.verification import removed_records

    if path is None:  # of the study, which may have none yet
        return [*result_files(), *removed_records(paths.results())]
    if not path.exists():
        raise click.UsageError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path]
    records = [*result_files(path), *removed_records(path)]
    if not records:
        raise click.UsageError(
            f"{path} contains no records; expected a folder such as results/ with "
            "MODEL/seed_N/TASK.json in it"
        )
    return records


@click.command(cls=Command, study=paths.results, unless=["results"])
@opt.option("--baseline", "current", required=True, help="Label or name of the model in use.")
@opt.option("--task", default="", help="A task or its data set.  [default: your own data]")
@opt.labels_option("Label of a candidate")
@opt.RESULTS
@opt.RULE
@opt.option("--most", minimum=0, default=5, help="Queries listed per model.")
@opt.out_option("out", multiple=True, help="Report to write, .md or .json; repeatable.")
@opt.JSON
@opt.flag("--gate", help=f"Exit with {REGRESSION} on a regression.")
@_TESTS
def compare(
    current: str,
    task: str,
    models: Sequence[str],
    results: Path | None,
    tested: Sequence[str],
    alpha: float,
    margin: float,
    most: int,
    out: tuple[Path, ...],
    as_json: bool,
    gate: bool,
    n_resamples: int,
    seed: int,
) -> None:
    """Compare candidates with the model in use, on your own data.

    \b
    qwen3nb compare --baseline all-MiniLM-L6-v2
    qwen3nb compare --baseline encoder --model encoder-new --task stars \\
        --out report.md
    qwen3nb compare --baseline encoder --margin 0.02 --out report.json --gate
    qwen3nb compare --baseline encoder --json

    Reads the records of `qwen3nb domain`, or of any --task with these metrics per query. A
    candidate is better or worse by the first metric, by default the task's main one, if its p-value
    is below alpha and the interval excludes 0. P-values are corrected over all pairs of the models
    compared; with --model, only those named. If the difference also exceeds the margin, the
    candidate is recommended or fails the gate; so does a newest run that is worse than the one
    before.
    """
    from qwen3nb.answers.candidates import compare_candidates

    for file in out:
        if file.suffix not in (".md", ".json"):
            raise click.UsageError(f"expected a file that ends in .md or .json; got {file}")
    report = compare_candidates(
        readable_records(results),
        current=current,
        task=task,
        models=models,
        tested=tested,
        alpha=alpha,
        margin=margin,
        most=most,
        n_resamples=n_resamples,
        seed=seed,
    )
    if as_json:
        click.echo(report.to_json())
    else:
        opt.print_decision(report.decision)
        opt.print_table(report.tables()["Recommendation"])
        if not out:
            opt.print_text("--out report.md writes every metric, category, query and earlier run")
    for file in out:
        text = report.to_markdown()
        if file.suffix == ".json":
            text = report.to_json()
        click.echo(str(write_public(file, text)), err=True)
    if gate and report.regressions:
        for regression in report.regressions:
            say(f"regression: {regression}", fg="red", err=True)
        sys.exit(REGRESSION)


@click.command(cls=Command)
@opt.option(
    "--outputs",
    "output_dir",
    required=True,
    type=opt.FILE,
    help="Folder of trainings, with <configuration>/seed_<n>/results.",
)
@opt.option(
    "--results",
    "also",
    multiple=True,
    type=opt.FILE,
    help="More results, such as results/; repeatable.",
)
@opt.flag("--task-steps", help="Match runs by their steps per task.")
@opt.out_option("report", help="Folder to write to.  [default: analysis/ in OUTPUTS]")
@opt.option(
    "--exit-code",
    choices=["evidence", "point"],
    is_flag=False,
    flag_value="evidence",
    help="Exit with the code of the verdict.",
)
@_TESTS
@opt.READ_LIMIT
@opt.JSON
def analyze(
    output_dir: Path,
    also: tuple[Path, ...],
    report: Path | None,
    exit_code: str | None,
    as_json: bool,
    task_steps: bool,
    n_resamples: int,
    seed: int,
) -> None:
    """Measure task interference of jointly trained adapters: interference ratio and kill gate.

    \b
    qwen3nb analyze --outputs outputs
    qwen3nb analyze --outputs outputs --results results --exit-code
    qwen3nb analyze --outputs outputs --task-steps --out reports/interference

    Joint adapters are compared with the specialists of the same seed, rank, base, data and
    steps; if there are none, with specialists of the same steps on the task.
    Refused and missing pairs are listed. With --exit-code: 0 PASS, 3 FAIL,
    4 MARGINAL, 5 INCONCLUSIVE, 6 no result.
    """
    from qwen3nb.answers.interference import interference

    # Only records in these folders count, none of the study.
    result = interference(
        [], [output_dir, *also], task_steps=task_steps, resamples=n_resamples, seed=seed
    )
    folder = report or output_dir / "analysis"
    files = result.write(folder, outputs=output_dir)
    if as_json:
        click.echo((folder / "interference.json").read_text(encoding="utf-8"))
    else:
        _print_interference(result)
        for file in files:
            click.echo(file)
    if exit_code:
        sys.exit(result.comparisons.verdict(by=exit_code).exit_code)


def _print_interference(report: Interference) -> None:
    """Print what is measured, the tables, and the verdict."""
    from qwen3nb.analysis.stats.interference_ratio import DEFINITION

    opt.print_text(f"{DEFINITION}\n")
    for table in (report.table(), report.refusals()):
        if table.rows:
            opt.print_table(table)
        else:
            # The note says why there are no rows.
            click.echo(f"{table.note}\n")
    opt.print_text(report.verdicts, bold=True)


@click.command(cls=Command, writes=True)
@opt.model_option("models", repeatable=True, required=True, help="Label to compare; repeatable.")
@opt.option("--baseline", required=True, help="Label to compare with.")
@opt.option("--margin", type=_MARGIN, required=True, help="Smallest difference worth having.")
@opt.option("--tier", choices=TIERS, default="smoke", help="The tier to measure on.")
@opt.TASKS
@opt.option("--metric", default="", help="By default, the main metric of each task.")
@opt.option("--alpha", type=_SHARE, default=0.05, help="Family-wise error rate on a task.")
@opt.option("--power", type=_SHARE, default=0.8, help="Probability to show the margin.")
@opt.option(
    "--deviation",
    type=_DEVIATION,
    default=0.0,
    show_default="of earlier records",
    help="Standard deviation of the differences.",
)
@opt.RESULTS
@opt.out_option(help="File of the plan.  [default: plan-1.toml, …]")
@opt.JSON
def plan(
    models: Sequence[str],
    baseline: str,
    margin: float,
    tier: str,
    tasks: str,
    metric: str,
    alpha: float,
    power: float,
    deviation: float,
    results: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say how many queries show a difference worth having, and write the plan.

    \b
    qwen3nb plan --model encoder --baseline bm25 --margin 0.02 --tier smoke
    qwen3nb plan --model encoder,wordllama --baseline bm25 --margin 0.02 \\
        --deviation 0.3

    The spread of the difference is taken from earlier records of these models, or of others on
    the same task, unless it is stated. Plans are numbered and never replaced. Comparisons of these
    models in the study then say what they do otherwise than planned, if the plan is older than the
    measurement. Exits with 3 if a task has fewer queries than the difference needs.
    """
    from qwen3nb.analysis.comparison.plan import Plan
    from qwen3nb.answers.planned import plan_comparison
    from qwen3nb.records.store import load_results

    request = Plan(
        baseline=baseline,
        models=tuple(models),
        tasks=tuple(split_names(tasks)) or TIERS[tier].task_keys,
        margin=margin,
        metric=metric,
        alpha=alpha,
        power=power,
        deviation=deviation,
    )
    planned = plan_comparison(load_results(results), request)
    file = planned.write(out)
    if as_json:
        opt.print_json({"file": str(file), "plan": asdict(planned.plan), "tasks": planned.tasks})
    else:
        opt.print_table(planned.table())
        click.echo(f"The plan is in {file}")
    if not planned.is_enough:
        sys.exit(TOO_FEW)
