"""Commands that measure speed and memory on this machine: `qwen3nb bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import CommandGroup

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
    """Measure speed and memory on this machine, next to other libraries in the same run."""


@bench.command("encode")
@_MODELS
@_count("texts", 256, 2)
@_count("rounds", 5)
@opt.option("--device", default="cpu")
@opt.DTYPE
def bench_encode(models: tuple[str, ...], texts: int, **options: Any) -> None:
    """Encode texts with sentence-transformers and with this package in turn.

    The peak is the rate of the model's matrix products alone, in the same shapes and rounds.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench encode --texts 512
    """
    from qwen3nb.bench.encode import bench_encode as run
    from qwen3nb.bench.encode import bench_texts
    from qwen3nb.bench.harness import machine

    sets = bench_texts(texts)
    for model in models:
        for result in run(model, texts=sets, **options):
            click.echo(f"{machine()}\n{result.table()}\n")


@bench.command("rerank")
@opt.option("--size", default="100M", help="tiny, 100M or 0.6B.")
@_count("documents", 100)
@_count("rounds", 3)
def bench_rerank(**options: Any) -> None:
    """Rerank, compared with left-padded batches and sentence-transformers' CrossEncoder.

    \b
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank
    OMP_WAIT_POLICY=PASSIVE qwen3nb bench rerank --size 0.6B --documents 24
    """
    from qwen3nb.bench.harness import machine
    from qwen3nb.bench.rerank import bench_rerank as run

    opt.hide_library_bars()
    for result in run(**options):
        click.echo(f"{machine()}\n{result.table()}\n")
