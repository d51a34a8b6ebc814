"""Benchmark averaging and extraction at the size of a real model, against a naive script.

Each method runs in its own process, in turn, so that its peak memory is its own; times
exclude imports. The reference is the disk: reading the inputs and copying one of them, whose
share of a method's time is how close the method comes to that limit.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.utils.choices import one_of
from qwen3nb.utils.hardware import peak_memory

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SIZES", "ExtractionTiming", "bench_extraction"]

# hidden, intermediate, layers of each stack, heads, key-value heads, head size, rows
SIZES = {
    "tiny": (64, 96, 2, 4, 2, 16, 512),
    "60M": (512, 1536, 8, 8, 4, 64, 32_000),
    "0.6B": (1024, 3072, 28, 16, 8, 128, 152_036),
}
_COPIES = 3


@dataclass(frozen=True)
class ExtractionTiming:
    """One task by one method.

    Attributes:
        task: ``average`` or ``extract``.
        method: ``read and copy``, ``naive``, ``unchecked`` or ``qwen3nb``.
        seconds: median over the repeats.
        peak: peak resident memory of the process in bytes.
        disk_share: time of reading and copying over that of the method.
    """

    task: str
    method: str
    seconds: float
    peak: int
    disk_share: float


def bench_extraction(
    *, size: str = "0.6B", repeats: int = 3, folder: Path | None = None, say: Any = print
) -> list[ExtractionTiming]:
    """Measure, print a table of ratios, and return its rows.

    Needs disk space for five checkpoints (11 GB at the size of Qwen3-0.6B) and, for the
    naive script, 9 GB of memory.

    Args:
        size: one of `SIZES`.
        repeats: number of rounds; the methods take turns in each.
        folder: where to write; by default a temporary folder. Removed afterwards.
        say: called with each line of the report.

    Raises:
        RuntimeError: the methods do not give the same values.
    """
    one_of("size", size, SIZES)
    work = Path(tempfile.mkdtemp(prefix="qwen3nb-bench-", dir=folder))
    try:
        say(f"writing {_COPIES} random checkpoints of {size} shape to {work}")
        for index in range(_COPIES):
            _write_checkpoint(work / f"checkpoint-{index + 1}", size, seed=index)
        rows = []
        for task, methods in _METHODS.items():
            runs: dict[str, list[tuple[float, int]]] = {method: [] for method in methods}
            for _ in range(repeats):
                for method in methods:
                    runs[method].append(_measure(task, method, work))
            _check_equal(task, work)
            rows += _timings(task, runs)
        for line in _report(rows):
            say(line)
        return rows
    finally:
        shutil.rmtree(work)


def _timings(task: str, runs: dict[str, list[tuple[float, int]]]) -> list[ExtractionTiming]:
    seconds = {method: statistics.median(each for each, _ in done) for method, done in runs.items()}
    return [
        ExtractionTiming(
            task,
            method,
            seconds[method],
            max(peak for _, peak in done),
            seconds["read and copy"] / seconds[method],
        )
        for method, done in runs.items()
    ]


def _report(rows: list[ExtractionTiming]) -> list[str]:
    heads = ("seconds", "x disk", "of disk", "x naive", "peak GB")
    lines = [f"{'':8} {'':14}" + "".join(f" {head:>8}" for head in heads)]
    for row in rows:
        naive = next(
            each.seconds for each in rows if (each.task, each.method) == (row.task, "naive")
        )
        lines.append(
            f"{row.task:8} {row.method:14} {row.seconds:8.2f} {1 / row.disk_share:8.2f} "
            f"{row.disk_share:8.0%} {row.seconds / naive:8.2f} {row.peak / 1e9:8.2f}"
        )
    return lines


def _measure(task: str, method: str, work: Path) -> tuple[float, int]:
    """Seconds and peak memory of one method in a new process."""
    code = "import sys; from qwen3nb.bench.extraction import _child; _child(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, task, method, str(work)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def _child(task: str, method: str, work: str) -> None:
    import torch  # noqa: F401 - so that the import is not timed

    import qwen3nb.checkpoints.averaging
    import qwen3nb.checkpoints.writer

    if task == "extract":
        import qwen3nb.models.modeling.qwen3_seq2seq  # noqa: F401

    started = time.perf_counter()
    _METHODS[task][method](Path(work))
    print(json.dumps([time.perf_counter() - started, peak_memory()]))


def _sources(work: Path) -> list[Path]:
    return [work / f"checkpoint-{index + 1}" for index in range(_COPIES)]


def _read_and_copy(count: int) -> Callable[[Path], None]:
    def run(work: Path) -> None:
        files = [folder / "model.safetensors" for folder in _sources(work)[:count]]
        for file in files:
            subprocess.run([_program("cat"), str(file)], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([_program("cp"), str(files[0]), str(work / "copy")], check=True)
        (work / "copy").unlink()

    return run


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise FileNotFoundError(f"expected the program {name!r}, which every Unix has")
    return program


def _naive_average(work: Path) -> None:
    from safetensors.torch import load_file, save_file

    total: dict[str, Tensor] = {}
    for folder in _sources(work):
        for name, tensor in load_file(folder / "model.safetensors").items():
            total[name] = total[name] + tensor.float() if name in total else tensor.float()
    mean = {name: (tensor / _COPIES).bfloat16() for name, tensor in total.items()}
    save_file(mean, work / "average-naive.safetensors", metadata={"format": "pt"})


def _our_average(work: Path) -> None:
    from qwen3nb.checkpoints.averaging import average_checkpoints

    average_checkpoints(_sources(work), work / "average", show_progress=False)


def _naive_extract(work: Path) -> None:
    """What scripts do: load everything in float32, then save the encoder in its own dtype."""
    from safetensors.torch import load_file, save_file

    from qwen3nb.checkpoints.weight_names import encoder_name

    file = _sources(work)[0] / "model.safetensors"
    tensors = {name: tensor.float() for name, tensor in load_file(file).items()}
    encoder = {new: t.bfloat16() for name, t in tensors.items() if (new := encoder_name(name))}
    save_file(encoder, work / "encoder-naive.safetensors", metadata={"format": "pt"})


def _filtered_extract(work: Path) -> None:
    """The minimum: no cast, no check of the values, no digest."""
    from safetensors.torch import load_file, save_file

    from qwen3nb.checkpoints.weight_names import encoder_name

    tensors = load_file(_sources(work)[0] / "model.safetensors")
    encoder = {new: t for name, t in tensors.items() if (new := encoder_name(name))}
    save_file(encoder, work / "encoder-filtered.safetensors", metadata={"format": "pt"})
    (work / "encoder-filtered.safetensors").unlink()


def _our_extract(work: Path) -> None:
    """What `extract` does before verification: check every value, digest, and write."""
    from qwen3nb.checkpoints.checkpoint import open_checkpoint
    from qwen3nb.checkpoints.weight_names import encoder_name
    from qwen3nb.checkpoints.writer import Piece, write_pieces

    source = open_checkpoint(_sources(work)[0])
    pieces = [Piece(encoder_name(name), "BF16", (name,)) for name in source.tensors]
    file = work / "encoder.safetensors"
    file.unlink(missing_ok=True)
    write_pieces([source], pieces, file, label="extracting", show_progress=False)


_METHODS: dict[str, dict[str, Callable[[Path], None]]] = {
    "average": {
        "read and copy": _read_and_copy(_COPIES),
        "naive": _naive_average,
        "qwen3nb": _our_average,
    },
    "extract": {
        "read and copy": _read_and_copy(1),
        "naive": _naive_extract,
        "unchecked": _filtered_extract,
        "qwen3nb": _our_extract,
    },
}


def _check_equal(task: str, work: Path) -> None:
    ours = work / ("average/model.safetensors" if task == "average" else "encoder.safetensors")
    theirs = work / (
        "average-naive.safetensors" if task == "average" else "encoder-naive.safetensors"
    )
    if _data_digest(ours) != _data_digest(theirs):
        raise RuntimeError(f"{task}: the naive script and qwen3nb do not give the same values")
    for path in (theirs, ours if task == "extract" else ours.parent):
        path.unlink() if path.is_file() else shutil.rmtree(path)


def _data_digest(file: Path) -> dict[str, str]:
    from qwen3nb.checkpoints.safetensors_header import read_safetensors
    from qwen3nb.checkpoints.tensor_io import sha256_of

    return {name: sha256_of(entry) for name, entry in read_safetensors(file).items()}


def _write_checkpoint(folder: Path, size: str, *, seed: int) -> None:
    """Write a checkpoint of random bf16 weights; values repeat after a few million."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, layers, heads, groups, head, rows = SIZES[size]
    folder.mkdir()
    fields = {"model_type": "qwen3_encdec", "vocab_size": rows, "hidden_size": hidden}
    (folder / "config.json").write_text(json.dumps(fields))
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(1 << 22, generator=generator).bfloat16()
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (rows, hidden)}
    for stack in ("encoder", "decoder"):
        for layer in range(layers):
            at = f"model.{stack}.layers.{layer}."
            shapes |= {
                f"{at}self_attn.q_proj.weight": (heads * head, hidden),
                f"{at}self_attn.k_proj.weight": (groups * head, hidden),
                f"{at}self_attn.v_proj.weight": (groups * head, hidden),
                f"{at}self_attn.o_proj.weight": (hidden, heads * head),
                f"{at}self_attn.q_norm.weight": (head,),
                f"{at}self_attn.k_norm.weight": (head,),
                f"{at}mlp.gate_proj.weight": (inner, hidden),
                f"{at}mlp.up_proj.weight": (inner, hidden),
                f"{at}mlp.down_proj.weight": (hidden, inner),
                f"{at}input_layernorm.weight": (hidden,),
                f"{at}post_attention_layernorm.weight": (hidden,),
            }  # fmt: skip
        shapes[f"model.{stack}.norm.weight"] = (hidden,)
    tensors = {}
    for index, (name, shape) in enumerate(shapes.items()):
        count = int(torch.Size(shape).numel())
        shift = (index * 7919) % len(pool)
        copies = -(-(count + shift) // len(pool))
        tensors[name] = pool.repeat(copies)[shift : shift + count].reshape(shape).clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
