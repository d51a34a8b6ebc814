"""The command `qwen3nb forgetting`: which queries a training lost and won, by groups."""

from __future__ import annotations

from pathlib import Path

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command, readable_records


@click.command(cls=Command, study=paths.results, unless=["results"])
@click.argument("before", default="")
@click.argument("after", default="")
@opt.option("--task", default="", help="A search or reranking.  [default: that of most queries]")
@opt.option(
    "--topics", minimum=0, help="Number of topics.  [default: one per 30 queries, at most 20]"
)
@opt.option(
    "--vectors",
    metavar="MODEL",
    default="",
    help="Model whose vectors make the topics.  [default: the queries' words]",
)
@opt.option("--most", minimum=0, default=6, help="Queries listed per group.")
@opt.option("--alpha", type=opt.SHARE, default=0.05, help="Level of the tests.")
@opt.RESAMPLES
@opt.seed_option("Seed of the topics and the draws.")
@opt.RESULTS
@opt.JSON
def forgetting(
    before: str,
    after: str,
    task: str,
    topics: int | None,
    vectors: str,
    most: int,
    alpha: float,
    n_resamples: int,
    seed: int,
    results: Path | None,
    as_json: bool,
) -> None:
    """Show which groups of queries a training forgot or learned.

    \b
    qwen3nb forgetting encoder encoder-new
    qwen3nb forgetting encoder encoder-new --task stars --topics 12
    qwen3nb forgetting bm25 encoder --vectors all-MiniLM-L6-v2

    BEFORE and AFTER are labels of two models with records; by default, the first and the last
    evaluated step of the newest training. Queries are grouped by topic, length, language, script
    and category. A group is forgotten if its scores fell, and fell unlike the rest: what all
    queries lose is no effect of a group. P-values hold for all groups together.

    Topics are clusters of the queries' words. Half and twice as many are compared, too, and queries
    that share a word or begin with one; these are listed only if they changed unlike the rest.
    --vectors takes a model's vectors instead of words; better no model that is compared, whose weak
    places would make the topics.
    """
    from qwen3nb.answers.forgetting import NoForgetting
    from qwen3nb.answers.forgetting import forgetting as find_forgetting

    opt.hide_library_bars()
    answer = find_forgetting(
        readable_records(results),
        before,
        after,
        task=task,
        topics=topics or 0,
        vectors=vectors,
        alpha=alpha,
        n_resamples=n_resamples,
        seed=seed,
    )
    if isinstance(answer, NoForgetting):
        raise click.ClickException(answer.why)
    if as_json:
        click.echo(answer.to_json())
        return
    opt.print_text(answer.conclusion.text, bold=True)
    opt.print_table(answer.table())
    opt.print_table(answer.queries_table(most))
