"""Commands about reranking; `register` puts them where the others are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.models.modeling.dtypes import DTYPES

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Reranker

__all__ = ["register"]

_MODEL = (
    click.option("--model", required=True, help="A causal language model: folder or hub id."),
    click.option("--adapter", type=click.Path(path_type=Path), help="A LoRA adapter for it."),
    click.option("--instruction", help="What to look for; by default, what answers a web search."),
    click.option("--max-length", type=click.IntRange(min=1), default=512, show_default=True),
    click.option(
        "--template",
        type=click.Choice(["qwen3-reranker", "double-newline"]),
        help="By default the first; for an adapter the second, which it was trained with.",
    ),
    click.option("--device", default="auto", show_default=True),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True),
)


def register(main: click.Group, plainly: Callable[[Callable[..., Any]], Any]) -> None:
    """Add the commands to the group; ``plainly`` tells expected errors in a line."""
    main.command("rerank")(_with_model(_pairs_options(plainly(rerank))))
    main.command("rerank-suite")(_with_model(_suite_options(plainly(rerank_suite))))
    main.command("rerank-outputs")(_outputs_options(plainly(rerank_outputs)))


def _with_model(command: Any) -> Any:
    return _apply(_MODEL, command)


def _apply(options: tuple[Any, ...], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def _load(options: dict[str, Any]) -> Reranker:
    from transformers.utils import logging

    from qwen3nb.models.rerankers.load import load_reranker

    logging.disable_progress_bar()
    return load_reranker(options.pop("model"), **options)


def _pairs_options(command: Any) -> Any:
    path = click.Path(path_type=Path)
    options = (
        click.option("--pairs", required=True, type=path, help="JSON lines: query, document."),
        click.option("--output", required=True, type=path, help="JSON lines: p_yes, log_odds, …"),
    )
    return _apply(options, command)


def rerank(pairs: Path, output: Path, **options: Any) -> None:
    """Score pairs of query and document, line by line, for a pipeline.

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


def _suite_options(command: Any) -> Any:
    options = (
        click.argument("data", nargs=-1, required=True),
        click.option(
            "--first",
            multiple=True,
            default=("bm25",),
            show_default=True,
            help="bm25, given, a TREC run, or an encoder; several are fused by rank.",
        ),
        click.option("--depth", type=click.IntRange(min=1), default=100, show_default=True),
        click.option("--output", type=click.Path(path_type=Path), help="By default results/."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option("--fresh", is_flag=True, help="Score again although the record is there."),
    )
    return _apply(options, command)


def rerank_suite(
    data: tuple[str, ...],
    first: tuple[str, ...],
    depth: int,
    output: Path | None,
    seed: int,
    fresh: bool,
    **options: Any,
) -> None:
    """Search and rerank: DATA are BEIR folders, MS MARCO's, CQADupStack's, or MTEB tasks.

    \b
    qwen3nb rerank-suite --model Qwen/Qwen3-Reranker-0.6B PyDocsSampleRetrieval
    qwen3nb rerank-suite --model base --adapter final --first all-MiniLM-L6-v2 beir/scifact
    """
    from qwen3nb.evaluation.retrieval.first_stage import load_first
    from qwen3nb.evaluation.retrieval.rerank import dataset_rows
    from qwen3nb.evaluation.retrieval.rerank import rerank_suite as run

    suite = run(
        _load(options), data, first=load_first(*first), depth=depth, output=output, seed=seed,
        fresh=fresh,
    )  # fmt: skip
    for row in dataset_rows(suite.results):
        shown = [f"{k} {v:.4f}" for k, v in row.items() if isinstance(v, float)]
        click.echo(f"{row['dataset']}: {', '.join(shown)}")


def _outputs_options(command: Any) -> Any:
    options = (
        click.argument("outputs", type=click.Path(path_type=Path)),
        click.option("--base", help="The model the adapters belong to."),
        click.option("--data", multiple=True, required=True, help="As in rerank-suite."),
        click.option("--embedding-task", "embedding_tasks", multiple=True, help="An MTEB task."),
        click.option("--depth", type=click.IntRange(min=1), default=100, show_default=True),
        click.option("--max-length", type=click.IntRange(min=1), default=512, show_default=True),
    )
    return _apply(options, command)


def rerank_outputs(outputs: Path, embedding_tasks: tuple[str, ...], **options: Any) -> None:
    """Evaluate every adapter under OUTPUTS: reranking always, embeddings where trained for.

    \b
    qwen3nb rerank-outputs outputs --base Qwen/Qwen3-0.6B-Base --data beir/scifact
    """
    from qwen3nb.evaluation.mteb.select import select_tasks
    from qwen3nb.evaluation.studies.lora_runs import evaluate_trained

    chosen = select_tasks(names=embedding_tasks) if embedding_tasks else []
    results = evaluate_trained(outputs, embedding_tasks=chosen, **options)
    for result in results:
        value = "undefined" if result.main.value is None else f"{result.main.value:.4f}"
        name, metric = result.task.name, result.task.main_metric
        click.echo(f"{result.model.label} {name}: {metric} {value} (n {result.main.n})")
