"""What do averaging and extraction take at the size of a real model, next to a naive script?

    python -m benchmarks.extraction --size 60M

Each method runs in its own process, in turn, so that its peak memory is its own; times
exclude imports. The reference is the disk: reading the inputs and copying one of them, whose
share of a method's time is how close the method comes to that limit.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.options import ChildTiming, command, finished, in_child
from qwen3nb.bench.harness import table
from qwen3nb.bench.random_models import qwen3_shape
from qwen3nb.utils.choices import check_choice

# hidden, intermediate, layers of each stack, heads, key-value heads, head size, rows
SIZES = {
    "tiny": (64, 96, 2, 4, 2, 16, 512),
    "60M": (512, 1536, 8, 8, 4, 64, 32_000),
    "0.6B": (1024, 3072, 28, 16, 8, 128, 152_036),
}
_COPIES = 3
_DISK = "read and copy"


def bench_extraction(
    *, size: str = "0.6B", repeats: int = 3, folder: str = ""
) -> list[dict[str, Any]]:
    """Average and extract, by each method: median seconds, and peak memory in bytes.

    Needs disk space for five checkpoints (11 GB at the size of Qwen3-0.6B) and, for the
    naive script, 9 GB of memory.

    Args:
        size: one of `SIZES`.
        repeats: number of rounds; the methods take turns in each.
        folder: where to write; by default a temporary folder. Removed afterwards.

    Raises:
        RuntimeError: the methods do not give the same values.
    """
    check_choice("size", size, SIZES)
    rows = []
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-", dir=folder or None) as name:
        work = Path(name)
        for index, source in enumerate(_sources(work)):
            _write_checkpoint(source, size, seed=index)
        for task, methods in _METHODS.items():
            runs: dict[str, list[ChildTiming]] = {method: [] for method in methods}
            for _ in range(repeats):
                for method in methods:
                    runs[method].append(in_child(_prepared, task, method, name))
            _check_equal(task, work)
            seconds = {each: median(one.seconds for one in done) for each, done in runs.items()}
            rows += [
                {
                    "task": task,
                    "method": method,
                    "seconds": seconds[method],
                    "disk_ratio": seconds[method] / seconds[_DISK],
                    "disk_share": seconds[_DISK] / seconds[method],
                    "naive_ratio": seconds[method] / seconds["naive"],
                    "peak": max(one.peak for one in done),
                    "peak_gb": max(one.peak for one in done) / 1e9,
                }
                for method, done in runs.items()
            ]
    return rows


def shown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    columns = (
        ": {task:8} {method} | seconds: {seconds:.2f} | x disk: {disk_ratio:.2f} | "
        "of disk: {disk_share:.0%} | x naive: {naive_ratio:.2f} | peak GB: {peak_gb:.2f}"
    )
    return table(rows=rows, shown=columns)


def _prepared(task: str, method: str, work: str) -> Callable[[], None]:
    """In a process of its own: import what the method needs."""
    import torch  # noqa: F401

    import qwen3nb.checkpoints.averaging
    import qwen3nb.checkpoints.writer

    if task == "extract":
        import qwen3nb.models.modeling.qwen3_seq2seq  # noqa: F401
    return partial(_METHODS[task][method], Path(work))


def _sources(work: Path) -> list[Path]:
    return [work / f"checkpoint-{index + 1}" for index in range(_COPIES)]


def _read_and_copy(work: Path, *, count: int) -> None:
    programs = {name: shutil.which(name) for name in ("dd", "cp")}
    if missing := [name for name, program in programs.items() if program is None]:
        raise FileNotFoundError(f"expected the program {missing[0]!r}, which every Unix has")
    files = [str(folder / "model.safetensors") for folder in _sources(work)[:count]]
    for file in files:
        finished([str(programs["dd"]), f"if={file}", "of=/dev/null", "bs=128K"])
    finished([str(programs["cp"]), files[0], str(work / "copy")])
    (work / "copy").unlink()


def _naive(work: Path, task: str, *, cast: bool = True) -> None:
    """What scripts do: load everything, in float32 or as it is, and save the result in bf16."""
    from safetensors.torch import load_file, save_file

    from qwen3nb.checkpoints.names import encoder_name

    total: dict[str, Any] = {}
    for folder in _sources(work)[: _COPIES if task == "average" else 1]:
        for name, tensor in load_file(folder / "model.safetensors").items():
            wide = tensor.float() if cast else tensor
            total[name] = total[name] + wide if name in total else wide
    if task == "average":
        total = {name: (tensor / _COPIES).bfloat16() for name, tensor in total.items()}
    else:
        total = {new: t.bfloat16() for name, t in total.items() if (new := encoder_name(name))}
    file = work / f"{task}-{'naive' if cast else 'unchecked'}.safetensors"
    save_file(total, file, metadata={"format": "pt"})
    if not cast:
        file.unlink()


def _our_average(work: Path) -> None:
    from qwen3nb.checkpoints.averaging import average_checkpoints

    average_checkpoints(_sources(work), work / "average")


def _our_extract(work: Path) -> None:
    """What `extract` does before verification: check every value, digest, and write."""
    from qwen3nb.checkpoints.folder import open_checkpoint
    from qwen3nb.checkpoints.names import encoder_name
    from qwen3nb.checkpoints.writer import Piece, write_pieces

    source, file = open_checkpoint(_sources(work)[0]), work / "extract" / "model.safetensors"
    pieces = [Piece(encoder_name(name), "BF16", (name,)) for name in source.weights.tensors]
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    write_pieces([source], pieces, file)


_METHODS: dict[str, dict[str, Callable[[Path], None]]] = {
    "average": {
        _DISK: partial(_read_and_copy, count=_COPIES),
        "naive": partial(_naive, task="average"),
        "qwen3nb": _our_average,
    },
    "extract": {
        _DISK: partial(_read_and_copy, count=1),
        "naive": partial(_naive, task="extract"),
        "unchecked": partial(_naive, task="extract", cast=False),
        "qwen3nb": _our_extract,
    },
}


def _check_equal(task: str, work: Path) -> None:
    from qwen3nb.checkpoints.folder import ModelFolder

    files = [work / task / "model.safetensors", work / f"{task}-naive.safetensors"]
    opened = (ModelFolder(file.parent).weights_in(file.name) for file in files)
    ours, theirs = (each.sha256_each(each.tensors) for each in opened)
    if ours != theirs:
        raise RuntimeError(f"{task}: the naive script and qwen3nb do not give the same values")
    for file in files:  # the disk holds five checkpoints, not seven
        file.unlink()


def _write_checkpoint(folder: Path, size: str, *, seed: int) -> None:
    """Write a checkpoint of random bf16 weights; values repeat after a few million."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, layers, heads, groups, head, rows = SIZES[size]
    fields = qwen3_shape(*SIZES[size][:-1], vocab_size=rows, model_type="qwen3_encdec")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fields))
    parts: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (heads * head, hidden),
        "self_attn.k_proj": (groups * head, hidden),
        "self_attn.v_proj": (groups * head, hidden),
        "self_attn.o_proj": (hidden, heads * head),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (rows, hidden)}
    for stack in ("model.encoder", "model.decoder"):
        for layer in range(layers):
            shapes |= {f"{stack}.layers.{layer}.{name}.weight": parts[name] for name in parts}
        shapes[f"{stack}.norm.weight"] = (hidden,)
    pool = torch.randn(1 << 22, generator=torch.Generator().manual_seed(seed)).bfloat16()
    tensors = {}
    for index, (name, shape) in enumerate(shapes.items()):
        count, shift = int(torch.Size(shape).numel()), (index * 7919) % len(pool)
        values = pool.repeat(-(-(count + shift) // len(pool)))[shift : shift + count]
        tensors[name] = values.reshape(shape).clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    command(bench_extraction, shown)
