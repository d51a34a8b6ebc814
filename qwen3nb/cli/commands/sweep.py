"""The command `qwen3nb sweep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.commands.notebooks import FRESH, PARAMETER, NotebookCommand, given_parameters
from qwen3nb.cli.options import (
    CACHE_LIMIT,
    MIRROR,
    PASS_ENV,
    RAY,
    REHEARSE,
    pass_names,
    rehearsal,
    use_mirror,
)

if TYPE_CHECKING:
    from qwen3nb.execution.sweep import Job, Outcome
    from qwen3nb.execution.sweep_plan import SweepPlan

__all__ = ["sweep_command"]


@click.command("sweep", cls=NotebookCommand, notebook="eval")
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    help="A model, or a glob of folders; repeatable.",
)
@click.option("--tier", "tiers", multiple=True, help="smoke, pydocs, fast or full; repeatable.")
@click.option(
    "--notebook", "notebooks", multiple=True, help="A notebook; repeatable.  [default: eval]"
)
@PARAMETER
@click.option(
    "--at-once",
    type=click.IntRange(min=0),
    help="Parallel runs; 0 for as many as fit, at most four.",
)
@RAY
@click.option(
    "--gpus-each",
    type=click.FloatRange(min=0, min_open=True),
    help="GPUs of a run on a cluster that has any; 0.5 lets two share one.  [default: 1]",
)
@click.option("--no-book", is_flag=True, help="Do not build the book afterwards.")
@click.option("--dry-run", is_flag=True, help="List the runs and run nothing.")
@REHEARSE
@FRESH
@MIRROR
@CACHE_LIMIT
@PASS_ENV
@without_traceback
def sweep_command(file: Path | None, mirror: Path | None, **flags: Any) -> None:
    """Run every checkpoint on every tier in every notebook, then build the book.

    FILE is TOML with the keys checkpoints, tiers, notebooks, parameters, runs, at_once,
    book, ray, gpus_each and pass_env; options override it. Options of eval.ipynb, and -p, apply to
    every notebook that declares the parameter. --checkpoint, --tier and --notebook are
    repeatable.

    Finished runs are reused. A failed run does not stop the others; the exit status is
    then 1. With GPUs, each run uses one of them. With --ray, runs are spread over the nodes
    of a cluster, and this machine publishes their pages and records.

    \b
    qwen3nb sweep sweep.toml
    qwen3nb sweep sweep.toml --ray auto
    qwen3nb sweep --checkpoint "runs/ul2/checkpoint-*" --checkpoint bm25 --tier smoke
    qwen3nb sweep sweep.toml --max-length 256 --dry-run
    qwen3nb sweep --checkpoint bm25 --checkpoint encoder --tier full --rehearse
    """
    from qwen3nb.execution.sweep import check_jobs

    use_mirror(mirror)
    plan = _plan(file, flags)
    pass_names(plan.pass_env, click.get_current_context())
    if flags["rehearse"]:
        limit = rehearsal(dict(plan.typed) | dict(plan.parameters))["limit"]
        plan = replace(plan, typed={**plan.typed, "limit": str(limit)}, book=False)
    jobs = plan.jobs()
    check_jobs(jobs)
    if flags["dry_run"]:
        _print_plan(jobs, fresh=flags["fresh"])
        return
    if _run(jobs, plan, fresh=flags["fresh"]):
        sys.exit(1)


def _plan(file: Path | None, flags: dict[str, Any]) -> SweepPlan:
    from qwen3nb.execution.sweep_plan import SweepPlan, read_plan

    lists = {name: flags[name] for name in ("checkpoints", "tiers", "notebooks") if flags[name]}
    if file is None and not lists:
        raise click.UsageError("nothing to run; give a TOML file, --checkpoint or --notebook")
    plan = SweepPlan() if file is None else read_plan(file)
    typed = dict(flags["typed"]) | _parameters(flags)
    shared = {name: value for name, value in plan.parameters.items() if name not in typed}
    at_once = plan.at_once if flags["at_once"] is None else flags["at_once"]
    book = plan.book and not flags["no_book"]
    ray = plan.ray if flags["ray"] is None else flags["ray"]
    gpus_each = plan.gpus_each if flags["gpus_each"] is None else flags["gpus_each"]
    return replace(
        plan, **lists, parameters=shared, typed=typed, at_once=at_once, book=book, ray=ray,
        gpus_each=gpus_each,
    )  # fmt: skip


def _parameters(flags: dict[str, Any]) -> dict[str, str]:
    """The given flags that are parameters of the notebook, as strings."""
    own = {each.name for each in sweep_command.params}
    values = given_parameters({name: flags[name] for name in flags if name not in own})
    return {name: str(value) for name, value in values.items()}


def _print_plan(jobs: Sequence[Job], *, fresh: bool) -> None:
    from qwen3nb import paths
    from qwen3nb.execution.parameters import Once

    once = Once()
    for job in jobs:
        try:
            state = "reused" if not fresh and job.finished(once) else "would run"
        except (ValueError, OSError) as error:
            state, reason = "would fail", f": {error}"
        else:
            reason = ""
        click.echo(f"{state:10} {paths.page_key(job.resolved(once)[1])}{reason}")


def _run(jobs: Sequence[Job], plan: SweepPlan, *, fresh: bool) -> list[Outcome]:
    """Run the jobs, build the book from the finished ones, and return the failed ones."""
    from qwen3nb.execution.sweep import sweep

    outcomes = sweep(
        jobs, at_once=plan.at_once, fresh=fresh, ray=plan.ray, gpus_each=plan.gpus_each
    )
    failed = [each for each in outcomes if each.status == "failed"]
    reused = sum(each.status == "reused" for each in outcomes)
    done = len(outcomes) - reused - len(failed)
    click.echo(f"{len(outcomes)} runs: {done} done, {reused} reused, {len(failed)} failed")
    if plan.book:
        from qwen3nb.book.build import build_book

        click.echo(f"Open {build_book(tier=(plan.tiers or ('smoke',))[0])}")
    return failed
