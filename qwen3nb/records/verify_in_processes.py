"""Verify many records on all cores, each in a process of its own.

The processes are started as commands rather than forked: a kernel that verifies has threads and
libraries that a fork would break, and a script needs no ``if __name__ == "__main__"``. They speak
JSON lines: the command gets a list of files and answers with what is wrong with each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from qwen3nb.records.verification import RecordCheck, Verifier

__all__ = ["checks_of_processes"]

_CHUNK = 16  # records in a line
_CHECKSUMS_ONLY = "--checksums"


def checks_of_processes(
    files: Sequence[Path], *, checksums_only: bool, processes: int
) -> Generator[RecordCheck]:
    """Yield what is found in each file, in their order; no process is left when it ends.

    Raises:
        ChildProcessError: a process ended early, such as one killed for lack of memory.
    """
    chunks = [files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK)]
    workers = [_start(checksums_only=checksums_only) for _ in range(min(processes, len(chunks)))]
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    for worker in workers:
        idle.put(worker)
    threads = ThreadPoolExecutor(len(workers))
    try:
        for checks in threads.map(lambda chunk: _checks(chunk, idle), chunks):
            yield from checks
    finally:
        for worker in workers:
            worker.kill()
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.communicate()


def _start(*, checksums_only: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(
        [*command, _CHECKSUMS_ONLY] if checksums_only else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends the command, which ends them
    )


def _checks(chunk: Sequence[Path], idle: SimpleQueue[subprocess.Popen[str]]) -> list[RecordCheck]:
    """Let the next idle process check some files."""
    worker = idle.get()
    assert worker.stdin is not None  # noqa: S101 - both are pipes
    assert worker.stdout is not None  # noqa: S101
    try:
        worker.stdin.write(json.dumps([str(file) for file in chunk]) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
    except BrokenPipeError:
        answer = ""
    finally:
        idle.put(worker)
    if not answer:
        raise ChildProcessError(
            f"a process that verifies records ended with status {worker.wait()} before its "
            f"answer on {chunk[0]} and the {len(chunk) - 1} files after it; "
            "verify these by themselves"
        )
    return [
        RecordCheck(tuple(each["problems"]), each["has_checksum"]) for each in json.loads(answer)
    ]


def _serve(*, checksums_only: bool) -> None:
    """Answer each line of files with their checks, until there is no more."""
    verifier = Verifier(checksums_only=checksums_only)
    for line in sys.stdin:
        checks = [asdict(verifier.check(Path(file))) for file in json.loads(line)]
        try:
            print(json.dumps(checks), flush=True)
        except BrokenPipeError:  # the command was killed
            os._exit(1)


if __name__ == "__main__":
    _serve(checksums_only=_CHECKSUMS_ONLY in sys.argv[1:])
