"""The process that evaluates a checkpoint beside a training, and builds the book if it is time.

A program with one argument, the file of its `Orders`. Its `Outcome` is written next to it. The
process and all that it starts come after the training (``nice``), and on Linux keep to a few cores.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

from qwen3nb import paths
from qwen3nb.answers.run_trace import read_trace
from qwen3nb.book.build import BookError, build_book
from qwen3nb.during_training.orders import (
    FAILED,
    OUTCOME,
    Orders,
    Outcome,
    Score,
    note_failed_evaluation,
)
from qwen3nb.during_training.snapshots import digest_of_files
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.interruption import Interrupted
from qwen3nb.execution.notebook import NotebookError
from qwen3nb.execution.sweep import Job, sweep, write_failed_page
from qwen3nb.records.failures import forget_failure
from qwen3nb.records.store import latest, load_results
from qwen3nb.utils.atomic_files import read_json, write_json, write_text
from qwen3nb.utils.secrets import known_secrets


class _OutOfTimeError(KeyboardInterrupt):
    """The time limit is reached: ends what runs as Ctrl-C does."""


def main(file: Path) -> None:
    """Carry out the orders in a file."""
    started = time.monotonic()
    orders = Orders(**read_json(file))
    stand_back(orders)
    outcome = Outcome()
    if orders.checkpoint:
        outcome = evaluate(orders, log=file.with_name(orders.log_name))
        outcome = replace(outcome, seconds=time.monotonic() - started)
        # Already now: the book may be ended before it is built.
        write_json(file.with_name(OUTCOME), asdict(outcome))
    if orders.book:
        started_book = time.monotonic()
        reason = _why_no_book(orders)
        seconds = time.monotonic() - started_book
        outcome = replace(outcome, book=reason, book_seconds=seconds)
        write_json(file.with_name(OUTCOME), asdict(outcome))


def stand_back(orders: Orders) -> None:
    """Leave the training its cores: run on a few, and there only when others do not."""
    if hasattr(os, "nice"):
        os.nice(orders.niceness)
    if hasattr(os, "sched_setaffinity"):
        # The libraries, too, then count only these cores, and start as many threads.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-orders.threads :])


def evaluate(orders: Orders, *, log: Path) -> Outcome:
    """Evaluate a checkpoint, and publish its page; failures are noted for the status page."""
    outcome = Outcome(files=digest_of_files(Path(orders.copy)))
    clock = time.monotonic()
    job = Job("eval", {"checkpoint": orders.checkpoint, **orders.parameters})
    try:
        with _time_limit(orders.seconds):
            (run,) = sweep([job], at_once=1, show_progress=False)
    except (ValueError, OSError) as error:  # no model, or one that cannot be loaded
        reason = known_secrets().without(str(error)).replace(orders.copy, orders.checkpoint)
        note_failed_evaluation(orders, reason, seconds=time.monotonic() - clock, log=log)
        return replace(outcome, status=FAILED, reason=reason)
    except (Interrupted, _OutOfTimeError):
        reason = f"stopped at its time limit of {orders.seconds:.0f} s"
        _publish_failure(job, reason, seconds=time.monotonic() - clock)
        return replace(outcome, status=FAILED, reason=reason, page=job.name)
    if run.reason:
        return replace(outcome, status=FAILED, reason=run.reason, page=run.name)
    forget_failure(orders.note)  # that of an earlier try
    return replace(outcome, page=run.name, scores=_scores(job.page))


def _publish_failure(job: Job, reason: str, *, seconds: float) -> None:
    """Write the page of an evaluation that was stopped, with the end of its log."""
    log = paths.results() / "logs" / f"{job.name}.log"
    if not log.is_file():  # stopped before it began
        write_text(log, "")
    stopped = RunOutcome(job.name, exit_status=1, seconds=seconds, notebook=job.notebook, log=log)
    write_failed_page(job, stopped, time.time(), reason)


def _scores(page: Path) -> tuple[Score, ...]:
    """Return the main scores on a page, each with the digest of its record."""
    trace = read_trace(page)
    if trace is None:
        return ()
    on_page = {(score.model, score.task) for score in trace.scores}
    scores = []
    for record in latest(load_results(adapters=False, whole=False)):
        value = record.main.value
        if (record.model.label, record.task.key) in on_page and value is not None:
            name = (record.task.key, record.task.main_metric)
            scores.append(Score(*name, value=value, record=record.checksum))
    return tuple(scores)


def _why_no_book(orders: Orders) -> str:
    """Build the book; return why that was not possible, or nothing."""
    try:
        with _time_limit(orders.seconds):
            build_book(at_once=1)
    except (BookError, NotebookError, ValueError, OSError) as error:
        return known_secrets().without(str(error))
    except (Interrupted, _OutOfTimeError):
        return f"stopped at its time limit of {orders.seconds:.0f} s"
    return ""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Interrupt a block after some time."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _OutOfTimeError

    if not hasattr(signal, "setitimer"):  # Windows: the training ends the process
        yield
        return
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
