"""Commands that read records: list, verify, plan, compare, and measure interference."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command, readable_records
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.secrets import write_public
from qwen3nb.utils.terminal import say, visible

if TYPE_CHECKING:
    from qwen3nb.answers.candidates import Candidates
    from qwen3nb.answers.interference import Interference
    from qwen3nb.answers.seeds import SeedComparison

REGRESSION = 3  # exit code of a gate that fails; 1 and 2 are errors and wrong usage
BROKEN_PROMISE = 4  # exit code if seeds that a plan promises have no record
TOO_FEW = 3  # exit code if a task has fewer queries than the difference needs
_DEVIATION = click.FloatRange(min=0)
_MARGIN = click.FloatRange(0, 1, min_open=True)
_TESTS = opt.options(
    opt.RESAMPLES,
    opt.seed_option("Seed of the permutation draws."),
)

# What is exchanged and scored with `analyze --by`; by the names in `ExchangeSettings`.
_EXCHANGES = opt.options(
    opt.option("--specialist", type=opt.FILE, help="Adapter to compare OUTPUTS, an adapter, with."),
    opt.option("--kind", choices=["embedding", "reranking"], help="Task.  [default: both]"),
    opt.option("--tier", choices=TIERS, default="smoke", help="Score on this tier's searches."),
    opt.TASKS,
    opt.option("--data", type=opt.FILE, multiple=True, help="Own collection; repeatable."),
    opt.LIMIT,
    opt.option("--depth", minimum=1, default=20, help="Candidates per query, of reranking."),
    opt.BASE,
    opt.DEVICE,
    opt.DTYPE,
    opt.BATCH_SIZE,
)


@click.command(cls=Command, study=paths.results, unless=["results"])
@opt.option(
    "--out",
    "--to",
    "to",
    type=opt.FILE,
    help="Write the score of every query to this .parquet or .csv file.",
)
@opt.labels_option("Label or identity")
@opt.option("--task", "tasks", multiple=True, help="Name; repeatable.")
@opt.option("--tier", choices=TIERS, help="Only tasks and runs of this tier.")
@opt.RESULTS
@opt.JSON
def results(
    to: Path | None,
    results: Path | None,
    models: Sequence[str],
    tasks: Sequence[str],
    tier: str | None,
    as_json: bool,
) -> None:
    """List the records with their main scores, or write the score of every query to a file.

    \b
    qwen3nb results --tier smoke
    qwen3nb results --to scores.parquet

    The file has a row per model, task, split, subset, query and metric. Any program that reads
    Parquet or CSV can continue from there.
    """
    records = readable_records(results).filter(model=models or None, task=tasks or None, tier=tier)
    if to is not None:
        click.echo(f"{records.write_scores(to)}: scores of {len(records)} records")
    elif as_json:
        # By way of pandas' own JSON, which has null for NaN.
        opt.print_json(json.loads(records.to_frame().to_json(orient="records")))
    else:
        from qwen3nb.answers.board.record_list import record_list

        opt.print_table(record_list(records))


@click.command(cls=Command, study=paths.results, unless=["files"])
@click.argument("files", nargs=-1, type=opt.FILE)
@opt.flag("--checksums", help="Only compare checksums.")
@opt.flag("--fresh", help="Verify records again that were consistent and have not changed since.")
@opt.option("--signed", type=opt.FILE, help="Public key that has to have signed the releases.")
@opt.JSON
def verify(
    files: tuple[Path, ...], checksums: bool, fresh: bool, signed: Path | None, as_json: bool
) -> None:
    """Check that the numbers of records follow from their own scores, and report those that do not.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json

    FILES are records, folders of records or releases; by default all in results/, also records of
    sets of prompts, and all releases, whose files are compared with their lists. A record is
    compared with its checksum and with the list of all records ever written (checksums.jsonl); its
    aggregates and intervals with the scores of its queries; these with run and qrels if they were
    kept (--runs); main score and data with MTEB's own result; and all_results.json with the
    records. The next time, only records whose files have changed since, by their times and sizes,
    are verified.

    A change is named even if its checksums were recomputed, if the cache knows what was there: by
    an evaluation, a freeze or an earlier `verify`. Eight kinds of changes need a key: (1) a record
    rewritten as of another run or time, or put back to an earlier one, (2) a record or a result of
    MTEB invented, (3) a record or release removed with its lines in the list, or these in another
    order, (4) MTEB's result replaced as by a later evaluation, (5) all_results.json removed, or in
    it the time, reasons of failures, the order, or an option that no record has, (6) a release
    frozen again under its name, (7) what the cache knows, (8) where it knows no such record,
    queries left out of all that repeats them, or some 50 fields that nothing repeats: sizes,
    clusters, categories, texts, prompts, options, versions, device, cost, names of run, qrels and
    MTEB's result. Scores that were wrong from the start are not detected.

    With --signed KEY.pub, or a file of allowed signers, releases have to be signed by that key
    (`qwen3nb freeze --sign`), and results/ has to be that of the newest one. This shows all eight.
    It prints the newest release's name and time: compare them with what you published, as no key
    shows that a newer one is gone.
    """
    from qwen3nb.records.releases import (
        all_releases,
        changes_since_signed,
        is_release,
        newest_release,
        problems_of_list,
        records_folder,
        release_problems,
        signed_problems,
        when_frozen,
    )
    from qwen3nb.records.store import check_files, record_folders, result_files
    from qwen3nb.records.verification import folder_problems
    from qwen3nb.utils.progress import tqdm

    releases = [path for path in files if is_release(path)]
    other_files = [path for path in files if path not in releases]
    if signed is not None:
        _check_whole_study(other_files)
    compares_with_signed = signed is not None and (not files or bool(other_files))
    places: list[Path | None] = [*other_files]
    if not files:
        places = [None]  # the study's
    folders: list[Path | None] = []
    for place in places:
        folders.append(place)
        if place is None or place.is_dir():
            _, *folders_of_prompts = record_folders(place)
            folders += folders_of_prompts
    releases_of_study = []
    if not files or compares_with_signed:
        releases_of_study = all_releases()
    verified_anyway = {release.resolve() for release in releases_of_study}
    releases = [release for release in releases if release.resolve() not in verified_anyway]
    releases += releases_of_study
    problems: dict[Path, Sequence[str]] = {}
    for release in releases:
        problems_of_release = release_problems(release)
        if signed is not None:
            problems_of_release += signed_problems(release, signed)
        if problems_of_release:
            problems[release] = problems_of_release
        for folder in record_folders(records_folder(release)):
            if result_files(folder):
                folders.append(folder)
    records = []
    for path in folders:
        records += _records_at(path)
    verified = 0
    bar = tqdm(total=len(records), desc="verify", unit="record", leave=False, disable=None)
    with bar, closing(check_files(records, checksums_only=checksums, fresh=fresh)) as checks:
        for file, messages in checks:
            bar.update()
            verified += 1
            if messages:
                problems[file] = messages
    if not files or compares_with_signed:
        problems |= problems_of_list()
    signed_text = ""
    if compares_with_signed:
        valid_releases = [release for release in releases_of_study if release not in problems]
        if valid_releases:
            newest = newest_release(valid_releases)
            problems |= changes_since_signed(newest)
            signed_text = f"signed as {newest.name}, frozen {when_frozen(newest)}"
        else:
            problems[paths.releases()] = [f"no release is signed by {signed}"]
    for path in folders:
        checked_folder = path or paths.results()
        if checked_folder.is_dir():
            problems |= folder_problems(checked_folder)
    if as_json:
        _print_problems_as_json(problems, records=len(records))
    else:
        _print_problems(problems)
        consistent = len([file for file in records if file not in problems])
        click.echo(_verified_text(consistent, of=len(records), unchanged=len(records) - verified))
        if signed_text and not problems:
            click.echo(signed_text)
    if problems:
        sys.exit(1)


def _print_problems_as_json(problems: Mapping[Path, Sequence[str]], *, records: int) -> None:
    messages_by_file = {str(file): list(messages) for file, messages in problems.items()}
    opt.print_json({"records": records, "problems": messages_by_file})


def _print_problems(problems: Mapping[Path, Sequence[str]]) -> None:
    """Print a line per problem; a name with a line break cannot look like another line."""
    for file, messages in problems.items():
        for message in messages:
            line = visible(f"{file}: {message}")
            click.echo(line.replace("\n", "\\n").replace("\t", "\\t"), err=True)


def _verified_text(consistent: int, *, of: int, unchanged: int) -> str:
    """Say how many records are consistent, and how many of them were not verified again."""
    if not of:
        return "no records yet; `qwen3nb eval` writes some"
    text = f"{consistent} of {of} records are consistent"
    if unchanged:
        text += f"; {unchanged} were before and have not changed since"
        text += " (--fresh verifies them again)"
    return text


def _check_whole_study(given: Iterable[Path]) -> None:
    """Raise UsageError if one of these, which are no releases, is not the study's results."""
    for path in given:
        if not path.exists():
            raise click.UsageError(f"{path}: no such file or folder")
        is_in_study = paths.find_root() is not None
        if not is_in_study or path.resolve() != paths.results().resolve():
            raise click.UsageError(
                f"--signed is for a whole study or for releases, and {path} is neither: "
                "`qwen3nb verify --signed KEY.pub` compares results/ with the newest release"
            )


def _records_at(path: Path | None) -> list[Path]:
    """Return the record, or those in a folder, which has some; None for the study's, if any."""
    from qwen3nb.records.store import result_files
    from qwen3nb.records.verification import removed_records

    if path is None:  # of the study, which may have none yet
        return [*result_files(), *removed_records(paths.results())]
    if not path.exists():
        raise click.UsageError(f"{path}: no such file or folder")
    if path.is_file() and path.name.endswith(_archive_endings()):
        raise click.UsageError(f"{path} is an archive: unpack it, then verify its folder")
    if not path.is_dir():
        return [path]
    records = [*result_files(path), *removed_records(path)]
    if not records:
        raise click.UsageError(
            f"{path} contains no records; expected a folder such as results/ with "
            "MODEL/seed_N/TASK.json in it"
        )
    return records


def _archive_endings() -> tuple[str, ...]:
    """Return how the names of archives end, such as .zip and .tar.gz."""
    endings: list[str] = []
    for _, endings_of_format, _ in shutil.get_unpack_formats():
        endings += endings_of_format
    return tuple(endings)


@click.command(cls=Command, study=paths.results, unless=["results"])
@opt.option("--baseline", "current", required=True, help="Label or name of the model in use.")
@opt.option("--task", default="", help="A task or its data set.  [default: your own data]")
@opt.labels_option("Label of a candidate")
@opt.RESULTS
@opt.RULE
@opt.option("--most", minimum=0, default=5, help="Queries listed per model.")
@opt.out_option("out", multiple=True, help="Report to write, .md or .json; repeatable.")
@opt.JSON
@opt.flag("--gate", help=f"Exit with {REGRESSION} on a regression.")
@opt.flag("--seeds", "by_seeds", help="Models are trainings, each of several seeds.")
@opt.option(
    "--prompts",
    "prompts_as",
    choices=["own", "fixed", "sample"],
    default="own",
    help="With --seeds: the models' own, or a set.",
)
@opt.flag("--paired", help="With --seeds: one seed moves both alike.")
@_TESTS
def compare(
    current: str,
    task: str,
    models: Sequence[str],
    results: Path | None,
    tested: Sequence[str],
    alpha: float,
    margin: float,
    most: int,
    out: tuple[Path, ...],
    as_json: bool,
    gate: bool,
    by_seeds: bool,
    prompts_as: str,
    paired: bool,
    n_resamples: int,
    seed: int,
) -> None:
    """Compare candidates with the model in use, on your own data.

    \b
    qwen3nb compare --baseline all-MiniLM-L6-v2
    qwen3nb compare --baseline encoder --model encoder-new --task stars \\
        --out report.md
    qwen3nb compare --baseline encoder --margin 0.02 --out report.json --gate
    qwen3nb compare --baseline encoder --json
    qwen3nb compare --seeds --baseline emb_only_r8 --model joint_r8

    Reads the records of `qwen3nb domain`, or of any --task with these metrics per query. A
    candidate is better or worse by the first metric, by default the task's main one, if its p-value
    is below alpha and the interval excludes 0. P-values are corrected over all pairs of the models
    compared; with --model, only those named. If the difference also exceeds the margin, the
    candidate is recommended or fails the gate; so does a newest run that is worse than the one
    before.

    With --seeds, a model is a training: a name without its seed, a pattern such as "enc-?", or
    labels joined by "+". The claim is for new seeds and new queries, on every task that both have.
    With one seed each, it is about these two models. Where a plan promises seeds that have no
    record, there is no verdict.
    """
    from qwen3nb.answers.candidates import compare_candidates

    for file in out:
        if file.suffix not in (".md", ".json"):
            raise click.UsageError(f"expected a file that ends in .md or .json; got {file}")
    if by_seeds:
        compared = readable_records(results).over_seeds(
            *models,
            baseline=current,
            tasks=split_names(task),
            metric=_single_metric(tested),
            prompts=prompts_as,
            paired=paired,
            alpha=alpha,
            margin=margin,
            draws=n_resamples,
            seed=seed,
        )
        _print_seeds(compared, out=out, as_json=as_json, gate=gate)
        return
    if paired or prompts_as != "own":
        raise click.UsageError("--prompts and --paired are of trainings; add --seeds")
    report = compare_candidates(
        readable_records(results),
        current=current,
        task=task,
        models=models,
        tested=tested,
        alpha=alpha,
        margin=margin,
        most=most,
        n_resamples=n_resamples,
        seed=seed,
    )
    if as_json:
        click.echo(report.to_json())
    else:
        opt.print_decision(report.decision)
        opt.print_table(report.table())
        if not out:
            opt.print_text("--out report.md writes every metric, category, query and earlier run")
    _write_reports(report, out)
    if gate:
        _end_on(report.regressions)


def _write_reports(report: Candidates | SeedComparison, files: Iterable[Path]) -> None:
    """Write a comparison as JSON or Markdown, by the end of the file's name."""
    for file in files:
        if file.suffix == ".json":
            text = report.to_json()
        else:
            text = report.to_markdown()
        click.echo(str(write_public(file, text)), err=True)


def _end_on(regressions: Sequence[str]) -> None:
    """Name the regressions, and end with the exit code of a gate that fails, if there are any."""
    if not regressions:
        return
    for regression in regressions:
        say(f"regression: {regression}", fg="red", err=True)
    sys.exit(REGRESSION)


def _single_metric(tested: Sequence[str]) -> str:
    """Return the metric that decides on trainings; empty for that of each task."""
    if len(tested) > 1:
        raise click.UsageError("with --seeds, expected one --metric")
    return "".join(tested)


def _print_seeds(
    compared: SeedComparison, *, out: Sequence[Path], as_json: bool, gate: bool
) -> None:
    """Print and write a comparison of trainings; end where a plan's promise is broken."""
    if as_json:
        click.echo(compared.to_json())
    else:
        opt.print_text(compared.conclusion.text, bold=True)
        if compared.differences:
            opt.print_table(compared.table())
    _write_reports(compared, out)
    if compared.is_refused:
        sys.exit(BROKEN_PROMISE)
    if gate:
        _end_on(
            [
                f"{difference.first} is worse than {difference.second} on {difference.task}"
                for difference in compared.regressions
            ]
        )


@click.command(cls=Command)
@opt.option(
    "--outputs",
    "output_dir",
    required=True,
    type=opt.FILE,
    help="Folder of trainings, with <configuration>/seed_<n>/results.",
)
@opt.option(
    "--results",
    "also",
    multiple=True,
    type=opt.FILE,
    help="More results, such as results/; repeatable.",
)
@opt.flag("--task-steps", help="Match runs by their steps per task.")
@opt.out_option("report", help="Folder to write to.  [default: analysis/ in OUTPUTS]")
@opt.option(
    "--exit-code",
    choices=["evidence", "point"],
    is_flag=False,
    flag_value="evidence",
    help="Exit with the code of the verdict.",
)
@opt.option(
    "--by",
    choices=["layer", "kind", "module"],
    help="Exchange parts, and say what each costs.",
)
@_EXCHANGES
@_TESTS
@opt.READ_LIMIT
@opt.JSON
def analyze(
    output_dir: Path,
    also: tuple[Path, ...],
    report: Path | None,
    exit_code: str | None,
    as_json: bool,
    task_steps: bool,
    n_resamples: int,
    seed: int,
    by: str | None,
    **exchange: Any,
) -> None:
    """Measure task interference of jointly trained adapters: interference ratio and kill gate.

    \b
    qwen3nb analyze --outputs outputs
    qwen3nb analyze --outputs outputs --by layer --kind embedding
    qwen3nb analyze --outputs outputs --results results --exit-code
    qwen3nb analyze --outputs outputs --task-steps --out reports/interference

    Joint adapters are compared with the specialists of the same seed, rank, base, data and
    steps; if there are none, with specialists of the same steps on the task.
    Refused and missing pairs are listed. With --exit-code: 0 PASS, 3 FAIL,
    4 MARGINAL, 5 INCONCLUSIVE, 6 no result.

    With --by, each part of a joint adapter is exchanged for its specialist's, in both directions,
    and each exchanged adapter is evaluated. What a part costs is then the mean of both. A run that
    was stopped continues from its records in results/exchanges.
    """
    folder = report or output_dir / "analysis"
    if by is not None:
        _refuse_given(["also", "task_steps", "exit_code"], "is of the ratio; leave out --by")
        _analyze_parts(by, output_dir, folder, as_json, n_resamples, seed, exchange)
        return
    _refuse_given(list(exchange), "is for exchanged parts; add --by layer")
    from qwen3nb.answers.interference import interference

    # Only records in these folders count, none of the study.
    result = interference(
        [], [output_dir, *also], task_steps=task_steps, resamples=n_resamples, seed=seed
    )
    files = result.write(folder, outputs=output_dir)
    if as_json:
        click.echo((folder / "interference.json").read_text(encoding="utf-8"))
    else:
        _print_interference(result)
        for file in files:
            click.echo(file)
    if exit_code:
        sys.exit(result.comparisons.verdict(by=exit_code).exit_code)


def _refuse_given(names: Sequence[str], reason: str) -> None:
    """Refuse options that were given on the command line, and have no effect there."""
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if parameter.name in names and is_given:
            raise click.UsageError(f"{parameter.opts[0]} {reason}")


def _analyze_parts(
    by: str,
    outputs: Path,
    folder: Path,
    as_json: bool,
    resamples: int,
    seed: int,
    exchange: Mapping[str, Any],
) -> None:
    """Exchange each part of the joint adapters, and write and print what it costs."""
    from qwen3nb.answers.interference_parts import interference_by

    opt.hide_library_bars()
    settings = {**exchange, "kind": exchange["kind"] or "", "base": exchange["base"] or None}
    answer = interference_by(by, outputs, resamples=resamples, seed=seed, **settings)
    files = answer.write(folder)
    if as_json:
        click.echo(answer.to_json())
        return
    opt.print_text(answer.conclusion.text, bold=True)
    for table in (answer.table(), answer.totals()):
        opt.print_table(table)
    if answer.notes:
        opt.print_table(answer.refusals())
    for file in files:
        click.echo(file)


def _print_interference(report: Interference) -> None:
    """Print what is measured, the tables, and the verdict."""
    from qwen3nb.analysis.stats.interference_ratio import DEFINITION

    opt.print_text(f"{DEFINITION}\n")
    for table in (report.table(), report.refusals()):
        if table.rows:
            opt.print_table(table)
        else:
            # The note says why there are no rows.
            click.echo(f"{table.note}\n")
    opt.print_text(report.verdicts, bold=True)


@click.command(cls=Command, writes=True)
@opt.model_option("models", repeatable=True, required=True, help="Label to compare; repeatable.")
@opt.option("--baseline", required=True, help="Label to compare with.")
@opt.option("--margin", type=_MARGIN, required=True, help="Smallest difference worth having.")
@opt.option("--tier", choices=TIERS, default="smoke", help="The tier to measure on.")
@opt.TASKS
@opt.option("--metric", default="", help="By default, the main metric of each task.")
@opt.option("--alpha", type=opt.SHARE, default=0.05, help="Family-wise error rate on a task.")
@opt.option("--power", type=opt.SHARE, default=0.8, help="Probability to show the margin.")
@opt.option(
    "--deviation",
    type=_DEVIATION,
    default=0.0,
    show_default="of earlier records",
    help="Standard deviation of the differences.",
)
@opt.option("--seeds", "training_seeds", default="", help="Promised seeds of trainings, 1,2,3.")
@opt.option(
    "--seed-deviation",
    type=_DEVIATION,
    default=0.0,
    show_default="of earlier records",
    help="Of the mean score between seeds.",
)
@opt.option(
    "--prompts",
    "prompt_count",
    minimum=2,
    default=None,
    help="With --seeds: promised prompts of a set.",
)
@opt.option(
    "--prompts-as",
    choices=["fixed", "sample"],
    default="fixed",
    help="What these prompts stand for.",
)
@opt.option(
    "--prompt-deviation",
    type=_DEVIATION,
    default=0.0,
    help="Of the difference between prompts, of a sample.",
)
@opt.RESULTS
@opt.out_option(help="File of the plan.  [default: plan-1.toml, …]")
@opt.JSON
def plan(
    models: Sequence[str],
    baseline: str,
    margin: float,
    tier: str,
    tasks: str,
    metric: str,
    alpha: float,
    power: float,
    deviation: float,
    training_seeds: str,
    seed_deviation: float,
    prompt_count: int | None,
    prompts_as: str,
    prompt_deviation: float,
    results: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say how many queries show a difference worth having, and write the plan.

    \b
    qwen3nb plan --model encoder --baseline bm25 --margin 0.02 --tier smoke
    qwen3nb plan --model encoder,wordllama --baseline bm25 --margin 0.02 \\
        --deviation 0.3
    qwen3nb plan --model new --baseline old --margin 0.02 --tier smoke \\
        --seeds 1,2,3,4,5 --deviation 0.2 --seed-deviation 0.005

    The spread of the difference is taken from earlier records of these models, or of others on
    the same task, unless it is stated. Plans are numbered and never replaced. Comparisons of these
    models in the study then say what they do otherwise than planned, if the plan is older than the
    measurement. Exits with 3 if a task has fewer queries than the difference needs.

    With --seeds, models are trainings with these seeds, which may not have begun. `qwen3nb compare
    --seeds` then gives no verdict before all of them have records.
    """
    from qwen3nb.analysis.comparison.plan import Plan
    from qwen3nb.answers.planned import plan_comparison
    from qwen3nb.records.store import load_results

    request = Plan(
        baseline=baseline,
        models=tuple(models),
        tasks=tuple(split_names(tasks)) or TIERS[tier].task_keys,
        margin=margin,
        metric=metric,
        alpha=alpha,
        power=power,
        deviation=deviation,
        training_seeds=_seed_numbers(training_seeds),
        seed_deviation=seed_deviation,
        prompt_count=prompt_count or 0,
        prompts_as=prompts_as if prompt_count else "",
        prompt_deviation=prompt_deviation,
    )
    planned = plan_comparison(load_results(results), request)
    file = planned.write(out)
    if as_json:
        opt.print_json({"file": str(file), "plan": asdict(planned.plan), "tasks": planned.tasks})
    else:
        if request.training_seeds:
            opt.print_text(planned.conclusion.text, bold=True)
        opt.print_table(planned.table())
        click.echo(f"The plan is in {file}")
    if not planned.is_enough:
        sys.exit(TOO_FEW)


def _seed_numbers(text: str) -> tuple[int, ...]:
    """Return the seeds in a comma-separated list."""
    try:
        return tuple(int(seed) for seed in split_names(text))
    except ValueError:
        raise click.UsageError(f"--seeds: expected numbers such as 1,2,3; got {text!r}") from None
