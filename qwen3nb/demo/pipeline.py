"""The whole way on toys: train, extract, evaluate beside baselines, build the book.

Every step is skipped if it was done with the same inputs: a training is known by its
settings, its data and its code; an extraction by its source; a page by all it shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from qwen3nb import paths
from qwen3nb.extraction.averaging import average_checkpoints, select_checkpoints
from qwen3nb.extraction.checkpoint import list_checkpoints, open_checkpoint
from qwen3nb.extraction.export import read_provenance
from qwen3nb.files import new_folder, read_json, sha256_file, sha256_json, write_json
from qwen3nb.run.sweep import Job, sweep

__all__ = ["BASELINES", "DemoError", "run_demo"]

BASELINES = ("bm25", "random", "all-MiniLM-L6-v2", "bm25+all-MiniLM-L6-v2")
_DONE = "done.json"
# How the adapters rerank, so that the page finds the record of one of them.
_RERANKED = {"depth": 20, "max_length": 192, "seed": 42}


class DemoError(click.ClickException):
    """A step of the demo failed; the message says which, and where its log is."""


def run_demo(*, at_once: int = 0) -> Path:
    """Run the demo and return the book's first page.

    Raises:
        DemoError: a notebook failed.
        BookError: the book did not build.
    """
    from qwen3nb.report.book import build_book

    started = time.perf_counter()
    demo = paths.runs() / "demo"
    _say("training an encoder-decoder and a language model, both toys")
    _train(demo)
    _say("extracting encoders, each verified against its source")
    encoders = _extract(demo)
    _say("training adapters that rank, embed, or do both, and evaluating them")
    adapter = _adapters(demo)
    _say("evaluating the encoders and the baselines on the smoke tier, and an ablation")
    jobs = [Job("eval", {"checkpoint": paths.shown(folder)}) for folder in encoders]
    jobs.append(Job("eval", {"checkpoint": paths.shown(demo / "decoder"), "pooling": "mean"}))
    jobs += [Job("eval", {"checkpoint": name}) for name in BASELINES]
    jobs += [Job("ablation", {"training": "demo"}), Job("extract", {"training": "demo"})]
    jobs += [Job(name, {"checkpoint": "all-MiniLM-L6-v2"}) for name in ("probes", "ann")]
    if paths.mirror() is not None:
        jobs.append(Job("reproduce", {}))
    jobs.append(Job("rerank", {"checkpoint": paths.shown(adapter), **_RERANKED}))
    outcomes = sweep(jobs, at_once=at_once)
    # By itself, for what runs beside it would be in the times.
    outcomes += sweep([Job("speed", {})], at_once=1)
    if failed := [outcome for outcome in outcomes if outcome.status == "failed"]:
        listed = "\n".join(f"  {outcome.job.name}: see {outcome.log}" for outcome in failed)
        raise DemoError(f"{len(failed)} of {len(jobs)} notebooks failed\n{listed}")
    _say("building the book")
    page = build_book(tier="smoke", model=demo / "encoder" / "average")
    _say(f"done in {time.perf_counter() - started:.0f} s")
    return page


def _say(what: str) -> None:
    click.secho(f"» {what}", bold=True, err=True)


def _train(demo: Path) -> None:
    from qwen3nb.demo.training import SETTINGS, train_decoder, train_seq2seq

    key = _key(vars(SETTINGS), "demo/training.py", "demo/ul2.py", "models/seq2seq.py")
    _once(demo / "train", key, lambda folder: train_seq2seq(folder, SETTINGS))
    _once(
        demo / "decoder",
        key,
        lambda folder: train_decoder(folder, demo / "train" / "tokenizer", SETTINGS),
    )


def _key(settings: object, *code: str) -> str:
    """What a training is known by: its settings, its data and its code."""
    from qwen3nb.tasks.pydocs import load_pydocs

    package = Path(__file__).resolve().parent.parent
    digests = [sha256_file(package / name) for name in code]
    return sha256_json([settings, load_pydocs().identity, digests])


def _once(folder: Path, key: str, make: Callable[[Path], object]) -> None:
    """Fill ``folder`` with ``make``, unless that was done with the same ``key``."""
    done = folder / _DONE
    if done.is_file() and read_json(done).get("key") == key:
        click.echo(f"  reused  {paths.shown(folder)}", err=True)
        return
    with new_folder(folder) as work:
        make(work)
        write_json(work / _DONE, {"key": key})


def _adapters(demo: Path) -> Path:
    """Train and evaluate the adapters; the folder of a joint one."""
    from qwen3nb.demo.base import BASE, train_base
    from qwen3nb.demo.lora import LORA, train_adapters
    from qwen3nb.tasks.embedded import embedded_task
    from qwen3nb.tasks.trained import evaluate_trained

    base, outputs = demo / "lora" / "base", demo / "lora" / "outputs"
    shared = ("demo/training.py", "demo/objectives.py", "demo/base.py")
    key = _key(asdict(BASE), *shared)
    _once(base, key, lambda folder: train_base(folder, BASE))
    _once(
        outputs,
        sha256_json([key, _key(asdict(LORA), *shared, "demo/lora.py")]),
        lambda folder: train_adapters(base, folder, settings=LORA, say=_told),
    )
    task = "PyDocsSampleRetrieval"
    evaluate_trained(
        outputs, [task], embedding_tasks=[embedded_task(task)], depth=_RERANKED["depth"],
        max_length=_RERANKED["max_length"], show_progress=False,
    )  # fmt: skip
    seed = _RERANKED["seed"]
    return outputs / f"joint_r{LORA.rank}" / f"seed_{seed}" / "checkpoints" / "final"


def _told(line: str) -> None:
    click.echo(f"  {line}", err=True)


def _extract(demo: Path) -> list[Path]:
    from qwen3nb.extraction.extract import extract

    train = demo / "train"
    average = train / "average"
    steps = list_checkpoints(train)
    if not average.is_dir():
        average_checkpoints(select_checkpoints(train, last=len(steps)), average)
    folders = []
    for source in (train / "init", *steps, average):
        folder = demo / "encoder" / source.name
        provenance = read_provenance(folder)
        digest = open_checkpoint(source).digest()
        if provenance is None or provenance["source"]["digest"] != digest:
            done = extract(source, folder, label=f"demo-{source.name}")
            click.echo(
                f"  {paths.shown(folder)}: {done.parameters:,} parameters, differs from its "
                f"source by at most {done.max_difference:.1e}",
                err=True,
            )
        folders.append(folder)
    return folders
