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

_SCORES = ("task", "model", "score", "without hits", "to baseline", "to baseline, without hits")


@click.command(cls=Command)
@opt.option(
    "--train",
    multiple=True,
    required=True,
    type=opt.FILE,
    metavar="FILE",
    help="Training file, or a folder of them: JSON Lines, JSON, CSV, TSV, Parquet or text, "
    "also with .gz; repeatable.",
)
@opt.option("--tier", choices=TIERS, default="smoke", help="Tier whose texts are searched for.")
@opt.TASKS
@opt.RESULTS
@opt.MIRROR
@opt.READ_LIMIT
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
    scores and differences follow, on all queries and without those found (hits). Exits with 3 if a
    query was found.

    \b
    qwen3nb contamination --train data/pairs.jsonl --tier smoke
    qwen3nb contamination --train corpus/ --tasks SciFact,NFCorpus --mirror /data/mirror
    """
    from qwen3nb.evaluation.contamination import look_up, task_texts, training_files
    from qwen3nb.evaluation.mteb.select import choose_tasks

    files, chosen = training_files(train), choose_tasks(tier=tier, tasks=tasks)
    found = look_up(files, [texts for task in chosen for texts in task_texts(task)])
    queries = [each for each in found if each.texts == "queries" and each.hits]
    scores = [row for each in queries for row in _scores(each, results)]
    if as_json:
        rows = [dict(zip(_SCORES, row, strict=True)) for row in scores]
        opt.print_json({"texts": list(map(asdict, found)), "scores": rows})
    else:
        _print(found, scores)
    if queries:
        sys.exit(3)


def _scores(found: Contamination, results: Path | None) -> list[tuple[Any, ...]]:
    """Return `_SCORES` of each model; none of a clustering, which is scored in draws of rows."""
    from qwen3nb.analysis.comparison.compare import compare
    from qwen3nb.evaluation.contamination import without
    from qwen3nb.records.store import latest, load_results

    records = (each for each in latest(load_results(results)) if each.task.unit != "draws")
    every = [each for each in records if each.task.key == found.task]
    clean = [without(each, found.hits) for each in every]
    both = compare(every), compare(clean)
    return [
        (
            found.task,
            before.model.label,
            before.main,
            after.main if before.main.columns else None,
            *(each.difference(each.name(before), each.baseline, task=found.task) for each in both),
        )
        for before, after in zip(every, clean, strict=True)
    ]


def _print(found: Sequence[Contamination], scores: Sequence[tuple[Any, ...]]) -> None:
    from qwen3nb.evaluation.contamination import KINDS
    from qwen3nb.report.render.console import print_table
    from qwen3nb.report.render.table import Table, number

    counts = [
        (each.task, each.texts, each.number, f"{each.share:.1%}", *each.found.values())
        for each in found
    ]
    sampled = max(each.sampled for each in found)
    note = f"One of {sampled} sequences of documents was looked up." * (sampled > 1)
    print_table(Table.of(counts, ("task", "texts", "number", "found", *KINDS), note=note))
    for texts in found:
        for each in texts.examples:
            click.echo(f"{each.how} in {each.where}: {texts.task}, {each.id}: {each.text:.60}")
    rows = [
        (
            *row[:3],
            row[3] or "no scores per query",
            *(d and number(d.difference, "+.3f", interval=d.interval) for d in row[4:]),
        )
        for row in scores
    ]
    if rows:
        print_table(Table.of(rows, _SCORES))
