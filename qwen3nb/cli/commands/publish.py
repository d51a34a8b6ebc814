"""Commands that publish results: a paper, its tables, a report, a model card, a release."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import CardArguments
from qwen3nb.cli.program import Command, CommandWithParts, complete_parts, readable_records
from qwen3nb.tiers import TIERS
from qwen3nb.utils.bounded_files import FileBoundError, check_replaceable, read_bounded_json
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.secrets import write_public
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.report.paper import PaperContents

_CHOICE = opt.options(
    opt.TIER,
    opt.labels_option("Name of a model to show"),
    opt.TASKS,
    opt.seed_option("Seed of the bootstrap and permutation draws."),
)


class ContentsArguments(TypedDict):
    """The arguments of `_CHOICE`: what a paper shows."""

    tier: str | None
    models: Sequence[str]
    tasks: str
    seed: int


@click.command(cls=CommandWithParts, study=paths.results)
@opt.option(
    "--style",
    choices=["plain", "acl", "neurips"],
    default="plain",
    help="Widths and fonts.",
)
@opt.out_option(default="paper", type=opt.FOLDER, help="Output folder.")
@_CHOICE
def paper(style: str, out: Path, **choice: Unpack[ContentsArguments]) -> None:
    """Write figures, tables, captions and references, and an article that compiles.

    \b
    qwen3nb paper --style acl
    qwen3nb paper --style neurips --model all-MiniLM-L6-v2,bm25

    Trainings and adapters are left out where models or tasks are named.
    """
    from qwen3nb.report.paper import write_paper

    for file in write_paper(_contents(**choice), out, style=style):
        click.echo(file)
    click.echo(f"To see it: cd {out} && pdflatex paper && bibtex paper && pdflatex paper", err=True)


@paper.part("tables", study=paths.results)
@opt.option("--format", choices=["latex", "csv", "markdown"], default="latex")
@opt.out_option(required=True, type=opt.FOLDER, help="Output folder.")
@_CHOICE
def tables(format: str, out: Path, **choice: Unpack[ContentsArguments]) -> None:
    """Write the tables alone, also as CSV or Markdown.

    \b
    qwen3nb paper tables --format csv --out tables

    The numbers in CSV have full precision.
    """
    from qwen3nb.report.paper import write_tables

    for file in write_tables(_contents(**choice), out, format=format):
        click.echo(file)


def _contents(**choice: Unpack[ContentsArguments]) -> PaperContents:
    """Return the records that a paper shows, and how."""
    from qwen3nb.report.paper import PaperContents

    return PaperContents(
        results=readable_records(),
        tier=choice["tier"] or "",
        models=choice["models"],
        tasks=split_names(choice["tasks"]),
        seed=choice["seed"],
    )


class ReportArguments(TypedDict):
    """How the model of a report, and its baselines, are loaded."""

    seed: int
    pooling: str
    batch_size: int
    device: str
    dtype: str
    prompts: str
    base: str


@click.command(cls=Command, writes=True)
@opt.model_option(required=True, help="A folder, a registry name or a hub id.")
@opt.option(
    "--baselines",
    default="e5-base-v2,gte-base",
    help="Models A,B to compare with; empty: none.",
)
@opt.option("--tier", choices=TIERS, default="smoke", help="The tier to run.")
@opt.TASKS
@opt.option("--types", default="", help="Only tasks of these types, such as STS.")
@opt.LIMIT
@opt.out_option("output", default=Path("eval_results"), help="Folder of the report.")
@opt.FACTS
@opt.seed_option("Seed of the bootstrap intervals.")
@opt.POOLING
@opt.BATCH_SIZE
@opt.DEVICE
@opt.DTYPE
@opt.PROMPTS
@opt.BASE
@opt.MIRROR
def report(
    model: str,
    baselines: str,
    output: Path,
    facts: Path | None,
    tier: str,
    tasks: str,
    types: str,
    limit: int,
    **options: Unpack[ReportArguments],
) -> None:
    """Evaluate a model and its baselines, compare them, and write scores and card to a folder.

    \b
    qwen3nb report --model encoder --baselines bm25,all-MiniLM-L6-v2 \\
        --out eval_results
    qwen3nb report --model encoder --baselines e5-base-v2 \\
        --tasks STSBenchmark,SciFact \\
        --mirror /data/mirror

    Writes all_results.json, comparison.json (both with a copy that carries the time),
    comparison.md, mteb/ and, for an extracted encoder, MODEL_CARD.md. Records go to results/
    and are reused. A baseline or task that fails is named at the end, and the exit code is 1.
    """
    from qwen3nb.evaluation.run import EvaluationError
    from qwen3nb.report.model_report import report_model

    opt.hide_library_bars()
    model_report = report_model(
        model,
        baselines=split_names(baselines),
        tier=tier,
        tasks=tasks,
        types=types,
        limit=limit,
        **options,
    )
    for title, table in model_report.tables().items():
        say(f"\n{title}", bold=True)
        opt.print_table(table)
    for file in model_report.write(output, facts=facts):
        click.echo(file)
    failures = model_report.failures
    if failures:
        causes = "\n".join(f"{name}: {cause}" for name, cause in failures.items())
        raise EvaluationError(f"the report is written, but lacks what failed\n{causes}")


@click.command(cls=CommandWithParts, study=paths.results, unless=["results"])
@opt.paths_given(model="--model")
@opt.out_option("output", help="File to write.  [default: README.md of the model]")
@opt.option(
    "--results",
    type=opt.FILE,
    help="Folder of the records, or an all_results.json.  [default: results/]",
)
@opt.TIER
@opt.CARD
@opt.flag("--every-score", help="Put every score of many into the front matter, not their means.")
def card(
    model: Path,
    output: Path | None,
    results: Path | None,
    tier: str | None,
    every_score: bool,
    **facts: Unpack[CardArguments],
) -> None:
    """Write the card of an extracted MODEL from its provenance, its training and the results.

    \b
    qwen3nb card encoder
    qwen3nb card encoder --tier full --facts facts.toml --out MODEL_CARD.md
    qwen3nb card encoder --license apache-2.0 --hub-id my-lab/my-encoder

    Missing facts are marked as not given. Keep the card with the model: the hub reads licence,
    language, base model and scores from it. Without --out, the scores are also written to
    .eval_results/, where the hub looks for them first.
    """
    from qwen3nb.records.results import richest_tier
    from qwen3nb.report.card import card_text, records_of
    from qwen3nb.report.hub_results import write_hub_results

    if output is not None:
        check_replaceable(output, suffixes=[".md"])
    if results is not None and results.is_file():
        summary = _read_summary(results)
        # The summary names the model and the folder that it was in.
        if not model.is_dir() and str(model) == summary["model"]:
            model = paths.root() / str(summary["model_path"])
        results = _records_behind(results)
    records = readable_records(results, adapters=False)
    text = card_text(
        model, records, tier=tier or richest_tier(records), every_score=every_score, **facts
    )
    if output is not None:
        click.echo(write_public(output, text))
        return
    # Next to the model, where the hub looks for its card and its results.
    click.echo(write_public(model / "README.md", text))
    click.echo(write_hub_results(model, records_of(model, records)))


def _read_summary(file: Path) -> dict[str, object]:
    """Return an ``all_results.json``, which names the model and its folder."""
    try:
        summary: dict[str, object] = read_bounded_json(file)
        if {"model", "model_path"} <= summary.keys():
            return summary
    except FileBoundError:
        raise
    except (ValueError, AttributeError):  # not JSON, or not an object
        pass
    raise click.UsageError(
        f"{file}: expected an all_results.json of `qwen3nb report`, or a folder of records"
    )


def _records_behind(summary: Path) -> Path:
    """Return the folder of the records with the scores of an ``all_results.json``.

    It has the scores alone; a card needs their intervals, which are in the records.
    """
    folder = summary.parent
    has_records = any(folder.glob("*/seed_*/*.json"))
    if not has_records:
        folder = paths.results()
    click.echo(f"scores and intervals are those of the records in {folder}", err=True)
    return folder


@card.part("push")
@opt.paths_given(folder="--model", repository="--repository", texts=["repository"])
@opt.flag("--dry-run", help="List the files and upload nothing.")
@opt.flag("--private", help="Create a private repository.")
def push(folder: Path, repository: str, dry_run: bool, private: bool) -> None:
    """Upload an export to the hub, unless it contains a secret.

    \b
    qwen3nb card push encoder my-lab/my-encoder --dry-run
    qwen3nb card push encoder my-lab/my-encoder --private
    """
    from qwen3nb.extraction.push_to_hub import plan_push
    from qwen3nb.extraction.push_to_hub import push as push_to_hub

    if not dry_run:
        address = push_to_hub(folder, repository, private=private)
        click.echo(address)
        return
    files = plan_push(folder)
    for path, size in files.items():
        click.echo(f"{size:>14,}  {path}")
    click.echo(f"{len(files)} files would be uploaded to {repository}; nothing was uploaded")


@click.command(cls=CommandWithParts, writes=True)
@click.argument("name", shell_complete=complete_parts)
@opt.option("--sign", type=opt.FILE, help="Sign with this private key of SSH.")
def freeze(name: str, sign: Path | None) -> None:
    """Freeze the study as it is now in releases/NAME: records, pages, versions, a citation.

    \b
    qwen3nb freeze v1 --sign ~/.ssh/id_ed25519
    qwen3nb freeze diff v1

    A release contains the records and the files next to them, MTEB's results, the executed
    notebooks, the book as last built, CITATION.cff, datacite.json to register a DOI with, and
    release.json with the versions of all libraries and the revisions of all data. It is written
    completely or not at all, never replaced, and requires records that pass `qwen3nb verify
    --checksums`.

    To cite it, archive the folder, which is a bag (BagIt, RFC 8493) with the SHA-256 of every file.
    `python3 verify.py` in it, or `sha256sum -c *manifest-sha256.txt`, verifies it without qwen3nb.
    With --sign, `ssh-keygen` signs the list of all files, which `qwen3nb verify --signed` needs.
    """
    from qwen3nb.records.releases import digest_of_release
    from qwen3nb.records.releases import freeze as freeze_study

    folder = freeze_study(name, sign=sign)
    data = folder / "data"
    count = len([file for file in data.rglob("*") if file.is_file()])
    release = read_bounded_json(folder / "release.json")
    line = f"{folder}: {release['records']} records in {count} files"
    if not (data / "html").is_dir():
        line += "; without a book (`qwen3nb book` builds one)"
    click.echo(line)
    click.echo(f"SHA-256 to publish with it: {digest_of_release(folder)}")


@freeze.part("diff")
@click.argument("first")
@click.argument("second", default="results")
@opt.JSON
def diff(first: str, second: str, as_json: bool) -> None:
    """Show what changed since a release.

    \b
    qwen3nb freeze diff v1
    qwen3nb freeze diff v1 v2 --json

    FIRST and SECOND are releases that `qwen3nb freeze` made, by name or path, folders of records,
    or `results`, the study's current records. Added (+), removed (-) and changed (~) records are
    listed; where scores differ, the difference SECOND − FIRST with its 95 % interval and its
    p-value, corrected over all of them; then the libraries and data that differ.
    Exits with 0 if no record differs, 1 if one does, 2 on an error, such as a release that was
    modified.
    """
    from qwen3nb.answers.changes import diff as changes_between
    from qwen3nb.records.releases import ReleaseError

    try:
        changes = changes_between(first, second)
    except ReleaseError as error:
        raise click.UsageError(str(error)) from None
    # Unless there are changes.
    lines = [f"{changes.same} records, all the same{changes.not_compared}"]
    if changes:
        lines = list(changes.lines())
    opt.answer(changes.to_json(), *lines, as_json=as_json)
    if changes:
        sys.exit(1)
