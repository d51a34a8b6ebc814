"""Programs that are started with signals ignored, as by a shell's `&`, nohup and some servers."""

import ast
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import qwen3nb
from qwen3nb.utils.children import keep_exit_statuses

PACKAGE = Path(qwen3nb.__file__).parent
STATUS = """
import subprocess, sys, threading
from qwen3nb.utils.children import keep_exit_statuses

def run():
    return subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(3)"]).returncode

def heeded():
    keep_exit_statuses()
    after.append(run())

before, after = run(), []
{call}
print(before, *after)
"""


@pytest.mark.parametrize(
    "call",
    ["heeded()", "thread = threading.Thread(target=heeded); thread.start(); thread.join()"],
    ids=["main thread", "another thread"],
)
def test_the_status_of_a_child_is_known_although_sigchld_was_ignored(call):
    done = subprocess.run(
        [sys.executable, "-c", STATUS.format(call=call)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert done.stdout.split() == ["0", "3"]  # the system has dropped the first


def test_a_handler_of_the_program_stays(monkeypatch):
    handler = lambda *_: None  # noqa: E731
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        keep_exit_statuses()
        thread = threading.Thread(target=keep_exit_statuses)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def starts_children(function):
    """Whether a function starts a process and does not call ``keep_exit_statuses``."""
    called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    starters = {"Popen", "run", "call", "check_call", "check_output"}
    starts = {f"subprocess.{name}" for name in starters} & called
    return bool(starts) and "keep_exit_statuses" not in called


def test_whoever_starts_a_process_learns_how_it_ends():
    unheeding = []
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        unheeding += [
            f"{file.relative_to(PACKAGE)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and starts_children(node)
        ]
    # The guard is a program of its own, which sets the signal where it starts.
    assert unheeding == ["cluster/processes.py: _start_child"]
