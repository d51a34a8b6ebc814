"""The command `qwen3nb report`: evaluate, compare and describe one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.errors import without_traceback
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

__all__ = ["report"]


@click.command()
@click.option(
    "--model", "--encoder-path", required=True, help="A folder, a registry name or a hub id."
)
@click.option(
    "--baselines", default="e5-base-v2,gte-base", show_default=True,
    help="Models to compare with, separated by commas; empty for none.",
)  # fmt: skip
@TIER
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
        click.secho(f"\n{title}", bold=True)
        print_table(table)
    for file in done.write(output, facts=facts):
        click.echo(file)
    if done.failures:
        causes = "\n".join(f"{name}: {why}" for name, why in done.failures.items())
        raise EvaluationError(f"the report is written, but lacks what failed\n{causes}")
