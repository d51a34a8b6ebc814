"""Does encoding many texts take ever more memory? Resident memory after each part of them.

    python -m benchmarks.memory --texts 100000
    python -m benchmarks.memory --model all-MiniLM-L6-v2 --texts 20000 --capacities 1024 16

oneDNN keeps each product that it has prepared, by the number of tokens among others, which differs
from pass to pass; `qwen3nb.models.inference.onednn_memory` bounds how many. Each capacity runs in a
process of its own, with its environment variable. Vectors are dropped, so that what grows is the
program. ``default`` is the bound that the package sets; 1024 is oneDNN's own. Speeds are ratios to
that.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.options import PYTHON, command, finished
from qwen3nb.bench.harness import machine, table, timed
from qwen3nb.utils.hardware import resident_memory

_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_OWN = "1024"  # oneDNN's own capacity
_PARTS = 10  # of the texts, after each of which memory is read
_RANDOM = "random Qwen3, one layer"
_LONGEST = 60  # words of a text, at most


@dataclass(frozen=True)
class MemoryGrowth:
    """Resident memory while texts are encoded, with one bound of oneDNN's cache."""

    capacity: str  # products that oneDNN keeps; or ``default``, the bound of the package
    cpu: float  # seconds of all parts after the first
    before: int  # bytes with the model loaded, and after each tenth of the texts
    after: tuple[int, ...]

    @property
    def grown(self) -> int:
        """Bytes by which memory has grown after the first tenth."""
        return max(self.after) - self.after[0]


@dataclass(frozen=True)
class MemoryBench:
    """The growth for each capacity."""

    title: str
    growths: tuple[MemoryGrowth, ...]

    def table(self) -> str:
        """The growth as plain text, in megabytes."""
        own = next((each.cpu for each in self.growths if each.capacity == _OWN), None)
        rows = []
        for each in self.growths:
            rows.append(
                {
                    "capacity": each.capacity,
                    "loaded MB": f"{each.before / 1e6:.0f}",
                    "after a tenth": f"{each.after[0] / 1e6:.0f}",
                    "after half": f"{each.after[_PARTS // 2 - 1] / 1e6:.0f}",
                    "after all": f"{each.after[-1] / 1e6:.0f}",
                    "grown after a tenth": f"{each.grown / 1e6:.0f}",
                    "CPU s": f"{each.cpu:.1f}",
                    "x CPU": "" if own is None else f"{each.cpu / own:.3f}",
                }
            )
        return table(machine(), self.title, rows=rows)


def bench_memory(
    *,
    texts: int = 100_000,
    model: str = _RANDOM,
    dtype: str = "float32",
    capacities: tuple[str, ...] = ("1024", "default"),
    rounds: int = 1,
) -> MemoryBench:
    """Measure how memory grows while texts of 1 to 60 words are encoded."""
    growths: dict[str, MemoryGrowth] = {}
    with tempfile.TemporaryDirectory() as folder:
        spec = model
        if model == _RANDOM:
            _write_model(Path(folder))
            spec = folder
        for _ in range(rounds):  # in turn; of each, the quickest counts
            for capacity in capacities:
                growth = _measured(spec, dtype, texts, capacity)
                best = growths.get(capacity, growth)
                growths[capacity] = min(growth, best, key=lambda each: each.cpu)
    title = f"{model}, {dtype}, {texts:,} texts of 1 to {_LONGEST} words"
    return MemoryBench(title, tuple(growths.values()))


def _measured(spec: str, dtype: str, texts: int, capacity: str) -> MemoryGrowth:
    """Encode in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != _CAPACITY}
    if capacity != "default":
        environment[_CAPACITY] = capacity
    code = "import sys; from benchmarks.memory import encode; encode(*sys.argv[1:])"
    printed = finished([PYTHON, "-c", code, spec, dtype, str(texts)], environment)
    measured = json.loads(printed.splitlines()[-1])
    return MemoryGrowth(capacity, measured["cpu"], measured["before"], tuple(measured["after"]))


def _write_model(folder: Path) -> None:
    from qwen3nb.bench.random_models import SHAPE, qwen3_shape, write_random_encoder

    shape = {**SHAPE, **qwen3_shape(384, 512, 1, 6, 6, 64), "vocab_size": 1024}
    write_random_encoder(folder, list(_texts(200, 0)), shape=shape)


def _texts(count: int, seed: int) -> Iterator[str]:
    """Texts of 1 to 60 words, each different."""
    draw = np.random.default_rng(seed)
    for number in range(count):
        words = draw.integers(0, 500, draw.integers(1, _LONGEST + 1))
        yield f"{seed} {number} " + " ".join(f"word{word}" for word in words)


def encode(spec: str, dtype: str, texts: str) -> None:
    """In the child process: encode the texts part by part, and print memory and time."""
    from qwen3nb.models.load import load_encoder

    encoder = load_encoder(spec, dtype=dtype, cache=False, show_progress=False)
    part = int(texts) // _PARTS
    before = resident_memory()
    cpu, after = 0.0, []
    for number in range(_PARTS):
        part_of_texts = list(_texts(part, number))
        _, took = timed(partial(encoder.encode, part_of_texts))
        if number:
            cpu += took.cpu
        after.append(resident_memory())
    print(json.dumps({"cpu": cpu, "before": before, "after": after}))


if __name__ == "__main__":
    command(bench_memory, MemoryBench.table)
