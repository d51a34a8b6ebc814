"""Commands that measure speed and memory on this machine: `qwen3nb bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.groups import CommandGroup
from qwen3nb.cli.options import (
    DTYPE,
    JSON,
    MIRROR,
    hide_library_bars,
    print_json,
    seed_option,
    use_mirror,
)
from qwen3nb.cli.spellings import model_option, out_option
from qwen3nb.models.modeling.dtypes import DTYPES

__all__ = ["LIMITS", "bench"]

# What the shares that a benchmark prints are of.
LIMITS = {
    "encode": "the matrix peak: the model's linear layers alone, in the shapes that it runs",
    "rerank": "the matrix peak: the model's linear layers alone, in the shapes that it runs",
    "precision": "the matrix peak of the dtype: the model's linear layers alone",
    "gpu": "the matrix peak of the GPU in 16 bits: a product of large square matrices",
    "eval": "encoding: what is not encoding is loading, searching, scoring and writing",
    "search": "the matrix peak: a product of the queries and a block of documents alone",
    "cache": "a plain file, synced, for writing, and a copy in memory for reading",
    "extraction": "the disk: reading the inputs and copying one",
    "runs": "no simple limit: sorting, text and lookups in dictionaries",
    "records": "no simple limit: JSON, statistics and the start of Python",
    "statistics": "no simple limit: random draws, counting and sorting",
}

_MODELS = model_option(
    "models", several=True, default=("all-MiniLM-L6-v2", "qwen3-60M-random"), show_default=True,
    help="A registry name, a folder, or qwen3-60M-random; repeatable.",
)  # fmt: skip


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure speed and memory on this machine, beside other libraries in the same run."""


def _show(name: str, results: Any, *tables: str, as_json: bool) -> None:
    """Print ``tables`` and what their shares are of, or the results as one JSON document."""
    if not as_json:
        click.echo("\n\n".join([*tables, f"limit: {LIMITS[name]}"]))
        return
    from qwen3nb.utils.hardware import processor

    about = {"bench": name, "processor": processor(), "limit": LIMITS[name]}
    print_json({**about, "results": results})


def _progress(as_json: bool) -> Callable[[str], None]:
    """What prints progress: beside a JSON document, to standard error."""
    return lambda line: click.echo(line, err=as_json)


@bench.command("extraction")
@click.option("--size", default="0.6B", show_default=True, help="tiny, 60M or 0.6B (Qwen3-0.6B).")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@out_option("folder", earlier=["--folder"], help="Where to write; 11 GB at 0.6B.")
@JSON
@without_traceback
def bench_extraction_command(as_json: bool, **options: Any) -> None:
    """Average and extract, compared with a naive implementation, at the size of a real model.

    \b
    qwen3nb bench extraction
    qwen3nb bench extraction --size 60M
    """
    from qwen3nb.bench.extraction import bench_extraction

    rows = bench_extraction(say=_progress(as_json), **options)
    _show("extraction", rows, as_json=as_json)


@bench.command("encode")
@_MODELS
@click.option("--texts", type=click.IntRange(min=2), default=256, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@DTYPE
@JSON
@without_traceback
def bench_encode(models: tuple[str, ...], texts: int, as_json: bool, **options: Any) -> None:
    """Encode texts with sentence-transformers and with this package in turn.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench encode --texts 512
    """
    from qwen3nb.bench.encode import bench_encode as run
    from qwen3nb.bench.encode import bench_texts, machine

    sets, say, results = bench_texts(texts), _progress(as_json), []
    for model in models:
        for result in run(model, texts=sets, **options):
            say(f"{machine()}\n{result.table()}\n")
            results.append(result)
    _show("encode", results, as_json=as_json)


@bench.command("precision")
@_MODELS
@click.option(
    "--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES),
    help="Besides float32; repeatable.  [default: bfloat16, and float16 if the CPU computes in it]",
)  # fmt: skip
@click.option("--texts", type=click.IntRange(min=2), default=128, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--whole", is_flag=True, help="Search all of PyDocs instead of its sample; minutes.")
@JSON
@without_traceback
def bench_precision(models: tuple[str, ...], whole: bool, as_json: bool, **options: Any) -> None:
    """Encode in several precisions: speed, cosine and nDCG@10 beside float32.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench precision --model all-MiniLM-L6-v2
    """
    from qwen3nb.bench.encode import machine
    from qwen3nb.bench.precision import bench_precision as run
    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample

    pydocs = load_pydocs() if whole else pydocs_sample()
    say, results = _progress(as_json), []
    for model in models:
        results.append(run(model=model, pydocs=pydocs, **options))
        say(f"{machine()}\n{results[-1].table()}\n")
    _show("precision", results, as_json=as_json)


@bench.command("eval")
@model_option(default="all-MiniLM-L6-v2", show_default=True, help="A registry name or a folder.")
@click.option(
    "--task", "tasks", multiple=True, default=("PyDocsRetrieval",), show_default=True,
    help="A task of MTEB or of this package; repeatable.",
)  # fmt: skip
@click.option("--no-page", is_flag=True, help="Do not measure the command `qwen3nb eval`.")
@MIRROR
@JSON
@without_traceback
def bench_eval(no_page: bool, mirror: Path | None, as_json: bool, **options: Any) -> None:
    """Run whole evaluations, first and second, here and in plain MTEB with sentence-transformers.

    \b
    qwen3nb bench eval
    qwen3nb bench eval --task PyDocsSampleRetrieval --task AuthorSTS --no-page
    """
    from qwen3nb.bench.evaluation import bench_evaluation

    use_mirror(mirror)
    result = bench_evaluation(page=not no_page, say=_progress(as_json), **options)
    _show("eval", result, result.table(), as_json=as_json)


@bench.command("cache")
@click.option("--vectors", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--dimension", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--growth", default="100000,200000,500000,1000000,2000000", show_default=True,
    metavar="SIZES", help="Then fill one cache of 384 dimensions to these sizes; 0: do not.",
)  # fmt: skip
@out_option("folder", earlier=["--folder"], help="Where to write; 3 GB for 2 million.")
@JSON
@without_traceback
def bench_cache(growth: str, folder: Path | None, as_json: bool, **options: Any) -> None:
    """Write and read vectors with the cache and a plain .npy file; then let a cache grow.

    \b
    qwen3nb bench cache --vectors 100000 --dimension 1024
    """
    from qwen3nb.bench.embedding_cache import bench_cache as run
    from qwen3nb.bench.embedding_cache import bench_growth

    results: list[Any] = [run(folder=folder, **options)]
    if growth != "0":
        results.append(bench_growth(_numbers(growth), folder=folder))
    _show("cache", results, *(each.table() for each in results), as_json=as_json)


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
@JSON
@without_traceback
def bench_search(corpus: str, as_json: bool, **options: Any) -> None:
    """Measure time and memory of search over a corpus and over one twice as large.

    \b
    qwen3nb bench search --documents 50000
    qwen3nb bench search --corpus 50000,200000,400000
    """
    from qwen3nb.bench.search import bench_corpora
    from qwen3nb.bench.search import bench_search as run

    if corpus:
        sizes = {name: options[name] for name in ("queries", "k")}
        corpora = bench_corpora(corpora=_numbers(corpus), **sizes)
        click.echo(corpora.table()) if not as_json else print_json(corpora)
        return
    result = run(**options)
    _show("search", result, result.table(), as_json=as_json)


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
@JSON
@without_traceback
def bench_rerank(no_memory: bool, as_json: bool, **options: Any) -> None:
    """Rerank, compared with left-padded batches and sentence-transformers' CrossEncoder.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank --size 0.6B --documents 24
    """
    from qwen3nb.bench.rerank import bench_rerank as run

    hide_library_bars()
    results = run(memory=not no_memory, say=_progress(as_json), **options)
    _show("rerank", results, as_json=as_json)


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
    done = run(lengths=_numbers(lengths), say=partial(click.echo, err=True), **options)
    _show("gpu", done, done.table(), as_json=as_json)
    if not all(each.equal for each in done.equality):
        sys.exit(1)


@bench.command("runs")
@click.option("--queries", type=click.IntRange(min=1), default=6980, show_default=True)
@click.option("--depth", type=click.IntRange(min=1), default=1000, show_default=True)
@JSON
@without_traceback
def bench_runs(as_json: bool, **options: Any) -> None:
    """Hold, score, write and read the runs of a reranking, compared with dictionaries; no model.

    \b
    qwen3nb bench runs
    """
    from qwen3nb.bench.runs import bench_runs as run

    result = run(**options)
    _show("runs", result, result.table(), as_json=as_json)


@bench.command("records")
@click.option("--models", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--tasks", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--queries", type=click.IntRange(min=2), default=6980, show_default=True)
@click.option("--top/--no-top", default=True, help="Whether records keep the best documents.")
@out_option("folder", earlier=["--folder"], help="Where to keep the records for another run.")
@click.option("--only", default="", help="One task, such as compare.  [default: all]")
@JSON
@without_traceback
def bench_records(folder: Path | None, only: str, as_json: bool, **options: Any) -> None:
    """Write synthetic records, then time and measure what reads them, beside the limits.

    The limits are for the default size, 3,000 records of 1.1 GB, on two cores.

    \b
    qwen3nb bench records --models 10 --tasks 5 --seeds 1 --queries 2000
    qwen3nb bench records --out records --only compare
    """
    from qwen3nb.bench.records import bench_records as run
    from qwen3nb.bench.records import records_table
    from qwen3nb.bench.synthetic_records import RecordSet

    timings = run(RecordSet(**options), folder=folder, only=only, say=_progress(as_json))
    _show("records", timings, records_table(timings), as_json=as_json)


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
@JSON
@without_traceback
def bench_statistics(resamples: int, as_json: bool, **options: Any) -> None:
    """Compare all pairs of many systems with shared draws and with a numpy loop per pair.

    Also times the interval of one score and one difference against a percentile bootstrap.

    \b
    qwen3nb bench statistics
    qwen3nb bench statistics --systems 4 --tasks 2 --queries 500 --resamples 2000
    """
    from qwen3nb.bench.statistics import bench_intervals, interval_table, table
    from qwen3nb.bench.statistics import bench_statistics as run

    timings = run(n_resamples=resamples, **options)
    intervals = bench_intervals(queries=options["queries"])
    tables = (table(timings), interval_table(intervals))
    _show("statistics", [*timings, *intervals], *tables, as_json=as_json)


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
