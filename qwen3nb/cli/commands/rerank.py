"""Commands for rerankers: score pairs, search and rerank, evaluate adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import CommandGroup
from qwen3nb.models.types import TEMPLATE_NAMES
from qwen3nb.tiers import TIERS
from qwen3nb.utils.bounded_files import check_replaceable

if TYPE_CHECKING:
    from qwen3nb.evaluation.run import EvaluationRun
    from qwen3nb.models.capabilities import ScoresPairs
    from qwen3nb.models.rerankers import Reranker

_DEPTH = opt.option("--depth", minimum=1, default=100, help="Candidates per query.")
_MAX_LENGTH = opt.option(
    "--max-length",
    minimum=1,
    default=512,
    help="Tokens per pair; documents are cut first.",
)
_BATCH_SIZE = opt.option(
    "--batch-size",
    minimum=1,
    help="Long pairs per forward pass, for speed alone.",
)
_MODEL = opt.options(
    opt.model_option(required=True, help="Folder or hub id of a causal model."),
    opt.option("--adapter", type=opt.FILE, help="A LoRA adapter for it."),
    opt.option("--instruction", help="Definition of relevance.  [default: web search]"),
    _MAX_LENGTH,
    opt.option(
        "--template",
        choices=TEMPLATE_NAMES,
        help="qwen3-reranker, or double-newline for adapters.  [default: by model]",
    ),
    opt.option(
        "--batch-tokens",
        "budget",
        minimum=1,
        help="Tokens per forward pass.  [default: by device]",
    ),
    _BATCH_SIZE,
    opt.DEVICE,
    opt.DTYPE,
)
_ON_WHAT = opt.options(
    opt.option(
        "--tier",
        choices=TIERS,
        callback=lambda context, option, value: value or "",
        help="Retrieval tasks of this tier.",
    ),
    opt.LIMIT,
    opt.option(
        "--msmarco",
        type=opt.FILE,
        metavar="FOLDER",
        help="Official MS MARCO dev files, for MSMARCO.",
    ),
    opt.MIRROR,
    opt.READ_LIMIT,
)


class RerankerArguments(TypedDict):
    """The arguments of `_MODEL`."""

    model: str
    adapter: Path | None
    instruction: str | None
    max_length: int
    template: str | None
    budget: int | None
    batch_size: int | None
    device: str
    dtype: str


def _load_scorer(**arguments: Unpack[RerankerArguments]) -> ScoresPairs:
    """Load what reranks: a reranker, or a search model such as ColBERT."""
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.load import loaded_scorer
    from qwen3nb.models.model import Model

    spec = arguments["model"]
    if not find_source(spec).kind.searches:  # a reranker
        return _load_reranker(**arguments)
    opt.hide_library_bars()
    # A model that searches, such as ColBERT, can also score pairs.
    return loaded_scorer(Model(spec, device=arguments["device"], dtype=arguments["dtype"]))


def _load_reranker(**arguments: Unpack[RerankerArguments]) -> Reranker:
    """Load the reranker that the options of a command name."""
    from qwen3nb.models.rerankers import load_reranker

    opt.hide_library_bars()
    max_length = arguments["max_length"]
    budget = arguments["budget"]
    if budget is None and arguments["batch_size"] is not None:
        # A budget of tokens: as many as that many pairs of full length have.
        budget = arguments["batch_size"] * max_length
    return load_reranker(
        arguments["model"],
        adapter=arguments["adapter"],
        template=arguments["template"],
        instruction=arguments["instruction"],
        max_length=max_length,
        device=arguments["device"],
        dtype=arguments["dtype"],
        budget=budget,
    )


@click.group(cls=CommandGroup)
def rerank() -> None:
    """Score pairs of query and document, search and rerank, or evaluate adapters."""


@rerank.command("pairs")
@_MODEL
@opt.option("--pairs", required=True, type=opt.FILE, help="JSON lines with query and document.")
@opt.out_option("output", required=True, help="JSON lines with p_yes, log_odds, truncated.")
@opt.READ_LIMIT
def rerank_pairs(pairs: Path, output: Path, **arguments: Unpack[RerankerArguments]) -> None:
    """Score pairs of query and document in a file.

    \b
    qwen3nb rerank pairs --model Qwen/Qwen3-Reranker-0.6B \\
        --pairs pairs.jsonl --out scores.jsonl
    qwen3nb rerank pairs --model base --adapter final --pairs pairs.jsonl \\
        --out scores.jsonl

    Pairs and scores are JSON lines.
    """
    from qwen3nb.evaluation.retrieval.rerank import rerank_pairs as score_pairs

    if output.resolve() == pairs.resolve():
        raise click.UsageError(f"--out {output} is the file of the pairs; name another file")
    check_replaceable(output, suffixes=[".jsonl", ".json"])
    reranker = _load_reranker(**arguments)
    count = score_pairs(reranker, pairs, output)
    stats = reranker.stats
    click.echo(
        f"{output}: {count} pairs, {stats.cut} documents and {stats.queries_cut} queries cut to "
        f"{reranker.max_length} tokens"
    )


@rerank.command("suite", writes=True, unless=["output"])
@_MODEL
@click.argument("data", nargs=-1)
@_ON_WHAT
@opt.option(
    "--first",
    multiple=True,
    default=("bm25",),
    help="bm25, given, a TREC run or an encoder; repeatable, fused by rank.",
)
@opt.PROMPTS
@_DEPTH
@opt.out_option("output", help="Folder of the records.  [default: results/]")
@opt.seed_option("Seed, stored in the record.")
@opt.FRESH
@opt.flag("--runs", help="Keep the qrels next to each run (TREC format).")
def rerank_suite(
    data: tuple[str, ...],
    tier: str,
    first: tuple[str, ...],
    prompts: str,
    limit: int,
    msmarco: Path | None,
    depth: int,
    output: Path | None,
    seed: int,
    fresh: bool,
    runs: bool,
    **arguments: Unpack[RerankerArguments],
) -> None:
    """Search and rerank data sets or a tier.

    \b
    qwen3nb rerank suite --model Qwen/Qwen3-Reranker-0.6B --tier fast
    qwen3nb rerank suite --model Qwen/Qwen3-Reranker-0.6B PyDocsSampleRetrieval
    qwen3nb rerank suite --model base --adapter final \\
        --first all-MiniLM-L6-v2 beir/scifact

    DATA are folders (BEIR, MS MARCO, CQADupStack) or MTEB tasks.
    """
    _require_one(data, tier)
    from qwen3nb.evaluation.retrieval.first_stage import load_retriever
    from qwen3nb.evaluation.retrieval.rerank import rerank as rerank_data

    reranker = _load_scorer(**arguments)
    first_stage = load_retriever(*first, prompts=prompts)

    def evaluate() -> EvaluationRun:
        return rerank_data(
            reranker,
            data or None,
            tier=tier,
            first=first_stage,
            limit=limit,
            msmarco=msmarco,
            depth=depth,
            output=output,
            seed=seed,
            fresh=fresh,
            runs=runs,
        )

    _evaluate_and_print(evaluate, _suite_lines)


def _require_one(data: tuple[str, ...], tier: str) -> None:
    """Raise a usage error unless there are either data sets or a tier."""
    if data and tier:
        names = ", ".join(data)
        raise click.UsageError(f"expected either data sets or --tier; got both, {names} and {tier}")
    if not data and not tier:
        raise click.UsageError("expected either data sets or --tier; got neither")


def _evaluate_and_print(
    evaluate: Callable[[], EvaluationRun], lines_of: Callable[[EvaluationRun], Iterable[str]]
) -> None:
    """Print what was finished, then raise an error if a part failed."""
    from qwen3nb.evaluation.run import EvaluationError

    try:
        run = evaluate()
    except EvaluationError as error:
        # What was finished before the error.
        if error.run is not None:
            _print_run(error.run, lines_of)
        raise
    _print_run(run, lines_of)


def _print_run(run: EvaluationRun, lines_of: Callable[[EvaluationRun], Iterable[str]]) -> None:
    """Print the scores of a run, and how many of its records were reused."""
    for line in lines_of(run):
        click.echo(line)
    if run.reused:
        click.echo(f"{len(run.reused)} of {len(run.results)} records reused")


def _suite_lines(suite: EvaluationRun) -> Iterator[str]:
    from qwen3nb.evaluation.retrieval.rerank import dataset_rows

    main_metrics = {result.data.collection: result.task.main_metric for result in suite.results}
    for row in dataset_rows(suite.results):
        name = row.pop("dataset")
        main_metric = main_metrics.get(name, "nDCG@10")
        # Each once, the main one first.
        metrics = dict.fromkeys([main_metric, *row])
        scores = [f"{metric} {row[metric]:.4f}" for metric in metrics if row[metric] is not None]
        yield f"{name}: {', '.join(scores) or 'undefined, as a part is missing'}"


@rerank.command("outputs", writes=True)
@click.argument("outputs", type=opt.FILE, required=False)
@opt.option("--adapter", "checkpoint", type=opt.FILE, help="The same as OUTPUTS.")
@opt.option(
    "--config",
    "training",
    type=opt.FILE,
    help="Its configuration.  [default: config.yaml beside it]",
)
@opt.model_option("base", help="Base model of the adapters.")
@opt.option("--data", multiple=True, help="As in `rerank suite`; repeatable.")
@_ON_WHAT
@opt.option(
    "--embedding-task",
    "embedding_tasks",
    multiple=True,
    help="MTEB task for encoders; repeatable.  [default: the tier's]",
)
@_DEPTH
@_MAX_LENGTH
@_BATCH_SIZE
@opt.DEVICE
@opt.DTYPE
def rerank_outputs(
    outputs: Path | None,
    checkpoint: Path | None,
    training: Path | None,
    base: str | None,
    data: tuple[str, ...],
    tier: str,
    limit: int,
    msmarco: Path | None,
    embedding_tasks: tuple[str, ...],
    depth: int,
    max_length: int,
    batch_size: int | None,
    device: str,
    dtype: str,
) -> None:
    """Evaluate every adapter of a training.

    \b
    qwen3nb rerank outputs outputs --model Qwen/Qwen3-0.6B-Base --tier fast
    qwen3nb rerank outputs outputs --model Qwen/Qwen3-0.6B-Base \\
        --data beir/scifact
    qwen3nb rerank outputs \\
        --adapter outputs/joint_r8/seed_42/checkpoints/final \\
        --config outputs/joint_r8/seed_42/config.yaml --tier fast

    Each adapter under OUTPUTS is a reranker; one that was trained to embed is also an encoder.
    OUTPUTS may also be one adapter. Without --data and --tier, the tier is the one in the
    adapter's training configuration.
    """
    from qwen3nb.evaluation.mteb.select import choose_tasks
    from qwen3nb.evaluation.studies.lora_runs import AdapterOptions, evaluate_trained

    folder = outputs or checkpoint
    names_both = outputs is not None and checkpoint is not None
    if folder is None or names_both:
        raise click.UsageError("expected either OUTPUTS or --adapter")
    if data or tier:
        _require_one(data, tier)
    opt.hide_library_bars()
    tasks = []
    if embedding_tasks:
        tasks = choose_tasks(tasks=embedding_tasks)
    options = AdapterOptions(
        limit=limit,
        msmarco=msmarco,
        depth=depth,
        max_length=max_length,
        device=device,
        dtype=dtype,
    )
    if batch_size is not None:
        options["batch_size"] = batch_size
        options["budget"] = batch_size * max_length

    def evaluate() -> EvaluationRun:
        return evaluate_trained(
            folder,
            data,
            tier=tier,
            training=training,
            base=base,
            embedding_tasks=tasks,
            **options,
        )

    _evaluate_and_print(evaluate, _record_lines)


def _record_lines(run: EvaluationRun) -> Iterator[str]:
    for result in run.results:
        value = "undefined"
        if result.main.value is not None:
            value = f"{result.main.value:.4f}"
        task = f"{result.model.label} {result.task.key}"
        yield f"{task}: {result.task.main_metric} {value} (n {result.main.n})"
