"""Commands that analyse records: task interference, candidates against a baseline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.errors import readable_records, without_traceback
from qwen3nb.cli.options import FILE, READ_LIMIT, seed_option
from qwen3nb.utils.terminal import say

__all__ = ["ANALYSIS_COMMANDS"]

REGRESSION = 3  # exit code of a gate that fails; 1 and 2 are errors and wrong usage
_SEED = seed_option("Seed of the bootstrap and permutation draws.")
_RESAMPLES = click.option(
    "--resamples", type=click.IntRange(min=100), default=10_000, show_default=True
)


@click.command()
@click.option(
    "--output-dir", required=True, type=FILE, help="Folder with <configuration>/seed_<n>/results."
)
@click.option(
    "--results",
    "also",
    multiple=True,
    type=FILE,
    help="More results, such as results/; repeatable.",
)
@click.option("--task-steps", is_flag=True, help="Match runs by their steps per task.")
@click.option("--report", type=FILE, help="Folder to write to.  [default: OUTPUT_DIR/analysis]")
@click.option("--exit-code", type=click.Choice(["point", "evidence"]), help="Exit by this verdict.")
@_RESAMPLES
@_SEED
@READ_LIMIT
@without_traceback
def analyze(
    output_dir: Path,
    also: tuple[Path, ...],
    task_steps: bool,
    report: Path | None,
    exit_code: str | None,
    resamples: int,
    seed: int,
) -> None:
    """Measure task interference of jointly trained adapters: interference ratio and kill gate.

    \b
    qwen3nb analyze --output-dir outputs
    qwen3nb analyze --output-dir outputs --results results --exit-code evidence
    qwen3nb analyze --output-dir outputs --task-steps --report reports/interference

    Joint adapters are compared with the specialists of the same seed, rank, base, data and
    steps; if all differ in steps alone, with those of the same steps on the task, which is said.
    Refused and missing pairs are listed. With --exit-code: 0 PASS, 3 FAIL,
    4 MARGINAL, 5 INCONCLUSIVE, 6 no result.
    """
    from qwen3nb.report.training.interference import interference_report
    from qwen3nb.report.training.interference_files import write_interference

    result = interference_report(
        [output_dir, *also], task_steps=task_steps, n_resamples=resamples, seed=seed
    )
    _show_interference(result)
    for file in write_interference(result, report or output_dir / "analysis", outputs=output_dir):
        click.echo(str(file))
    if exit_code:
        sys.exit(result.interference.exit_code(by=exit_code))


def _show_interference(report: Any) -> None:
    from qwen3nb.analysis.training.interference import DEFINITION
    from qwen3nb.report.render.console import print_table
    from qwen3nb.report.render.table import transposed
    from qwen3nb.report.training.configurations import (
        configuration_differences_table,
        configurations_table,
    )
    from qwen3nb.report.training.interference import interference_table, refusals_table

    click.echo(f"{DEFINITION}\n{report.interference.gate.text}\n")
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < 110
    for table in (
        interference_table(report, rule=False, narrow=narrow),
        transposed(configurations_table(report.scores), first="task"),
        configuration_differences_table(report.differences),
        refusals_table(report),
    ):
        if table.rows:
            print_table(table)
        else:
            click.echo(f"{table.note}\n")
    by_point, by_evidence = (
        report.interference.verdict(),
        report.interference.verdict(by="evidence"),
    )
    say(f"By point: {by_point}. By evidence: {by_evidence}.", bold=True)


@click.command()
@click.option("--current", "--baseline", required=True, help="Label of the model in use.")
@click.option("--task", default="", help="A task or its data set.  [default: your own data]")
@click.option("--model", "models", multiple=True, help="Label of a candidate.  [default: all]")
@click.option("--results", type=FILE, help="Folder of records.  [default: results/]")
@click.option(
    "--metric", "tested", multiple=True, default=("MRR@10", "nDCG@10"), show_default=True,
    help="Tested metrics; the first one decides.",
)  # fmt: skip
@click.option("--alpha", type=click.FloatRange(0, 1), default=0.05, show_default=True)
@click.option(
    "--threshold", type=click.FloatRange(min=0), default=0.05, show_default=True,
    help="Smallest difference that matters.",
)  # fmt: skip
@click.option(
    "--most", type=click.IntRange(min=0), default=5, show_default=True,
    help="Queries listed per model.",
)  # fmt: skip
@click.option("--json", "json_file", type=FILE, help="Write JSON; - for the terminal.")
@click.option("--markdown", "markdown_file", type=FILE, help="Write Markdown.")
@click.option("--gate", is_flag=True, help=f"Exit with {REGRESSION} on a regression.")
@_RESAMPLES
@_SEED
@without_traceback
def compare(
    results: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
    gate: bool,
    resamples: int,
    **options: Any,
) -> None:
    """Compare candidates with the model in use, on your own data.

    \b
    qwen3nb compare --current all-MiniLM-L6-v2
    qwen3nb compare --current encoder --model encoder-new --task stars --markdown report.md
    qwen3nb compare --current encoder --threshold 0.02 --json report.json --gate

    Reads the records of `qwen3nb domain`, or of any --task with these metrics per query. A
    candidate is better or worse if the corrected p-value of the first metric is below alpha
    and the difference larger than the threshold. The gate fails if a candidate is worse, or
    the newest run of a model is worse than the one before.
    """
    from qwen3nb.report.comparison.candidates import compare_candidates
    from qwen3nb.utils.secrets import write_public

    if results is not None and not results.is_dir():
        raise FileNotFoundError(f"{results}: no such folder")
    report = compare_candidates(readable_records(results), n_resamples=resamples, **options)
    if str(json_file) == "-":
        click.echo(report.to_json())
    else:
        _show_candidates(report)
        if json_file:
            click.echo(str(write_public(json_file, report.to_json())))
    if markdown_file:
        click.echo(str(write_public(markdown_file, report.to_markdown())), err=True)
    for each in report.regressions if gate else ():
        say(f"regression: {each}", fg="red", err=True)
    if gate and report.regressions:
        sys.exit(REGRESSION)


def _show_candidates(report: Any) -> None:
    from qwen3nb.report.render.console import print_table

    for title, table in report.tables().items():
        say(f"\n{title}", bold=True)
        print_table(table)
    say(report.headline, bold=True)


ANALYSIS_COMMANDS = (analyze, compare)
