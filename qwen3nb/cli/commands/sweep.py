"""The command `qwen3nb sweep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli.commands.notebooks import FRESH, PARAMETER, NotebookCommand, given_parameters
from qwen3nb.cli.completion import complete_notebooks, complete_tiers
from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import (
    CACHE_LIMIT,
    JSON,
    MIRROR,
    PASS_ENV,
    RAY,
    REHEARSE,
    pass_names,
    print_json,
    rehearsal,
    use_mirror,
)
from qwen3nb.cli.spellings import model_option
from qwen3nb.cli.study_root import in_study

if TYPE_CHECKING:
    from qwen3nb.execution.sweep import Job, Outcome
    from qwen3nb.execution.sweep_plan import SweepPlan

__all__ = ["sweep_command"]


@click.command("sweep", cls=NotebookCommand, notebook="eval")
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@model_option(
    "checkpoints", several=True, earlier=["--checkpoint"],
    help="A model, or a glob of folders; repeatable.",
)  # fmt: skip
@click.option(
    "--tier", "tiers", multiple=True, shell_complete=complete_tiers,
    help="smoke, pydocs, fast or full; repeatable.",
)  # fmt: skip
@click.option(
    "--notebook", "notebooks", multiple=True, shell_complete=complete_notebooks,
    help="A notebook; repeatable.  [default: eval]",
)  # fmt: skip
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
@JSON
@without_traceback
@in_study(writes=True)
def sweep_command(file: Path | None, mirror: Path | None, **flags: Any) -> None:
    """Run every model on every tier in every notebook, then build the book.

    FILE is TOML with the keys checkpoints, tiers, notebooks, parameters, runs, at_once,
    book, ray, gpus_each and pass_env; options override it. Options of eval.ipynb, and -p, apply to
    every notebook that declares the parameter. --model, --tier and --notebook are repeatable.

    Finished runs are reused. A failed run does not stop the others; the exit status is
    then 1. With GPUs, each run uses one of them. With --ray, runs are spread over the nodes
    of a cluster, and this machine publishes their pages and records.

    \b
    qwen3nb sweep sweep.toml
    qwen3nb sweep sweep.toml --ray auto
    qwen3nb sweep --model "runs/ul2/checkpoint-*" --model bm25 --tier smoke
    qwen3nb sweep sweep.toml --max-length 256 --dry-run
    qwen3nb sweep --model bm25,encoder --tier full --rehearse
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
    as_json = flags["as_json"]
    if flags["dry_run"]:
        _print_plan(jobs, fresh=flags["fresh"], as_json=as_json)
    elif _run(jobs, plan, fresh=flags["fresh"], as_json=as_json):
        sys.exit(1)


def _plan(file: Path | None, flags: dict[str, Any]) -> SweepPlan:
    from qwen3nb.execution.sweep_plan import SweepPlan, read_plan

    lists = {name: flags[name] for name in ("checkpoints", "tiers", "notebooks") if flags[name]}
    if file is None and not lists:
        raise click.UsageError("nothing to run; give a TOML file, --model or --notebook")
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


def _print_plan(jobs: Sequence[Job], *, fresh: bool, as_json: bool) -> None:
    from qwen3nb import paths
    from qwen3nb.execution.parameters import Once

    once = Once()
    runs = []
    for job in jobs:
        try:
            state, reason = "reused" if not fresh and job.finished(once) else "would run", ""
        except (ValueError, OSError) as error:
            state, reason = "would fail", str(error)
        page = paths.page_key(job.resolved(once)[1])
        runs.append({"page": page, "status": state, "reason": reason})
    if as_json:
        print_json({"runs": runs})
        return
    for run in runs:
        reason = f": {run['reason']}" if run["reason"] else ""
        click.echo(f"{run['status']:10} {run['page']}{reason}")


def _run(jobs: Sequence[Job], plan: SweepPlan, *, fresh: bool, as_json: bool) -> list[Outcome]:
    """Run the jobs, build the book from the finished ones, and return the failed ones."""
    from qwen3nb.execution.sweep import sweep

    outcomes = sweep(
        jobs, at_once=plan.at_once, fresh=fresh, ray=plan.ray, gpus_each=plan.gpus_each
    )
    failed = [each for each in outcomes if each.status == "failed"]
    reused = sum(each.status == "reused" for each in outcomes)
    done = len(outcomes) - reused - len(failed)
    summary = f"{len(outcomes)} runs: {done} done, {reused} reused, {len(failed)} failed"
    click.echo(summary, err=as_json)
    book = None
    if plan.book:
        from qwen3nb.book.build import build_book

        book = build_book(tier=(plan.tiers or ("smoke",))[0])
        click.echo(f"Open {book}", err=as_json)
    if as_json:
        runs = [
            {
                "page": each.job.name,
                "status": each.status,
                "seconds": each.seconds,
                "reason": each.reason,
                "log": str(each.log),
                "node": each.node,
            }
            for each in outcomes
        ]
        print_json({"runs": runs, "book": book and str(book)})
    return failed
