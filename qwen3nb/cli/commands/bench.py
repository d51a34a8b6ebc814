"""Commands that measure speed and memory, and the errors of tests: `qwen3nb bench`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import CommandGroup
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.bounded_files import check_replaceable

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench
    from qwen3nb.bench.rerank import RerankBench

_MODELS = opt.model_option(
    "models",
    repeatable=True,
    default=("all-MiniLM-L6-v2", "qwen3-60M-random"),
    help="A registry name, a folder, or qwen3-60M-random; repeatable.",
)


def _count(name: str, default: int, minimum: int = 1) -> opt.Decorator:
    return opt.option(f"--{name}", minimum=minimum, default=default)


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure speed and memory next to other libraries, and the errors of statistical tests."""


@bench.command("encode")
@_MODELS
@_count("texts", 256, 2)
@_count("rounds", 5)
@opt.option("--device", default="cpu")
@opt.DTYPE
@opt.option(
    "--peer",
    "peers",
    multiple=True,
    help="Besides sentence-transformers: openvino, openvino-int8, onnx or onnx-int8; repeatable.",
)
@opt.option(
    "--input",
    "files",
    type=opt.EXISTING,
    multiple=True,
    help="Texts instead of PyDocs: one per line, or JSON Lines with text; repeatable.",
)
@opt.TASKS
@opt.JSON
def bench_encode(
    models: tuple[str, ...],
    texts: int,
    rounds: int,
    device: str,
    dtype: str,
    peers: tuple[str, ...],
    files: tuple[Path, ...],
    tasks: str,
    as_json: bool,
) -> None:
    """Measure encoding next to other libraries.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench encode --texts 512
    qwen3nb bench encode --peer onnx-int8 --input texts.jsonl

    Texts are encoded with sentence-transformers, other runtimes and this package in turn.
    The peak is the throughput of the model's matrix products alone, with the same shapes and
    rounds. Cosines are to the vectors in float32.
    """
    from qwen3nb.bench.encode import bench_encode as measure
    from qwen3nb.bench.encode import bench_texts, texts_of_file, texts_of_tasks

    opt.hide_library_bars()
    text_sets = {}
    for file in files:
        # Its folder tells files of the same name apart.
        folder_name = file.resolve().parent.name
        text_sets[f"{folder_name}/{file.name}"] = texts_of_file(file, texts)
    if tasks:
        text_sets |= texts_of_tasks(tasks.split(","), texts)
    if not text_sets:
        text_sets = bench_texts(texts)

    # A generator, so that each result is printed as soon as it is there.
    def measure_all() -> Iterator[EncodeBench]:
        for model in models:
            yield from measure(
                model, texts=text_sets, rounds=rounds, device=device, dtype=dtype, peers=peers
            )

    _print_results(measure_all(), as_json)


def _print_results(results: Iterable[EncodeBench | RerankBench], as_json: bool) -> None:
    """Print each result as it arrives, or all of them as one JSON document."""
    from qwen3nb.bench.harness import machine

    finished = []
    for result in results:
        finished.append(result)
        # The tables go to standard error if standard output is for the JSON document.
        click.echo(f"{machine()}\n{result.table()}\n", err=as_json)
    if as_json:
        opt.print_json({"machine": machine(), "results": finished})


@bench.command("diff")
@click.argument("first", type=opt.EXISTING)
@click.argument("second", type=opt.EXISTING)
@opt.JSON
def bench_diff(first: Path, second: Path, as_json: bool) -> None:
    """Compare two runs of `bench encode --json`.

    \b
    qwen3nb bench diff laptop.json server.json

    They may be of two processors, or of two versions.
    """
    from qwen3nb.bench.compare import compare_runs

    comparison = compare_runs(first, second)
    if as_json:
        opt.print_json(comparison)
    else:
        click.echo(comparison.table())


@bench.command("rerank")
@opt.option("--size", default="100M", help="tiny, 100M or 0.6B.")
@_count("documents", 100)
@_count("rounds", 3)
@opt.JSON
def bench_rerank(size: str, documents: int, rounds: int, as_json: bool) -> None:
    """Measure reranking next to other libraries.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank --size 0.6B --documents 24

    These are left-padded batches and sentence-transformers' CrossEncoder.
    """
    from qwen3nb.bench.rerank import bench_rerank as run

    opt.hide_library_bars()
    _print_results(run(size=size, documents=documents, rounds=rounds), as_json)


@bench.command("calibration")
@click.argument("function", default="")
@opt.option("--size", "sizes", multiple=True, minimum=2, help="Queries per sample; repeatable.")
@_count("simulations", 1000)
@opt.option("--records", type=opt.FOLDER, help="Also simulate samples of the records in a folder.")
@opt.seed_option("Seed of the samples.")
@opt.out_option(help="JSON file for the calibration page.")
@opt.JSON
def bench_calibration(
    function: str,
    sizes: tuple[int, ...],
    simulations: int,
    records: Path | None,
    out: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Simulate how often a test or an interval errs.

    \b
    qwen3nb bench calibration scipy.stats:wilcoxon --size 20 --records results
    qwen3nb bench calibration --simulations 10000 --out shares.json

    Also how often a test finds a difference.

    FUNCTION is module:name or file.py:name. It takes two arrays of paired scores and returns a
    p-value or the two ends of an interval of the mean difference. Without it, the tests and
    intervals shown on pages are simulated.
    """
    from qwen3nb.answers.calibration import MEANINGS, Calibration
    from qwen3nb.bench.calibration import calibrate

    if out:
        check_replaceable(out, suffixes=[".json"])
    shares = calibrate(function, sizes=sizes, simulations=simulations, records=records, seed=seed)
    document = {"seed": seed, "shares": [asdict(share) for share in shares]}
    if out:
        write_json(out, document, indent=None)
    if as_json:
        opt.print_json(document)
        return
    calibration = Calibration(tuple(shares))
    tables = []
    kinds_over_queries = [share.kind for share in shares if not share.is_over_seeds]
    for kind in dict.fromkeys(kinds_over_queries):  # once each
        if kind in MEANINGS:
            tables.append(calibration.table(kind))
    tables.append(calibration.table("coverage", over="seeds"))
    tables.append(calibration.families())
    for table in tables:
        if table.rows:
            opt.print_table(table)
