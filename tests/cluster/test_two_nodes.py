"""Vectors in parts and sweeps on two nodes: the same as here, with a node killed."""

import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from helpers.beir import write_words
from helpers.notebooks import notebook_of, save

import qwen3nb
from qwen3nb import paths
from qwen3nb.cli.main import main
from qwen3nb.cluster import nodes
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.execution.interruption import Interrupted
from qwen3nb.execution.sweep import Job, sweep
from qwen3nb.models.load import load_encoder
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.store import load_results, verify
from qwen3nb.vectors.block_file import damaged_shards, read_manifest
from qwen3nb.vectors.encode_file import encode_to_file
from qwen3nb.vectors.text_files import read_texts

pytestmark = [pytest.mark.integration]
# The oldest Ray that is supported leaves files and processes of its own open.
HAS_OLDEST_RAY = version("ray").startswith("2.49.")
if HAS_OLDEST_RAY:
    for leak in ("_io.FileIO name='/dev/null'", "function Popen.__del__"):
        of_ray = f"ignore:.*<{leak}:pytest.PytestUnraisableExceptionWarning"
        pytestmark.append(pytest.mark.filterwarnings(of_ray))

MARK = "QWEN3NB_TEST_CLUSTER"
STORE = 80 << 20  # bytes of shared memory of a node, near the least that Ray takes
# A node that no longer answers counts as dead after about a second, not after 30.
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 6,  # fewer are missed by a node that is only busy
}


class TwoNodes:
    """A cluster on this machine: ``left`` is its head, to which we connect; ``right`` may die."""

    def __init__(self, folder):
        from ray.cluster_utils import Cluster

        self.folder, self.mark, self.dead = folder, uuid.uuid4().hex, []
        self.addresses = (f"127.0.0.{number}" for number in range(2, 255))
        self.cluster = Cluster(shutdown_at_exit=False)

    def start(self):
        self.left = self.add("left", include_dashboard=False, no_monitor=True, _system_config=QUICK)
        self.right = self.add("right")

    @property
    def address(self):
        return self.cluster.address

    def add(self, name, variables=(), **options):
        """Add a node, such as one in the place of a dead one, with a cache of its own."""
        own = {
            "HOME": str(self.folder / "home"),
            MARK: self.mark,
            "QWEN3NB_CACHE": str(self.folder / f"cache-{name}"),
            "RAY_TMPDIR": str(self.folder),  # all of the cluster, with the note of its address
            **dict(variables),
        }
        options |= {"node_name": name, "num_cpus": 1, "include_log_monitor": False}
        if name != "left":  # as on a machine of its own
            options["node_ip_address"] = next(self.addresses)
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in own.items():
                patch.setenv(variable, value)  # inherited by all that the node starts
            node = self.cluster.add_node(object_store_memory=STORE, **options)
        self.connect_to_head(node)
        return node

    def connect_to_head(self, node):
        """Note the head's address again: the oldest Ray connects to the node that noted its own."""
        note = Path(node.get_session_dir_path(), "node_ip_address.json")
        if note.exists():
            note.write_text(json.dumps({"node_ip_address": self.cluster.head_node.node_ip_address}))

    def kill(self, node):
        """Kill the raylet of a node as a lost machine would: at once, without a word."""
        from ray._private.ray_constants import PROCESS_TYPE_RAYLET

        for info in node.all_processes[PROCESS_TYPE_RAYLET]:
            info.process.send_signal(signal.SIGKILL)
            info.process.wait()  # reaped: a zombie would seem to live to its workers
        self.cluster.worker_nodes.discard(node)
        self.dead.append(node)

    def alive(self, *words):
        """What the cluster started, directly or not, and still runs; with one of the words."""
        running = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                ours = process.environ().get(MARK) == self.mark
                line = " ".join(process.cmdline())
                named = not words or any(word in line for word in words)
                if ours and named and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
        return running

    def runs(self):
        """Guards, commands and kernels."""
        return self.alive("-m qwen3nb.", "ipykernel")

    def workers(self):
        return self.alive("ShardWorker")

    def shut_down(self):
        """End every process of the cluster at once; it has nothing left to save."""
        for node in (*self.cluster.list_all_nodes(), *self.dead):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
        for process in self.alive():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        deadline = time.monotonic() + 240
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.05)


MODEL = "random:64"
PARTS = 3
PARAMETERS = """\
checkpoint: str = "bm25"  # a model
data: str = ""  # a folder"""
# A run says that it has begun, and evaluates when it may.
WAITING = """\
import os, time, uuid
from pathlib import Path
gate = Path(data).parent
(gate / f"begun-{uuid.uuid4().hex}").write_text(os.environ["QWEN3NB_CACHE"])
while not (gate / "go").exists():
    time.sleep(0.1)
from qwen3nb.evaluation.evaluate import evaluate
evaluate(checkpoint, data=Path(data), show_progress=False)"""


@pytest.fixture(scope="module")
def cluster():
    # Short: the path of a Unix socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="q3-", dir="/tmp"))
    cluster = TwoNodes(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.shut_down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def both(cluster):
    """The cluster, in which a node that an earlier test has killed is replaced."""
    if cluster.right in cluster.dead:
        cluster.right = cluster.add("right")
    return cluster


@pytest.fixture
def waiting(checkout):
    """A notebook whose runs wait for the file ``go`` beside their data."""
    write_words(checkout / "gate" / "words")
    save(notebook_of(WAITING, parameters=PARAMETERS), "waiting")
    return checkout / "gate"


def begun(gate, count):
    return lambda: len(list(gate.glob("begun-*"))) >= count


def jobs_of(gate, *checkpoints):
    data = str(gate / "words")
    return [Job("waiting", {"checkpoint": str(each), "data": data}) for each in checkpoints]


class Meanwhile(threading.Thread):
    """Acts once a condition holds, while the test's own thread sweeps; then opens the gate."""

    def __init__(self, condition, action, *, gate=None):
        super().__init__(daemon=True)
        self.condition, self.action, self.gate, self.error = condition, action, gate, None
        self.start()

    def run(self):
        try:
            until(self.condition, seconds=480)
            self.action()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.error = error
        if self.gate is not None:
            (self.gate / "go").touch()

    def done(self):
        self.join(60)
        if self.error is not None:
            raise self.error


def until(condition, *, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def test_the_parts_of_two_nodes_are_the_vectors_of_one_file(both, tmp_path):
    """Parts, ids and scores are those of one file on one machine, and no process is left."""
    source, folder, file = tmp_path / "texts.jsonl", tmp_path / "v", tmp_path / "v.npy"
    rows = (json.dumps({"text": f"text {number}"}) for number in range(PARTS * 4096 - 100))
    source.write_text("\n".join(rows) + "\n")
    command = ["encode", "--model", MODEL, "--input", source, "--out", folder]
    command += ["--ray", both.address, "--shards", PARTS]
    done = CliRunner().invoke(main, list(map(str, command)))
    assert done.exit_code == 0, done.output
    until(lambda: not both.workers(), seconds=60)
    encoder = load_encoder(MODEL, cache=False, show_progress=False)
    encode_to_file(encoder, read_texts(source), file)
    vectors = np.load(file)
    manifest = read_manifest(folder)
    assert np.array_equal(
        np.concatenate([np.load(folder / part.file) for part in manifest.shards]), vectors
    )
    assert damaged_shards(folder) == []


def test_a_node_that_dies_costs_nothing_but_time(both, waiting, tmp_path):
    jobs = jobs_of(waiting, "bm25", "random")
    meanwhile = Meanwhile(begun(waiting, 2), lambda: both.kill(both.right), gate=waiting)
    outcomes = sweep(jobs, ray=both.address, show_progress=False)
    meanwhile.done()
    assert [outcome.status for outcome in outcomes] == ["done"] * 2, outcomes
    assert {outcome.node for outcome in outcomes} == {"left"}
    starts = [file.read_text() for file in waiting.glob("begun-*")]
    assert len(starts) == 3  # one of them twice: its node died
    assert sum("cache-right" in each for each in starts) == 1
    assert verify() == []
    assert failed_runs() == []
    assert all(job.finished() for job in jobs)
    assert not list(paths.results().glob(".sweep.*"))
    for job in jobs:
        evaluate(
            job.parameters["checkpoint"],
            data=waiting / "words",
            output=tmp_path / "here",
            show_progress=False,
        )
    here = load_results(tmp_path / "here")
    assert [r.per_query for r in load_results()] == [r.per_query for r in here]
    assert len(here) == 2
    until(lambda: not both.runs(), seconds=60)
    assert {each.status for each in sweep(jobs, show_progress=False)} == {"reused"}


def test_a_late_node_with_other_code_and_another_model_under_the_same_path_is_refused(
    both, waiting, tmp_path, make_checkpoint, capsys, monkeypatch
):
    """It gets a run of its own accord, delivers nothing, and the others do its work."""
    for seed, home in enumerate((both.folder / "home", tmp_path / "there")):
        make_checkpoint(home / "m", seed=seed)
    monkeypatch.setenv("HOME", str(both.folder / "home"))
    code = tmp_path / "code"
    shutil.copytree(Path(qwen3nb.__file__).parent, code / "qwen3nb")
    with (code / "qwen3nb" / "tiers.py").open("a") as file:
        file.write("# edited\n")
    jobs = jobs_of(waiting, "bm25", "random", "~/m")  # two run, one waits for a node
    late, its = [], {"PYTHONPATH": str(code), "HOME": str(tmp_path / "there")}
    join = lambda: late.append(both.add("late", its))  # noqa: E731
    joined = Meanwhile(begun(waiting, 2), join)
    refused, write = threading.Event(), nodes.tqdm.write
    with pytest.MonkeyPatch.context() as patch:
        noted = lambda *line, **file: (write(*line, **file), refused.set())  # noqa: E731
        patch.setattr(nodes.tqdm, "write", noted)
        opened = Meanwhile(refused.is_set, joined.done, gate=waiting)
        outcomes = sweep(jobs, ray=both.address, show_progress=False)
    opened.done()
    both.kill(late[0])
    assert [outcome.status for outcome in outcomes] == ["done"] * 3, outcomes
    assert {outcome.node for outcome in outcomes} <= {"left", "right"}
    lines = [line for line in capsys.readouterr().err.splitlines() if "refused" in line]
    assert len(lines) == 1, lines
    # A run compares its model, too. Where its worker fails before that, the node alone is examined.
    of_code, of_model = r"code: \w+ there, \w+ here", r"; model ~/m: \w+ there, \w+ here"
    assert re.fullmatch(rf"node late is refused: {of_code}({of_model})?", lines[0])
    starts = [file.read_text() for file in waiting.glob("begun-*")]
    assert not any("cache-late" in each for each in starts)
    assert verify() == []


# Of a node on which two folders change places while ``qwen3nb`` runs there, and only then.
EXCHANGE = """\
import pathlib, runpy
run, (a, b, c) = runpy.run_module, (pathlib.Path.home() / name for name in ("m1", "m2", "m3"))
def exchange():
    a.rename(c), b.rename(a), c.rename(b)
def exchanged(name, **options):
    exchange()
    try:
        run(name, **options)
    finally:
        exchange()
runpy.run_module = exchanged
"""


def test_a_restarted_node_that_evaluates_another_folder_delivers_nothing(
    both, tmp_path, checkout, make_checkpoint, capsys, monkeypatch
):
    """Versions, code and folders are as here when it is asked, before and after."""
    home, there, tasks = both.folder / "home", tmp_path / "there", "AuthorSTS"
    for seed, name in enumerate(("m1", "m2")):
        shutil.copytree(make_checkpoint(home / name, seed=seed), there / name)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "sitecustomize.py").write_text(EXCHANGE)
    both.kill(both.right)
    path = os.pathsep.join([str(tmp_path), str(Path(qwen3nb.__file__).parents[1])])
    both.right = both.add("right", {"PYTHONPATH": path, "HOME": str(there)})
    jobs = [Job("eval", {"checkpoint": f"~/{name}", "tasks": tasks}) for name in ("m1", "m2")]
    outcomes = sweep(jobs, ray=both.address, show_progress=False)
    both.kill(both.right)
    assert [(each.status, each.node) for each in outcomes] == [("done", "left")] * 2, outcomes
    lines = [line for line in capsys.readouterr().err.splitlines() if "refused" in line]
    assert len(lines) == 1, lines
    differ = rf"the record of {tasks} is of another there-m[12] than here, of identity \w+"
    name = "node right"
    if HAS_OLDEST_RAY:  # it may still list the killed node of that name; an id tells them apart
        name = r"node right( \(\w+\))?"
    assert re.fullmatch(rf"{name} is refused: {differ}", lines[0])
    for name in ("m1", "m2"):
        evaluate(f"~/{name}", tasks=tasks, output=tmp_path / "here", show_progress=False)
    here = {result.model.identity: result.per_query for result in load_results(tmp_path / "here")}
    assert {r.model.identity: r.per_query for r in load_results()} == here
    assert len(here) == 2
    assert verify() == []


def test_an_interrupted_sweep_ends_its_runs_on_the_nodes(cluster, waiting):
    interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    meanwhile = Meanwhile(begun(waiting, 1), interrupt)
    with pytest.raises(Interrupted, match="stopped after 0 of 1 runs"):
        sweep(jobs_of(waiting, "bm25"), ray=cluster.address, show_progress=False)
    meanwhile.done()
    until(lambda: not cluster.runs(), seconds=60)
    assert not paths.book_runs().exists()
