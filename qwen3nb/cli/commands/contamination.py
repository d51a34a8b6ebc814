"""The command `qwen3nb contamination`: find the texts of tasks in training data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.tiers import TIERS

if TYPE_CHECKING:
    from qwen3nb.evaluation.contamination import Contamination

FOUND = 3  # exit code if a query was found
_VALUES = ("score", "without found queries", "to baseline", "to baseline, without found queries")


@click.command(cls=Command)
@opt.option(
    "--train",
    multiple=True,
    required=True,
    type=opt.FILE,
    metavar="FILE",
    help="Training file, or a folder of them: JSON Lines, JSON, CSV, Parquet, Arrow or text, "
    "also with .gz; repeatable.",
)
@opt.option("--tier", choices=TIERS, default="smoke", help="Tier whose texts are searched for.")
@opt.TASKS
@opt.RESULTS
@opt.MIRROR
@opt.JSON
def contamination(
    train: Sequence[Path], tier: str, tasks: str, results: Path | None, as_json: bool
) -> None:
    """Look for the queries and documents of tasks in training data.

    \b
    exact       a training text (a line, a string of a row) has exactly these words
    contained   a training text has all words of a query of 3 to 12 words, in a row
    13-gram     a training text has 13 words of it in a row

    Words are compared in lower case, without punctuation. With records in results/, the models'
    scores and differences follow, on all queries and without those found. Exits with 3 if a query
    was found.

    \b
    qwen3nb contamination --train data/pairs.jsonl --tier smoke
    qwen3nb contamination --train corpus/ --tasks SciFact,NFCorpus --mirror /data/mirror
    """
    from qwen3nb.evaluation.contamination import look_up, task_source, training_files
    from qwen3nb.evaluation.mteb.select import choose_tasks

    files = training_files(train)
    found = look_up(files, list(map(task_source, choose_tasks(tier=tier, tasks=tasks))))
    rows = [row for each in found if each.hits for row in _scores(each, results)]
    if as_json:
        opt.print_json(
            {
                "tasks": [asdict(each) | {"hits": sorted(each.hits)} for each in found],
                "scores": [
                    {"task": task, "model": model} | dict(zip(_VALUES, values, strict=True))
                    for (model, task), *values in rows
                ],
            }
        )
    else:
        from qwen3nb.report.render.console import print_table
        from qwen3nb.report.render.table import Table

        click.echo("\n".join(map(str, found)))
        if rows:
            shown = [
                (*row[:3], *(each and (each.difference, str(each)) for each in row[3:]))
                for row in rows
            ]
            print_table(Table.of(shown, ("model\ntask", *_VALUES)))
    if any(each.hits for each in found):
        sys.exit(FOUND)


def _scores(found: Contamination, folder: Path | None) -> list[tuple[Any, ...]]:
    """Return each model's score on a task and its difference from the baseline, as in `_VALUES`."""
    from qwen3nb.analysis.comparison.compare import compare
    from qwen3nb.evaluation.contamination import without
    from qwen3nb.records.store import latest, load_results

    records = [each for each in latest(load_results(folder)) if each.task.key == found.task]
    clean = without(records, [found])
    both = [compare(each) if len(records) > 1 else None for each in (records, clean)]
    return [
        (
            (before.model.label, found.task),
            before.main,
            after.main,
            *(
                each and each.difference(each.name(before), each.baseline, task=found.task)
                for each in both
            ),
        )
        for before, after in zip(records, clean, strict=True)
    ]
