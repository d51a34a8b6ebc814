"""The command line: every command calls one public function.

Heavy imports wait inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import qwen3nb
from qwen3nb.cli.analyze import register as register_analysis
from qwen3nb.cli.bench import bench
from qwen3nb.cli.custom import domain_options
from qwen3nb.cli.encode import VECTOR_COMMANDS
from qwen3nb.cli.errors import plainly as _plainly
from qwen3nb.cli.paper import FIGURE_COMMANDS
from qwen3nb.cli.rerank import register
from qwen3nb.cli.sweep import sweep_command
from qwen3nb.cli.tasks import MIRROR, SUITE_COMMANDS, no_library_bars, use_mirror
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.tiers import TIERS

__all__ = ["main"]

_POOLING = click.Choice(POOLINGS)
_TIER = click.Choice(list(TIERS))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(qwen3nb.__version__)
def main() -> None:
    """From a Qwen3 training checkpoint to a book whose every number can be traced.

    \b
    qwen3nb demo                                   the whole way, on toys, in minutes
    qwen3nb extract runs/ul2/checkpoint-9000 encoder
    qwen3nb eval --checkpoint encoder --tier smoke
    qwen3nb book
    """


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--pooling", type=_POOLING, default="mean", show_default=True)
@click.option("--no-normalize", is_flag=True, help="Keep the length of vectors.")
@click.option("--max-length", type=click.IntRange(min=1), default=512, show_default=True)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
)
@click.option("--prefix", default="", help="Text put before every input, such as [R].")
@click.option("--append-eos", is_flag=True, help="End every input with the end-of-text token.")
@click.option(
    "--prompt",
    "prompts",
    type=(str, str),
    multiple=True,
    metavar="NAME TEXT",
    help="A sentence-transformers prompt, such as: query 'query: '.",
)
@click.option("--label", help="Name in results; by default the last parts of the path.")
@click.option(
    "--allow",
    multiple=True,
    metavar="WHAT",
    help="Let through: decoder (a broken one), unexpected (tensors), untied (embeddings).",
)
@click.option("--verbose", is_flag=True, help="Show all that was verified.")
@_plainly
def extract(
    checkpoint: Path,
    output: Path,
    no_normalize: bool,
    prompts: tuple[tuple[str, str], ...],
    verbose: bool,
    **options: Any,
) -> None:
    """Write the encoder of an encoder-decoder CHECKPOINT to the folder OUTPUT, verified.

    \b
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling mean
    qwen3nb extract runs/ul2/checkpoint-9000 encoder --pooling last --prefix "[R]" --append-eos
    """
    from qwen3nb.extraction.extract import extract as run

    no_library_bars()
    done = run(checkpoint, output, normalize=not no_normalize, prompts=dict(prompts), **options)
    click.echo(
        f"{done.folder}: {done.parameters:,} parameters, pooling {options['pooling']}, "
        f"{'kept' if no_normalize else 'length 1'}; differs from its source by at most "
        f"{done.max_difference:.1e}"
    )
    if verbose:
        for key, value in done.verification.as_dict().items():
            click.echo(f"  {key}: {value}")
    for warning in done.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--last", "--last-n", type=click.IntRange(min=1), help="The last N checkpoints.")
@click.option("--best", "--best-n", type=click.IntRange(min=1), help="The best N by the metric.")
@click.option("--metric", default="eval_loss", show_default=True)
@click.option("--higher-is-better", is_flag=True)
@_plainly
def average(
    folder: Path,
    output: Path,
    last: int | None,
    best: int | None,
    metric: str,
    higher_is_better: bool,
) -> None:
    """Write the mean of checkpoints in FOLDER to the folder OUTPUT.

    \b
    qwen3nb average runs/ul2 runs/ul2-average --last 5
    qwen3nb average runs/ul2 runs/ul2-best --best 3 --metric eval_loss
    """
    from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints

    selection = select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=not higher_is_better
    )
    average_checkpoints(selection, output)
    if selection.note:
        click.echo(selection.note, err=True)
    click.echo(f"{output}: {selection.rule}: {', '.join(f.name for f in selection.folders)}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("repository")
@click.option("--dry-run", is_flag=True, help="List what would go, and upload nothing.")
@click.option("--private", is_flag=True, help="If the repository is made, make it private.")
@click.option("--revision", help="A branch; by default the main one.")
@click.option("--message", help="Of the commit.")
@_plainly
def push(folder: Path, repository: str, dry_run: bool, **options: Any) -> None:
    """Upload an export in FOLDER to the hub's REPOSITORY, unless it holds something secret.

    \b
    qwen3nb push encoder my-lab/my-encoder --dry-run
    qwen3nb push encoder my-lab/my-encoder --private
    """
    from qwen3nb.extraction.push_to_hub import plan_push
    from qwen3nb.extraction.push_to_hub import push as run

    if dry_run:
        files = plan_push(folder)
        for file in files:
            click.echo(f"{file.size:>14,}  {file.path}")
        click.echo(f"{len(files)} files would go to {repository}; nothing was uploaded")
        return
    click.echo(run(folder, repository, **options))


@main.command("eval")
@click.option(
    "--checkpoint",
    required=True,
    help="A model folder, a training checkpoint, a registry name, a hub id, random or bm25.",
)
@click.option("--tier", type=_TIER, default="smoke", show_default=True)
@click.option("--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto")
@click.option("--max-length", type=click.IntRange(min=0), default=0, help="0: as the model says.")
@click.option("--tasks", default="", help="MTEB tasks with commas, instead of the tier's.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=0, help="At most so many of all; 0: all."
)
@click.option("--prefix", default="", help="Text put before every input, such as [R].")
@click.option("--append-eos", is_flag=True, help="End every input with the end-of-text token.")
@click.option("--bidirectional", is_flag=True, help="Run a causal language model bidirectionally.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--fresh", is_flag=True, help="Run although a page of the same run is there.")
@MIRROR
@_plainly
def evaluate(fresh: bool, mirror: Path | None, **parameters: Any) -> None:
    """Run the evaluation notebook on one model and publish its page.

    \b
    qwen3nb eval --checkpoint encoder
    qwen3nb eval --checkpoint Qwen3-0.6B --tier fast --mirror /data/mirror
    qwen3nb eval --checkpoint encoder --tasks STSBenchmark,SciFact --limit 200
    qwen3nb eval --checkpoint encoder --types STS,Retrieval --languages eng
    """
    use_mirror(mirror)
    _run_and_say("eval", parameters, fresh=fresh)


@main.command()
@click.argument("model")
@click.option("--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto")
@click.option("--max-length", type=click.IntRange(min=0), default=0, help="0: as the model says.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in the place of the table.")
@_plainly
def quick(model: str, max_length: int, as_json: bool, **options: Any) -> None:
    """Is MODEL an encoder at all? A minute of checks; exits with 1 if one FAILED.

    A WARNING does not count as a failure.

    \b
    qwen3nb quick encoder
    qwen3nb quick Qwen/Qwen3-0.6B --pooling mean --json
    """
    from qwen3nb.cli.check import say_quick_look
    from qwen3nb.models.load import load_model

    no_library_bars()
    loaded = load_model(model, max_length=max_length or None, show_progress=not as_json, **options)
    if say_quick_look(loaded, as_json=as_json) == "FAILED":
        sys.exit(1)


@main.command()
@click.argument("notebook")
@click.option("-p", "--parameter", "given", type=(str, str), multiple=True, metavar="NAME VALUE")
@click.option("--fresh", is_flag=True, help="Run although a page of the same run is there.")
@_plainly
def run(notebook: str, given: tuple[tuple[str, str], ...], fresh: bool) -> None:
    """Run any notebook of this project with parameters, and publish its page.

    \b
    qwen3nb run leaderboard -p tier smoke
    """
    from qwen3nb.execution.notebook import find_notebook
    from qwen3nb.execution.parameters import typed_parameters

    _run_and_say(notebook, typed_parameters(find_notebook(notebook), dict(given)), fresh=fresh)


def _run_and_say(notebook: str, parameters: dict[str, Any], *, fresh: bool) -> None:
    from qwen3nb.execution.notebook import run_notebook

    click.echo(run_notebook(notebook, parameters, fresh=fresh))


@main.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@_plainly
def verify(files: tuple[Path, ...]) -> None:
    """Compute every aggregate again from the per-query scores, and say what disagrees.

    FILES are records or folders of records; without any, all of results/.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json
    """
    from qwen3nb.records.store import result_files, verify_files

    chosen = [
        file
        for path in (files or (None,))
        for file in ([path] if path is not None and path.is_file() else result_files(path))
    ]
    problems = verify_files(chosen)
    for file, found in problems.items():
        for problem in found:
            click.echo(f"{file}: {problem}", err=True)
    click.echo(f"{len(chosen) - len(problems)} of {len(chosen)} records hold")
    if problems:
        sys.exit(1)


@main.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="An extracted model.")
@click.option("--output", type=click.Path(path_type=Path), help="By default the model's README.md.")
@click.option("--tier", type=_TIER, default="smoke", show_default=True)
@click.option(
    "--facts",
    type=click.Path(path_type=Path),
    help="TOML with what only you know: license, language, datasets, base_model, citation, …",
)
@_plainly
def card(model: Path, output: Path | None, tier: str, facts: Path | None) -> None:
    """Write a model card from the export's provenance, its training's files and the results.

    What none of these says stands in the card as not given.

    \b
    qwen3nb card --model encoder
    qwen3nb card --model encoder --tier full --facts facts.toml --output MODEL_CARD.md
    """
    from qwen3nb.records.store import load_results
    from qwen3nb.report.card.card import card_text
    from qwen3nb.utils.atomic_files import write_text

    text = card_text(model, load_results(adapters=False), tier=tier, facts=facts)
    click.echo(write_text(output or model / "README.md", text))


@main.command()
@click.option("--tier", type=_TIER, default="smoke", show_default=True)
@_plainly
def book(tier: str) -> None:
    """Build the book from whatever results there are, strictly, and check it."""
    from qwen3nb.book.build import build_book

    click.echo(f"Open {build_book(tier=tier)}")


@main.command()
@click.option(
    "--at-once", type=click.IntRange(min=0), default=0, help="0: one per core, at most four."
)
@_plainly
def demo(at_once: int) -> None:
    """Train toys, extract, evaluate beside baselines, build the book.

    What was done before with the same inputs is reused.
    """
    from qwen3nb.demo.pipeline import run_demo

    click.echo(f"\nOpen {run_demo(at_once=at_once)}")


@main.command()
@domain_options
@_plainly
def domain(**options: Any) -> None:
    """Compare models on queries and documents of your own.

    \b
    qwen3nb domain --queries queries.toml --documents docs.jsonl --text "{title}. {body}" \\
        --model all-MiniLM-L6-v2 --model runs/encoder
    qwen3nb domain --queries eval_config.toml --documents stars.db --preset gh-star-search \\
        --date 2026-01-31 --model encoder
    qwen3nb domain --queries queries.toml --documents docs.csv --id-column name --check

    The documents: JSONL or CSV (or .gz), a table of a SQLite or DuckDB file, opened for
    reading only. The queries' file: see the module qwen3nb.datasets.custom.queries. Scores of every
    query go to a record per model.
    """
    from qwen3nb.cli.custom import run_domain

    run_domain(**options)


for _command in (*VECTOR_COMMANDS, *SUITE_COMMANDS, *FIGURE_COMMANDS, sweep_command, bench):
    main.add_command(_command)
register(main, _plainly)
register_analysis(main, _plainly)


if __name__ == "__main__":
    main()
