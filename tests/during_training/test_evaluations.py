"""Which checkpoints are evaluated beside a training, and what becomes of those that fail.

The evaluations here are a program that does what the checkpoint's file says; a real one runs in
test_callback.py.
"""

import json
import os
import time

import pytest

from qwen3nb import paths
from qwen3nb.during_training import evaluations as module
from qwen3nb.during_training.child import stand_back
from qwen3nb.during_training.evaluations import Clock, Evaluations, Settings
from qwen3nb.during_training.orders import Orders
from qwen3nb.during_training.snapshots import digest_of_files, keep_files
from qwen3nb.execution.page_names import page_name
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.records.failures import failed_runs

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
file = Path(sys.argv[1])
orders = json.loads(file.read_text())
deed, seconds = "done", 0.0
if orders["checkpoint"]:
    deed, seconds = json.loads((Path(orders["copy"]) / "config.json").read_text())
with open("evaluated.txt", "a") as log:
    print(orders["checkpoint"], orders["book"], sorted(os.environ), file=log)
if deed == "killed":
    print("a last line with the key", "-".join(["sk", "abcdefghij0123456789"]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
while deed == "hangs":
    time.sleep(1)
scores = [{"task": "T", "metric": "nDCG@10", "value": 0.5, "record": "ab12"}]
outcome = {"status": "done", "seconds": seconds, "scores": scores, "files": "0"}
file.with_name("outcome.json").write_text(json.dumps(outcome))
"""


def settings(**options):
    usual = {"parameters": {"tier": "smoke"}, "share": 0.5, "time_limit": 60.0, "threads": 1}
    others = {"niceness": 0, "gpu": "", "book": False, "book_every": None}
    return Settings(**{**usual, **others, **options})


@pytest.fixture
def make(home, monkeypatch, tmp_path):
    """Make the evaluations of a training; their reports are listed in ``reports``."""
    (tmp_path / "evaluation_of_a_test.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "PROGRAM", "evaluation_of_a_test")
    monkeypatch.chdir(home)

    def make_evaluations(*, resumed=False, **options):
        evaluations = Evaluations(
            home / "runs" / "new",
            settings(**options),
            report=lambda step, outcome: evaluations.reports.append((step, outcome)),
        )
        evaluations.reports = []
        evaluations.begin(resumed=resumed)
        return evaluations

    return make_evaluations


def save(home, step, deed="done", seconds=0.0):
    """Write a checkpoint whose evaluation does this, and takes this long by its own account."""
    folder = home / "runs" / "new" / f"checkpoint-{step}"
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps([deed, seconds]))
    (folder / "1_Pooling" / "config.json").write_text("{}")
    for name in ("optimizer.pt", "trainer_state.json", "rng_state_0.pth"):
        (folder / name).write_text("of the training alone")
    return folder


def wait(evaluations):
    """Wait until what runs has ended, as the steps of a training do."""
    while evaluations._running is not None:
        evaluations.look()
        time.sleep(0.02)


def evaluated(home):
    """Return checkpoint, whether the book was built, and names of variables, of each process."""
    lines = (home / "evaluated.txt").read_text().splitlines()
    return [line.split(" ", 2) for line in lines]


def journal(home):
    (file,) = (home / "runs" / "new" / "_evaluation").glob("*/journal")
    lines = [line.partition(" ")[2] for line in file.read_text().splitlines() if line]
    return dict(json.loads(line) for line in lines)


def test_a_clock_allows_a_share_of_the_trainings_time_over_all_its_starts():
    clock = Clock(training_before=900.0, evaluating=30.0, started=100.0, ended=200.0)
    assert clock.training == 1000.0
    # A twentieth of 1,000 s is 50 s: 30 are used, so 20 are left.
    assert clock.allows(20.0, share=0.05)
    assert not clock.allows(20.1, share=0.05)


def test_first_and_last_are_evaluated_and_for_the_others_there_is_no_time(make, home, caplog):
    evaluations = make(share=0.05)
    for step in (1, 2, 3):
        evaluations.keep(save(home, step, seconds=1000.0))
        evaluations.look()
        wait(evaluations)
    evaluations.finish()
    assert [name for name, *_ in evaluated(home)] == [
        "runs/new/checkpoint-1",
        "runs/new/checkpoint-3",
    ]
    skipped = journal(home)["checkpoint-2"]
    assert skipped["status"] == "skipped"
    assert "had taken 1000 s of 0 s, and the next one takes about 1000 s" in skipped["reason"]
    assert "checkpoint-2 is not evaluated" in caplog.text
    assert "2 checkpoints evaluated, in 2000 s" in evaluations.summary
    assert "Skipped: checkpoint-2." in evaluations.summary
    assert [step for step, _ in evaluations.reports] == [1, 3]
    assert evaluations.reports[0][1].scores[0].record == "ab12"


def test_a_checkpoint_that_waits_is_evaluated_once_there_is_time(make, home):
    evaluations = make(share=0.05)
    evaluations.keep(save(home, 1, seconds=10.0))
    evaluations.look()
    wait(evaluations)
    evaluations.keep(save(home, 2))
    evaluations.look()
    assert evaluations._running is None
    evaluations._clock.training_before = 400.0  # as if the training had gone on: 20 of 20 s
    evaluations.look()
    wait(evaluations)
    assert len(evaluated(home)) == 2


def test_a_checkpoint_that_the_trainer_deletes_is_evaluated_from_its_kept_files(make, home):
    evaluations = make()
    checkpoint = save(home, 1)
    evaluations.keep(checkpoint)
    # The Trainer does not upload folders whose names begin with "_".
    (copy,) = (home / "runs" / "new" / "_evaluation").glob("*/new/checkpoint-1")
    assert (copy / "config.json").stat().st_ino == (checkpoint / "config.json").stat().st_ino
    files = [file.relative_to(copy).as_posix() for file in copy.rglob("*") if file.is_file()]
    assert sorted(files) == ["1_Pooling/config.json", "config.json"]
    for file in (checkpoint / "config.json", checkpoint / "1_Pooling" / "config.json"):
        file.unlink()
    evaluations.look()
    wait(evaluations)
    assert journal(home)["checkpoint-1"]["status"] == "done"
    assert not copy.exists()


def test_files_that_cannot_be_linked_are_copied(home, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    checkpoint = save(home, 1)
    keep_files(checkpoint, home / "copy")
    assert (home / "copy" / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()


@pytest.mark.parametrize(
    ("deed", "reason"),
    [("killed", "killed by signal 9; its last line: a last line"), ("hangs", "signal ")],
)
def test_an_evaluation_that_dies_or_hangs_is_named_and_the_next_one_runs(
    make, home, caplog, monkeypatch, deed, reason
):
    monkeypatch.setattr(module, "_SECONDS_TO_END", 0.0)
    evaluations = make(time_limit=1.5 if deed == "hangs" else 60.0, share=1.0)
    evaluations.keep(save(home, 1, deed))
    evaluations.look()
    wait(evaluations)
    (note,) = failed_runs()
    assert (note.page, note.parameters["checkpoint"]) == (
        "eval-new-checkpoint-1",
        "runs/new/checkpoint-1",
    )
    assert reason in note.message
    assert "checkpoint-1 could not be evaluated" in caplog.text
    assert "abcdefghij0123456789" not in caplog.text + note.message + str(journal(home))
    evaluations._settings = settings()  # with time enough, also on a busy machine
    evaluations.keep(save(home, 2))
    evaluations.finish()
    assert journal(home)["checkpoint-2"]["status"] == "done"
    assert "Failed: checkpoint-1." in evaluations.summary


def test_after_a_stop_nothing_is_evaluated_twice_and_what_was_not_is(make, home):
    evaluations = make()
    evaluations.keep(save(home, 1))
    evaluations.finish()
    entry = journal(home)["checkpoint-1"]
    evaluations._journal.add("checkpoint-1", entry | {"files": _digest_of_model(home, 1)})
    evaluations.keep(save(home, 2, "hangs"))
    evaluations._clock.evaluating = 0.0
    evaluations._start(evaluations._waiting, book=False)
    evaluations.stop()  # the training is killed, and its evaluation with it

    save(home, 2)
    (kept,) = (home / "runs" / "new" / "_evaluation").glob("*/new/checkpoint-2/config.json")
    kept.write_text(json.dumps(["done", 0.0]))
    resumed = make(resumed=True)
    resumed.keep(save(home, 1))  # saved again, with equal files
    resumed.finish()
    names = [name for name, *_ in evaluated(home)]
    assert names.count("runs/new/checkpoint-1") == 1
    assert names[-1] == "runs/new/checkpoint-2"

    resumed.keep(save(home, 1, seconds=1.0))  # other weights at the same step
    resumed.finish()
    assert evaluated(home)[-1][0] == "runs/new/checkpoint-1"
    make().finish()  # a new training in the same folder knows nothing of the old one
    assert set(journal(home)) == {"clock"}


def _digest_of_model(home, step):
    keep_files(home / "runs" / "new" / f"checkpoint-{step}", home / "copy")
    return digest_of_files(home / "copy")


def test_two_sets_of_parameters_have_journals_of_their_own(make, home):
    one, other = make(), make(parameters={"tier": "fast"})
    for evaluations in (one, other):
        evaluations.keep(save(home, 1))
        evaluations.finish()
    assert [name for name, *_ in evaluated(home)] == ["runs/new/checkpoint-1"] * 2
    assert len(list((home / "runs" / "new" / "_evaluation").glob("*/journal"))) == 2


def test_the_book_is_built_at_the_end_or_every_so_often(make, home):
    evaluations = make(book=True, book_every=0.0)
    evaluations.keep(save(home, 1))
    evaluations.look()
    wait(evaluations)
    evaluations.finish()  # nothing is new since then
    assert [(name, book) for name, book, _ in evaluated(home)] == [
        ("runs/new/checkpoint-1", "True")
    ]
    at_end = make(book=True)
    at_end.keep(save(home, 2))
    at_end.look()
    wait(at_end)
    at_end.finish()
    last_two = [line[:2] for line in evaluated(home)[1:]]
    assert last_two == [["runs/new/checkpoint-2", "False"], ["", "True"]]


def test_a_process_gets_no_secret_no_gpu_and_nothing_of_a_distributed_training(
    make, home, monkeypatch
):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    variables = module._environment("")
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert module._environment("1")["CUDA_VISIBLE_DEVICES"] == "1"
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "WANDB_API_KEY"} & variables.keys()
    assert not [name for name in variables if name.startswith(("MASTER_", "TORCHELASTIC_"))]
    assert variables["QWEN3NB_HOME"] == str(home)


def test_records_and_pages_name_the_checkpoint_and_not_its_copy(
    checkout, checkpoint, monkeypatch, tokenizer_folder
):
    original = checkout / "runs" / "new" / "checkpoint-10"
    copy = checkout / "runs" / "new" / "_evaluation" / "new" / "checkpoint-10"
    keep_files(checkpoint, copy)  # the original is gone
    monkeypatch.setenv(paths.KEPT_COPY, json.dumps([str(original), str(copy)]))
    source = find_source("runs/new/checkpoint-10")
    assert (source.spec, source.label) == ("runs/new/checkpoint-10", "new-checkpoint-10")
    assert source.own_folder.path == copy
    declared = read_parameters(paths.find_notebook("eval"))
    values = {name: parameter.default for name, parameter in declared.items()}
    values |= {"checkpoint": "runs/new/checkpoint-10"}
    assert page_name("eval", values, declared) == "eval-new-checkpoint-10-smoke"
    assert paths.shown(copy / "config.json") == "runs/new/checkpoint-10/config.json"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only on Linux")
def test_an_evaluation_keeps_to_its_cores_and_comes_after_the_training(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "nice", calls.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: calls.append(cores))
    orders = Orders("", "", {}, seconds=1.0, threads=2, niceness=10, book=False)
    stand_back(orders)
    assert calls == [10, [2, 3]]
