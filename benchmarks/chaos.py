"""Sweep on a Ray cluster of this machine whose workers are killed and replaced at random moments.

    python benchmarks/chaos.py --repeat 10 --seed 0

Every record must equal that of a local sweep, query by query, with no record too many and nothing
left behind: no temporary file, note of a failure, scratch folder or process. With a mirror in
QWEN3NB_MIRROR, other tiers than the built-in ones can be taken. Paths of sockets are short, so the
files of Ray are in a folder of /tmp. For developers: a round takes minutes.
"""

import argparse
import os
import random
import shutil
import signal
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

MARK = "QWEN3NB_CHAOS"
PORT = 6391
STORE = 80 << 20  # bytes of shared memory of a node


class Cluster:
    """A head without cores, which lives, and workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark, self.count = folder, uuid.uuid4().hex, 0
        self.workers: list[subprocess.Popen] = []
        self.killed = 0
        head = ("--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")
        self.head = self._start("head", *head)
        self.wait()

    def _start(self, name: str, *options: str) -> subprocess.Popen:
        own = {
            MARK: self.mark,
            "RAY_TMPDIR": str(self.folder),
            "TMPDIR": str(self.folder),
            "QWEN3NB_CACHE": str(self.folder / f"cache-{name}"),
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_failure_threshold": "4",
        }
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", *options]
        ray += [f"--object-store-memory={STORE}", "--disable-usage-stats"]
        log = (self.folder / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(ray, stdout=log, stderr=log, env={**os.environ, **own})

    def add(self) -> None:
        """Add a worker."""
        self.count += 1
        name = f"w{self.count}"
        options = (f"--address=127.0.0.1:{PORT}", "--num-cpus=1", f"--node-name={name}")
        self.workers.append(self._start(name, *options))

    def wait(self) -> None:
        """Wait until the head and all workers have started."""
        logs = [
            self.folder / "head.log",
            *(self.folder / f"w{i + 1}.log" for i in range(self.count)),
        ]
        while not all("Ray runtime started" in log.read_text() for log in logs):
            if dead := [each for each in (self.head, *self.workers) if each.poll() is not None]:
                raise SystemExit(f"did not start: {dead}; see {self.folder}")
            time.sleep(1)

    def kill(self, worker: subprocess.Popen) -> None:
        """Kill a worker's raylet as a lost machine would, and reap what started it."""
        self.workers.remove(worker)
        for process in psutil.Process(worker.pid).children():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        worker.kill()
        worker.wait()
        self.killed += 1

    def alive(self, *words: str) -> list[str]:
        """Return the command lines of the processes of all nodes that contain one of the words."""
        lines = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                ours = any(word in line for word in words)
                if ours and process.environ().get(MARK) == self.mark:
                    lines.append(line)
        return lines

    def end(self) -> None:
        """End all processes of the cluster."""
        for worker in [*self.workers]:
            self.kill(worker)
        self.head.send_signal(signal.SIGTERM)
        self.head.wait()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    process.kill()


def chaos(cluster: Cluster, rng: random.Random, kills: int, ended: threading.Event) -> None:
    """Kill a random worker at a random moment, so many times, and add a new one each time."""
    for _ in range(kills):
        if ended.wait(rng.uniform(5, 40)):
            return
        cluster.kill(rng.choice(cluster.workers))
        if not ended.wait(rng.uniform(0, 5)):
            cluster.add()


def problems(local: Path, cluster: Cluster) -> list[str]:
    """Compare the records with those of a local sweep, and look for what was left behind."""
    results, own = load_results(), load_results(local)
    found = [f"{len(results)} records, {len(own)} locally"] * (len(results) != len(own))
    expected = {(r.model.identity, r.task.key): r for r in own}
    for one in results:
        other = expected.pop((one.model.identity, one.task.key), None)
        for name in ("metrics", "per_query", "config", "environment", "parts"):
            if other is None or getattr(one, name) != getattr(other, name):
                found.append(f"{one.model.label}, {one.task.key}: another {name}")
        if other is not None and replace(one.task, mteb=None) != replace(other.task, mteb=None):
            found.append(f"{one.model.label}, {one.task.key}: another task")
    found += [f"missing: {key}" for key in expected] + [str(each) for each in verify()]
    time.sleep(5)  # until processes have noticed
    left = [*paths.results().rglob("*.tmp"), *paths.results().glob("failed/*")]
    left += [*paths.results().glob("partial/*"), *cluster.folder.glob("qwen3nb-run-*")]
    found += [f"left: {each}" for each in left]
    return found + [f"runs: {line}" for line in cluster.alive("-m qwen3nb.", "ipykernel")]


def main() -> int:
    """Repeat sweeps; return 1 if one is not equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", help="repeatable")
    parser.add_argument("--tier", default="smoke")
    for name, default in (("workers", 5), ("kills", 3), ("repeat", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    parts._LEAST = 1.0  # divide also the smallest tier
    bad, top = 0, Path(tempfile.mkdtemp(prefix="q3-", dir="/tmp"))
    os.environ["QWEN3NB_HOME"] = str(create_study(top / "study"))
    models = args.model or ["bm25", "random:8", "random:16"]
    jobs = [Job("eval", {"checkpoint": each, "tier": args.tier}) for each in models]
    sweep(jobs, show_progress=False)
    local = paths.results().rename(top / "local")
    for seed in range(args.seed, args.seed + args.repeat):
        shutil.rmtree(paths.results(), ignore_errors=True)
        shutil.rmtree(paths.book_runs(), ignore_errors=True)
        folder, ended, started = top / f"{seed}", threading.Event(), time.monotonic()
        folder.mkdir()
        cluster = Cluster(folder)
        for _ in range(args.workers):
            cluster.add()
        cluster.wait()
        order = (cluster, random.Random(seed), args.kills, ended)
        thread = threading.Thread(target=chaos, args=order)
        thread.start()
        try:
            outcomes = sweep(jobs, ray=f"127.0.0.1:{PORT}", show_progress=False)
            found = [f"{each.name}: {each.reason}" for each in outcomes if each.status != "done"]
            found += problems(local, cluster)
        finally:
            ended.set()
            thread.join()
            killed, seconds = cluster.killed, time.monotonic() - started
            cluster.end()
        print(f"seed {seed}: {killed} killed, {seconds:.0f} s, {found or 'equal'}", flush=True)
        bad += bool(found)
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(top, ignore_errors=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
