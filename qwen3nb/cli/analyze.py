"""Commands that read results: interference, models against the one in use, the bench."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["register"]

REGRESSION = 3  # exit code of a gate that fails; 1 and 2 are errors and wrong usage
_PATH = click.Path(path_type=Path)
_SEED = click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the draws.")
_RESAMPLES = click.option(
    "--resamples", type=click.IntRange(min=100), default=10_000, show_default=True
)


def register(main: click.Group, plainly: Callable[[Callable[..., Any]], Any]) -> None:
    """Add the commands to the group; ``plainly`` tells expected errors in a line."""
    main.command("analyze")(_with(_ANALYZE, plainly(analyze)))
    main.command("compare")(_with(_COMPARE, plainly(compare)))


def _with(options: tuple[Any, ...], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


_ANALYZE = (
    click.option(
        "--output-dir", required=True, type=_PATH, help="Holds <configuration>/seed_<n>/results."
    ),
    click.option(
        "--results", "also", multiple=True, type=_PATH, help="More results, such as results/."
    ),
    click.option("--task-steps", is_flag=True, help="Compare where steps on the task agree."),
    click.option("--report", type=_PATH, help="Where to write; by default OUTPUT_DIR/analysis."),
    click.option(
        "--exit-code", type=click.Choice(["point", "evidence"]), help="Exit by that verdict."
    ),
    _RESAMPLES,
    _SEED,
)


def analyze(
    output_dir: Path,
    also: tuple[Path, ...],
    task_steps: bool,
    report: Path | None,
    exit_code: str | None,
    resamples: int,
    seed: int,
) -> None:
    """Does joint training interfere? Task interference ratio and kill gate of adapters.

    \b
    qwen3nb analyze --output-dir outputs
    qwen3nb analyze --output-dir outputs --results results --exit-code evidence
    qwen3nb analyze --output-dir outputs --task-steps --report reports/interference

    Joint adapters are compared with the specialists of the same seed, rank, base, data and
    steps; what is refused or missing is named. With --exit-code: 0 PASS, 3 FAIL, 4 MARGINAL,
    5 INCONCLUSIVE, 6 no result.
    """
    from qwen3nb.report.training.interference import interference_report
    from qwen3nb.report.training.interference_files import write_interference

    found = interference_report(
        [output_dir, *also], task_steps=task_steps, n_resamples=resamples, seed=seed
    )
    _show_interference(found)
    for file in write_interference(found, report or output_dir / "analysis", outputs=output_dir):
        click.echo(str(file))
    if exit_code:
        sys.exit(found.found.exit_code(by=exit_code))


def _show_interference(found: Any) -> None:
    from qwen3nb.analysis.training.interference import DEFINITION
    from qwen3nb.report.render.console import print_table
    from qwen3nb.report.training.interference import interference_table, refusals_table

    click.echo(f"{DEFINITION}\n{found.found.gate.text}\n")
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < 110
    print_table(interference_table(found, rule=False, narrow=narrow))
    print_table(refusals_table(found))
    by_point, by_evidence = found.found.verdict(), found.found.verdict(by="evidence")
    click.secho(f"By point: {by_point}. By evidence: {by_evidence}.", bold=True)


_COMPARE = (
    click.option("--current", required=True, help="Label of the model in use."),
    click.option("--task", default="", help="Name of the task or its data; if there are several."),
    click.option("--model", "models", multiple=True, help="A candidate's label; by default all."),
    click.option("--results", type=_PATH, help="Records; by default results/."),
    click.option(
        "--metric", "tested", multiple=True, default=("MRR@10", "nDCG@10"), show_default=True,
        help="Tested; the first one decides.",
    ),
    click.option("--alpha", type=click.FloatRange(0, 1), default=0.05, show_default=True),
    click.option(
        "--threshold", type=click.FloatRange(min=0), default=0.05, show_default=True,
        help="Smallest difference that matters.",
    ),
    click.option("--most", type=click.IntRange(min=0), default=5, show_default=True,
                 help="Queries listed per model."),
    click.option("--json", "json_file", type=_PATH, help="Write JSON; - for the terminal."),
    click.option("--markdown", "markdown_file", type=_PATH, help="Write Markdown."),
    click.option("--gate", is_flag=True, help=f"Exit with {REGRESSION} on a regression."),
    _RESAMPLES,
    _SEED,
)  # fmt: skip


def compare(
    results: Path | None,
    json_file: Path | None,
    markdown_file: Path | None,
    gate: bool,
    resamples: int,
    **options: Any,
) -> None:
    """Is any model better than the one in use, on your own data?

    \b
    qwen3nb compare --current e5-small-v2
    qwen3nb compare --current encoder --model encoder-new --task stars --markdown report.md
    qwen3nb compare --current encoder --threshold 0.02 --json report.json --gate

    Reads the records that `qwen3nb domain` left, or any with these metrics per query. Better
    or worse: the corrected p-value of the first metric is below alpha, and the difference
    larger than the threshold. The gate fails if a candidate is worse, or the newest run of a
    model worse than the one before.
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.comparison.candidates import compare_candidates
    from qwen3nb.utils.atomic_files import write_text

    if results is not None and not results.is_dir():
        raise FileNotFoundError(f"{results}: no such folder of results")
    found = compare_candidates(load_results(results), n_resamples=resamples, **options)
    if str(json_file) == "-":
        click.echo(found.to_json())
    else:
        _show_candidates(found)
        if json_file:
            click.echo(str(write_text(json_file, found.to_json())))
    if markdown_file:
        click.echo(str(write_text(markdown_file, found.to_markdown())), err=True)
    for each in found.regressions if gate else ():
        click.secho(f"regression: {each}", fg="red", err=True)
    if gate and found.regressions:
        sys.exit(REGRESSION)


def _show_candidates(found: Any) -> None:
    from qwen3nb.report.render.console import print_table

    for title, table in found.tables().items():
        click.secho(f"\n{title}", bold=True)
        print_table(table)
