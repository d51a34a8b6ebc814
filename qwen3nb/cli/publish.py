"""Commands that write what others read: scores, a paper, its figures and tables, a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli.errors import readable_records, without_traceback
from qwen3nb.cli.options import (
    DEVICE,
    DTYPE,
    FILE,
    MIRROR,
    POOLING,
    TIER,
    hide_library_bars,
    seed_option,
    use_mirror,
)
from qwen3nb.report.render.figure import FORMATS, PAPER_STYLES
from qwen3nb.report.render.table import TABLE_FORMATS
from qwen3nb.tiers import TIERS
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.report.paper.contents import Choice

__all__ = ["PUBLISH_COMMANDS"]

_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Output folder."
)
_MODELS = click.option(
    "--models", default="", help="Comma-separated names of the models to show.  [default: all]"
)
_TASKS = click.option(
    "--tasks", default="", help="Comma-separated tasks to show in place of the tier's."
)
_SEED = seed_option("Seed of the bootstrap and permutation draws.")


@click.command()
@click.option(
    "--style", type=click.Choice(list(PAPER_STYLES)), default="plain", show_default=True,
    help="Widths and font: ACL's two columns, NeurIPS' one, or those of an article.",
)  # fmt: skip
@click.option(
    "--out", default="paper", show_default=True,
    type=click.Path(path_type=Path, file_okay=False), help="Output folder.",
)  # fmt: skip
@TIER
@_MODELS
@_TASKS
@_SEED
@without_traceback
def paper(style: str, out: Path, tier: str | None, models: str, tasks: str, seed: int) -> None:
    """Write figures, tables, captions and references, and an article that compiles.

    Trainings and adapters are left out where models or tasks are named.

    \b
    qwen3nb paper --style acl
    qwen3nb paper --style neurips --models all-MiniLM-L6-v2,bm25
    """
    from qwen3nb.report.paper.files import write_paper

    files = write_paper(
        readable_records(), out, style=style, choice=_choice(tier, models, tasks, seed)
    )
    for file in files:
        click.echo(file)
    click.echo(f"To see it: cd {out} && pdflatex paper && bibtex paper && pdflatex paper", err=True)


def _choice(tier: str | None, models: str, tasks: str, seed: int) -> Choice:
    from qwen3nb.evaluation.mteb.select import split_names
    from qwen3nb.report.paper.contents import Choice

    return Choice(tier or "", tuple(split_names(models)), tuple(split_names(tasks)), seed)


@click.command(hidden=True)
@click.option("--format", type=click.Choice(FORMATS), default="pdf", show_default=True)
@_OUT
@TIER
@_MODELS
@_TASKS
@click.option(
    "--columns",
    type=click.Choice(["1", "2"]),
    help="Width: one column (3.35 in) or two (6.9 in).  [default: that of each figure]",
)
@without_traceback
def figures(
    format: str, out: Path, tier: str | None, models: str, tasks: str, columns: str | None
) -> None:
    """Write the figures of `qwen3nb paper` alone, and captions.md, in another format.

    \b
    qwen3nb figures --format svg --out slides --columns 1
    """
    from qwen3nb.report.paper.files import write_figures

    choice = _choice(tier, models, tasks, 0)
    for file in write_figures(
        readable_records(), out, format=format, columns=int(columns or 0), choice=choice
    ):
        click.echo(file)


@click.command(hidden=True)
@click.option("--format", type=click.Choice(list(TABLE_FORMATS)), default="latex",
              show_default=True)  # fmt: skip
@_OUT
@TIER
@_MODELS
@_TASKS
@_SEED
@without_traceback
def tables(format: str, out: Path, tier: str | None, models: str, tasks: str, seed: int) -> None:
    """Write the tables of `qwen3nb paper` alone: LaTeX, CSV (full precision) or Markdown.

    \b
    qwen3nb tables --format csv --out tables
    """
    from qwen3nb.report.paper.files import write_tables

    choice = _choice(tier, models, tasks, seed)
    for file in write_tables(readable_records(), out, format=format, choice=choice):
        click.echo(file)


@click.command()
@click.option(
    "--model", "--encoder-path", required=True, help="A folder, a registry name or a hub id."
)
@click.option(
    "--baselines", default="e5-base-v2,gte-base", show_default=True,
    help="Models to compare with, separated by commas; empty for none.",
)  # fmt: skip
@click.option(
    "--tier", type=click.Choice(list(TIERS)), default="smoke", show_default=True,
    help="The tier to run.",
)  # fmt: skip
@click.option("--tasks", default="", help="MTEB tasks instead of the tier, separated by commas.")
@click.option(
    "--limit", "--retrieval-num-docs", type=click.IntRange(min=0), default=0, show_default=True,
    help="Most queries, rows and unjudged documents of a task; 0 for all.",
)  # fmt: skip
@click.option(
    "--output", "--output-dir", type=FILE, default=Path("eval_results"), show_default=True,
    help="Folder of the report.",
)  # fmt: skip
@click.option("--facts", type=FILE, help="TOML with facts for the card; see `qwen3nb card`.")
@seed_option("Seed of the bootstrap intervals.")
@POOLING
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@DEVICE
@DTYPE
@MIRROR
@without_traceback
def report(
    model: str,
    baselines: str,
    output: Path,
    facts: Path | None,
    mirror: Path | None,
    **options: Any,
) -> None:
    """Evaluate a model and its baselines, compare them, and write scores and card to a folder.

    \b
    qwen3nb report --model encoder --baselines bm25,all-MiniLM-L6-v2 --output eval_results
    qwen3nb report --model encoder --baselines e5-base-v2 --tasks STSBenchmark,SciFact \\
        --mirror /data/mirror

    Writes all_results.json, comparison.json (each with a copy that carries the time),
    comparison.md, mteb/ and, for an extracted encoder, MODEL_CARD.md. Records go to results/
    and are reused. A baseline or task that fails is named at the end, and the exit code is 1.
    """
    from qwen3nb.evaluation.mteb.select import split_names
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.report.model_report import report_model
    from qwen3nb.report.render.console import print_table

    use_mirror(mirror)
    hide_library_bars()
    done = report_model(model, baselines=split_names(baselines), **options)
    for title, table in done.tables().items():
        say(f"\n{title}", bold=True)
        print_table(table)
    for file in done.write(output, facts=facts):
        click.echo(file)
    if done.failures:
        causes = "\n".join(f"{name}: {why}" for name, why in done.failures.items())
        raise EvaluationError(f"the report is written, but lacks what failed\n{causes}")


@click.command()
@click.option(
    "--to", type=FILE, help="Write the score of every query to this .parquet or .csv file."
)
@click.option("--model", "models", multiple=True, help="Label or identity; repeatable.")
@click.option("--task", "tasks", multiple=True, help="Name of a task; repeatable.")
@click.option("--tier", type=click.Choice(list(TIERS)), help="Only tasks and runs of this tier.")
@click.option("--results", "folder", type=FILE, help="Folder of records.  [default: results/]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@without_traceback
def results(
    to: Path | None,
    models: tuple[str, ...],
    tasks: tuple[str, ...],
    tier: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """List the records with their main scores, or write the score of every query to a file.

    \b
    qwen3nb results --tier smoke
    qwen3nb results --to scores.parquet

    The file has a row per model, task, split, subset, query and metric. What reads Parquet or
    CSV takes the scores on from there.
    """
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of records")
    records = readable_records(folder).filter(model=models or None, task=tasks or None, tier=tier)
    if to is not None:
        click.echo(f"{records.write_scores(to)}: the scores of {len(records)} records")
    elif as_json:
        click.echo(records.to_frame().to_json(orient="records", indent=1))
    else:
        from qwen3nb.report.leaderboard.score_table import record_list
        from qwen3nb.report.render.console import print_table

        print_table(record_list(records))


PUBLISH_COMMANDS = (figures, paper, report, results, tables)
