"""Commands for models: average, extract and check them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from qwen3nb.checkpoints.types import MERGE_METHODS
from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import CardArguments, LoadedArguments
from qwen3nb.cli.program import Command, CommandWithParts
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import ADAPTER_METHODS
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.checkpoints.averaging import Selection

# The first ones are of whole models, the last ones of adapters.
_MERGE_METHODS = (*MERGE_METHODS, *ADAPTER_METHODS)


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


class MergeArguments(TypedDict):
    """The options of a merge, as `average_checkpoints` has them."""

    method: str
    base: Path | None
    density: float | None
    scale: float
    seed: int


@click.command(cls=Command)
@opt.paths_given(folder="--training", output="--out", others="further_models")
@opt.option("--last", minimum=1, help="Average the last N checkpoints.")
@opt.option("--best", minimum=1, help="Average the best N by the metric.")
@opt.option("--metric", default="eval_loss", help="As the Trainer logs it.")
@click.option(
    "--higher-is-better/--lower-is-better",
    default=None,
    help="Of the metric.  [default: the Trainer's rule: lower for losses and errors, else higher]",
)
@opt.option("--method", choices=_MERGE_METHODS, default="mean", help="How models are merged.")
@opt.option("--weights", metavar="TEXT", help="As 5,3,2, or metric; by default equal.")
@opt.option("--base", type=opt.FOLDER, help="The model before the training, for ties and dare.")
@opt.option("--density", type=float, help="Share of changes that stay, for ties and dare.")
@opt.option("--rank", minimum=1, help="Of the merged adapter, for svd.")
@opt.option("--scale", type=float, default=1.0, help="Of the merged change, for ties and dare.")
@opt.option("--seed", type=int, default=0, help="Of the changes that dare drops.")
def average(
    folder: Path,
    output: Path,
    further_models: list[Path],
    last: int | None,
    best: int | None,
    metric: str,
    higher_is_better: bool | None,
    weights: str | None,
    rank: int | None,
    **merge: Unpack[MergeArguments],
) -> None:
    """Average checkpoints of a training, or merge models, to the folder OUTPUT.

    \b
    qwen3nb average runs/ul2 runs/ul2-average --last 5
    qwen3nb average runs/ul2 runs/ul2-best --best 3 --metric eval_loss
    qwen3nb average runs/a runs/b merged --method slerp --weights 2,1
    qwen3nb average runs/a runs/b merged --method ties --base Qwen3-0.6B

    FOLDER is a training, of which --last or --best select checkpoints. Two or more folders are
    models, merged in their order. Adapters (LoRA) of one base are merged to one adapter, by cat
    (the exact sum, as mean), svd, linear or ties.
    """
    from qwen3nb.checkpoints.averaging import average_checkpoints

    lower_is_better = None  # the Trainer's own rule for the metric
    if higher_is_better is not None:
        lower_is_better = not higher_is_better
    selection = _selection(
        folder,
        further_models,
        last=last,
        best=best,
        metric=metric,
        lower_is_better=lower_is_better,
    )
    numbers = _weights(weights, selection)
    if (selection.folders[0] / "adapter_config.json").is_file():
        _merge_adapters(selection, output, numbers, rank=rank, **merge)
    elif rank is not None:
        raise click.UsageError("--rank is of adapters; these are whole models")
    else:
        average_checkpoints(selection, output, weights=numbers, **merge)
    if selection.note:
        click.echo(selection.note, err=True)
    names = ", ".join(checkpoint.name for checkpoint in selection.folders)
    click.echo(f"{output}: {selection.rule}: {names}")


def _selection(
    folder: Path,
    further_models: Sequence[Path],
    *,
    last: int | None,
    best: int | None,
    metric: str,
    lower_is_better: bool | None,
) -> "Selection":
    """Return the models to merge: those that are named, or checkpoints of a training."""
    from qwen3nb.checkpoints.averaging import Selection, select_checkpoints

    counts = [count for count in (last, best) if count is not None]
    if further_models:
        if counts:
            raise click.UsageError("--last and --best select in one training; several are given")
        return Selection((folder, *further_models), rule="as given", metrics={})
    if len(counts) != 1:
        raise click.UsageError("give either --last N or --best N, or several models")
    return select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=lower_is_better
    )


def _merge_adapters(
    selection: "Selection",
    output: Path,
    weights: tuple[float, ...] | None,
    *,
    rank: int | None,
    **merge: Unpack[MergeArguments],
) -> None:
    """Merge adapters; refuse the settings of whole models."""
    from qwen3nb.models.kinds.adapter_merging import merge_adapters

    if merge["base"] is not None or merge["scale"] != 1 or merge["seed"] != 0:
        raise click.UsageError(
            "--base, --scale and --seed are of whole models; adapters are changes already"
        )
    method = merge["method"]
    if method == "mean":
        method = "cat"  # the exact mean of the changes
    merge_adapters(
        selection.folders,
        output,
        method=method,
        weights=weights,
        rank=rank,
        density=merge["density"],
    )


def _weights(text: str | None, selection: "Selection") -> tuple[float, ...] | None:
    """Return the weights that ``--weights`` names; None: all equal."""
    if text is None:
        return None
    if text == "metric":
        return selection.weights_by_metric()
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise click.UsageError(
            f"--weights {text!r}: expected numbers separated by commas, as 5,3,2, or metric"
        ) from None


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
