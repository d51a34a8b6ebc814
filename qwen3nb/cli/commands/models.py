"""Commands for models: average, extract and check them."""

import sys
from pathlib import Path
from typing import Unpack

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import CardArguments, LoadedArguments
from qwen3nb.cli.program import Command, CommandWithParts
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.utils.terminal import say


class ExtractArguments(CardArguments):
    """The options of an export, and the facts on its card."""

    pooling: str
    normalize: bool
    max_length: int
    dtype: str
    prefix: str
    append_eos: bool
    label: str | None
    onnx: bool


@click.command(cls=Command)
@opt.paths_given(checkpoint="--model", output="--out")
@opt.option("--pooling", choices=POOLINGS, default="mean", help="How tokens become a vector.")
@opt.option("--normalize/--no-normalize", default=True, help="Give vectors length 1.")
@opt.option("--max-length", minimum=1, default=512, help="Most tokens per text.")
@opt.DTYPE
@opt.option("--prefix", default="", help="Text before every input, such as [R].")
@opt.flag("--append-eos", help="End every input with the end-of-text token.")
@opt.PROMPTS
@opt.option(
    "--label",
    help="Name in the results.  [default: OUTPUT's name]",
)
@opt.flag("--onnx", help="Also write onnx/model.onnx, verified like the rest.")
@opt.CARD
@opt.flag("--verbose", help="Show all verified properties.")
def extract(
    checkpoint: Path,
    output: Path,
    verbose: bool,
    prompts: str,
    **options: Unpack[ExtractArguments],
) -> None:
    """Extract the encoder of an encoder-decoder CHECKPOINT to the folder OUTPUT and verify it.

    \b
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling mean
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling last \\
        --prefix "[R]" --append-eos
    qwen3nb extract --model runs/ul2/checkpoint-9000 --out encoder \\
        --no-normalize
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --onnx
    """
    from qwen3nb.checkpoints.folder import open_checkpoint

    open_checkpoint(checkpoint)  # fails before torch is loaded, which takes seconds
    from qwen3nb.models.kinds.prompts import parse_prompts
    from qwen3nb.report.card import extract as extract_encoder

    opt.hide_library_bars()
    extraction = extract_encoder(
        checkpoint, output, prompts=parse_prompts(prompts) or {}, **options
    )
    for warning in extraction.warnings:
        say(f"warning: {warning}", fg="yellow", err=True)
    length = "not normalized"
    if options["normalize"]:
        length = "normalized"
    click.echo(
        f"{extraction.folder}: {extraction.parameters:,} parameters, "
        f"pooling {options['pooling']}, {length}; differs from its source "
        f"by at most {extraction.max_difference:.1e}"
    )
    graph = extraction.verification.graph
    if graph:
        click.echo(f"ONNX graph: by at most {graph['max_difference']:.1e} of the largest state")
    if verbose:
        for name, value in extraction.verification.as_dict().items():
            click.echo(f"  {name}: {value}")


@click.command(cls=Command)
@opt.paths_given(folder="--training", output="--out")
@opt.option("--last", minimum=1, help="Average the last N checkpoints.")
@opt.option("--best", minimum=1, help="Average the best N by the metric.")
@opt.option("--metric", default="eval_loss", help="As the Trainer logs it.")
@click.option(
    "--higher-is-better/--lower-is-better",
    default=None,
    help="Of the metric.  [default: the Trainer's rule: lower for losses and errors, else higher]",
)
def average(
    folder: Path,
    output: Path,
    last: int | None,
    best: int | None,
    metric: str,
    higher_is_better: bool | None,
) -> None:
    """Average checkpoints in FOLDER and write the result to the folder OUTPUT.

    \b
    qwen3nb average runs/ul2 runs/ul2-average --last 5
    qwen3nb average runs/ul2 runs/ul2-best --best 3 --metric eval_loss
    qwen3nb average --training runs/ul2 --out runs/ul2-average --last 2
    """
    from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints

    names_both = last is not None and best is not None
    names_none = last is None and best is None
    if names_both or names_none:
        raise click.UsageError("give either --last N or --best N")
    # None leaves the choice to the Trainer's own rule for the metric.
    lower_is_better = None
    if higher_is_better is not None:
        lower_is_better = not higher_is_better
    selection = select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=lower_is_better
    )
    average_checkpoints(selection, output)
    if selection.note:
        click.echo(selection.note, err=True)
    names = ", ".join(checkpoint.name for checkpoint in selection.folders)
    click.echo(f"{output}: {selection.rule}: {names}")


@click.command(cls=CommandWithParts)
@opt.paths_given(model="--model", texts=["model"])
@opt.LOADED
@opt.JSON
def check(model: str, as_json: bool, **options: Unpack[LoadedArguments]) -> None:
    """Check within a minute whether MODEL works as an encoder.

    \b
    qwen3nb check encoder
    qwen3nb check Qwen/Qwen3-0.6B --pooling mean --json

    Exits with 1 if a check FAILED; a WARNING is not a failure.
    """
    from qwen3nb.answers.checks import sanity_check
    from qwen3nb.models.load import load_model

    opt.hide_library_bars()
    loaded_model = load_model(model, show_progress=not as_json, **options)
    checks = sanity_check(loaded_model)
    if as_json:
        opt.print_json(checks.sanity.as_dict())
    else:
        opt.print_table(checks.table())
        click.echo(f"{checks.sanity.model}: {checks.verdict}")
    if checks.verdict == "FAILED":
        sys.exit(1)


@check.part("parity")
@opt.paths_given(model="--model", where="--where", texts=["model", "where"])
@opt.LOADED
@opt.option(
    "--prompts-by",
    choices=("client", "server"),
    default="client",
    help="Who adds the prompts to a server's texts.",
)
@opt.option("--least", type=click.FloatRange(0, 1), default=0.9999, help="Least cosine of a text.")
@opt.flag("--probes-only", help="Do not search PyDocs.")
@opt.option("--queries", minimum=0, default=200, help="Queries of PyDocs; 0: all of them.")
@opt.JSON
def parity(
    model: str,
    where: str,
    prompts_by: str,
    least: float,
    probes_only: bool,
    queries: int,
    as_json: bool,
    **options: Unpack[LoadedArguments],
) -> None:
    """Check that WHERE computes what MODEL does.

    \b
    qwen3nb check parity encoder http://localhost:8000/v1#encoder
    qwen3nb check parity encoder http://localhost:8000/v1#encoder \\
        --prompts-by server
    qwen3nb check parity encoder encoder/onnx/model.onnx --probes-only

    If not, the cause is named, and the exit code is 3. WHERE is the address of an
    OpenAI-compatible server with its model (vLLM, text-embeddings-inference, llama.cpp's server),
    an ONNX or OpenVINO graph, or a folder.
    """
    from qwen3nb.evaluation.parity import parity as check_parity

    opt.hide_library_bars()
    answer = check_parity(
        model,
        where,
        prompts_by=prompts_by,
        least=least,
        rankings=not probes_only,
        queries=queries,
        **options,
    )
    opt.answer(answer, repr(answer), as_json=as_json)
    if not answer.same:
        sys.exit(3)  # 1 is an error
