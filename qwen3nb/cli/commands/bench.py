"""Commands that measure speed and memory on this machine: `qwen3nb bench`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.groups import CommandGroup
from qwen3nb.cli.options import DTYPE, JSON, hide_library_bars, print_json, seed_option
from qwen3nb.cli.spellings import model_option, out_option

__all__ = ["bench"]


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure speed and memory on this machine, beside other libraries in the same run."""


@bench.command("extraction")
@click.option("--size", default="0.6B", show_default=True, help="tiny, 60M or 0.6B (Qwen3-0.6B).")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@out_option("folder", earlier=["--folder"], help="Where to write; 11 GB at 0.6B.")
@without_traceback
def bench_extraction_command(size: str, repeats: int, folder: Path | None) -> None:
    """Average and extract, compared with a naive implementation, at the size of a real model.

    \b
    qwen3nb bench extraction
    qwen3nb bench extraction --size 60M
    """
    from qwen3nb.bench.extraction import bench_extraction

    bench_extraction(size=size, repeats=repeats, folder=folder, say=click.echo)


@bench.command("encode")
@model_option(
    "models", several=True, default=("all-MiniLM-L6-v2", "qwen3-60M-random"), show_default=True,
    help="A registry name, a folder, or qwen3-60M-random; repeatable.",
)  # fmt: skip
@click.option("--texts", type=click.IntRange(min=2), default=256, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@DTYPE
@without_traceback
def bench_encode(models: tuple[str, ...], texts: int, **options: Any) -> None:
    """Encode texts with sentence-transformers and with this package in turn.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench encode --texts 512
    """
    from qwen3nb.bench.encode import bench_encode as run
    from qwen3nb.bench.encode import bench_texts, machine

    sets = bench_texts(texts)
    for model in models:
        for result in run(model, texts=sets, **options):
            click.echo(f"{machine()}\n{result.table()}\n")


@bench.command("cache")
@click.option("--vectors", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--dimension", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--growth", default="100000,200000,500000,1000000,2000000", show_default=True,
    metavar="SIZES", help="Then fill one cache of 384 dimensions to these sizes; 0: do not.",
)  # fmt: skip
@out_option("folder", earlier=["--folder"], help="Where to write; 3 GB for 2 million.")
@without_traceback
def bench_cache(growth: str, folder: Path | None, **options: Any) -> None:
    """Write and read vectors with the cache and a plain .npy file; then let a cache grow.

    \b
    qwen3nb bench cache --vectors 100000 --dimension 1024
    """
    from qwen3nb.bench.embedding_cache import bench_cache as run
    from qwen3nb.bench.embedding_cache import bench_growth

    click.echo(run(folder=folder, **options).table())
    if growth != "0":
        click.echo(f"\n{bench_growth(_numbers(growth), folder=folder).table()}")


def _numbers(listed: str) -> list[int]:
    """Return the numbers of a list.

    Raises:
        ValueError: an entry is no whole number of 1 or more.
    """
    entries = [each.strip() for each in listed.split(",")]
    if wrong := [each for each in entries if not each.isdigit() or int(each) < 1]:
        raise ValueError(f"expected whole numbers of 1 or more; got {wrong[0]!r} in {listed!r}")
    return [int(each) for each in entries]


@bench.command("search")
@click.option("--documents", type=click.IntRange(min=1), default=50_000, show_default=True)
@click.option("--dimension", type=click.IntRange(min=1), default=384, show_default=True)
@click.option("--queries", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("-k", "k", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--corpus", default="", metavar="N,N,…",
    help="Encode and search corpora of so many documents instead, of 384 dimensions, by blocks "
    "and held.",
)  # fmt: skip
@without_traceback
def bench_search(corpus: str, **options: Any) -> None:
    """Measure time and memory of search over a corpus and over one twice as large.

    \b
    qwen3nb bench search --documents 50000
    qwen3nb bench search --corpus 50000,200000,400000
    """
    from qwen3nb.bench.search import bench_corpora
    from qwen3nb.bench.search import bench_search as run

    if corpus:
        sizes = {name: options[name] for name in ("queries", "k")}
        click.echo(bench_corpora(corpora=_numbers(corpus), **sizes).table())
        return
    click.echo(run(**options).table())


@bench.command("rerank")
@click.option("--size", default="100M", show_default=True, help="tiny, 100M or 0.6B.")
@click.option(
    "--passages",
    multiple=True,
    default=("60-80", "250"),
    show_default=True,
    help="Tokens per passage.",
)
@click.option("--documents", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--no-memory", is_flag=True, help="Do not measure peak memory.")
@out_option("folder", earlier=["--folder"], help="Where to write the model.")
@without_traceback
def bench_rerank(no_memory: bool, **options: Any) -> None:
    """Rerank, compared with left-padded batches and sentence-transformers' CrossEncoder.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank --size 0.6B --documents 24
    """
    from qwen3nb.bench.rerank import bench_rerank as run

    hide_library_bars()
    run(memory=not no_memory, say=click.echo, **options)


@bench.command("gpu")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME",
    default=("MiniLM", "bge-base", "Qwen3-0.6B", "Qwen3-4B"), show_default=True,
    help="Of a random model; tiny, for rehearsals, is another; repeatable.",
)  # fmt: skip
@click.option("--lengths", default="50,75,512", show_default=True, help="Tokens per text.")
@click.option("--minutes", type=float, default=10.0, show_default=True, help="When to end, about.")
@click.option("--device", default="cuda", show_default=True, help="cpu to rehearse.")
@click.option(
    "--dtype", type=click.Choice(["bfloat16", "float16"]), default="bfloat16", show_default=True
)
@out_option(help="JSON file to write.")
@JSON
@without_traceback
def bench_gpu(lengths: str, as_json: bool, **options: Any) -> None:
    """Encode and rerank on a GPU beside sentence-transformers; exits with 1 if results differ.

    First vectors and scores in 16 bits are compared with float32, and across batches; then speed
    is measured, beside the GPU's own rate of matrix products.

    \b
    qwen3nb bench gpu --out gpu.json
    """
    from qwen3nb.bench.gpu.run import bench_gpu as run

    hide_library_bars()
    say = partial(click.echo, err=True)
    done = run(lengths=_numbers(lengths), say=say, **options)
    if as_json:
        print_json(done)
    else:
        click.echo(done.table())
    if not all(each.equal for each in done.equality):
        sys.exit(1)


@bench.command("runs")
@click.option("--queries", type=click.IntRange(min=1), default=6980, show_default=True)
@click.option("--depth", type=click.IntRange(min=1), default=1000, show_default=True)
@without_traceback
def bench_runs(**options: Any) -> None:
    """Hold, score, write and read the runs of a reranking, compared with dictionaries; no model.

    \b
    qwen3nb bench runs
    """
    from qwen3nb.bench.runs import bench_runs as run

    click.echo(run(**options).table())


@bench.command("records")
@click.option("--models", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--tasks", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--queries", type=click.IntRange(min=2), default=6980, show_default=True)
@click.option("--top/--no-top", default=True, help="Whether records keep the best documents.")
@out_option("folder", earlier=["--folder"], help="Where to keep the records for another run.")
@click.option("--only", default="", help="One task, such as compare.  [default: all]")
@without_traceback
def bench_records(folder: Path | None, only: str, **options: Any) -> None:
    """Write synthetic records, then time and measure what reads them, beside the limits.

    The limits are for the default size, 3,000 records of 1.1 GB, on two cores.

    \b
    qwen3nb bench records --models 10 --tasks 5 --seeds 1 --queries 2000
    qwen3nb bench records --out records --only compare
    """
    from qwen3nb.bench.records import bench_records as run
    from qwen3nb.bench.records import records_table
    from qwen3nb.bench.synthetic_records import RecordSet

    timings = run(RecordSet(**options), folder=folder, only=only, say=click.echo)
    click.echo(f"\n{records_table(timings)}")


@bench.command("statistics")
@click.option("--systems", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--tasks", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--queries", type=click.IntRange(min=2), default=6980, show_default=True)
@click.option(
    "--loop-pairs",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Pairs on which the loop is timed; the rest is extrapolated.",
)
@click.option("--resamples", type=click.IntRange(min=100), default=10_000, show_default=True)
@seed_option("Seed of the scores and the draws.")
@without_traceback
def bench_statistics(resamples: int, **options: Any) -> None:
    """Compare all pairs of many systems with shared draws and with a numpy loop per pair.

    Also times the interval of one score and one difference against a percentile bootstrap.

    \b
    qwen3nb bench statistics
    qwen3nb bench statistics --systems 4 --tasks 2 --queries 500 --resamples 2000
    """
    from qwen3nb.bench.statistics import bench_intervals, interval_table, table
    from qwen3nb.bench.statistics import bench_statistics as run

    click.echo(table(run(n_resamples=resamples, **options)))
    click.echo(f"\n{interval_table(bench_intervals(queries=options['queries']))}")


@bench.command("calibration")
@out_option("output", earlier=["--output"], help="Where to write the shares as JSON.")
@click.option(
    "--simulations",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Simulations of each kind; 0: 2,000 to 10,000, as on the methods page.",
)
@seed_option("Seed of the simulations.")
@without_traceback
def bench_calibration(output: Path | None, simulations: int, seed: int) -> None:
    """Simulate how often tests and intervals err; minutes.

    \b
    qwen3nb bench calibration
    """
    from qwen3nb.analysis.calibration.simulate import calibration_markdown, simulate

    click.echo(calibration_markdown(simulate(seed=seed, simulations=simulations, output=output)))
