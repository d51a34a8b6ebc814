"""A Ray cluster of two nodes on this machine, one of which can be killed with all it runs.

A fixture of a file starts it, for all its tests:

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory):
        with two_nodes() as cluster:
            yield cluster

``cluster.address`` is for ``--ray`` or `connected`. A node killed with `kill` may be replaced
by `add`. What the cluster ran is listed by `alive`; nothing of it outlives the block.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

MARK = "QWEN3NB_TEST_CLUSTER"
STORE = 80 << 20  # bytes of shared memory of a node, near the least that Ray takes
# A node that no longer answers counts as dead after about a second, not after 30.
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 3,
}


class TwoNodes:
    """The cluster: ``left`` is the head, to which the tests connect; ``right`` may die."""

    def __init__(self, folder, *, cpus):
        from ray.cluster_utils import Cluster

        self.folder, self.cpus, self.mark, self.dead = folder, cpus, uuid.uuid4().hex, []
        self.cluster = Cluster(shutdown_at_exit=False)

    def start(self):
        """Start both nodes; on a busy machine, Ray may take a node for dead before it is up."""
        self.left = self._patiently(
            "left", include_dashboard=False, no_monitor=True, _system_config=QUICK
        )
        self.right = self._patiently("right")

    def _patiently(self, name, **options):
        try:
            return self.add(name, **options)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            return self.add(name, **options)

    @property
    def address(self):
        return self.cluster.address

    def add(self, name, environment=None, **options):
        """Add a node, such as one in the place of a dead one, with variables of its own."""
        cache = self.folder / f"cache-{name}"
        own = {
            MARK: self.mark,
            "QWEN3NB_CACHE": str(cache),
            "RAY_TMPDIR": str(self.folder),  # all of the cluster, with the note of its address
            **(environment or {}),
        }
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in own.items():
                patch.setenv(variable, value)  # inherited by all that the node starts
            return self.cluster.add_node(
                node_name=name,
                num_cpus=self.cpus,
                object_store_memory=STORE,
                include_log_monitor=False,
                **options,
            )

    def kill(self, node):
        """Kill the raylet of a node as a lost machine would: at once, without a word."""
        from ray._private.ray_constants import PROCESS_TYPE_RAYLET

        for info in node.all_processes[PROCESS_TYPE_RAYLET]:
            info.process.send_signal(signal.SIGKILL)
            info.process.wait()  # reaped: a zombie would seem to live to its workers
        self.cluster.worker_nodes.discard(node)
        self.dead.append(node)

    def alive(self):
        """Return the processes that the cluster started, directly or not, and that still run."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def runs(self):
        """Return the processes of runs that still run: guards, commands and kernels."""
        return [process for process in self.alive() if _is_of_a_run(process)]

    def _is_ours(self, process):
        try:
            ours = process.environ().get(MARK) == self.mark
            return ours and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def shut_down(self):
        """End every process of the cluster at once; it has nothing left to save."""
        for node in (*self.cluster.list_all_nodes(), *self.dead):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
        family = self.alive()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_of_a_run(process):
    try:
        line = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return any(word in line for word in ("-m qwen3nb.", "ipykernel"))


@contextmanager
def two_nodes(*, cpus=1):
    """Start a cluster of two nodes with ``cpus`` cores each; end it with all that it runs."""
    # Short: the path of a Unix socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="q3-", dir="/tmp"))
    cluster = TwoNodes(folder, cpus=cpus)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.shut_down()
        shutil.rmtree(folder, ignore_errors=True)
