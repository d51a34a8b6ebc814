"""Run the whole pipeline on toy models: train, extract, evaluate with baselines, build the book.

A step is skipped if it was done with the same inputs: a training is identified by its settings,
data and code, an extraction by its source, a page by its content.

The trainings are two processes, ``python -m qwen3nb.demo.pipeline encoders`` and
``... language-models``, with one thread each; they take about the same time. Models this small gain
little from a second thread, and lose much if other processes run on the machine.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.checkpoints.folder import list_checkpoints, open_checkpoint
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.cluster.processes import start_guarded
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.execution.sweep import Job, failures_text, sweep
from qwen3nb.models.kinds.resolve import find_training
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import new_folder, read_json, sha256_file, sha256_json, write_json
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The encoder that the book and its card are about: the best on the development pairs, the average
# of the two best checkpoints included. `models.kinds.resolve` calls it "demo".
MODEL = "contrastive-checkpoint-240"
_BASELINES = ("bm25", "all-MiniLM-L6-v2", "random", "wordllama")
_FUSION = "bm25+all-MiniLM-L6-v2"
# Let glibc keep so much freed memory, which each step needs again for its logits.
_MOST_FREE_MEMORY = str(1 << 30)  # bytes
_TRAINING = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": _MOST_FREE_MEMORY,
    "MALLOC_TRIM_THRESHOLD_": _MOST_FREE_MEMORY,
}
_DONE = "done.json"
# How adapters are evaluated; the reranking page reuses the record of one of them.
RERANKED = {"depth": 20, "max_length": 128, "seed": 42}


class DemoError(click.ClickException):
    """A step of the demo failed; the message names the step and its log."""


def run_demo(*, at_once: int = 0) -> Path:
    """Run the demo and return the book's first page.

    Raises:
        DemoError: a notebook failed.
        BookError: the book did not build.
    """
    from qwen3nb.book.build import build_book, require_jupyter_book

    require_jupyter_book()
    started = time.perf_counter()
    demo = paths.runs() / "demo"
    _say("training an encoder-decoder, a language model and adapters, all toys; extracting")
    _train_in_parallel()
    _say("evaluating the encoders and the baselines on the smoke tier, and an ablation")
    outcomes = sweep(_jobs(demo), at_once=at_once)
    # Run alone: other processes would distort the times.
    outcomes += sweep([Job("speed", {})], at_once=1)
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failures:
        counts = f"{len(failures)} of {len(outcomes)} notebooks failed"
        raise DemoError(f"{counts}\n{failures_text(failures)}")
    _say("running the lessons and the pages that compare; building the book")
    model = demo / "encoder" / MODEL
    page = build_book(tier="smoke", model=model, lessons=True, at_once=at_once)
    _say(f"done in {time.perf_counter() - started:.0f} s")
    return page


def _jobs(demo: Path) -> list[Job]:
    """Return all notebooks except the timing, the longest first.

    Baselines come before the encoders, whose pages compare with existing records; a fusion comes
    last, when the vectors of its model are cached.
    """
    training = paths.shown(demo / "contrastive")
    encoders = sorted(folder for folder in (demo / "encoder").iterdir() if folder.is_dir())
    models = [*_BASELINES, *(paths.shown(encoder) for encoder in encoders)]
    jobs = [
        Job("ablation", {"training": training}),  # the longest one, of 16 combinations of options
    ]
    jobs += [Job("eval", {"checkpoint": model}) for model in models]
    jobs += [
        Job("eval", {"checkpoint": paths.shown(demo / "decoder"), "pooling": "mean"}),
        Job("eval", {"checkpoint": _FUSION}),
        Job("probes", {"checkpoint": "all-MiniLM-L6-v2"}),
        Job("ann", {"checkpoint": "all-MiniLM-L6-v2"}),
        Job("extract", {"training": "demo"}),
    ]
    if paths.mirror() is not None:
        jobs.append(Job("reproduce", {}))
    adapter = paths.shown(_reranking_adapter(demo))
    jobs.append(Job("rerank", {"checkpoint": adapter, **RERANKED}))
    return jobs


def _reranking_adapter(demo: Path) -> Path:
    """Return the folder of the adapter that ranks on the reranking page."""
    from qwen3nb.demo.train_lora import LORA

    training = demo / "lora" / "outputs" / f"joint_r{LORA.rank}" / f"seed_{RERANKED['seed']}"
    return training / "checkpoints" / "final"


def lesson_training() -> Path:
    """Return the folder of the demo's training, or of a cached training of 20 steps.

    The short training writes the same files within seconds; its scores are meaningless.
    """
    contrastive = paths.runs() / "demo" / "contrastive"
    for training in (str(contrastive), "demo"):
        # A SpecError: the demo has not been run here.
        with suppress(SpecError):
            return find_training(training)
    folder = paths.cache() / "lesson" / "train"
    if not folder.is_dir():
        from qwen3nb.demo.train_ul2 import Ul2Settings, train_seq2seq

        settings = Ul2Settings(steps=20, save_every=10, batch=4, vocabulary=1000, hidden=64)
        with new_folder(folder) as work:
            train_seq2seq(work, settings)
    return folder


def _say(what: str) -> None:
    say(f"» {what}", bold=True, err=True)


def _train_in_parallel() -> None:
    """Run `STEPS` in parallel, each in a process with one thread.

    Raises:
        DemoError: a step failed; its error is on the terminal.
    """
    processes = {}
    for position, step in enumerate(STEPS):
        # Each step draws its progress bar on its own line.
        environment = {**os.environ, **_TRAINING, "TQDM_POSITION": str(position)}
        command = [sys.executable, "-m", "qwen3nb.demo.pipeline", step]
        processes[step] = start_guarded(command, environment=environment)
    failed = []
    try:
        for step, process in processes.items():
            exit_status = process.wait()
            if exit_status != 0:
                failed.append(step)
    finally:
        for process in processes.values():
            process.terminate()  # no effect unless we were interrupted
    if failed:
        raise DemoError(f"failed steps: {', '.join(failed)}; see the message above")


def make_encoders(demo: Path) -> None:
    """Train an encoder-decoder by UL2, then contrastively, and extract its encoders."""
    _train_encoders(demo)
    _extract(demo)


def _train_encoders(demo: Path) -> None:
    from qwen3nb.datasets.pydocs.training_pairs import load_training_pairs
    from qwen3nb.demo.train_contrastive import CONTRASTIVE, train_contrastive
    from qwen3nb.demo.train_ul2 import UL2, train_seq2seq

    key = _training_key(UL2)
    # Skipped if it was done with the same settings, data and code: the same key.
    _once(demo / "train", key, lambda folder: train_seq2seq(folder, UL2))
    pairs = load_training_pairs()

    def train_from_last_checkpoint(folder: Path) -> None:
        start = list_checkpoints(demo / "train")[-1]
        train_contrastive(folder, start, pairs, CONTRASTIVE)

    contrastive_key = sha256_json([key, _training_key(CONTRASTIVE), pairs.identity, pairs.versions])
    _once(demo / "contrastive", contrastive_key, train_from_last_checkpoint)


def make_language_models(demo: Path) -> None:
    """Train a language model, and adapters that rank, embed, or do both; evaluate the adapters."""
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
    from qwen3nb.datasets.pydocs.training_pairs import load_training_pairs
    from qwen3nb.demo.train_lora import BASE, LORA, train_adapters, train_base
    from qwen3nb.demo.train_ul2 import DECODER, train_decoder
    from qwen3nb.evaluation.studies.lora_runs import evaluate_trained

    # Collects the pairs into the cache, where the other process needs them in a few minutes.
    load_training_pairs()
    base = demo / "lora" / "base"
    adapters = demo / "lora" / "outputs"

    def train_adapters_of_base(folder: Path) -> None:
        train_adapters(base, folder, settings=LORA, say=_note)

    base_key = _training_key(BASE)
    # Skipped if it was done with the same settings, data and code: the same key.
    _once(base, base_key, lambda folder: train_base(folder, BASE))
    _once(adapters, sha256_json([base_key, _training_key(LORA)]), train_adapters_of_base)
    task = "PyDocsSampleRetrieval"
    evaluate_trained(
        adapters,
        [task],
        embedding_tasks=[embedded_task(task)],
        depth=RERANKED["depth"],
        max_length=RERANKED["max_length"],
        show_progress=False,
    )
    _once(demo / "decoder", _training_key(DECODER), lambda folder: train_decoder(folder, DECODER))


def _training_key(settings: "DataclassInstance") -> str:
    """Return a digest of a training's settings, PyDocs, and the code of all trainings."""
    trainings = sorted(Path(__file__).parent.glob("t*.py"))
    modeling = Path(paths.__file__).parent / "models" / "modeling"
    files = [*trainings, modeling / "qwen3_seq2seq.py", modeling / "tiny_tokenizer.py"]
    digests = [sha256_file(file) for file in files]
    return sha256_json([asdict(settings), load_pydocs().identity, digests])


def _once(folder: Path, key: str, make: Callable[[Path], object]) -> None:
    """Fill ``folder`` with ``make``, unless this was done with the same ``key``."""
    done_file = folder / _DONE
    if done_file.is_file() and read_json(done_file).get("key") == key:
        _note(f"reused  {paths.shown(folder)}")
        return
    with new_folder(folder) as work:
        make(work)
        write_json(work / _DONE, {"key": key})


def _note(line: str) -> None:
    click.echo(f"  {line}", err=True)


def _extract(demo: Path) -> None:
    """Extract the encoders to evaluate: start and end of UL2, and contrastive checkpoints.

    Every second of these, including the last, shows the same curve in less time.
    """
    from qwen3nb.report.card import extract

    checkpoints = [demo / "train" / "init", list_checkpoints(demo / "train")[-1]]
    sources = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    contrastive = demo / "contrastive"
    every_second = list_checkpoints(contrastive)[1::2]  # the last one included
    for checkpoint in (*every_second, contrastive / "average"):
        sources[f"contrastive-{checkpoint.name}"] = checkpoint
    for name, checkpoint in sources.items():
        folder = demo / "encoder" / name
        if not _is_extracted(checkpoint, folder):
            extraction = extract(checkpoint, folder, label=f"demo-{name}")
            _note(
                f"{paths.shown(folder)}: {extraction.parameters:,} parameters, "
                f"differs from its source by at most {extraction.max_difference:.1e}"
            )


def _is_extracted(checkpoint: Path, folder: Path) -> bool:
    """Return whether a folder has the encoder of this checkpoint."""
    provenance = read_provenance(folder)
    if provenance is None:
        return False
    return bool(provenance["source"]["digest"] == open_checkpoint(checkpoint).weights.digest)


STEPS: dict[str, Callable[[Path], None]] = {
    "encoders": make_encoders,
    "language-models": make_language_models,
}

if __name__ == "__main__":
    STEPS[sys.argv[1]](paths.runs() / "demo")
