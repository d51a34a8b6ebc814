"""Sweep on a Ray cluster of this machine whose workers are killed and replaced at random moments.

    python benchmarks/chaos.py --repeat 10 --seed 0

Every record must equal that of a local sweep, query by query, with no record too many and nothing
left behind: no temporary file, note of a failure, scratch folder or process. QWEN3NB_MIRROR gives
access to other tiers than the built-in ones. For developers: a round takes minutes.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from qwen3nb import paths
from qwen3nb.execution import parts
from qwen3nb.execution.sweep import Job, sweep
from qwen3nb.records.store import load_results, verify
from qwen3nb.study import create_study

MARK, PORT = "QWEN3NB_CHAOS", 6391
RAY = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
RAY += ["--include-log-monitor=false"]  # nobody reads them


class Cluster:
    """A head without cores, which lives, and workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark, self.started, self.killed = folder, uuid.uuid4().hex, 0, 0
        self.workers: list[subprocess.Popen] = []
        folder.mkdir()
        self._start("--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")

    def _start(self, *options: str) -> subprocess.Popen:
        """Start a node and wait until it has joined; Ray gives up early on a busy machine."""
        self.started += 1
        own = {MARK: self.mark, "QWEN3NB_CACHE": str(self.folder / f"cache-{self.started}")}
        own |= dict.fromkeys(("TMPDIR", "RAY_TMPDIR"), str(self.folder))
        own |= {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}
        log = self.folder / f"{self.started}.log"
        with log.open("wb") as file:
            command = [*RAY, f"--object-store-memory={80 << 20}", *options]
            node = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **own})
        while "Ray runtime started" not in log.read_text():
            if node.poll() is not None:
                if "--head" in options:
                    self.end()  # to free its port
                return self._start(*options)
            time.sleep(1)
        return node

    def add(self) -> None:
        """Add a worker."""
        self.workers.append(self._start(f"--address=127.0.0.1:{PORT}", "--num-cpus=1"))

    def kill(self, worker: subprocess.Popen) -> None:
        """Kill a worker's raylet as a lost machine would, and reap what started it."""
        self.workers.remove(worker)
        for process in psutil.Process(worker.pid).children():
            process.kill()
        worker.kill()
        worker.wait()
        self.killed += 1

    def end(self) -> list[str]:
        """End all processes that the nodes have started, directly or not; return their commands."""
        lines = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    lines.append(" ".join(process.cmdline()))
                    process.kill()
        return lines

    def chaos(self, rng: random.Random, kills: int, apart: int, ended: threading.Event) -> None:
        """Kill a random worker at a random moment, so many times, and add a new one each time."""
        for _ in range(kills):
            if ended.wait(rng.uniform(5, apart)):
                return
            self.kill(rng.choice(self.workers))
            self.add()


def problems(local: Path, cluster: Cluster) -> list[str]:
    """Compare the records with those of a local sweep, and look for what was left behind."""
    results, own = load_results(), load_results(local)
    found = [f"{len(results)} records, {len(own)} locally"] * (len(results) != len(own))
    expected = {(r.model.identity, r.task.key): r for r in own}
    for one in results:
        other = expected.pop((one.model.identity, one.task.key), one)
        one, other = (replace(r, task=replace(r.task, mteb=None)) for r in (one, other))
        for name in ("model", "task", "metrics", "per_query", "config", "environment", "parts"):
            if getattr(one, name) != getattr(other, name):
                found.append(f"{one.model.label}, {one.task.key}: another {name}")
    found += [f"missing: {key}" for key in expected] + [str(each) for each in verify()]
    time.sleep(5)  # until processes have noticed
    left = [*paths.results().rglob("*.tmp"), *paths.results().glob("failed/*")]
    left += [*paths.results().glob("partial/*"), *cluster.folder.glob("qwen3nb-run-*")]
    lines = [line for line in cluster.end() if "-m qwen3nb." in line or "ipykernel" in line]
    return found + [f"left: {each}" for each in (*left, *lines)]


def main() -> int:
    """Repeat sweeps; return 1 if one is not equal to the local one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", help="repeatable")
    parser.add_argument("--tier", default="smoke")
    parser.add_argument("--apart", type=int, default=60, help="most seconds between two kills")
    for name, default in (("workers", 5), ("kills", 3), ("repeat", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    parts._LEAST_CHARACTERS = 1.0  # divide also the smallest tier
    bad, top = 0, Path(tempfile.mkdtemp(prefix="q3-", dir="/tmp"))  # paths of sockets are short
    os.environ["QWEN3NB_CACHE"] = str(top / "cache")
    os.environ["QWEN3NB_HOME"] = str(create_study(top / "study"))
    models = args.model or ["bm25", *(f"random:{size}" for size in (8, 16, 32, 64, 128))]
    jobs = [Job("eval", {"checkpoint": each, "tier": args.tier}) for each in models]
    sweep(jobs, show_progress=False)
    local = paths.results().rename(top / "local")
    for seed in range(args.seed, args.seed + args.repeat):
        shutil.rmtree(paths.results(), ignore_errors=True)
        shutil.rmtree(paths.book_runs(), ignore_errors=True)
        cluster, ended, started = Cluster(top / f"{seed}"), threading.Event(), time.monotonic()
        for _ in range(args.workers):
            cluster.add()
        order = random.Random(seed), args.kills, args.apart, ended
        thread = threading.Thread(target=cluster.chaos, args=order)
        thread.start()
        try:
            outcomes = sweep(jobs, ray=f"127.0.0.1:{PORT}", show_progress=False)
            found = [f"{each.name}: {each.reason}" for each in outcomes if each.status != "done"]
        except BaseException:
            cluster.end()
            raise
        finally:
            ended.set()
            thread.join()
        seconds = time.monotonic() - started
        found += problems(local, cluster)
        line = f"seed {seed}: {cluster.killed} killed, {seconds:.0f} s, {found or 'equal'}"
        print(line, flush=True)
        bad += bool(found)
        shutil.rmtree(cluster.folder, ignore_errors=True)
    shutil.rmtree(top, ignore_errors=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
