"""Commands that write what others read: scores, a paper, its figures and tables, a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb import paths
from qwen3nb.cli.completion import complete_labels, complete_models, complete_tasks
from qwen3nb.cli.errors import readable_records, without_traceback
from qwen3nb.cli.options import (
    BATCH_SIZE,
    DEVICE,
    DTYPE,
    FACTS,
    FILE,
    HUB_ID,
    JSON,
    LICENSE,
    MIRROR,
    PASS_ENV,
    POOLING,
    TIER,
    hide_library_bars,
    print_json,
    seed_option,
    use_mirror,
)
from qwen3nb.cli.spellings import model_option, out_option, paths_given
from qwen3nb.cli.study_root import in_study
from qwen3nb.report.render.figure import FORMATS, PAPER_STYLES
from qwen3nb.report.render.table import TABLE_FORMATS
from qwen3nb.tiers import TIERS
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.report.paper.contents import Choice

__all__ = ["book", "card", "figures", "paper", "push", "report", "results", "tables"]

_FOLDER = click.Path(path_type=Path, file_okay=False)
_OUT = out_option(required=True, type=_FOLDER, help="Output folder.")
_MODELS = model_option(
    "models", several=True, earlier=["--models"], shell_complete=complete_labels,
    help="Name of a model to show; repeatable.  [default: all]",
)  # fmt: skip
_TASKS = click.option(
    "--tasks", default="", shell_complete=complete_tasks,
    help="Comma-separated tasks to show in place of the tier's.",
)  # fmt: skip
_SEED = seed_option("Seed of the bootstrap and permutation draws.")


@click.command()
@click.option(
    "--style", type=click.Choice(list(PAPER_STYLES)), default="plain", show_default=True,
    help="Widths and font: ACL's two columns, NeurIPS' one, or those of an article.",
)  # fmt: skip
@out_option(default="paper", show_default=True, type=_FOLDER, help="Output folder.")
@TIER
@_MODELS
@_TASKS
@_SEED
@without_traceback
@in_study()
def paper(
    style: str, out: Path, tier: str | None, models: Sequence[str], tasks: str, seed: int
) -> None:
    """Write figures, tables, captions and references, and an article that compiles.

    Trainings and adapters are left out where models or tasks are named.

    \b
    qwen3nb paper --style acl
    qwen3nb paper --style neurips --model all-MiniLM-L6-v2,bm25
    """
    from qwen3nb.report.paper.files import write_paper

    files = write_paper(
        readable_records(), out, style=style, choice=_choice(tier, models, tasks, seed)
    )
    for file in files:
        click.echo(file)
    click.echo(f"To see it: cd {out} && pdflatex paper && bibtex paper && pdflatex paper", err=True)


def _choice(tier: str | None, models: Sequence[str], tasks: str, seed: int) -> Choice:
    from qwen3nb.evaluation.mteb.select import split_names
    from qwen3nb.report.paper.contents import Choice

    return Choice(tier or "", tuple(models), tuple(split_names(tasks)), seed)


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
@in_study()
def figures(
    format: str, out: Path, tier: str | None, models: Sequence[str], tasks: str, columns: str | None
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
@in_study()
def tables(
    format: str, out: Path, tier: str | None, models: Sequence[str], tasks: str, seed: int
) -> None:
    """Write the tables of `qwen3nb paper` alone: LaTeX, CSV (full precision) or Markdown.

    \b
    qwen3nb tables --format csv --out tables
    """
    from qwen3nb.report.paper.files import write_tables

    choice = _choice(tier, models, tasks, seed)
    for file in write_tables(readable_records(), out, format=format, choice=choice):
        click.echo(file)


@click.command()
@model_option(
    earlier=["--encoder-path"], required=True, help="A folder, a registry name or a hub id."
)
@click.option(
    "--baselines", default="e5-base-v2,gte-base", show_default=True, shell_complete=complete_models,
    help="Models to compare with, separated by commas; empty for none.",
)  # fmt: skip
@click.option(
    "--tier", type=click.Choice(list(TIERS)), default="smoke", show_default=True,
    help="The tier to run.",
)  # fmt: skip
@click.option(
    "--tasks", default="", shell_complete=complete_tasks,
    help="MTEB tasks instead of the tier, separated by commas.",
)  # fmt: skip
@click.option(
    "--limit", "--retrieval-num-docs", type=click.IntRange(min=0), default=0, show_default=True,
    help="Most queries, rows and unjudged documents of a task; 0 for all.",
)  # fmt: skip
@out_option(
    "output", earlier=["--output", "--output-dir"], default=Path("eval_results"),
    show_default=True, help="Folder of the report.",
)  # fmt: skip
@click.option("--facts", type=FILE, help="TOML with facts for the card; see `qwen3nb card`.")
@seed_option("Seed of the bootstrap intervals.")
@POOLING
@BATCH_SIZE
@DEVICE
@DTYPE
@MIRROR
@without_traceback
@in_study(writes=True)
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
    qwen3nb report --model encoder --baselines bm25,all-MiniLM-L6-v2 --out eval_results
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
    "--out", "--to", "to", type=FILE,
    help="Write the score of every query to this .parquet or .csv file.",
)  # fmt: skip
@model_option(
    "models", several=True, shell_complete=complete_labels,
    help="Label or identity; repeatable.  [default: all]",
)  # fmt: skip
@click.option(
    "--task", "tasks", multiple=True, shell_complete=complete_tasks, help="Name; repeatable."
)
@click.option("--tier", type=click.Choice(list(TIERS)), help="Only tasks and runs of this tier.")
@click.option("--results", "folder", type=FILE, help="Folder of records.  [default: results/]")
@JSON
@without_traceback
@in_study(unless=["folder"])
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
        print_json(json.loads(records.to_frame().to_json(orient="records")))
    else:
        from qwen3nb.report.leaderboard.score_table import record_list
        from qwen3nb.report.render.console import print_table

        print_table(record_list(records))


@click.command()
@paths_given(folder=["--model"], repository=["--repository"], texts=["repository"])
@click.option("--dry-run", is_flag=True, help="List the files and upload nothing.")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--revision", help="Branch to push to.  [default: main]")
@click.option("--message", help="Commit message.")
@JSON
@without_traceback
def push(folder: Path, repository: str, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Upload the export in FOLDER to REPOSITORY on the hub, unless it contains a secret.

    \b
    qwen3nb push encoder my-lab/my-encoder --dry-run
    qwen3nb push encoder my-lab/my-encoder --private
    """
    from qwen3nb.extraction.push_to_hub import plan_push
    from qwen3nb.extraction.push_to_hub import push as run

    if dry_run:
        files = plan_push(folder)
        if as_json:
            listed = [{"path": file.path, "size": file.size} for file in files]
            print_json({"repository": repository, "files": listed, "url": None})
            return
        for file in files:
            click.echo(f"{file.size:>14,}  {file.path}")
        click.echo(f"{len(files)} files would be uploaded to {repository}; nothing was uploaded")
        return
    url = run(folder, repository, **options)
    if as_json:
        print_json({"repository": repository, "url": str(url)})
    else:
        click.echo(url)


@click.command()
@model_option(required=True, type=FILE, help="An extracted model.")
@out_option(
    "output", earlier=["--output"], help="File to write.  [default: README.md of the model]"
)
@click.option(
    "--results", "--eval-results", type=FILE, help="Folder of the records.  [default: results/]"
)
@TIER
@FACTS
@LICENSE
@HUB_ID
@without_traceback
@in_study(unless=["results"])
def card(
    model: Path, output: Path | None, results: Path | None, tier: str | None, **stated: Any
) -> None:
    """Write a model card from the export's provenance, its training files and the results.

    Facts that are missing there are marked as not given. It goes where the model goes: the hub
    reads licence, language, base model and scores from it.

    \b
    qwen3nb card --model encoder
    qwen3nb card --model encoder --tier full --facts facts.toml --out MODEL_CARD.md
    qwen3nb card --model encoder --results results --out MODEL_CARD.md
    qwen3nb card --model encoder --license apache-2.0 --hub-id my-lab/my-encoder
    """
    from qwen3nb.records.results import richest_tier
    from qwen3nb.report.card.card import card_text
    from qwen3nb.utils.secrets import write_public

    if results is not None and not results.is_dir():
        raise FileNotFoundError(f"{results}: no such folder of records")
    records = readable_records(results, adapters=False)
    text = card_text(model, records, tier=tier or richest_tier(records), **stated)
    click.echo(write_public(output or model / "README.md", text))


@click.command()
@TIER
@PASS_ENV
@without_traceback
@in_study(writes=True, folder=paths.book)
def book(tier: str | None) -> None:
    """Build the book from the current results, in strict mode, and check it.

    \b
    qwen3nb book
    qwen3nb book --tier smoke
    """
    from qwen3nb.book.build import build_book

    click.echo(f"Open {build_book(tier=tier or '')}")
