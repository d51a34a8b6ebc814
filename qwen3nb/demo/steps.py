"""The trainings of the demo, and the extraction of their encoders.

The demo runs ``python -m qwen3nb.demo.steps encoders`` and ``... language-models`` in parallel,
with one thread each; they take about the same time. Models this small gain little from a second
thread, and two threads that wait for each other lose much as soon as anything else runs on the
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import click

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.checkpoint import list_checkpoints, open_checkpoint
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.utils.atomic_files import new_folder, read_json, sha256_file, sha256_json, write_json

__all__ = ["RERANKED", "STEPS", "joint_adapter"]

_DONE = "done.json"
# How adapters are evaluated; the reranking page reuses the record of one of them.
RERANKED = {"depth": 20, "max_length": 192, "seed": 42}


def make_encoders(demo: Path) -> None:
    """Train an encoder-decoder by UL2, then contrastively, and extract its encoders."""
    _train(demo)
    _extract(demo)


def _train(demo: Path) -> None:
    from qwen3nb.datasets.pydocs import overlap, training_pairs
    from qwen3nb.demo import linear_training, train_contrastive, train_ul2, trainer, ul2_denoising
    from qwen3nb.demo.train_contrastive import CONTRASTIVE
    from qwen3nb.demo.train_ul2 import UL2
    from qwen3nb.models.modeling import qwen3_seq2seq, tiny_tokenizer

    shared = (trainer, linear_training, qwen3_seq2seq)
    key = _key(vars(UL2), train_ul2, ul2_denoising, tiny_tokenizer, *shared)
    _once(demo / "train", key, lambda folder: train_ul2.train_seq2seq(folder, UL2))
    pairs = training_pairs.load_training_pairs()
    later = _key(vars(CONTRASTIVE), train_contrastive, training_pairs, overlap, *shared)

    def contrast(folder: Path) -> None:
        start = list_checkpoints(demo / "train")[-1]
        train_contrastive.train_contrastive(folder, start, pairs, CONTRASTIVE)

    _once(demo / "contrastive", sha256_json([key, later, pairs.identity, pairs.versions]), contrast)


def make_language_models(demo: Path) -> None:
    """Train a language model and adapters, while `make_encoders` runs in another process."""
    from qwen3nb.datasets.pydocs.training_pairs import load_training_pairs
    from qwen3nb.demo import linear_training, train_ul2, trainer
    from qwen3nb.demo.train_ul2 import DECODER, train_decoder
    from qwen3nb.models.modeling import tiny_tokenizer

    load_training_pairs()  # the other process needs them after a few minutes
    make_adapters(demo)
    key = _key(vars(DECODER), train_ul2, trainer, linear_training, tiny_tokenizer)
    _once(demo / "decoder", key, lambda folder: train_decoder(folder, DECODER))


def _key(settings: object, *code: ModuleType) -> str:
    """A digest of a training's settings, data and code."""
    from qwen3nb.datasets.pydocs.build import load_pydocs

    digests = [sha256_file(Path(str(module.__file__))) for module in code]
    return sha256_json([settings, load_pydocs().identity, digests])


def _once(folder: Path, key: str, make: Callable[[Path], object]) -> None:
    """Fill ``folder`` by ``make``, unless that was already done with the same ``key``."""
    done = folder / _DONE
    if done.is_file() and read_json(done).get("key") == key:
        click.echo(f"  reused  {paths.shown(folder)}", err=True)
        return
    with new_folder(folder) as work:
        make(work)
        write_json(work / _DONE, {"key": key})


def make_adapters(demo: Path) -> None:
    """Train adapters that rank, embed, or do both, and evaluate them."""
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
    from qwen3nb.demo import linear_training, objectives, train_causal_lm, train_lora, train_ul2
    from qwen3nb.demo.train_causal_lm import BASE, train_base
    from qwen3nb.demo.train_lora import LORA, train_adapters
    from qwen3nb.evaluation.studies.lora_runs import evaluate_trained
    from qwen3nb.models.modeling import tiny_tokenizer

    base, outputs = demo / "lora" / "base", demo / "lora" / "outputs"
    shared = (train_ul2, objectives, train_causal_lm, linear_training, tiny_tokenizer)
    key = _key(asdict(BASE), *shared)
    _once(base, key, lambda folder: train_base(folder, BASE))
    _once(
        outputs,
        sha256_json([key, _key(asdict(LORA), *shared, train_lora)]),
        lambda folder: train_adapters(base, folder, settings=LORA, say=_say),
    )
    task = "PyDocsSampleRetrieval"
    evaluate_trained(
        outputs, [task], embedding_tasks=[embedded_task(task)], depth=RERANKED["depth"],
        max_length=RERANKED["max_length"], show_progress=False,
    )  # fmt: skip


def joint_adapter(demo: Path) -> Path:
    """The folder of a jointly trained adapter."""
    from qwen3nb.demo.train_lora import LORA

    run = demo / "lora" / "outputs" / f"joint_r{LORA.rank}" / f"seed_{RERANKED['seed']}"
    return run / "checkpoints" / "final"


def _say(line: str) -> None:
    click.echo(f"  {line}", err=True)


def _extract(demo: Path) -> None:
    """Extract the encoders that are evaluated: start and end of UL2, and half of what follows.

    Every second contrastive checkpoint, the last among them, shows the same curve in less time.
    """
    train, contrastive = demo / "train", demo / "contrastive"
    average = train / "average"
    if not average.is_dir():
        steps = list_checkpoints(train)
        average_checkpoints(select_checkpoints(train, last=len(steps)), average)
    sources = {source.name: source for source in (train / "init", list_checkpoints(train)[-1])}
    for source in (*list_checkpoints(contrastive)[1::2], contrastive / "average"):
        sources[f"contrastive-{source.name}"] = source
    for name, source in sources.items():
        _extract_once(source, demo / "encoder" / name)


def _extract_once(source: Path, folder: Path) -> None:
    from qwen3nb.report.card.extract import extract

    provenance = read_provenance(folder)
    if provenance is None or provenance["source"]["digest"] != open_checkpoint(source).digest():
        done = extract(source, folder, label=f"demo-{folder.name}")
        click.echo(
            f"  {paths.shown(folder)}: {done.parameters:,} parameters, differs from its "
            f"source by at most {done.max_difference:.1e}",
            err=True,
        )


STEPS: dict[str, Callable[[Path], None]] = {
    "encoders": make_encoders,
    "language-models": make_language_models,
}

if __name__ == "__main__":
    STEPS[sys.argv[1]](paths.runs() / "demo")
