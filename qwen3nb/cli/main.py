"""The command line interface; every command calls one public function.

Commands import heavy libraries when they run, so that `--help` is fast.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.analyze import ANALYSIS_COMMANDS
from qwen3nb.cli.bench import bench
from qwen3nb.cli.custom import domain
from qwen3nb.cli.encode import VECTOR_COMMANDS
from qwen3nb.cli.errors import Program, readable_records, without_traceback
from qwen3nb.cli.notebooks import NOTEBOOK_COMMANDS
from qwen3nb.cli.options import (
    CACHE_LIMIT,
    DEVICE,
    DIMENSIONS,
    DTYPE,
    FILE,
    PASS_ENV,
    POOLING,
    TIER,
    hide_library_bars,
    paths_given,
)
from qwen3nb.cli.publish import PUBLISH_COMMANDS
from qwen3nb.cli.rerank import RERANK_COMMANDS
from qwen3nb.cli.study import STUDY_COMMANDS
from qwen3nb.cli.sweep import sweep_command
from qwen3nb.cli.tasks import TASK_COMMANDS
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.utils.terminal import say

__all__ = ["main"]

FACTS = click.option(
    "--facts",
    type=FILE,
    help="TOML with further facts: license, language, datasets, base_model, citation, …",
)
LICENSE = click.option(
    "--license",
    default="",
    help="Licence, such as apache-2.0, if neither the facts nor the training state one.",
)
HUB_ID = click.option("--hub-id", default="", help="Id on the hub, for the card's examples.")


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="qwen3nb")
def main() -> None:
    """Extract, evaluate and compare Qwen3 encoders; publish a book of traceable results.

    \b
    qwen3nb demo                                   everything on toy models, in minutes
    qwen3nb extract runs/ul2/checkpoint-9000 encoder
    qwen3nb eval --checkpoint encoder --tier smoke
    qwen3nb book
    """


@main.command()
@paths_given(checkpoint="--checkpoint", output="--output")
@click.option("--pooling", type=click.Choice(POOLINGS), default="mean", show_default=True)
@click.option("--no-normalize", is_flag=True, help="Do not normalize vectors to length 1.")
@click.option("--max-length", type=click.IntRange(min=1), default=512, show_default=True)
@DTYPE
@click.option("--prefix", default="", help="Text before every input, such as [R].")
@click.option("--append-eos", is_flag=True, help="End every input with the end-of-text token.")
@click.option(
    "--prompt",
    "prompts",
    type=(str, str),
    multiple=True,
    metavar="NAME TEXT",
    help="A sentence-transformers prompt, such as: query 'query: '; repeatable.",
)
@click.option("--label", help="Name in the results.  [default: the last parts of the path]")
@click.option(
    "--allow",
    multiple=True,
    metavar="WHAT",
    help="Accept decoder (a broken one), unexpected (tensors) or untied (embeddings); repeatable.",
)
@click.option("--onnx", is_flag=True, help="Write onnx/model.onnx too, verified like the rest.")
@FACTS
@LICENSE
@HUB_ID
@click.option("--verbose", is_flag=True, help="Show all verified properties.")
@without_traceback
def extract(
    checkpoint: Path,
    output: Path,
    no_normalize: bool,
    prompts: tuple[tuple[str, str], ...],
    verbose: bool,
    **options: Any,
) -> None:
    """Extract the encoder of an encoder-decoder CHECKPOINT to the folder OUTPUT and verify it.

    \b
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling mean
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling last --prefix "[R]" --append-eos
    qwen3nb extract --checkpoint runs/ul2/checkpoint-9000 --output encoder --no-normalize
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --onnx
    """
    from qwen3nb.report.card.extract import extract as run

    hide_library_bars()
    done = run(checkpoint, output, normalize=not no_normalize, prompts=dict(prompts), **options)
    click.echo(
        f"{done.folder}: {done.parameters:,} parameters, pooling {options['pooling']}, "
        f"{'kept' if no_normalize else 'length 1'}; differs from its source by at most "
        f"{done.max_difference:.1e}"
    )
    if graph := done.verification.graph:
        click.echo(f"ONNX graph: by at most {graph.max_difference:.1e} of the largest state")
    if verbose:
        for key, value in done.verification.as_dict().items():
            click.echo(f"  {key}: {value}")
    for warning in done.warnings:
        say(f"warning: {warning}", fg="yellow", err=True)


@main.command()
@paths_given(folder="--checkpoint-dir", output="--output")
@click.option(
    "--last", "--last-n", type=click.IntRange(min=1), help="Average the last N checkpoints."
)
@click.option(
    "--best", "--best-n", type=click.IntRange(min=1), help="Average the best N by the metric."
)
@click.option("--metric", default="eval_loss", show_default=True)
@click.option("--higher-is-better", is_flag=True)
@without_traceback
def average(
    folder: Path,
    output: Path,
    last: int | None,
    best: int | None,
    metric: str,
    higher_is_better: bool,
) -> None:
    """Average checkpoints in FOLDER and write the result to the folder OUTPUT.

    \b
    qwen3nb average runs/ul2 runs/ul2-average --last 5
    qwen3nb average runs/ul2 runs/ul2-best --best 3 --metric eval_loss
    qwen3nb average --checkpoint-dir runs/ul2 --output runs/ul2-average --last-n 2
    """
    from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints

    selection = select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=not higher_is_better
    )
    average_checkpoints(selection, output)
    if selection.note:
        click.echo(selection.note, err=True)
    click.echo(f"{output}: {selection.rule}: {', '.join(f.name for f in selection.folders)}")


@main.command()
@click.argument("folder", type=FILE)
@click.argument("repository")
@click.option("--dry-run", is_flag=True, help="List the files and upload nothing.")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--revision", help="Branch to push to.  [default: main]")
@click.option("--message", help="Commit message.")
@without_traceback
def push(folder: Path, repository: str, dry_run: bool, **options: Any) -> None:
    """Upload the export in FOLDER to REPOSITORY on the hub, unless it contains a secret.

    \b
    qwen3nb push encoder my-lab/my-encoder --dry-run
    qwen3nb push encoder my-lab/my-encoder --private
    """
    from qwen3nb.extraction.push_to_hub import plan_push
    from qwen3nb.extraction.push_to_hub import push as run

    if dry_run:
        files = plan_push(folder)
        for file in files:
            click.echo(f"{file.size:>14,}  {file.path}")
        click.echo(f"{len(files)} files would be uploaded to {repository}; nothing was uploaded")
        return
    click.echo(run(folder, repository, **options))


@main.command()
@click.argument("model")
@POOLING
@click.option(
    "--max-length", type=click.IntRange(min=0), default=0, help="Tokens; 0 for the model's."
)
@DIMENSIONS
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@DEVICE
@DTYPE
@CACHE_LIMIT
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@without_traceback
def quick(model: str, max_length: int, as_json: bool, **options: Any) -> None:
    """Check within a minute whether MODEL works as an encoder.

    Exits with 1 if a check FAILED; a WARNING is not a failure.

    \b
    qwen3nb quick encoder
    qwen3nb quick Qwen/Qwen3-0.6B --pooling mean --json
    """
    from qwen3nb.evaluation.embeddings.sanity_check import sanity_check
    from qwen3nb.models.load import load_model
    from qwen3nb.report.leaderboard.tables import checks_table
    from qwen3nb.report.render.console import print_table

    hide_library_bars()
    loaded = load_model(model, max_length=max_length or None, show_progress=not as_json, **options)
    look = sanity_check(loaded)
    if as_json:
        click.echo(json.dumps(look.as_dict(), indent=2, allow_nan=False))
    else:
        print_table(checks_table(look))
        click.echo(f"{look.model}: {look.verdict}")
    if look.verdict == "FAILED":
        sys.exit(1)


@main.command()
@click.argument("files", nargs=-1, type=FILE)
@click.option("--checksums", is_flag=True, help="Compare the records' checksums only.")
@without_traceback
def verify(files: tuple[Path, ...], checksums: bool) -> None:
    """Check that the numbers of records follow from what they hold, and report what does not.

    FILES are records or folders of records; by default all records in results/. Checksums,
    aggregates, intervals, the model's identity, the files of runs and MTEB's own results are
    compared. Not seen: a record rewritten as a whole with a new checksum, scores that were wrong
    from the start, and, in a record without a checksum, a changed revision, size, time or cost.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json
    """
    from qwen3nb.records.store import check_files, result_files
    from qwen3nb.utils.progress import tqdm

    records = [
        file
        for path in (files or (None,))
        for file in ([path] if path is not None and path.is_file() else result_files(path))
    ]
    bar = tqdm(total=len(records), desc="verify", unit="record", leave=False, disable=None)
    problems, unsigned = {}, 0
    with bar, closing(check_files(records, checksums_only=checksums)) as checked:
        for file, check in checked:
            bar.update()
            unsigned += not check.has_checksum
            if check.problems:
                problems[file] = check.problems
    for file, messages in problems.items():
        for message in messages:
            click.echo(f"{file}: {message}", err=True)
    click.echo(f"{len(records) - len(problems)} of {len(records)} records hold")
    if unsigned:
        click.echo(
            f"{unsigned} without checksum, as older versions wrote them: a changed revision, "
            "size, time or cost is not seen there"
        )
    if problems:
        sys.exit(1)


@main.command()
@click.option("--model", required=True, type=FILE, help="An extracted model.")
@click.option("--output", type=FILE, help="File to write.  [default: README.md of the model]")
@click.option(
    "--results", "--eval-results", type=FILE, help="Folder of the records.  [default: results/]"
)
@TIER
@FACTS
@LICENSE
@HUB_ID
@without_traceback
def card(
    model: Path, output: Path | None, results: Path | None, tier: str | None, **stated: Any
) -> None:
    """Write a model card from the export's provenance, its training files and the results.

    Facts that are missing there are marked as not given. It goes where the model goes: the hub
    reads licence, language, base model and scores from it.

    \b
    qwen3nb card --model encoder
    qwen3nb card --model encoder --tier full --facts facts.toml --output MODEL_CARD.md
    qwen3nb card --model encoder --results results --output MODEL_CARD.md
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


@main.command()
@TIER
@PASS_ENV
@without_traceback
def book(tier: str | None) -> None:
    """Build the book from the current results, in strict mode, and check it.

    \b
    qwen3nb book
    qwen3nb book --tier smoke
    """
    from qwen3nb.book.build import build_book

    click.echo(f"Open {build_book(tier=tier or '')}")


for _command in (
    *ANALYSIS_COMMANDS, *NOTEBOOK_COMMANDS, *PUBLISH_COMMANDS, *RERANK_COMMANDS, *STUDY_COMMANDS,
    *TASK_COMMANDS, *VECTOR_COMMANDS, bench, domain, sweep_command,
):  # fmt: skip
    main.add_command(_command)


if __name__ == "__main__":
    main()
