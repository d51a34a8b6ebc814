"""Commands about tasks: which there are, their data, and the published scores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from qwen3nb.cli.errors import plainly
from qwen3nb.tiers import TIERS

__all__ = ["MIRROR", "SUITE_COMMANDS", "no_library_bars", "use_mirror"]

_TIER = click.Choice(list(TIERS))
MIRROR = click.option(
    "--mirror",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="QWEN3NB_MIRROR",
    help="Data sets and models on this machine, as DIR/<organisation>/<name>.",
)


def use_mirror(mirror: Path | None) -> None:
    """Let this process, and the kernels it starts, look into ``mirror`` first."""
    if mirror is not None:
        os.environ["QWEN3NB_MIRROR"] = str(mirror.resolve())


def no_library_bars() -> None:
    """Without the bars that transformers draws while it loads weights."""
    from transformers.utils import logging

    logging.disable_progress_bar()


@click.command()
@click.option("--tier", type=_TIER, help="All that a tier needs.")
@click.option("--tasks", default="", help="Names of MTEB tasks, with commas.")
@click.option("--models", default="", help="Registry names or hub ids, with commas.")
@click.option("--list", "only_list", is_flag=True, help="Say what is needed; fetch nothing.")
@MIRROR
@plainly
def fetch(tier: str | None, tasks: str, models: str, only_list: bool, mirror: Path | None) -> None:
    """Fill a mirror with data sets and models, on a machine with a network.

    What was fetched before is not fetched again; a download that was stopped goes on.

    \b
    qwen3nb fetch --tier fast --list
    qwen3nb fetch --tier fast --models e5-base-v2,gte-base --mirror /data/mirror
    """
    from qwen3nb.datasets.mirror import fetch as run
    from qwen3nb.datasets.mirror import needs, sizes
    from qwen3nb.evaluation.mteb.select import listed, select_tasks, tier_tasks

    if not (tier or tasks or models):
        raise click.UsageError("say what: --tier, --tasks or --models")
    chosen = tier_tasks(tier) if tier else []
    chosen += select_tasks(names=listed(tasks)) if tasks else []
    found = needs(chosen, listed(models))
    if only_list or mirror is None:
        for need, size in sizes(found):
            click.echo(
                f"{need.kind:8} {need.id:45} {(need.revision or 'main')[:12]:13} {size:>10}  "
                f"{', '.join(need.used_by[:3])}"
            )
        if not only_list:
            raise click.UsageError("name a folder: --mirror DIR (or --list to look only)")
        return
    failed = []
    for need in tqdm(found, unit="id", desc="fetching"):
        try:
            run(need, mirror, say=lambda text: tqdm.write(text, file=sys.stderr))
        except ValueError as error:
            failed.append(str(error))
    for text in failed:
        click.echo(text, err=True)
    click.echo(f"{len(found) - len(failed)} of {len(found)} are in {mirror}")
    if failed:
        sys.exit(1)


@click.command()
@click.option("--models", default="", help="Only these, with commas.")
@click.option("--tasks", default="", help="Only these, with commas.")
@MIRROR
@plainly
def reproduce(models: str, tasks: str, mirror: Path | None) -> None:
    """Compare with published scores, as far as the data at hand allow.

    OK is within the score's tolerance, OKish within five times it. The exit status is 1
    if one is a FAIL; scores that could not be run are named and are none.

    \b
    qwen3nb reproduce --models all-MiniLM-L6-v2 --mirror /data/mirror
    """
    from qwen3nb.evaluation.studies.reproduce import published_scores
    from qwen3nb.evaluation.studies.reproduce import reproduce as run

    use_mirror(mirror)
    no_library_bars()
    chosen = published_scores(models=models, tasks=tasks)
    worst = 0
    for done in run(chosen):
        each = done.published
        ours = "" if done.value is None else f"{done.value:.4f}"
        click.echo(
            f"{done.verdict:8} {each.model:20} {each.task:24} published {each.value:.4f} "
            f"± {each.tolerance:g} ({each.source})  ours {ours or done.reason}"
        )
        worst = max(worst, int(done.verdict == "FAIL"))
    sys.exit(worst)


@click.command("tasks")
@click.option("--tier", type=_TIER)
@click.option("--type", "types", multiple=True, help="An MTEB task type such as STS.")
@click.option("--language", "languages", multiple=True, help="A code such as eng.")
@click.option("--benchmark", help="Such as: MTEB(eng, v2)")
@click.option("--cost", help="A model: how long it takes here, from a short measured sample.")
@plainly
def list_tasks(
    tier: str | None,
    types: tuple[str, ...],
    languages: tuple[str, ...],
    benchmark: str | None,
    cost: str | None,
) -> None:
    """List tasks: name, type, revision, distinct texts, and the minutes they take.

    \b
    qwen3nb tasks --tier fast --cost all-MiniLM-L6-v2
    qwen3nb tasks --type STS --language eng
    qwen3nb tasks --benchmark "MTEB(eng, v2)"
    """
    from qwen3nb.evaluation.mteb.select import select_tasks, tier_tasks

    chosen = tier_tasks(tier) if tier else select_tasks(
        types=types, languages=languages, benchmark=benchmark
    )  # fmt: skip
    _say_cost(chosen, cost)


def _say_cost(tasks: Sequence[Any], model: str | None) -> None:
    from qwen3nb.evaluation.mteb.cost import costs, throughput

    letters, limit = None, None
    if model is not None:
        from qwen3nb.models.load import load_encoder

        no_library_bars()
        encoder = load_encoder(model, show_progress=False)
        letters, limit = throughput(encoder), getattr(encoder, "max_length", None)
    found = costs(tasks, letters_per_second=letters, max_length=limit)
    for each in found:
        texts = "unknown" if each.texts is None else f"{each.texts:,} texts"
        minutes = "" if each.minutes is None else f"{each.minutes:10,.1f} min"
        click.echo(f"{each.task:45} {each.type:20} {each.revision:13} {texts:>18}{minutes}")
    total = sum(each.minutes or 0 for each in found)
    about = f", about {total:,.0f} minutes of encoding here" if letters else ""
    click.echo(f"{len(found)} tasks{about}", err=True)


SUITE_COMMANDS = (fetch, reproduce, list_tasks)
