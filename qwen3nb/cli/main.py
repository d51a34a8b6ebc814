"""The command line interface; every command calls one public function.

A command's module is imported when the command is used, and heavy libraries when it runs, so that
`--help` is fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.completion import complete_models
from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.groups import Program
from qwen3nb.cli.options import (
    BATCH_SIZE,
    CACHE_LIMIT,
    DEVICE,
    DIMENSIONS,
    DTYPE,
    FACTS,
    HUB_ID,
    JSON,
    LICENSE,
    POOLING,
    hide_library_bars,
    print_json,
)
from qwen3nb.cli.spellings import paths_given
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.utils.terminal import say

__all__ = ["main"]


# By heading: the name of a command, its module and function in commands/, and a summary, without
# which it is not listed. Those without a home are below.
_CONTENTS = {
    "Make": {
        "new": ("study:new", "Begin a study of your own"),
        "demo": ("study:demo", "Train, extract and evaluate toy models; build the book"),
        "average": ("", "Average the checkpoints of a training"),
        "extract": ("", "Extract the encoder of a checkpoint, verified"),
        "encode": ("encode:encode", "Encode a file of texts to vectors"),
        "cache": ("encode:cache", "Inspect, verify and prune the cached vectors"),
        "fetch": ("tasks:fetch", "Download data sets and models into a mirror"),
    },
    "Measure": {
        "quick": ("", "Check within a minute whether an encoder works"),
        "eval": ("notebooks:evaluate", "Evaluate a model, and publish its page"),
        "run": ("notebooks:run", "Run any notebook, and publish its page"),
        "sweep": ("sweep:sweep_command", "Evaluate many models on many tiers; resumes"),
        "domain": ("custom:domain", "Evaluate on your own queries and documents"),
        "rerank": ("rerank:rerank", "Score pairs of query and document"),
        "rerank-suite": ("rerank:rerank_suite", "Search and rerank data sets, or a tier"),
        "rerank-outputs": ("rerank:rerank_outputs", "Evaluate all adapters of a training"),
        "reproduce": ("tasks:reproduce", "Compare our scores with published ones"),
        "tasks": ("tasks:list_tasks", "List tasks, and the minutes they take"),
        "bench": ("bench:bench", "Measure speed and memory beside other libraries"),
    },
    "Compare": {
        "compare": ("analyze:compare", "Decide between models on your own data"),
        "analyze": ("analyze:analyze", "Measure interference of jointly trained adapters"),
        "results": ("publish:results", "List records, or export the score of every query"),
        "verify": ("verify:verify", "Recompute the numbers of all records"),
    },
    "Publish": {
        "book": ("publish:book", "Build the book from the current results"),
        "report": ("publish:report", "Evaluate, compare and describe one model in a folder"),
        "card": ("publish:card", "Write a model card from training and results"),
        "paper": ("publish:paper", "Write figures, tables and an article that compiles"),
        "figures": ("publish:figures", ""),
        "tables": ("publish:tables", ""),
        "push": ("publish:push", "Upload an export to the hub, without secrets"),
    },
}


@click.group(
    "qwen3nb",
    cls=Program,
    contents=_CONTENTS,
    package="qwen3nb.cli.commands",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="qwen3nb")
def main() -> None:
    """Extract, evaluate and compare Qwen3 encoders; publish a book of traceable results.

    \b
    qwen3nb demo                                   everything on toy models, in minutes
    qwen3nb extract runs/ul2/checkpoint-9000 encoder
    qwen3nb eval --model encoder --tier smoke
    qwen3nb book
    """


def _named_prompts(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Refuse ``--prompt query=TEXT``, which would take the next option for the text."""
    for name, text in value:
        if "=" in name:
            raise click.BadParameter(
                "expected a name and a text, such as --prompt query 'query: '; got "
                f"{name!r} and {text!r}"
            )
    return value


@main.command()
@paths_given(checkpoint=["--model", "--checkpoint"], output=["--out", "--output"])
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
    callback=_named_prompts,
    help="A prompt of sentence-transformers, such as: query 'query: '; NAME is query, document, "
    "symmetric (for any text), or a task or type of MTEB; repeatable.",
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
@JSON
@without_traceback
def extract(
    checkpoint: Path,
    output: Path,
    no_normalize: bool,
    prompts: tuple[tuple[str, str], ...],
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Extract the encoder of an encoder-decoder CHECKPOINT to the folder OUTPUT and verify it.

    \b
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling mean
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling last --prefix "[R]" --append-eos
    qwen3nb extract --model runs/ul2/checkpoint-9000 --out encoder --no-normalize
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --onnx
    """
    from qwen3nb.report.card.extract import extract as run

    hide_library_bars()
    done = run(checkpoint, output, normalize=not no_normalize, prompts=dict(prompts), **options)
    for warning in done.warnings:
        say(f"warning: {warning}", fg="yellow", err=True)
    if as_json:
        print_json(
            {
                "folder": str(done.folder),
                "parameters": done.parameters,
                "max_difference": done.max_difference,
                "verification": done.verification.as_dict(),
                "warnings": list(done.warnings),
            }
        )
        return
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


@main.command()
@paths_given(folder=["--training", "--checkpoint-dir"], output=["--out", "--output"])
@click.option(
    "--last", "--last-n", type=click.IntRange(min=1), help="Average the last N checkpoints."
)
@click.option(
    "--best", "--best-n", type=click.IntRange(min=1), help="Average the best N by the metric."
)
@click.option("--metric", default="eval_loss", show_default=True)
@click.option("--higher-is-better", is_flag=True)
@JSON
@without_traceback
def average(
    folder: Path,
    output: Path,
    last: int | None,
    best: int | None,
    metric: str,
    higher_is_better: bool,
    as_json: bool,
) -> None:
    """Average checkpoints in FOLDER and write the result to the folder OUTPUT.

    \b
    qwen3nb average runs/ul2 runs/ul2-average --last 5
    qwen3nb average runs/ul2 runs/ul2-best --best 3 --metric eval_loss
    qwen3nb average --training runs/ul2 --out runs/ul2-average --last 2
    """
    if (last is None) == (best is None):
        raise click.UsageError("give either --last N or --best N")
    from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints

    selection = select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=not higher_is_better
    )
    average_checkpoints(selection, output)
    if selection.note:
        click.echo(selection.note, err=True)
    if as_json:
        averaged = [str(each) for each in selection.folders]
        print_json({"folder": str(output), "rule": selection.rule, "checkpoints": averaged})
        return
    click.echo(f"{output}: {selection.rule}: {', '.join(f.name for f in selection.folders)}")


@main.command()
@paths_given(model=["--model"], texts=["model"], complete=complete_models)
@POOLING
@click.option(
    "--max-length", type=click.IntRange(min=0), default=0, help="Tokens; 0 for the model's."
)
@DIMENSIONS
@BATCH_SIZE
@DEVICE
@DTYPE
@CACHE_LIMIT
@JSON
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
        print_json(look.as_dict())
    else:
        print_table(checks_table(look))
        click.echo(f"{look.model}: {look.verdict}")
    if look.verdict == "FAILED":
        sys.exit(1)


if __name__ == "__main__":
    main()
