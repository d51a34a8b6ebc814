"""Commands that measure speed and memory on this machine: `qwen3nb bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import CommandGroup
from qwen3nb.models.modeling.dtypes import DTYPES

_LAYERS = "the matrix peak: the model's linear layers alone, in the shapes that it runs"
# What the shares that a benchmark prints are of.
LIMITS = {
    "encode": _LAYERS,
    "rerank": _LAYERS,
    "precision": "the matrix peak of the dtype: the model's linear layers alone",
}

_MODELS = opt.model_option(
    "models",
    several=True,
    default=("all-MiniLM-L6-v2", "qwen3-60M-random"),
    help="A registry name, a folder, or qwen3-60M-random; repeatable.",
)


def _count(name: str, default: int, least: int = 1) -> Callable[[Any], Any]:
    return opt.option(f"--{name}", least=least, default=default)


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure speed and memory on this machine, beside other libraries in the same run."""


def _show(name: str, results: Any, *, as_json: bool) -> None:
    """Print what the shares of the tables are of, or the results as one JSON document."""
    from qwen3nb.utils.hardware import processor

    about = {"bench": name, "processor": processor(), "limit": LIMITS[name]}
    opt.answer({**about, "results": results}, f"limit: {LIMITS[name]}", as_json=as_json)


def _progress(as_json: bool) -> Callable[[str], None]:
    """What prints progress: beside a JSON document, to standard error."""
    return lambda line: click.echo(line, err=as_json)


@bench.command("encode")
@_MODELS
@_count("texts", 256, 2)
@_count("rounds", 5)
@opt.option("--device", default="cpu")
@opt.DTYPE
@opt.JSON
def bench_encode(models: tuple[str, ...], texts: int, as_json: bool, **options: Any) -> None:
    """Encode texts with sentence-transformers and with this package in turn.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench encode --texts 512
    """
    from qwen3nb.bench.encode import bench_encode as run
    from qwen3nb.bench.encode import bench_texts
    from qwen3nb.bench.harness import machine

    sets, say, results = bench_texts(texts), _progress(as_json), []
    for model in models:
        for result in run(model, texts=sets, **options):
            say(f"{machine()}\n{result.table()}\n")
            results.append(result)
    _show("encode", results, as_json=as_json)


@bench.command("precision")
@_MODELS
@opt.option(
    "--dtype",
    "dtypes",
    multiple=True,
    choices=DTYPES,
    help="Besides float32; repeatable.  [default: bfloat16, and float16 if the CPU computes in it]",
)
@_count("texts", 128, 2)
@_count("rounds", 3)
@opt.flag("--whole", help="Search all of PyDocs instead of its sample; minutes.")
@opt.JSON
def bench_precision(models: tuple[str, ...], whole: bool, as_json: bool, **options: Any) -> None:
    """Encode in several precisions: speed, cosine and nDCG@10 beside float32.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench precision --model all-MiniLM-L6-v2
    """
    from qwen3nb.bench.encode import bench_precision as run
    from qwen3nb.bench.harness import machine
    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample

    pydocs = load_pydocs() if whole else pydocs_sample()
    say, results = _progress(as_json), []
    for model in models:
        results.append(run(model=model, pydocs=pydocs, **options))
        say(f"{machine()}\n{results[-1].table()}\n")
    _show("precision", results, as_json=as_json)


@bench.command("rerank")
@opt.option("--size", default="100M", help="tiny, 100M or 0.6B.")
@opt.option(
    "--passages",
    multiple=True,
    default=("60-80", "250"),
    help="Tokens per passage.",
)
@_count("documents", 100)
@_count("rounds", 3)
@opt.flag("--no-memory", help="Do not measure peak memory.")
@opt.out_option("folder", help="Where to write the model.")
@opt.JSON
def bench_rerank(no_memory: bool, as_json: bool, **options: Any) -> None:
    """Rerank, compared with left-padded batches and sentence-transformers' CrossEncoder.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank --size 0.6B --documents 24
    """
    from qwen3nb.bench.rerank import bench_rerank as run

    opt.hide_library_bars()
    results = run(memory=not no_memory, say=_progress(as_json), **options)
    _show("rerank", results, as_json=as_json)
