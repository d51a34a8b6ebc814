"""Commands for tasks: list them, fetch their data, reproduce published scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.completion import complete_tasks
from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import JSON, MIRROR, hide_library_bars, print_json, use_mirror
from qwen3nb.cli.spellings import model_option
from qwen3nb.cli.study_root import in_study
from qwen3nb.tiers import TIERS

__all__ = ["fetch", "list_tasks", "reproduce"]

_TIER = click.Choice(list(TIERS))


@click.command()
@click.option("--tier", type=_TIER, help="Fetch everything a tier needs.")
@click.option(
    "--tasks", default="", shell_complete=complete_tasks, help="MTEB tasks, comma-separated."
)
@model_option("models", several=True, earlier=["--models"],
              help="A registry name or hub id; repeatable.")  # fmt: skip
@click.option("--list", "only_list", is_flag=True, help="List what is needed and fetch nothing.")
@click.option(
    "--out", "--mirror", "mirror", type=click.Path(path_type=Path, file_okay=False),
    envvar="QWEN3NB_MIRROR", help="Folder to fetch into: the --mirror of other commands.",
)  # fmt: skip
@JSON
@without_traceback
def fetch(
    tier: str | None,
    tasks: str,
    models: Sequence[str],
    only_list: bool,
    mirror: Path | None,
    as_json: bool,
) -> None:
    """Download data sets and models into a mirror, on a machine with a network.

    Finished downloads are kept, interrupted ones are resumed.

    \b
    qwen3nb fetch --tier fast --list
    qwen3nb fetch --tier fast --model e5-base-v2,gte-base --mirror /data/mirror
    """
    if not (tier or tasks or models):
        raise click.UsageError("nothing to fetch; give --tier, --tasks or --model")
    if mirror is None and not only_list:
        raise click.UsageError("no folder to fetch into; give --mirror DIR, or --list")
    from qwen3nb.datasets.fetch import fetch_all, sizes
    from qwen3nb.datasets.needs import needs
    from qwen3nb.evaluation.mteb.select import select_tasks, split_names, tier_tasks
    from qwen3nb.utils.progress import tqdm

    selected = tier_tasks(tier) if tier else []
    selected += select_tasks(names=split_names(tasks)) if tasks else []
    required = needs(selected, models)
    if only_list or mirror is None:
        sized = sizes(required, say=lambda text: click.echo(text, err=True))
        if as_json:
            print_json([{**asdict(need), "size": size} for need, size in sized])
            return
        for need, size in sized:
            click.echo(
                f"{need.kind:8} {need.id:45} {(need.revision or 'main')[:12]:13} {size:>10}  "
                f"{', '.join(need.used_by[:3])}"
            )
        return
    bar = tqdm(required, unit="id", desc="fetching")
    failures = fetch_all(bar, mirror, say=lambda text: tqdm.write(text, file=sys.stderr))
    bar.close()
    for reason in filter(None, failures.values()):
        click.echo(reason, err=True)
    if untried := [id_ for id_, reason in failures.items() if not reason]:
        click.echo(f"not tried, for the same reason: {', '.join(untried)}", err=True)
    if as_json:
        print_json(
            {
                "folder": str(mirror),
                "needed": [need.id for need in required],
                "failures": {id_: str(reason) for id_, reason in failures.items()},
            }
        )
    else:
        click.echo(f"{len(required) - len(failures)} of {len(required)} are in {mirror}")
    if failures:
        sys.exit(1)


@click.command()
@model_option("models", several=True, earlier=["--models"],
              help="Only this model; repeatable.")  # fmt: skip
@click.option(
    "--tasks", default="", shell_complete=complete_tasks, help="Only these tasks, comma-separated."
)
@MIRROR
@JSON
@without_traceback
@in_study(writes=True)
def reproduce(models: Sequence[str], tasks: str, mirror: Path | None, as_json: bool) -> None:
    """Compare our scores with published ones, as far as the data are available.

    OK: within the score's tolerance; OKish: within five times it. Exits with 1 on a FAIL;
    scores that could not be computed are listed and do not count. All data are looked for
    first; what is missing is listed once, with the command that fetches it.

    \b
    qwen3nb reproduce --model all-MiniLM-L6-v2 --mirror /data/mirror
    """
    from qwen3nb.datasets.needs import missing_error
    from qwen3nb.evaluation.studies.reproduce import published_scores, unavailable
    from qwen3nb.evaluation.studies.reproduce import reproduce as run

    use_mirror(mirror)
    hide_library_bars()
    scores = published_scores(models=",".join(models), tasks=tasks)
    absent = unavailable(scores)
    reproduced = []
    for done in run(scores, absent=absent):
        reproduced.append(done)
        if as_json:
            continue
        each = done.published
        ours = "" if done.value is None else f"{done.value:.4f}"
        click.echo(
            f"{done.verdict:8} {each.model:20} {each.task:24} published {each.value:.4f} "
            f"± {each.tolerance:g} ({each.source})  ours {ours or done.reason}"
        )
    if as_json:
        print_json(
            [
                {
                    **asdict(done.published),
                    "ours": done.value,
                    "verdict": done.verdict,
                    "reason": done.reason,
                }
                for done in reproduced
            ]
        )
    if absent:
        click.echo(str(missing_error(absent)), err=True)
    sys.exit(int(any(done.verdict == "FAIL" for done in reproduced)))


@click.command("tasks")
@click.option("--tier", type=_TIER)
@click.option("--type", "types", multiple=True, help="An MTEB task type, such as STS; repeatable.")
@click.option(
    "--language", "languages", multiple=True, help="A language code, such as eng; repeatable."
)
@click.option("--benchmark", help="An MTEB benchmark, such as MTEB(eng, v2).")
@model_option("cost", earlier=["--cost"], help="Estimate the encoding time of this model.")
@JSON
@without_traceback
def list_tasks(
    tier: str | None,
    types: tuple[str, ...],
    languages: tuple[str, ...],
    benchmark: str | None,
    cost: str | None,
    as_json: bool,
) -> None:
    """List tasks with type, revision, distinct texts, and the minutes to encode them.

    \b
    qwen3nb tasks --tier fast --model all-MiniLM-L6-v2
    qwen3nb tasks --type STS --language eng
    qwen3nb tasks --benchmark "MTEB(eng, v2)"
    """
    from qwen3nb.evaluation.mteb.select import select_tasks, tier_tasks

    tasks = tier_tasks(tier) if tier else select_tasks(
        types=types, languages=languages, benchmark=benchmark
    )  # fmt: skip
    _print_tasks(tasks, cost, as_json=as_json)


def _print_tasks(tasks: Sequence[Any], model: str | None, *, as_json: bool) -> None:
    from qwen3nb.evaluation.mteb.cost import Range, costs, measure_encoding

    speed, limit = None, None
    if model is not None:
        from qwen3nb.models.load import load_encoder

        hide_library_bars()
        encoder = load_encoder(model, show_progress=False)
        speed, limit = measure_encoding(encoder), getattr(encoder, "max_length", None)
    estimates = costs(tasks, speed=speed, max_length=limit)
    if as_json:
        print_json(
            [
                {**asdict(each), "minutes": each.minutes and each.minutes._asdict()}
                for each in estimates
            ]
        )
        return
    for each in estimates:
        texts = "unknown" if each.texts is None else f"{each.texts:,} texts"
        minutes = "" if each.minutes is None else f"{each.minutes.text(1):>15} min"
        click.echo(f"{each.task:45} {each.type:20} {each.revision:13} {texts:>18}{minutes}")
    total = Range.total(each.minutes for each in estimates if each.minutes is not None)
    about = f", {total.text()} minutes of encoding here" if speed else ""
    click.echo(f"{len(estimates)} tasks{about}", err=True)
