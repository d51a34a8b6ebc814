"""Turns: one at a time, whatever ends the one before."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from qwen3nb.utils.atomic_files import exclusive_lock


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


HOLD = """
import os, sys, time
from pathlib import Path
from qwen3nb.utils.atomic_files import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    if sys.argv[2] == "fork" and not os.fork():
        time.sleep(60)
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(path, how="alone"):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def leftovers(folder):
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("end", ["kill -9", "by itself, a fork lives on"])
def test_a_turn_begins_when_the_one_before_ends(folder, end):
    process = holder(folder / "record", "fork" if "fork" in end else "alone")
    waits = []
    threading.Timer(0.3, lambda: _end(process, end)).start()
    with exclusive_lock(folder / "record", on_wait=lambda: waits.append(process.poll())):
        assert waits == [None]
    os.killpg(process.pid, signal.SIGKILL) if "fork" in end else None
    process.communicate()
    assert leftovers(folder) == []


def _end(process, how):
    if how == "kill -9":
        process.kill()
    else:
        process.stdin.write("\n")
        process.stdin.flush()


def test_one_who_gives_up_goes_on_and_leaves_the_lock(folder):
    process = holder(folder / "page")
    times = []
    with exclusive_lock(folder / "page", give_up=lambda: bool(times.append(1)) or len(times) > 2):
        assert process.poll() is None
    assert leftovers(folder) == [".page.writes.lock"]
    process.communicate("\n")
    assert leftovers(folder) == []
    (folder / "file").write_text("")  # where no file can be made, there are no turns
    with exclusive_lock(folder / "file" / "below", on_wait=lambda: pytest.fail("waits")):
        pass
