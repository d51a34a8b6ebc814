"""Commands for tasks: list, fetch, reproduce published scores, look for texts in training data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.tiers import TIERS

if TYPE_CHECKING:
    from qwen3nb.answers.contamination import ContaminationAnswer
    from qwen3nb.datasets.mirror import Need
    from qwen3nb.evaluation.mteb.costs import Planned
    from qwen3nb.evaluation.studies.reproduce import Reproduction


@click.command(cls=Command)
@opt.option("--tier", choices=TIERS, help="Fetch everything a tier needs.")
@opt.TASKS
@opt.model_option("models", repeatable=True, help="A registry name or hub id; repeatable.")
@opt.flag("--list", "only_list", help="List what is needed and fetch nothing.")
@opt.option(
    "--out",
    "--mirror",
    "mirror",
    type=opt.FOLDER,
    envvar="QWEN3NB_MIRROR",
    help="Folder to fetch into: the --mirror of other commands.",
)
@opt.flag("--by-size", help="Compare small files by size: for hubs without git's digests.")
@opt.JSON
def fetch(
    tier: str | None,
    tasks: str,
    models: Sequence[str],
    only_list: bool,
    mirror: Path | None,
    by_size: bool,
    as_json: bool,
) -> None:
    """Download data sets and models into a mirror, on a machine with a network.

    \b
    qwen3nb fetch --tier fast --list
    qwen3nb fetch --tier fast --model e5-base-v2,gte-base --mirror /data/mirror

    Finished downloads are kept, interrupted ones are resumed.
    """
    if not (tier or tasks or models):
        raise click.UsageError("nothing to fetch; give --tier, --tasks or --model")
    if mirror is None and not only_list:
        raise click.UsageError("no folder to fetch into; give --mirror DIR, or --list")
    from qwen3nb.datasets.mirror import fetch_all, needs
    from qwen3nb.evaluation.mteb.select import choose_tasks, tier_tasks
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.utils.progress import tqdm

    tasks_needed = []
    if tier:
        tasks_needed += tier_tasks(tier)
    if tasks:
        tasks_needed += choose_tasks(tasks=tasks)
    required = needs(tasks_needed, [find_source(model) for model in models])
    if only_list or mirror is None:
        _list_needs(required, as_json=as_json)
        return
    with tqdm(total=len(required), unit="id", desc="arrived") as bar:
        say = partial(tqdm.write, file=sys.stderr)
        # The reason of each failure, by what could not be fetched.
        failures = fetch_all(required, mirror, by_size=by_size, say=say, arrived=bar.update)
    _print_failures(failures)
    summary = f"{len(required) - len(failures)} of {len(required)} in {mirror}"
    opt.answer({"needed": required, "failures": failures}, summary, as_json=as_json)
    if failures:
        sys.exit(1)


def _print_failures(failures: Mapping[str, str]) -> None:
    """Print why something could not be fetched, and what was then not tried."""
    for reason in failures.values():
        if reason:
            click.echo(reason, err=True)
    untried = [name for name, reason in failures.items() if not reason]
    if untried:
        click.echo(f"not tried, for the same reason: {', '.join(untried)}", err=True)


def _list_needs(required: Sequence[Need], *, as_json: bool) -> None:
    """Print what is needed, and its sizes on the hub."""
    from qwen3nb.datasets.mirror import sizes

    rows = []
    printed_rows = []
    for need, size in sizes(required, say=lambda text: click.echo(text, err=True)):
        rows.append({**vars(need), "size": size})
        printed_rows.append(
            {
                "kind": need.kind,
                "id": need.id,
                "revision": (need.revision or "main")[:12],
                "size": size,
                "for": ", ".join(need.used_by[:3]),
            }
        )
    if as_json:
        opt.print_json(rows)
    else:
        opt.print_table(printed_rows)


@click.command(cls=Command, writes=True)
@opt.model_option("models", repeatable=True, help="Only this model; repeatable.")
@opt.TASKS
@opt.option("--measured", is_flag=True, help="Run nothing: compare the study's own records.")
@opt.MIRROR
def reproduce(models: Sequence[str], tasks: str, measured: bool) -> None:
    """Compare our scores with published ones, where the data are available.

    \b
    qwen3nb reproduce --model all-MiniLM-L6-v2 --mirror /data/mirror
    qwen3nb reproduce --measured

    OK: within the score's tolerance; OKish: within five times the tolerance. Exits with 1 on a
    FAIL, or if no score could be judged; single scores that could not be computed, and those on a
    mirror's substitutes for MTEB's data, are listed and do not count. Missing data are listed
    first, with the command that fetches them.

    First come the study's own records on which MTEB has published a score: of the same revision of
    model and data. Scores published with other prompts are listed, and do not count.
    """
    from qwen3nb.answers.reproduction import measured_reproductions, without_those_to_run
    from qwen3nb.datasets.mirror import missing_error
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.evaluation.studies.reproduce import published_scores, unavailable
    from qwen3nb.evaluation.studies.reproduce import reproduce as reproduce_scores
    from qwen3nb.records.store import load_results

    opt.hide_library_bars()
    names = ",".join(models)
    reproduced = measured_reproductions(load_results(), models=names, tasks=tasks)
    if measured:
        _print_measured(reproduced)
        return
    published = published_scores(models=names, tasks=tasks)
    reproduced = without_those_to_run(reproduced, published)
    missing_data = unavailable(published)
    for score in reproduced:
        opt.print_text(_reproduced_line(score))
    for score in reproduce_scores(published, absent=missing_data):
        reproduced.append(score)
        opt.print_text(_reproduced_line(score))
    if missing_data:
        click.echo(str(missing_error(missing_data)), err=True)
    if all(score.value is None for score in reproduced):
        raise EvaluationError(f"none of {len(reproduced)} published scores could be computed here")
    if not any(score.is_judged for score in reproduced):
        raise EvaluationError(
            f"none of {len(reproduced)} published scores is judged: the mirror has substitutes for "
            "MTEB's data; `qwen3nb fetch` gets the data themselves"
        )
    if any(score.verdict == "FAIL" for score in reproduced):
        sys.exit(1)


def _print_measured(reproduced: Sequence[Reproduction]) -> None:
    """Print what was measured here and published elsewhere; exit with 1 on a FAIL."""
    from qwen3nb.evaluation.run import EvaluationError

    if not reproduced:
        raise EvaluationError(
            "no record here has the model, the task and the revisions of a published score; "
            "evaluate one, such as `qwen3nb eval --model e5-base-v2 --tier fast`"
        )
    for score in reproduced:
        opt.print_text(_reproduced_line(score))
    if any(score.verdict == "FAIL" for score in reproduced):
        sys.exit(1)


def _reproduced_line(score: Reproduction) -> str:
    """Return a published score and ours, or why there is none, with the verdict."""
    published = score.published
    our_score = score.reason
    if score.value is not None:
        our_score = f"{score.value:.4f} {score.reason}".strip()
    return (
        f"{score.verdict:10} {published.model:20} {published.task:24} "
        f"published {published.value:.4f} ± {published.tolerance:g} ({published.source})  "
        f"ours {our_score}"
    )


@click.command("tasks", cls=Command)
@opt.option("--tier", choices=TIERS)
@opt.option("--types", default="", help="MTEB task types, such as STS, separated by commas.")
@opt.option("--languages", default="", help="Language codes, such as eng, separated by commas.")
@opt.option("--benchmark", help="An MTEB benchmark, such as MTEB(eng, v2).")
@opt.model_option(help="Estimate the encoding time of this model.")
@opt.JSON
def list_tasks(
    tier: str | None,
    types: str,
    languages: str,
    benchmark: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """List tasks with type, revision, distinct texts, and the minutes to encode them.

    \b
    qwen3nb tasks --tier fast --model all-MiniLM-L6-v2
    qwen3nb tasks --types STS --languages eng
    qwen3nb tasks --benchmark "MTEB(eng, v2)"
    """
    from qwen3nb.evaluation.mteb.costs import costs
    from qwen3nb.evaluation.mteb.select import choose_tasks
    from qwen3nb.evaluation.mteb.speed import measure_speeds

    tasks = choose_tasks(
        tier=tier or "", types=types, languages=languages, benchmark=benchmark or ""
    )
    speeds = []
    if model is not None:
        from qwen3nb.models.load import load_model

        opt.hide_library_bars()
        speeds = measure_speeds(load_model(model, show_progress=False))
    estimates = costs(tasks, speeds=speeds)
    if as_json:
        opt.print_json(estimates)
        return
    opt.print_table([_estimate_row(estimate) for estimate in estimates])
    total = f"{len(estimates)} tasks"
    if model:
        minutes = sum(estimate.minutes or 0 for estimate in estimates)
        total += f", about {minutes:,.0f} minutes here"
    click.echo(total, err=True)


def _estimate_row(estimate: Planned) -> dict[str, str]:
    """Return a task with its type, revision and texts, and the minutes to encode them."""
    texts = "unknown"
    if estimate.texts is not None:
        texts = f"{estimate.texts:,}"
    row = {
        "task": estimate.task,
        "type": estimate.type,
        "revision": estimate.revision,
        "texts": texts,
    }
    if estimate.minutes is not None:
        row["minutes"] = f"{estimate.minutes:,.1f}"
    return row


@click.command(cls=Command)
@opt.option(
    "--train",
    multiple=True,
    required=True,
    type=opt.FILE,
    metavar="FILE",
    help="Training file, or a folder of them; repeatable.",
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
    qwen3nb contamination --train data/pairs.jsonl --tier smoke
    qwen3nb contamination --train corpus/ --tasks SciFact,NFCorpus \\
        --mirror /data/mirror

    \b
    exact       a training text has exactly these words
    contained   a training text has a query of 3 to 12 words, in a row
    13-gram     a training text has 13 words of it in a row

    Training files are JSON Lines, JSON, CSV, TSV, Parquet, Arrow, text, tar or zip, also
    compressed. A file that cannot be read is an error: nothing is said of data not read. Words are
    compared in lower case, without punctuation. With records in results/, the models' scores and
    differences follow, on all queries and without those found (hits). Exits with 3 if a query was
    found.
    """
    from qwen3nb.answers.contamination import contamination as look_for_texts
    from qwen3nb.records.store import load_results

    answer = look_for_texts(train, tier=tier, tasks=tasks)
    if answer.contaminated:
        answer = answer.scored(load_results(results))
    if as_json:
        click.echo(answer.to_json())
    else:
        _print_contamination(answer)
    if answer.contaminated:
        sys.exit(3)  # 1 is an error


def _print_contamination(answer: ContaminationAnswer) -> None:
    opt.print_table(answer.table())
    for texts in answer.texts:
        for match in texts.examples:
            text = f"{match.text:.60}"
            click.echo(f"{match.how} in {match.where}: {texts.task}, {match.id}: {text}")
    if answer.scores:
        opt.print_table(answer.scores_table())
