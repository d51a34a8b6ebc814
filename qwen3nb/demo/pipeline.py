"""Run the whole pipeline on toy models: train, extract, evaluate with baselines, build the book.

A step is skipped if it was done with the same inputs: a training is identified by its
settings, data and code, an extraction by its source, a page by everything it shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from qwen3nb import paths
from qwen3nb.cluster.processes import guarded
from qwen3nb.demo.steps import RERANKED, STEPS, joint_adapter
from qwen3nb.execution.sweep import Job, failures_text, sweep
from qwen3nb.utils.terminal import say

__all__ = ["DemoError", "run_demo"]

# The encoder that the book and its card are about: the best on the development pairs (nDCG@10
# .154; the average of the two best checkpoints .151). `models.sources.resolve` calls it "demo".
MODEL = "contrastive-checkpoint-400"
_BASELINES = ("bm25", "all-MiniLM-L6-v2", "random", "wordllama")
_FUSION = "bm25+all-MiniLM-L6-v2"
# glibc is to keep freed memory: else each step gets that of its logits from the system anew.
_KEPT = str(1 << 30)  # bytes
_TRAINING = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": _KEPT,
    "MALLOC_TRIM_THRESHOLD_": _KEPT,
}


class DemoError(click.ClickException):
    """A step of the demo failed; the message names the step and its log."""


def run_demo(*, at_once: int = 0) -> Path:
    """Run the demo and return the book's first page.

    Raises:
        DemoError: a notebook failed.
        BookError: the book did not build.
    """
    from qwen3nb.book.build import build_book

    started = time.perf_counter()
    demo = paths.runs() / "demo"
    _say("training an encoder-decoder, a language model and adapters, all toys; extracting")
    _in_parallel(list(STEPS))
    _say("evaluating the encoders and the baselines on the smoke tier, and an ablation")
    jobs = _jobs(demo)
    outcomes = sweep(jobs, at_once=at_once)
    # Alone, because other processes would distort the times.
    outcomes += sweep([Job("speed", {})], at_once=1)
    if failed := [outcome for outcome in outcomes if outcome.status == "failed"]:
        counts = f"{len(failed)} of {len(outcomes)} notebooks failed"
        raise DemoError(f"{counts}\n{failures_text(failed)}")
    _say("running the lessons and the pages that compare; building the book")
    page = build_book(tier="smoke", model=demo / "encoder" / MODEL, at_once=at_once)
    _say(f"done in {time.perf_counter() - started:.0f} s")
    return page


def _jobs(demo: Path) -> list[Job]:
    """All notebooks but the timing: the longest first, so that none is left alone at the end.

    Baselines come before the encoders, whose pages compare them with what there is; a fusion
    comes last, when the vectors of its model are in the cache.
    """
    encoders = sorted(each for each in (demo / "encoder").iterdir() if each.is_dir())
    ablated = {"training": paths.shown(demo / "contrastive"), "normalization": False}
    jobs = [Job("ablation", ablated)]
    jobs += [Job("eval", {"checkpoint": name}) for name in _BASELINES]
    jobs += [Job("eval", {"checkpoint": paths.shown(folder)}) for folder in encoders]
    jobs.append(Job("eval", {"checkpoint": paths.shown(demo / "decoder"), "pooling": "mean"}))
    jobs.append(Job("eval", {"checkpoint": _FUSION}))
    jobs += [Job(name, {"checkpoint": "all-MiniLM-L6-v2"}) for name in ("probes", "ann")]
    jobs.append(Job("extract", {"training": "demo"}))
    if paths.mirror() is not None:
        jobs.append(Job("reproduce", {}))
    jobs.append(Job("rerank", {"checkpoint": paths.shown(joint_adapter(demo)), **RERANKED}))
    return jobs


def _say(what: str) -> None:
    say(f"» {what}", bold=True, err=True)


def _in_parallel(steps: Sequence[str]) -> None:
    """Run the steps in parallel, each in a process with one thread.

    Raises:
        DemoError: a step failed; its error is on the terminal.
    """
    running = {}
    for position, step in enumerate(steps):
        # Each step draws its progress bar on its own line.
        environment = {**os.environ, **_TRAINING, "TQDM_POSITION": str(position)}
        command = [sys.executable, "-m", "qwen3nb.demo.steps", step]
        running[step] = subprocess.Popen(guarded(command), env=environment, start_new_session=True)
    try:
        failed = [step for step, process in running.items() if process.wait()]
    finally:
        for process in running.values():
            process.terminate()  # no effect unless we were interrupted
    if failed:
        raise DemoError(f"failed steps: {', '.join(failed)}; see the message above")
