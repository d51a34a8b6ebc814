"""Commands that analyse records: task interference, candidates against a baseline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.completion import complete_labels
from qwen3nb.cli.errors import readable_records, without_traceback
from qwen3nb.cli.options import ALPHA, FILE, JSON, READ_LIMIT, TESTED, THRESHOLD, seed_option
from qwen3nb.cli.spellings import Respelled, model_option, out_option
from qwen3nb.cli.study_root import in_study
from qwen3nb.utils.terminal import say

__all__ = ["analyze", "compare"]

REGRESSION = 3  # exit code of a gate that fails; 1 and 2 are errors and wrong usage
_SEED = seed_option("Seed of the permutation draws.")
_RESAMPLES = click.option(
    "--resamples", type=click.IntRange(min=100), default=10_000, show_default=True
)


@click.command()
@click.option(
    "--outputs", "output_dir", cls=Respelled, earlier=["--output-dir"], required=True, type=FILE,
    help="Folder of trainings, with <configuration>/seed_<n>/results.",
)  # fmt: skip
@click.option(
    "--results",
    "also",
    multiple=True,
    type=FILE,
    help="More results, such as results/; repeatable.",
)
@click.option("--task-steps", is_flag=True, help="Match runs by their steps per task.")
@out_option("report", earlier=["--report"],
            help="Folder to write to.  [default: analysis/ in OUTPUTS]")  # fmt: skip
@click.option(
    "--exit-code",
    type=click.Choice(["evidence", "point"]),
    is_flag=False,
    flag_value="evidence",
    help="Exit by the verdict; by evidence, if not said.",
)
@_RESAMPLES
@_SEED
@READ_LIMIT
@JSON
@without_traceback
def analyze(
    output_dir: Path,
    also: tuple[Path, ...],
    task_steps: bool,
    report: Path | None,
    exit_code: str | None,
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure task interference of jointly trained adapters: interference ratio and kill gate.

    \b
    qwen3nb analyze --outputs outputs
    qwen3nb analyze --outputs outputs --results results --exit-code
    qwen3nb analyze --outputs outputs --task-steps --out reports/interference

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
    folder = report or output_dir / "analysis"
    files = write_interference(result, folder, outputs=output_dir)
    if as_json:
        click.echo((folder / "interference.json").read_text(encoding="utf-8"))
    else:
        _show_interference(result)
        for file in files:
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
    from qwen3nb.report.training.interference import (
        interference_table,
        refusals_table,
        verdict_words,
    )

    click.echo(f"{DEFINITION}\n{report.interference.gate.text}\n")
    for table in (
        interference_table(report, rule=False),
        transposed(configurations_table(report.scores), first="task"),
        configuration_differences_table(report.differences),
        refusals_table(report),
    ):
        if table.rows:
            print_table(table)
        else:
            click.echo(f"{table.note}\n")
    say(verdict_words(report.interference), bold=True)


@click.command()
@click.option(
    "--baseline", "current", cls=Respelled, earlier=["--current"], required=True,
    shell_complete=complete_labels, help="Label of the model in use.",
)  # fmt: skip
@click.option("--task", default="", help="A task or its data set.  [default: your own data]")
@model_option("models", several=True, shell_complete=complete_labels,
              help="Label of a candidate; repeatable.  [default: all]")  # fmt: skip
@click.option("--results", type=FILE, help="Folder of records.  [default: results/]")
@TESTED
@ALPHA
@THRESHOLD
@click.option(
    "--most", type=click.IntRange(min=0), default=5, show_default=True,
    help="Queries listed per model.",
)  # fmt: skip
@out_option("out", multiple=True, help="Write the report: .md or .json by its name; repeatable.")
@click.option("--json", "json_file", is_flag=False, flag_value="-", metavar="",
              help="Print one JSON document, for programs.")  # fmt: skip
@click.option("--markdown", "markdown_file", type=FILE, hidden=True)
@click.option("--gate", is_flag=True, help=f"Exit with {REGRESSION} on a regression.")
@_RESAMPLES
@_SEED
@without_traceback
@in_study(unless=["results"])
def compare(
    results: Path | None,
    out: tuple[Path, ...],
    json_file: str | None,
    markdown_file: Path | None,
    gate: bool,
    resamples: int,
    **options: Any,
) -> None:
    """Compare candidates with the model in use, on your own data.

    \b
    qwen3nb compare --baseline all-MiniLM-L6-v2
    qwen3nb compare --baseline encoder --model encoder-new --task stars --out report.md
    qwen3nb compare --baseline encoder --threshold 0.02 --out report.json --gate
    qwen3nb compare --baseline encoder --json

    Reads the records of `qwen3nb domain`, or of any --task with these metrics per query. A
    candidate is better or worse by the first metric if the corrected p-value is below alpha and
    the interval leaves out 0. It is taken, or fails the gate, if the difference is larger than
    the threshold, too; so does a newest run that is worse than the one before.
    """
    from qwen3nb.report.comparison.candidates import compare_candidates
    from qwen3nb.utils.secrets import write_public

    if results is not None and not results.is_dir():
        raise FileNotFoundError(f"{results}: no such folder")
    files = _report_files(out, json_file, markdown_file)
    report = compare_candidates(readable_records(results), n_resamples=resamples, **options)
    if json_file == "-":
        click.echo(report.to_json())
    else:
        _show_candidates(report)
    for file, kind in files:
        text = report.to_json() if kind == ".json" else report.to_markdown()
        click.echo(str(write_public(file, text)), err=True)
    for each in report.regressions if gate else ():
        say(f"regression: {each}", fg="red", err=True)
    if gate and report.regressions:
        sys.exit(REGRESSION)


def _report_files(
    out: tuple[Path, ...], json_file: str | None, markdown_file: Path | None
) -> list[tuple[Path, str]]:
    """The files to write, and the kind of each; --json FILE and --markdown are earlier spellings.

    Raises:
        UsageError: a file of --out that is neither .md nor .json.
    """
    if wrong := [file for file in out if file.suffix not in (".md", ".json")]:
        raise click.UsageError(f"expected a file that ends in .md or .json; got {wrong[0]}")
    files = [(file, file.suffix) for file in out]
    if json_file not in (None, "-"):
        files.append((Path(str(json_file)), ".json"))
    return [*files, (markdown_file, ".md")] if markdown_file else files


def _show_candidates(report: Any) -> None:
    from qwen3nb.report.render.console import print_table

    for title, table in report.tables().items():
        say(f"\n{title}", bold=True)
        print_table(table)
    say(report.headline, bold=True)
