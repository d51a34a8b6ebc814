"""Benchmark what reranking does besides scoring: hold, score, write and read runs; no model.

The arrays take turns with dictionaries of dictionaries on the same synthetic scores. Each
measurement runs in a child process, which reports its peak (VmHWM of Linux) and CPU time; those of
a process that only imports are subtracted. Both must write the same bytes and the same metrics.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.trec import load_run, read_run, write_run
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.hardware import peak_memory

__all__ = ["RunBench", "bench_runs"]

METRICS = ("nDCG@10", "MRR@10")
Qrels = dict[str, dict[str, int]]


@dataclass(frozen=True)
class RunBench:
    """Cost of a reranking apart from the model, of either representation of its runs.

    Attributes:
        queries: number of queries.
        depth: documents per query.
        seconds: CPU time by representation, ``dictionaries`` and ``arrays``.
        megabytes: peak memory above that of a process that only imports.
    """

    queries: int
    depth: int
    seconds: Mapping[str, float]
    megabytes: Mapping[str, float]

    def table(self) -> str:
        """The measurements as plain text."""
        lines = [f"{self.queries:,} queries x {self.depth:,} documents"]
        lines += [
            f"{name:<13} {self.seconds[name]:7.1f} CPU s   peak {self.megabytes[name]:7.0f} MB"
            for name in self.seconds
        ]
        before, after = self.seconds
        lines.append(
            f"ratio         {self.seconds[before] / self.seconds[after]:7.1f}"
            f"         {self.megabytes[before] / self.megabytes[after]:12.1f}"
        )
        return "\n".join(lines)


def bench_runs(*, queries: int = 6980, depth: int = 1000) -> RunBench:
    """Measure both representations.

    Args:
        queries: number of queries.
        depth: documents per query.

    Raises:
        ValueError: not Linux, a child process failed, or the representations differ in what they
            compute or write.
    """
    if sys.platform != "linux":
        raise ValueError(f"peak memory is read from /proc: expected Linux, got {sys.platform}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder / "first.trec", _first(queries, depth), tag="first")
        done = {way: _child(way, folder, depth) for way in ("idle", *_WAYS)}
    before, after = (done[way]["output"] for way in _WAYS)
    if before != after:
        raise ValueError(f"expected equal metrics and files; got {before} and {after}")
    idle = done["idle"]
    return RunBench(
        queries=queries,
        depth=depth,
        seconds={way: done[way]["seconds"] for way in _WAYS},
        megabytes={way: (done[way]["peak"] - idle["peak"]) / 1e6 for way in _WAYS},
    )


def _first(queries: int, depth: int) -> RunArrays:
    """Random documents with descending scores per query."""
    draw = np.random.default_rng(0)
    builder = RunBuilder()
    for query in range(queries):
        documents = draw.choice(20 * depth, size=depth, replace=False).tolist()
        scores = np.sort(draw.normal(size=depth))[::-1].tolist()
        names = [f"{document:07d}" for document in documents]
        builder.add(f"q{query}", dict(zip(names, scores, strict=True)))
    return builder.run()


def _dictionaries(folder: Path, depth: int) -> dict[str, Any]:
    first = read_run(folder / "first.trec")
    reranked = {
        query: dict(zip(sorted(scores), _log_odds(row, len(scores)), strict=True))
        for row, (query, scores) in enumerate(first.items())
    }
    qrels = {query: _judged(list(scores)) for query, scores in first.items()}
    write_run(folder / "copy.trec", first, tag="first")
    write_run(folder / "dictionaries.trec", reranked, tag="reranked")
    return _output(folder / "dictionaries.trec", first, reranked, qrels, depth)


def _arrays(folder: Path, depth: int) -> dict[str, Any]:
    first = load_run(folder / "first.trec")
    ordered = first.by_name()
    log_odds = np.empty(len(ordered.scores))
    for row, query in enumerate(ordered):
        part = ordered.part(query)
        log_odds[part] = _log_odds(row, part.stop - part.start)
    reranked = replace(ordered, scores=log_odds)
    qrels = {query: _judged(first.listed(query)) for query in first}
    write_run(folder / "arrays.trec", reranked, tag="reranked")
    return _output(folder / "arrays.trec", first, reranked, qrels, depth)


_WAYS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "dictionaries": _dictionaries,
    "arrays": _arrays,
}


def _log_odds(row: int, count: int) -> list[float]:
    """What a reranker would have scored."""
    scores: list[float] = np.random.default_rng(row).normal(size=count).tolist()
    return scores


def _judged(documents: list[str]) -> dict[str, int]:
    return dict.fromkeys(documents[::100], 1)


def _output(file: Path, first: Any, reranked: Any, qrels: Qrels, depth: int) -> dict[str, Any]:
    values = [
        score_run(qrels, reranked, METRICS, zeros=True),
        score_run(qrels, first, (*METRICS, f"Recall@{depth}"), zeros=True),
    ]
    return {"metrics": sha256_json(values), "file": sha256_file(file)}


def _child(way: str, folder: Path, depth: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "qwen3nb.bench.runs", way, str(folder), str(depth)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the child process for {way} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _main(way: str, folder: Path, depth: int) -> None:
    """In the child process: do the work one way, and print CPU seconds, peak and output."""
    started = time.process_time()
    output = _WAYS[way](folder, depth) if way in _WAYS else None
    seconds = time.process_time() - started
    print(json.dumps({"seconds": seconds, "peak": peak_memory(), "output": output}))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
