"""Commands for tasks: list, fetch, reproduce published scores, look for texts in training data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
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
@opt.option("--tier", choices=TIERS, help="Fetch everything a tier needs.")
@opt.TASKS
@opt.model_option("models", several=True, help="A registry name or hub id; repeatable.")
@opt.flag("--list", "only_list", help="List what is needed and fetch nothing.")
@opt.option(
    "--out",
    "--mirror",
    "mirror",
    type=opt.FOLDER,
    envvar="QWEN3NB_MIRROR",
    help="Folder to fetch into: the --mirror of other commands.",
)
@opt.JSON
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
    from qwen3nb.datasets.mirror import fetch_all, needs, sizes
    from qwen3nb.evaluation.mteb.select import choose_tasks, tier_tasks
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.utils.progress import tqdm

    named = choose_tasks(tasks=tasks) if tasks else []
    required = needs([*(tier_tasks(tier) if tier else []), *named], map(find_source, models))
    if only_list or mirror is None:
        sized = sizes(required, say=lambda text: click.echo(text, err=True))
        lines = (
            f"{need.kind:8} {need.id:45} {(need.revision or 'main')[:12]:13} {size:>10}  "
            f"{', '.join(need.used_by[:3])}"
            for need, size in sized
        )
        opt.answer([{**vars(n), "size": size} for n, size in sized], *lines, as_json=as_json)
        return
    with tqdm(total=len(required), unit="id", desc="arrived") as bar:
        say = partial(tqdm.write, file=sys.stderr)
        failures = fetch_all(required, mirror, say=say, arrived=bar.update)
    for reason in filter(None, failures.values()):
        click.echo(reason, err=True)
    if untried := [id_ for id_, reason in failures.items() if not reason]:
        click.echo(f"not tried, for the same reason: {', '.join(untried)}", err=True)
    done = f"{len(required) - len(failures)} of {len(required)} in {mirror}"
    opt.answer({"needed": required, "failures": failures}, done, as_json=as_json)
    if failures:
        sys.exit(1)


@click.command(cls=Command, writes=True)
@opt.model_option("models", several=True, help="Only this model; repeatable.")
@opt.TASKS
@opt.MIRROR
def reproduce(models: Sequence[str], tasks: str) -> None:
    """Compare our scores with published ones, where the data are available.

    OK: within the score's tolerance; OKish: within five times the tolerance. Exits with 1 on a
    FAIL, or if no score could be judged; single scores that could not be computed, and those on a
    mirror's substitutes for MTEB's data, are listed and do not count. Missing data are listed
    first, with the command that fetches them.

    \b
    qwen3nb reproduce --model all-MiniLM-L6-v2 --mirror /data/mirror
    """
    from qwen3nb.datasets.mirror import missing_error
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.evaluation.studies.reproduce import published_scores, unavailable
    from qwen3nb.evaluation.studies.reproduce import reproduce as run

    opt.hide_library_bars()
    scores = published_scores(models=",".join(models), tasks=tasks)
    absent = unavailable(scores)
    reproduced = []
    for done in run(scores, absent=absent):
        reproduced.append(done)
        each = done.published
        ours = "" if done.value is None else f"{done.value:.4f} {done.reason}".strip()
        click.echo(
            f"{done.verdict:10} {each.model:20} {each.task:24} published {each.value:.4f} "
            f"± {each.tolerance:g} ({each.source})  ours {ours or done.reason}"
        )
    if absent:
        click.echo(str(missing_error(absent)), err=True)
    if all(done.value is None for done in reproduced):
        raise EvaluationError(f"none of {len(reproduced)} published scores could be computed here")
    if not any(done.is_judged for done in reproduced):
        raise EvaluationError(
            f"none of {len(reproduced)} published scores is judged: the mirror has substitutes for "
            "MTEB's data; `qwen3nb fetch` gets the data themselves"
        )
    sys.exit(int(any(done.verdict == "FAIL" for done in reproduced)))


@click.command("tasks", cls=Command)
@opt.option("--tier", choices=TIERS)
@opt.option("--types", default="", help="MTEB task types, such as STS, separated by commas.")
@opt.option("--languages", default="", help="Language codes, such as eng, separated by commas.")
@opt.option("--benchmark", help="An MTEB benchmark, such as MTEB(eng, v2).")
@opt.model_option("cost", help="Estimate the encoding time of this model.")
@opt.JSON
def list_tasks(cost: str | None, as_json: bool, **which: str | None) -> None:
    """List tasks with type, revision, distinct texts, and the minutes to encode them.

    \b
    qwen3nb tasks --tier fast --model all-MiniLM-L6-v2
    qwen3nb tasks --types STS --languages eng
    qwen3nb tasks --benchmark "MTEB(eng, v2)"
    """
    from qwen3nb.evaluation.mteb.plan import costs, measure_speeds
    from qwen3nb.evaluation.mteb.select import choose_tasks

    tasks = choose_tasks(**{name: value or "" for name, value in which.items()})
    speeds = []
    if cost is not None:
        from qwen3nb.models.load import load_model

        opt.hide_library_bars()
        speeds = measure_speeds(load_model(cost, show_progress=False))
    estimates = costs(tasks, speeds=speeds)
    if as_json:
        opt.print_json(estimates)
        return
    for each in estimates:
        texts = "unknown" if each.texts is None else f"{each.texts:,} texts"
        minutes = "" if each.minutes is None else f"{each.minutes:>11,.1f} min"
        click.echo(f"{each.task:45} {each.type:20} {each.revision:13} {texts:>18}{minutes}")
    total = sum(each.minutes or 0 for each in estimates)
    about = f", about {total:,.0f} minutes here" if cost else ""
    click.echo(f"{len(estimates)} tasks{about}", err=True)


@click.command(cls=Command)
@opt.option(
    "--train",
    multiple=True,
    required=True,
    type=opt.FILE,
    metavar="FILE",
    help="Training file, or a folder of them: JSON Lines, JSON, CSV, TSV, Parquet, Arrow, text, "
    "tar or zip, also compressed; repeatable.",
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
    query was found. A file that cannot be read is an error: nothing is said of data not read.

    \b
    qwen3nb contamination --train data/pairs.jsonl --tier smoke
    qwen3nb contamination --train corpus/ --tasks SciFact,NFCorpus --mirror /data/mirror
    """
    from qwen3nb.datasets.training_data import find_training_data
    from qwen3nb.evaluation.contamination import look_up, task_texts
    from qwen3nb.evaluation.mteb.select import choose_tasks

    training = find_training_data(train)
    chosen = choose_tasks(tier=tier, tasks=tasks)
    found = look_up(training, [texts for task in chosen for texts in task_texts(task)])
    queries = [each for each in found if each.texts == "queries" and each.hits]
    scores = [row for each in queries for row in _scores(each, results)]
    if as_json:
        rows = [dict(zip(_SCORES, row, strict=True)) for row in scores]
        read = {
            "files": len(training.sources),
            "rows": training.rows,
            "texts": training.texts,
            "about": [str(file) for file in training.about],
            "without_text": dict(training.without_text),
        }
        opt.print_json({"training": read, "texts": list(map(asdict, found)), "scores": rows})
    else:
        _print(found, scores, training.summary())
    if queries:
        sys.exit(3)


def _scores(found: Contamination, results: Path | None) -> list[tuple[Any, ...]]:
    """Return `_SCORES` of each model; none of a clustering, which is scored in draws of rows."""
    from qwen3nb.answers.comparison import compare
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


def _print(
    found: Sequence[Contamination], scores: Sequence[tuple[Any, ...]], training: str
) -> None:
    from qwen3nb.evaluation.contamination import KINDS
    from qwen3nb.report.render.table import number

    counts = [
        (each.task, each.texts, each.number, f"{each.share:.1%}", *each.found.values())
        for each in found
    ]
    sampled = max(each.sampled for each in found)
    notes = [training]
    if sampled > 1:
        notes.append(f"One of {sampled} sequences of documents was looked up.")
    wordless = sum(each.wordless for each in found)
    if wordless:
        notes.append(f"{wordless:,} texts without a word cannot be found.")
    note = " ".join(notes)
    opt.print_table(counts, "task", "texts", "number", "found", *KINDS, note=note)
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
        opt.print_table(rows, *_SCORES)
