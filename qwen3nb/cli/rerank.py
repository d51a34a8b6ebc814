"""Commands for rerankers: score pairs, search and rerank, evaluate adapters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import DEVICE, DTYPE, FILE, hide_library_bars, seed_option

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Reranker

__all__ = ["RERANK_COMMANDS"]

_DEPTH = click.option(
    "--depth", type=click.IntRange(min=1), default=100, show_default=True,
    help="Candidates per query.",
)  # fmt: skip
_MAX_LENGTH = click.option(
    "--max-length", type=click.IntRange(min=1), default=512, show_default=True,
    help="Tokens per pair; only the document is truncated.",
)  # fmt: skip
_MODEL = (
    click.option("--model", required=True, help="A causal language model: a folder or hub id."),
    click.option("--adapter", type=FILE, help="A LoRA adapter for it."),
    click.option("--instruction", help="Definition of relevance.  [default: web search]"),
    _MAX_LENGTH,
    click.option(
        "--template",
        type=click.Choice(["qwen3-reranker", "double-newline"]),
        help="[default: qwen3-reranker; double-newline for adapters, as in their training]",
    ),
    DEVICE,
    DTYPE,
)


def _with_model(command: Callable[..., Any]) -> Callable[..., Any]:
    return functools.reduce(lambda inner, option: option(inner), reversed(_MODEL), command)


def _load(options: dict[str, Any]) -> Reranker:
    from qwen3nb.models.rerankers.load import load_reranker

    hide_library_bars()
    return load_reranker(options.pop("model"), **options)


@click.command()
@_with_model
@click.option("--pairs", required=True, type=FILE, help="JSON lines with query and document.")
@click.option(
    "--output", required=True, type=FILE, help="JSON lines with p_yes, log_odds, truncated."
)
@without_traceback
def rerank(pairs: Path, output: Path, **options: Any) -> None:
    """Score query-document pairs, one JSON line each.

    \b
    qwen3nb rerank --model Qwen/Qwen3-Reranker-0.6B --pairs pairs.jsonl --output scores.jsonl
    qwen3nb rerank --model base --adapter final --pairs pairs.jsonl --output scores.jsonl
    """
    from qwen3nb.evaluation.retrieval.score_pairs import rerank_pairs

    reranker = _load(options)
    count = rerank_pairs(reranker, pairs, output)
    stats = reranker.stats
    click.echo(
        f"{output}: {count} pairs, {stats.cut} documents cut to {reranker.max_length} tokens, "
        f"{stats.saturated} saturated, {stats.tied} tied in P(yes)"
    )


@click.command()
@_with_model
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--first",
    multiple=True,
    default=("bm25",),
    show_default=True,
    help="First stage: bm25, given, a TREC run, or an encoder; several are fused by rank.",
)
@_DEPTH
@click.option("--output", type=FILE, help="Folder of the records.  [default: results/]")
@seed_option("Seed, stored in the record.")
@click.option("--fresh", is_flag=True, help="Score again even if the record exists.")
@without_traceback
def rerank_suite(
    data: tuple[str, ...],
    first: tuple[str, ...],
    depth: int,
    output: Path | None,
    seed: int,
    fresh: bool,
    **options: Any,
) -> None:
    """Search and rerank DATA: folders (BEIR, MS MARCO, CQADupStack) or MTEB tasks.

    \b
    qwen3nb rerank-suite --model Qwen/Qwen3-Reranker-0.6B PyDocsSampleRetrieval
    qwen3nb rerank-suite --model base --adapter final --first all-MiniLM-L6-v2 beir/scifact
    """
    from qwen3nb.evaluation.retrieval.first_stage import load_first
    from qwen3nb.evaluation.retrieval.rerank import dataset_rows
    from qwen3nb.evaluation.retrieval.rerank import rerank as run

    suite = run(
        _load(options), data, first=load_first(*first), depth=depth, output=output, seed=seed,
        fresh=fresh,
    )  # fmt: skip
    for row in dataset_rows(suite.results):
        shown = [f"{k} {v:.4f}" for k, v in row.items() if isinstance(v, float)]
        click.echo(f"{row['dataset']}: {', '.join(shown)}")


@click.command()
@click.argument("outputs", type=FILE)
@click.option("--base", help="Base model of the adapters.")
@click.option("--data", multiple=True, required=True, help="As in rerank-suite.")
@click.option(
    "--embedding-task", "embedding_tasks", multiple=True, help="An MTEB task; repeatable."
)
@_DEPTH
@_MAX_LENGTH
@without_traceback
def rerank_outputs(outputs: Path, embedding_tasks: tuple[str, ...], **options: Any) -> None:
    """Evaluate every adapter under OUTPUTS as a reranker, and as an encoder if trained as one.

    \b
    qwen3nb rerank-outputs outputs --base Qwen/Qwen3-0.6B-Base --data beir/scifact
    """
    from qwen3nb.evaluation.mteb.select import select_tasks
    from qwen3nb.evaluation.studies.lora_runs import evaluate_trained

    tasks = select_tasks(names=embedding_tasks) if embedding_tasks else []
    results = evaluate_trained(outputs, embedding_tasks=tasks, **options)
    for result in results:
        value = "undefined" if result.main.value is None else f"{result.main.value:.4f}"
        name, metric = result.task.key, result.task.main_metric
        click.echo(f"{result.model.label} {name}: {metric} {value} (n {result.main.n})")


RERANK_COMMANDS = (rerank, rerank_suite, rerank_outputs)
