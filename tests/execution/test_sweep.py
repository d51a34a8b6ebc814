"""Sweeps: what runs, what is refused, the state after a failure or Ctrl-C, what a node made."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import psutil
import pytest
from helpers.notebooks import VERIFY, notebook_of, save
from helpers.records import make

from qwen3nb import paths
from qwen3nb.cluster.nodes import ClusterError, Node
from qwen3nb.cluster.runs import Request
from qwen3nb.execution import executors
from qwen3nb.execution import sweep as sweeps
from qwen3nb.execution.executors import NodeShare, RunOutcome, publish_files
from qwen3nb.execution.interruption import Interrupted, interrupted_by_signals
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.execution.sweep import (
    Job,
    SweepPlan,
    check_jobs,
    expanded,
    fitting,
    read_plan,
    sweep,
)
from qwen3nb.records.failures import failed_run
from qwen3nb.records.side_files import remove_unnamed
from qwen3nb.records.store import verify
from qwen3nb.records.verification import listed_records
from qwen3nb.utils import hardware as machine
from qwen3nb.utils.atomic_files import exclusive_lock, read_json

ON_MODEL = (
    'checkpoint: str = "bm25"  # a model\ntier: str = "smoke"  # a tier\nx: int = 1  # a number'
)


@pytest.fixture
def small(checkout):
    """A notebook with a model, and one without."""
    save(notebook_of("print(checkpoint, tier, x)", parameters=ON_MODEL), "small")
    save(notebook_of("print(x)"), "plain")
    return checkout


def test_every_checkpoint_on_every_tier_in_every_notebook_that_takes_them(small):
    plan = SweepPlan(("bm25", "random"), ("smoke", "pydocs"), ("small", "plain"))
    on_model = [f"small-{model}-{tier}" for model in plan.models for tier in plan.tiers]
    assert [job.name for job in plan.jobs()] == [*on_model, "plain"]
    # Parameters go where they are declared, own ones win, and equal runs are one.
    runs = [("small", {"checkpoint": "random", "x": 3}), ("plain", {"x": [1]})]
    plan = SweepPlan(("bm25",), (), ("small", "plain"), parameters={"x": 2}, runs=runs)
    jobs = [(job.notebook, job.parameters["x"]) for job in plan.jobs()]
    assert jobs == [("small", 2), ("plain", 2), ("small", 3), ("plain", [1])]
    with pytest.raises(ParameterError, match=r"x is \[1\] \(list\); expected int"):
        check_jobs(plan.jobs())
    assert SweepPlan(notebooks=("small",), typed={"x": "7"}).jobs()[0].parameters == {"x": 7}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"notebooks": ("plain",), "parameters": {"y": 1}}, "unknown parameter 'y': none of plain"),
        ({"notebooks": ("small",), "typed": {"x": "seven"}}, "x is 'seven'; expected int"),
        ({"notebooks": ("plain",), "models": ("bm25",)}, "'checkpoint': none of plain"),
        ({"models": ("no*where",), "notebooks": ("small",)}, "no folder matches 'no*where'"),
        ({"notebooks": ("small",), "tiers": ("smok",)}, "unknown tier 'smok'"),
        ({"notebooks": ("small",), "models": ("randm",)}, "Did you mean 'random'"),
    ],
)
def test_what_no_notebook_would_use_is_refused(small, plan, message):
    with pytest.raises(ParameterError) as error:
        check_jobs(SweepPlan(**plan).jobs())
    assert message in str(error.value.message)


def test_a_sweep_leaves_one_file_with_all_its_models(small, monkeypatch):
    """Also those of an earlier run; one of four is reused."""

    class Runs:
        at_once, stopped = 2, False

        def run(self, command, *, log):
            spec = command.arguments[command.arguments.index("checkpoint") + 1]
            make(spec.replace(":", "-")).save()
            return RunOutcome(command.name)

    make("earlier").save()
    monkeypatch.setattr(sweeps, "LocalExecutor", lambda _: Runs())
    checkpoints = ("bm25", "random:8", "random:16", "bm25+random")
    jobs = [Job("small", {"checkpoint": each}) for each in checkpoints]
    monkeypatch.setattr(sweeps, "reusable", lambda job: job is jobs[3])
    outcomes = sweep(jobs, show_progress=False)
    assert [each.status for each in outcomes] == ["done", "done", "done", "reused"]
    file = paths.results() / "all_results.json"
    assert set(read_json(file)["results"]) == {"earlier", "bm25", "random-8", "random-16"}
    assert not (paths.results() / "summaries").exists()
    assert verify() == []


def test_a_glob_goes_by_step(small, monkeypatch):
    for step in (1000, 200, 30):
        (small / "runs" / "ul2" / f"checkpoint-{step}").mkdir(parents=True)
    (small / "runs" / "ul2" / "checkpoint-9.txt").write_text("no folder")
    expected = [f"runs/ul2/checkpoint-{step}" for step in (30, 200, 1000)]
    assert expanded("runs/ul2/checkpoint-*") == expected
    monkeypatch.chdir(small / "notebooks")
    assert expanded("runs/ul2/checkpoint-*") == expected
    assert expanded(f"{small}/runs/ul2/checkpoint-*") == expected
    assert expanded("bm25") == ["bm25"]
    monkeypatch.setattr(sweeps, "_MOST_MATCHES", 1)
    with pytest.raises(ParameterError, match=r"'runs/\*\*/\*' matches more than 1 files"):
        expanded("runs/**/*")


@pytest.mark.parametrize("pattern", ["/proc/*", "/proc/1/*", "/proc/[1-9]*", "**x"])
def test_a_glob_of_no_models_is_named(small, pattern):
    with pytest.raises(ParameterError, match=f"^{re.escape(repr(pattern))}.*such as 'runs/"):
        expanded(pattern)


def test_a_file_says_it_all(small, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(
        '\ufeffmodels = ["bm25"]\ntiers = ["smoke"]\nnotebooks = ["small"]\nat_once = 2\n'
        'pass_env = ["GH_PAT"]\nbook = false\n[parameters]\nx = 5\n'
        '[[runs]]\nnotebook = "plain"\nparameters = { x = 6 }\n'
    )
    plan = read_plan(file)
    assert (plan.at_once, plan.book, plan.pass_env) == (2, False, ("GH_PAT",))
    assert [dict(job.parameters) for job in plan.jobs()] == [
        {"x": 5, "checkpoint": "bm25", "tier": "smoke"},
        {"x": 6},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checkpoint = ['bm25']", "checkpoint: unknown key; known: models, tiers, "),
        ("models = 'bm25'", "models: expected a list; got 'bm25'"),
        ("at_once = -1", "expected greater than or equal to 0"),
        ("at_once = true", "at_once: expected a valid integer; got True"),
        ("gpus_each = 0", "gpus_each: expected greater than 0"),
        ("[[runs]]\nnotebok = 'x'", "runs[0].notebook: is missing"),
        ("models = [", "not TOML"),
        ("runs = [[]]", "runs[0][0]: is missing"),
        ("a = " + "[" * 5000, "not TOML (nested too deeply)"),
        ("at_once = " + "1" * 5000, "not TOML (Exceeds the limit"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_would_do(tmp_path, text, message):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(ParameterError) as error:
        read_plan(file)
    assert str(error.value.message).startswith(f"{file}: ")
    assert message in str(error.value.message)


def test_a_cluster_is_named_in_the_file_or_by_an_option(cli, small, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(sweeps, "sweep", lambda jobs, **all_: given.append(all_) or [])
    file = tmp_path / "sweep.toml"
    file.write_text('notebooks = ["plain"]\nbook = false\nray = "auto"\ngpus_each = 2\n')
    for options in ((), ("--ray",), ("--ray", "ray://head:10001", "--gpus-each", "0.5")):
        assert cli("sweep", file, *options).exit_code == 0
    assert [each["ray"] for each in given] == ["auto", "local", "ray://head:10001"]
    assert [each["gpus_each"] for each in given] == [2, 2, 0.5]


def test_runs_that_would_write_over_each_other_are_refused(small):
    save(notebook_of("pass", parameters=VERIFY), "seen")
    with pytest.raises(ParameterError, match="the page seen; they differ in verify"):
        check_jobs([Job("seen", {"verify": True}), Job("seen", {"verify": False})])
    with pytest.raises(ParameterError, match="the page plain; they differ in nothing"):
        check_jobs([Job("plain", {}), Job("plain", {"x": 1})])
    with pytest.raises(ParameterError, match="unknown parameter 'z'"):
        sweep([Job("plain", {}), Job("small", {"z": 1})], show_progress=False)
    save(notebook_of("pass", parameters='output_dir: str = ""  # a folder'), "writing")
    with pytest.raises(ParameterError, match="Give no output_dir"):  # nodes write to none
        sweep([Job("writing", {"output_dir": "x"})], ray="local", show_progress=False)
    assert not (small / "results" / "logs").exists()


def test_a_sweep_names_the_run_of_another_that_it_waits_for(small, monkeypatch):
    lines, waits = [], threading.Event()
    noted = lambda line, **_: (lines.append(line), waits.set())  # noqa: E731
    monkeypatch.setattr(sweeps.tqdm, "write", noted)
    monkeypatch.setattr(sweeps, "reusable", lambda job: True)
    log = paths.results() / "logs" / "plain.log"
    with ThreadPoolExecutor(1) as pool:
        with exclusive_lock(log, purpose="sweeps"):
            outcomes = pool.submit(sweep, [Job("plain", {})], show_progress=False)
            assert waits.wait(30)
        assert [each.status for each in outcomes.result()] == ["reused"]
    assert lines == ["another sweep runs plain; waiting for its end"]


def test_nodes_have_to_see_the_folders_of_their_runs(small, make_checkpoint, monkeypatch):
    given, data = {}, small / "words"
    monkeypatch.setattr(sweeps, "on_cluster", lambda _, **options: given.update(options))
    encoder, local = (str(make_checkpoint(small / name)) for name in ("encoder", "local"))
    data.mkdir()
    declared = ON_MODEL + '\ndata: str = ""  # folders'
    save(notebook_of("print(checkpoint, data)", parameters=declared), "small")
    writing = declared + '\noutput: str = ""  # a folder'  # of this machine
    save(notebook_of("print(checkpoint)", parameters=writing), "here")
    jobs = [Job("small", {"checkpoint": each, "data": str(data)}) for each in (encoder, "bm25")]
    sweeps._executor([*jobs, Job("here", {"checkpoint": local})], ray="auto")
    assert given["folders"] == ["encoder", "words"]  # as the runs name them, in the study


def test_as_many_run_at_once_as_memory_and_cores_allow(small, monkeypatch):
    job = Job("small", {"checkpoint": "bm25"})
    rows = [(64, 1 << 40, 0, 4), (2, 1 << 40, 0, 2), (64, 4 << 30, 0, 2), (64, 4 << 30, 8 << 30, 1)]
    for cores, memory, weights, expected in rows:
        monkeypatch.setattr(sweeps, "cores", lambda cores=cores: cores)
        monkeypatch.setattr(sweeps, "available_memory", lambda memory=memory: memory)
        monkeypatch.setattr(sweeps, "weight_bytes", lambda _, weights=weights: weights)
        assert fitting([job]) == expected


SMI = """\
GPU 0: NVIDIA H200 (UUID: GPU-5d2c-aa)
GPU 1: NVIDIA H200 (UUID: GPU-77aa-bb)
  MIG 1g.18gb     Device  0: (UUID: MIG-1-x)
  MIG 3g.71gb     Device  1: (UUID: MIG-2-y)
"""


def fake_smi(folder, text, monkeypatch, status=0):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'E'\n{text}E\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus_are_found_without_torch(tmp_path, monkeypatch):
    fake_smi(tmp_path, SMI, monkeypatch)
    assert machine.gpus() == ["GPU-5d2c-aa", "MIG-1-x", "MIG-2-y"]
    for visible, expected in (("", []), ("-1", []), ("1,0", ["1", "0"]), ("2,-1,3", ["2"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine.gpus() == expected
    fake_smi(tmp_path, "No devices found\n", monkeypatch, status=6)
    assert machine.gpus() == []


def test_the_peak_of_memory_is_what_was_held_at_most():
    before = machine.peak_memory()
    held = b"x" * (before - machine.resident_memory() + 2**26)
    assert 2**25 < machine.peak_memory() - before < 2**28
    del held
    assert machine.resident_memory() < machine.peak_memory() - 2**25


def test_each_run_has_a_gpu_to_itself(small, monkeypatch):
    seen, pair = [], threading.Barrier(2, timeout=240)  # each run waits for one next to it

    class Process:
        def __init__(self, program, *, environment, log):
            seen.append(environment["CUDA_VISIBLE_DEVICES"])

        def wait(self):
            pair.wait()
            return 0

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(executors, "start_guarded", Process)
    jobs = [Job("small", {"checkpoint": "bm25", "x": x}) for x in range(8)]
    outcomes = sweep(jobs, at_once=8, show_progress=False)
    assert [outcome.status for outcome in outcomes] == ["done"] * 8
    assert sorted(seen) == ["3"] * 4 + ["5"] * 4


@pytest.mark.integration
def test_a_sweep_goes_on_past_a_failure_builds_the_book_and_starts_where_it_ended(
    cli, small, tmp_path, monkeypatch
):
    built = []  # tests/book/test_build.py builds one with a failed page
    monkeypatch.setattr(
        "qwen3nb.book.build.build_book",
        lambda *, tier: built.append((tier, failed_run("failing").reason)) or small / "index.html",
    )
    save(notebook_of("assert verify, 'it is nought'", parameters=VERIFY), "failing")
    file = tmp_path / "sweep.toml"
    file.write_text(
        '[[runs]]\nnotebook = "failing"\n'
        'parameters = { verify = false }\n[[runs]]\nnotebook = "plain"\n'
    )
    done = cli("sweep", file)
    assert done.exit_code == 1
    assert "2 runs: 1 done, 0 reused, 1 failed" in done.output
    assert "AssertionError: it is nought" in done.output
    assert built == [("smoke", "AssertionError: it is nought")]
    assert f"Open {small / 'index.html'}\n" in done.stdout
    dry = cli("sweep", file, "--dry-run").stdout
    assert dry.splitlines() == [
        "would run  failing",
        "reused     plain",
        "1 of 2 runs would be reused",
    ]
    note = failed_run("failing")
    assert note.reason == "AssertionError: it is nought"
    assert "results/logs/failing.log" in note.more
    assert "AssertionError" in (small / "results/logs/failing.log").read_text()
    again = [Job("failing", {"verify": True}), Job("plain", {})]
    assert [outcome.status for outcome in sweep(again, show_progress=False)] == ["done", "reused"]


# A kernel that no signal of Python's reaches, with a process that has left its session.
BUSY = """\
import os, subprocess, tempfile
subprocess.Popen(["sleep", "300"], start_new_session=True)
tempfile.mkdtemp()
open({home!r} + "/pid-" + checkpoint, "w").write(str(os.getpid()))
sum(range(10**12))"""


SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def signals_with(ignored):
    """A function for a child that is to start with these signals ignored, others at defaults."""

    def set_signals():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    return set_signals


def slow_sweep(home, *numbers, ignored=()):
    """Start a sweep of two busy runs, signal it, and return its status and output."""
    flags = [home / "pid-bm25", home / "pid-random"]
    save(notebook_of(BUSY.format(home=str(home)), parameters=ON_MODEL), "slow")
    options = ["--notebook", "slow", "--model", "bm25", "--model", "random", "--at-once", "2"]
    command = [sys.executable, "-m", "qwen3nb.cli.main", "sweep", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(home / "tmp")},
        preexec_fn=signals_with(ignored),
    )
    deadline = time.monotonic() + 240
    while not all(flag.is_file() and flag.read_text() for flag in flags):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert {int(flag.read_text()) for flag in flags} <= {each.pid for each in family}
    for number in numbers:
        process.send_signal(number)
    output, _ = process.communicate(timeout=240)
    return process.returncode, output, family


@pytest.mark.integration
@pytest.mark.parametrize(
    ("ignored", "numbers", "expected"),
    [
        ((), [signal.SIGINT], 130),
        ((), [signal.SIGKILL], -signal.SIGKILL),
        # As in a job in the background, with nohup, and below some servers: the last one counts.
        (SIGNALS, [signal.SIGINT, signal.SIGHUP, signal.SIGTERM], 143),
    ],
    ids=["Ctrl-C", "kill -9", "all ignored"],
)
def test_an_interrupted_sweep_leaves_no_process_no_file_and_no_page(
    small, ignored, numbers, expected
):
    (small / "tmp").mkdir()
    status, output, family = slow_sweep(small, *numbers, ignored=ignored)
    assert status == expected, output
    assert ("stopped after 0 of 2 runs" in output) == (signal.SIGKILL not in numbers)
    assert output.count("; its log ends: ") == (0 if signal.SIGKILL in numbers else 2)
    assert "Traceback" not in output
    gone, alive = psutil.wait_procs(family, timeout=240)  # until they are reaped
    assert not alive
    assert len(gone) >= 10  # runs, kernels and their processes, and a guard of each run and kernel
    assert not list((small / "tmp").iterdir())
    assert not (small / "book" / "runs").exists()
    assert not list(paths.results().glob("failed/*"))


@pytest.mark.integration
def test_a_sweep_counts_its_failures_whatever_signals_its_parent_ignores(small):
    """Where SIGCHLD is ignored, the system drops the status of a process."""
    save(notebook_of("assert verify, 'it is nought'", parameters=VERIFY), "failing")
    (small / "sweep.toml").write_text(
        '[[runs]]\nnotebook = "failing"\nparameters = { verify = false }\n'
        '[[runs]]\nnotebook = "plain"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "qwen3nb.cli.main", "sweep", str(small / "sweep.toml"), "--no-book"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=signals_with(SIGNALS),
    )
    assert done.returncode == 1, done.stdout
    assert "2 runs: 1 done, 0 reused, 1 failed" in done.stdout
    assert "AssertionError: it is nought" in done.stdout


def test_a_sweep_of_a_program_that_ignores_sigchld_counts_its_failures(small, monkeypatch):
    """Called from Python, in the main thread and in another one."""
    code = """
import signal, sys, threading
from pathlib import Path
from qwen3nb.execution.executors import Command, LocalExecutor

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
command = Command("page", ("no-such-command",), Path("page.ipynb"))
status = []
run = lambda: status.append(LocalExecutor(1).run(command, log=Path(sys.argv[1])).exit_status)
thread = threading.Thread(target=run)
thread.start()
thread.join()
run()
print(*status)
"""
    command = [sys.executable, "-c", code, str(small / "log")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["2", "2"]


def test_a_closed_terminal_ends_a_command_unless_that_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where pytest runs with nohup
    try:
        with pytest.raises(KeyboardInterrupt) as interruption, interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
        assert Interrupted("", interruption.value).exit_code == 129
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_waits_for_another_sweep_and_takes_its_page(small, monkeypatch):
    """Two sweeps at once run a shared job once; the other reuses what came of it."""
    begun, go, ran = threading.Event(), threading.Event(), []
    jobs = [Job("plain", {})]

    def run(self, command, *, log):
        begun.set()
        assert go.wait(60)
        ran.append(command.name)
        return RunOutcome(command.name)

    monkeypatch.setattr(executors.LocalExecutor, "run", run)
    monkeypatch.setattr(Job, "finished", lambda self: bool(ran))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sweep, jobs, at_once=1, show_progress=False)
        assert begun.wait(60)
        second = pool.submit(sweep, jobs, at_once=1, show_progress=False)
        assert not wait([second], timeout=0.5).done
        go.set()
        outcomes = [each.result()[0].status for each in (first, second)]
    assert outcomes == ["done", "reused"]
    assert ran == ["plain"]
    (fresh,) = sweep(jobs, fresh=True, show_progress=False)
    assert (fresh.status, len(ran)) == ("done", 2)


def test_a_study_that_cannot_be_written_is_named_before_the_first_run(small, monkeypatch):
    def denied(folder, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(PermissionError, match=r"results/logs'$"):
        sweep([Job("plain", {})], show_progress=False)


def test_nothing_starts_after_a_stop(tmp_path):
    executor = executors.LocalExecutor(1)
    executor.stop()
    assert executor.stopped
    command = executors.Command("page", ("--version",), tmp_path / "page.ipynb")
    assert executor.run(command, log=tmp_path / "log").exit_status < 0
    assert (tmp_path / "log").read_text() == ""


PAGE = "runs/eval-x.ipynb"


def written(folder, **texts):
    files = {"log": "a log", "book/runs/eval-x.ipynb": "page", **texts}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def publish(folder, *, failed=False):
    log = paths.results() / "logs" / "eval-x.log"
    publish_files(folder, log=log, page=paths.book() / PAGE, failed=failed)
    return log


RECORD = "results/x-1a/seed_0/T.json"
SCORES = "results/x-1a/seed_0/T.0123456789ab.scores.parquet"
RUN = {
    RECORD: "{}",
    SCORES: "scores",
    "results/x-1a/seed_0/T.trec": "run",
    "results/mteb/results/x/1/T.json": "{}",
}


def test_records_come_after_their_files_and_the_page_comes_last(home, tmp_path, monkeypatch):
    order, real = [], executors._replace
    monkeypatch.setattr(
        executors, "_replace", lambda file, target: (order.append(target), real(file, target))
    )
    publish(written(tmp_path / "files", **RUN))
    names = [target.relative_to(home).as_posix() for target in order]
    assert set(names) == {*RUN, "results/logs/eval-x.log", f"book/{PAGE}"}
    assert names[-2:] == ["results/x-1a/seed_0/T.json", f"book/{PAGE}"]


def test_a_jump_of_the_clock_leaves_the_files_of_a_record_that_comes(home, tmp_path, monkeypatch):
    real = executors._publish_file

    def published_before_the_jump(file, target):
        real(file, target)
        os.utime(target, (1, 1))
        remove_unnamed(home / RECORD, replaced=())  # as another process does after its evaluation

    monkeypatch.setattr(executors, "_publish_file", published_before_the_jump)
    publish(written(tmp_path / "files", **RUN))
    assert (home / SCORES).read_text() == "scores"
    (home / RECORD).unlink()
    remove_unnamed(home / RECORD, replaced=())  # nobody writes that record now
    assert not (home / SCORES).exists()


def test_files_that_several_runs_share_keep_what_is_of_the_others(home, tmp_path):
    lines, own = "results/mteb/results/x/1/run_settings.jsonl", "results/all_results.json"
    paths.results().mkdir()
    (home / own).write_text("of all")
    for name, text in (("one", '{"a": 1}\n'), ("two", '{"a": 1}\n{"b": 2}\n')):
        files = {lines: text, own: "of the node's", "results/checksums.jsonl": "of the node's"}
        publish(written(tmp_path / name, **RUN, **files))
    assert (home / lines).read_text() == '{"a": 1}\n{"b": 2}\n'
    assert (home / own).read_text() == "of all"
    assert listed_records(paths.results()) == {"x-1a/seed_0/T.json": {"": True}}


def nodes(*sizes):
    return [Node(str(i), str(i), cpus, gpus, 10) for i, (cpus, gpus) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "options", "expected"),
    [
        ([(1, 0), (1, 0)], {}, (1, 0)),
        ([(16, 0), (8, 0)], {}, (2, 0)),  # four on the smallest
        ([(16, 0), (8, 0)], {"at_once": 2}, (4, 0)),
        ([(2, 0)], {"at_once": 8}, (1, 0)),
        ([(64, 0), (16, 8)], {}, (2, 1)),  # where GPUs are, on their nodes only
        ([(16, 2)], {"gpus_each": 0.5}, (4, 0.5)),
    ],
)
def test_a_run_gets_the_same_share_on_all_nodes(sizes, options, expected):
    share = NodeShare.of(nodes(*sizes), **{"at_once": 0, "gpus_each": 1.0, **options})
    assert (share.cpus, share.gpus) == expected
    with pytest.raises(ClusterError, match="no node with a core"):
        NodeShare.of([], at_once=0, gpus_each=1.0)


def test_a_request_shows_no_token():
    request = Request(("run",), PAGE, {"HF_TOKEN": "hf_secret"}, "/", "/r", "/b", "m")
    assert "hf_secret" not in repr(request)
