"""Several processes share an evaluation or a sweep by the disk alone; one of them is killed."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from helpers.beir import write_beir, write_words
from helpers.notebooks import notebook_of, save

from qwen3nb import paths
from qwen3nb.cli.commands import notebooks as commands
from qwen3nb.execution import executors, shares
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.notebook import page_path, resolved_parameters
from qwen3nb.execution.shares import Share
from qwen3nb.execution.sweep import Job, sweep_share
from qwen3nb.records.store import load_results, verify
from qwen3nb.utils.atomic_files import claim

DATA = [f"data{number}" for number in range(6)]
# One process does all; then four share it, of which one hangs in its first task. They are forks of
# one program, as imports take longer than all else. A file stands for the page.
ARRAY = """
import multiprocessing, os, sys, time
from pathlib import Path
import datasets, huggingface_hub # once, not in each process
from qwen3nb import paths
from qwen3nb.evaluation.evaluate import CollectionItem
from qwen3nb.execution.parameters import check_parameters, read_parameters
from qwen3nb.execution.shares import Share, share_of_evaluation

declared = read_parameters(paths.find_notebook("eval"))
values = check_parameters(declared, {"checkpoint": "bm25", "data": sys.argv[1]})
evaluate = CollectionItem.evaluate
all_at_work = multiprocessing.get_context("fork").Barrier(4)

def say(text):
    os.write(1, f"{text}\\n".encode())

def do(number, results):
    begun = []

    def slowly(item, model, run):
        say(f"{number} is at {item.name}")
        if results == "shared" and not begun:
            all_at_work.wait(60)
            time.sleep(60 if number == 1 else 0)
        begun.append(item)
        return evaluate(item, model, run)

    CollectionItem.evaluate = slowly
    os.environ["QWEN3NB_RESULTS"] = results
    page = Path(results, "page")
    with share_of_evaluation(values, Share(number, 4), file=page) as shared:
        say(shared.line)
        if shared.is_last and not page.exists():
            say("the page")
            page.touch()

def fork(number, results):
    child = os.fork()
    if child == 0:
        do(number, results)
        os._exit(0)
    say(f"{number} has {child}")
    return child

os.waitpid(fork(0, "alone"), 0)
for child in [fork(number, "shared") for number in (1, 2, 3, 4)]:
    say(os.waitpid(child, 0)[1])
"""


@pytest.mark.integration
def test_processes_share_the_tasks_and_one_that_is_killed_is_replaced(checkout, monkeypatch):
    """Records are those of one process; another waits for the one that hangs, and takes over."""
    for seed, name in enumerate(DATA):
        write_beir(checkout / name, documents=12, queries=3, seed=seed)
    monkeypatch.chdir(checkout)
    with subprocess.Popen(
        [sys.executable, "-c", ARRAY, ",".join(DATA)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        lines = []
        for line in program.stdout:
            lines.append(line.strip())
            (hanging,) = [text.split()[-1] for text in lines if text.startswith("1 has")] or [""]
            others_ended = sum("another process finishes" in text for text in lines) == 2
            one_waits = any(text.startswith("waiting for other processes") for text in lines)
            if hanging and others_ended and one_waits:
                with suppress(ProcessLookupError):  # killed before
                    os.kill(int(hanging), signal.SIGKILL)
    text = "\n".join(lines)
    assert "part 0/4: 6 evaluated, 0 found; nothing is open\nthe page" in text
    begun = [line.split(" is at ")[1] for line in lines if " is at " in line]
    # One did all; of the others, each has begun with its share, and only one task was done twice.
    assert sorted(begun) == sorted([*DATA, *DATA, "data1"])
    assert {f"{number} is at data{number % 4}" for number in range(1, 5)} <= set(lines)
    assert text.count("nothing is open\nthe page") == 2
    assert (lines.count(str(signal.SIGKILL.value)), lines.count("0")) == (1, 3)
    one, other = load_results(checkout / "alone"), load_results(checkout / "shared")
    assert len(one) == len(other) == len(DATA)
    changing = ("finished", "run", "checksum", "cost", "environment")
    for record, again in zip(one, other, strict=True):
        values, values_again = record.in_one_file(), again.in_one_file()
        differing = [name for name in values if values[name] != values_again[name]]
        assert set(differing) <= set(changing)
        assert record.environment.versions == again.environment.versions
    assert verify(checkout / "shared") == []


def test_sweeps_share_the_runs_and_the_last_one_does_what_reads_them(checkout, monkeypatch):
    """One is at a run until the other has nothing else left; a failure is tried by one alone."""
    save(notebook_of("print(x)"), "plain")
    save(notebook_of("print(x)", qwen3nb={"reads": "results"}), "reader")
    jobs = [Job("reader", {}), *(Job("plain", {"x": x}) for x in range(4))]
    begun, go, ran = threading.Event(), threading.Event(), []

    def run(self, command, *, log):
        log.write_text("what it printed")
        ran.append(command.name)
        begun.set()
        if command.name == jobs[1].name:
            assert go.wait(60)
        return RunOutcome(command.name, exit_status=int(command.name == jobs[4].name))

    def wait(self, names):
        waiting.append(list(names))
        go.set()
        return wait_really(self, names)

    waiting, wait_really = [], shares.LastOne.waits_for
    monkeypatch.setattr(shares.LastOne, "waits_for", wait)
    monkeypatch.setattr(executors.LocalExecutor, "run", run)
    monkeypatch.setattr(Job, "finished", lambda job: job.name in ran and job is not jobs[4])

    def first():
        with sweep_share(jobs, Share(2, 2), at_once=1, show_progress=False) as shared:
            return shared

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(first)
        assert begun.wait(60)
        with sweep_share(jobs, Share(1, 2), at_once=1, show_progress=False) as second:
            other = future.result(60)
    assert waiting[0] == [jobs[1].name]
    assert sorted(ran) == sorted(job.name for job in jobs)
    assert ran[-1] == "reader"
    statuses = [outcome.status for outcome in second.outcomes]
    assert (statuses, second.left, second.is_last) == (
        ["done", "reused", "done", "done", "failed"],
        [],
        True,
    )
    assert [outcome.status for outcome in other.outcomes] == ["done", "reused", "reused"]
    assert (other.left, other.is_last) == (["reader", jobs[4].name], False)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("9/8", "expected a part of 0/8 to 7/8, or of 1/8 to 8/8; got '9/8'"),
        ("1/0", "expected a part and their number, such as 3/8; got '1/0'"),
        ("-1/8", "such as 3/8; got '-1/8'"),
        ("1/8 --fresh", "--part does not go with --fresh: parts find what others have done"),
        ("1/8 --dry-run", "--part does not go with --dry-run: --dry-run without"),
        ("1/8 --prompts 3", "--part is for one prompt per role"),
    ],
)
def test_what_cannot_be_shared_is_refused_in_one_line(cli, checkout, part, message):
    done = cli("eval", "--model", "bm25", *f"--part={part}".split())
    assert done.exit_code == 2
    assert message in done.output.splitlines()[-1]


def test_the_last_part_makes_the_page(cli, checkout, monkeypatch):
    pages = []
    monkeypatch.setattr(commands, "run_and_print", lambda *given, **options: pages.append(given))
    monkeypatch.chdir(write_words(checkout / "words").parent)
    arguments = ["eval", "--model", "bm25", "--data", "words", "--part", "2/2"]
    done = cli(*arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout == "part 2/2: 1 evaluated, 0 found; nothing is open\n"
    assert pages == [("eval", {"checkpoint": "bm25", "data": "words"})]
    notebook = paths.find_notebook("eval")
    values = resolved_parameters(notebook, {"checkpoint": "bm25", "data": "words"})
    name = page_path(notebook, values).name
    with claim(paths.results() / "partial" / name, purpose="waits"):
        done = cli(*arguments)
    assert done.stdout == (
        "part 2/2: 0 evaluated, 1 found; nothing is open; another process finishes\n"
    )
    assert len(pages) == 1


def test_a_share_is_tried_first_and_those_of_others_from_their_ends():
    tasks = [("a", "b"), ("c", "d"), ("e",)]
    assert Share(1, 3).in_turn(tasks) == ["c", "d", "e", "b", "a"]
    assert Share(3, 3).in_turn(tasks) == Share(0, 3).in_turn(tasks) == ["a", "b", "d", "c", "e"]
    assert Share(7, 8).in_turn(tasks) == ["b", "a", "d", "c", "e"]
