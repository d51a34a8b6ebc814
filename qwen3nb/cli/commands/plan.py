"""Command that plans a comparison before it is measured."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.tiers import TIERS

TOO_FEW = 3  # exit code if a task has fewer queries than the difference needs

_DEVIATION = click.FloatRange(min=0)
_MARGIN = click.FloatRange(0, 1, min_open=True)
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(cls=Command, writes=True)
@opt.model_option("models", several=True, required=True, help="Label to compare; repeatable.")
@opt.option("--baseline", required=True, help="Label that the models are compared with.")
@opt.option("--margin", type=_MARGIN, required=True, help="Smallest difference worth having.")
@opt.option("--tier", choices=TIERS, default="smoke", help="The tier to measure on.")
@opt.TASKS
@opt.option("--metric", default="", help="By default, the main metric of each task.")
@opt.option("--alpha", type=_SHARE, default=0.05, help="Family-wise error rate on a task.")
@opt.option("--power", type=_SHARE, default=0.8, help="Probability to show the margin.")
@opt.option(
    "--deviation",
    type=_DEVIATION,
    default=0.0,
    show_default="of earlier records",
    help="Standard deviation of the difference between queries.",
)
@opt.option("--seeds", least=1, default=1)
@opt.option("--seed-deviation", type=_DEVIATION, default=0.0, help="The same between seeds.")
@opt.option("--prompts", least=1, default=1)
@opt.option("--prompt-deviation", type=_DEVIATION, default=0.0, help="The same between prompts.")
@opt.RESULTS
@opt.out_option(help="File of the plan.  [default: plan.toml of the study]")
@opt.JSON
def plan(
    tier: str,
    tasks: str,
    results: Path | None,
    out: Path | None,
    as_json: bool,
    **fields: Any,  # as fields of a plan
) -> None:
    """Say how many queries show a difference worth having, and write the plan.

    The spread of the difference is that of earlier records of these models, or of others on the
    same task, unless it is stated. Comparisons in the study then say what they do otherwise than
    planned. Exits with 3 if a task has fewer queries than the difference needs.

    \b
    qwen3nb plan --model encoder --baseline bm25 --margin 0.02 --tier smoke
    qwen3nb plan --model a,b --baseline bm25 --margin 0.02 --seeds 5 --seed-deviation 0.01
    """
    from qwen3nb.analysis.comparison.plan import Plan, make_plan, plan_file, write_plan
    from qwen3nb.evaluation.mteb.select import split_names
    from qwen3nb.records.store import load_results
    from qwen3nb.report.render.console import print_table
    from qwen3nb.report.render.table import Table

    wanted = Plan(tasks=tuple(split_names(tasks)) or TIERS[tier].task_keys, **fields)
    made, planned = make_plan(load_results(results), wanted)
    file = write_plan(made, out or plan_file())
    if as_json:
        opt.print_json({"file": str(file), "plan": asdict(made), "tasks": planned})
    else:
        rows = [
            {
                "task": each.task,
                "deviation": each.deviation or "not known: give --deviation",
                "queries there": each.there or None,
                f"needed for {made.margin:g}": each.needed
                or (each.needed_seeds and f"give --seeds {each.needed_seeds} or more"),
                "shown by those there": each.detectable,
            }
            for each in planned
        ]
        note = (
            f"Pairs on a task: {made.family}, tested together at {made.alpha:g}; "
            f"power {made.power:g}; seeds: {made.seeds}; prompts: {made.prompts}. "
            f"The plan is in {file}"
        )
        print_table(Table.of(rows, note=note))
    if not all(each.enough for each in planned):
        sys.exit(TOO_FEW)
