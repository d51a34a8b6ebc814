"""Evaluate checkpoints beside a training: which, when, and what became of each.

One evaluation runs at a time. It starts when the time that evaluations have taken, with that of
this one, is within the share of the training's time; so the newest checkpoint waits until there is
time, and is skipped once a newer one is saved. The time of the first one is not known: it always
starts. So does the last one, when the training has ended.

Everything is below ``_evaluation`` of the training's folder, separately for other parameters. There
is also the journal, by which a resumed training does not evaluate a checkpoint twice.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qwen3nb import paths
from qwen3nb.checkpoints.folder import step_of
from qwen3nb.cluster.processes import end_guarded, start_guarded
from qwen3nb.during_training.orders import (
    DONE,
    FAILED,
    OUTCOME,
    Orders,
    Outcome,
    note_failed_evaluation,
)
from qwen3nb.during_training.snapshots import digest_of_files, keep_files, remove_copy
from qwen3nb.execution.study_paths import NewValues
from qwen3nb.report.render.table import plural
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.children import last_line
from qwen3nb.utils.journal import Journal
from qwen3nb.utils.secrets import kernel_environment, known_secrets

log = logging.getLogger(__name__)

FOLDER = "_evaluation"  # the Trainer does not upload folders of such a name
PROGRAM = "qwen3nb.during_training.child"
SKIPPED = "skipped"
_JOURNAL, _ORDERS = "journal", "orders.json"
_CLOCK = "clock"  # in the journal: seconds of the training and of its evaluations
_SECONDS_BETWEEN_LOOKS = 0.2  # while the end of an evaluation is waited for
_SECONDS_TO_END = 60.0  # for a process that has reached its time limit, before it is ended
# Of a process of a distributed training; the evaluation is none of them.
_OF_DISTRIBUTED = (
    "ACCELERATE_",
    "FSDP_",
    "GROUP_",
    "LOCAL_",
    "MASTER_",
    "NODE_RANK",
    "OMPI_",
    "PMI_",
    "RANK",
    "ROLE_",
    "TORCHELASTIC_",
    "WORLD_SIZE",
)


@dataclass(frozen=True)
class Settings:
    """How checkpoints are evaluated."""

    parameters: NewValues  # of eval.ipynb, without the checkpoint
    share: float  # most of the training's time that evaluations may take
    time_limit: float  # seconds for one evaluation, and for the book
    threads: int  # cores for an evaluation
    niceness: int  # by how much other processes come first
    gpu: str  # id of the GPU for evaluations, as in ``CUDA_VISIBLE_DEVICES``; empty: none
    book: bool  # whether the book is built at the end
    book_every: float | None  # seconds between builds during the training; None: none


@dataclass
class Clock:
    """The time of the training, and of its evaluations, over all of its starts."""

    training_before: float = 0.0  # seconds before this start
    evaluating: float = 0.0  # seconds that evaluations took, with the book
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None  # when the training ended

    @property
    def training(self) -> float:
        """Seconds that the training has taken."""
        now = time.monotonic() if self.ended is None else self.ended
        return self.training_before + now - self.started

    def allows(self, seconds: float, *, share: float) -> bool:
        """Return whether so many more seconds stay within the share."""
        return self.evaluating + seconds <= share * self.training


@dataclass(frozen=True)
class Kept:
    """A checkpoint whose files are kept."""

    checkpoint: Path
    copy: Path

    @property
    def name(self) -> str:
        """Such as ``checkpoint-100``."""
        return self.checkpoint.name


@dataclass(frozen=True)
class Running:
    """A process that evaluates a checkpoint, or builds the book alone."""

    kept: Kept | None
    orders: Orders
    process: subprocess.Popen[bytes]
    started: float


class Evaluations:
    """The evaluations of one training.

    Args:
        training: the folder of its checkpoints.
        settings: how they are evaluated.
        report: called with step and outcome of each evaluation that ended.
    """

    def __init__(
        self, training: Path, settings: Settings, *, report: Callable[[int, Outcome], None]
    ) -> None:
        self._training = Path(os.path.realpath(training))
        self._settings = settings
        self._report = report
        name = sha256_json(settings.parameters)[:8]
        self._folder = self._training / FOLDER / name
        self._journal = Journal(self._folder / _JOURNAL)
        self._clock = Clock()
        self._waiting: Kept | None = None
        self._running: Running | None = None
        self._seconds_of_last = 0.0  # evaluation; 0 before the first
        self._book_built = time.monotonic()
        self._book_is_due = False

    def begin(self, *, resumed: bool) -> None:
        """Begin with the training; if it goes on after a stop, with what had not been evaluated."""
        copies = self._folder / self._training.name
        if not resumed:
            remove_copy(self._folder)
            self._journal = Journal(self._folder / _JOURNAL)
        self._folder.mkdir(parents=True, exist_ok=True)
        clock = self._journal.get(_CLOCK) or {}
        self._clock = Clock(clock.get("training", 0.0), clock.get("evaluating", 0.0))
        self._seconds_of_last = clock.get("last", 0.0)
        # An evaluation that the stop ended, or a checkpoint that waited for its turn.
        for copy in sorted(copies.glob("*"), key=lambda copy: _by_step(copy.name)):
            kept = Kept(self._training / copy.name, copy)
            if self._status(kept.name) in (DONE, FAILED):
                remove_copy(copy)
            else:
                self._wait(kept)

    def keep(self, checkpoint: Path) -> None:
        """Keep the files of a checkpoint that was just saved, until it is evaluated or skipped."""
        checkpoint = self._training / checkpoint.name
        if self._running and self._running.kept and self._running.kept.name == checkpoint.name:
            return  # saved twice, as at the end of an epoch
        copy = self._folder / self._training.name / checkpoint.name
        keep_files(checkpoint, copy)
        kept = Kept(checkpoint, copy)
        entry = self._journal.get(kept.name) or {}
        if entry.get("status") == DONE and entry.get("files") == digest_of_files(copy):
            remove_copy(copy)  # evaluated before the training was stopped
            return
        self._wait(kept)

    def look(self) -> None:
        """Note an evaluation that has ended, and start the next one if there is time for it."""
        if self._running is not None and self._has_ended(self._running):
            self._settle(self._running)
        if self._running is None and self._waiting is not None and self._is_time():
            self._start(self._waiting, book=self._is_time_for_book())

    def finish(self) -> None:
        """After the training: wait for the evaluation that runs, and evaluate the last one."""
        self._clock.ended = time.monotonic()
        self._wait_for_end()
        if self._waiting is not None:
            self._start(self._waiting, book=self._settings.book)
            self._wait_for_end()
        if self._settings.book and self._book_is_due:
            self._start(None, book=True)
            self._wait_for_end()
        self._write_clock()

    def stop(self) -> None:
        """End the process that runs, as after an error of the training."""
        if self._running is not None:
            _end(self._running.process)
            self._running = None

    @property
    def summary(self) -> str:
        """What was evaluated, what was not, and the time of it, in two sentences."""
        names: dict[str, list[str]] = {DONE: [], FAILED: [], SKIPPED: []}
        for name in sorted(self._journal.keys(), key=_by_step):
            if name != _CLOCK:
                names[self._status(name)].append(name)
        share = self._clock.evaluating / max(self._clock.training, 1e-9)
        count = plural(len(names[DONE]), "checkpoint")
        text = (
            f"{count} evaluated, in {self._clock.evaluating:.0f} s beside "
            f"{self._clock.training:.0f} s of training ({share:.0%})."
        )
        for status in (SKIPPED, FAILED):
            if names[status]:
                text += f" {status.capitalize()}: {', '.join(names[status])}."
        return text

    def _status(self, name: str) -> str:
        entry = self._journal.get(name) or {}
        return str(entry.get("status", ""))

    def _wait(self, kept: Kept) -> None:
        """Let a checkpoint wait for its turn, in place of an older one."""
        skipped = self._waiting
        self._waiting = kept
        if skipped is None or skipped.name == kept.name:
            return
        if self._running is not None and self._running.kept is not None:
            reason = f"{self._running.kept.name} was still evaluated"
        else:
            allowed = self._settings.share * self._clock.training
            reason = (
                f"evaluations had taken {self._clock.evaluating:.0f} s of {allowed:.0f} s, and the "
                f"next one takes about {self._seconds_of_last:.0f} s"
            )
        self._journal.add(skipped.name, {"status": SKIPPED, "reason": reason})
        log.warning("%s is not evaluated: %s", skipped.name, reason)
        remove_copy(skipped.copy)

    def _is_time(self) -> bool:
        is_first = not self._seconds_of_last
        return is_first or self._clock.allows(self._seconds_of_last, share=self._settings.share)

    def _is_time_for_book(self) -> bool:
        every = self._settings.book_every
        return every is not None and time.monotonic() - self._book_built >= every

    def _start(self, kept: Kept | None, *, book: bool) -> None:
        """Start the process of a checkpoint, or of the book alone."""
        settings = self._settings
        environment = _environment(settings.gpu)
        checkpoint, copy = "", ""
        if kept is not None:
            self._waiting = None
            # Another callback may have added files, such as a tokenizer.
            keep_files(kept.checkpoint, kept.copy)
            checkpoint, copy = paths.shown(kept.checkpoint), str(kept.copy)
            environment[paths.KEPT_COPY] = json.dumps([str(kept.checkpoint), copy])
        orders = Orders(
            checkpoint=checkpoint,
            copy=copy,
            parameters=settings.parameters,
            seconds=settings.time_limit,
            threads=settings.threads,
            niceness=settings.niceness,
            book=book,
        )
        (self._folder / OUTCOME).unlink(missing_ok=True)
        file = write_json(self._folder / _ORDERS, asdict(orders))
        command = [sys.executable, "-m", PROGRAM, str(file)]
        log_file = self._folder / orders.log_name
        process = start_guarded(command, environment=environment, log=log_file)
        self._running = Running(kept, orders, process, time.monotonic())

    def _has_ended(self, running: Running) -> bool:
        """Return whether a process has ended, or end it if it is far beyond its time limit."""
        if running.process.poll() is not None:
            return True
        limit = running.orders.seconds * (1 + running.orders.book) + _SECONDS_TO_END
        if time.monotonic() - running.started <= limit:
            return False
        _end(running.process)
        return True

    def _wait_for_end(self) -> None:
        try:
            while self._running is not None:
                if self._has_ended(self._running):
                    self._settle(self._running)
                else:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        except KeyboardInterrupt:
            self.stop()
            raise

    def _settle(self, running: Running) -> None:
        """Note what became of a process that has ended."""
        self._running = None
        seconds = time.monotonic() - running.started
        outcome = self._outcome(running, seconds)
        self._clock.evaluating += outcome.seconds + outcome.book_seconds
        if running.orders.book:
            self._book_built, self._book_is_due = time.monotonic(), False
        if outcome.book:
            log.warning("the book was not built: %s", outcome.book)
        if running.kept is not None:
            self._settle_evaluation(running.kept, outcome, running.orders)
        self._write_clock()

    def _settle_evaluation(self, kept: Kept, outcome: Outcome, orders: Orders) -> None:
        self._seconds_of_last = outcome.seconds
        if not orders.book:
            self._book_is_due = True
        entry: dict[str, Any] = asdict(replace(outcome, seconds=round(outcome.seconds, 1)))
        self._journal.add(kept.name, entry)
        remove_copy(kept.copy)
        if outcome.status == FAILED:
            log.warning("%s could not be evaluated: %s", kept.name, outcome.reason)
        else:
            log.info("%s is evaluated, in %.0f s", kept.name, outcome.seconds)
        self._report(step_of(kept.checkpoint) or 0, outcome)

    def _outcome(self, running: Running, seconds: float) -> Outcome:
        """Return what a process wrote; if it died first, a failure, which is noted."""
        file = self._folder / OUTCOME
        if file.is_file():
            outcome: Outcome = TypeAdapter(Outcome).validate_python(read_json(file))
            was_killed = running.process.returncode != 0
            if was_killed:  # after the evaluation, so while the book was built
                return replace(outcome, book="its process was killed", book_seconds=seconds)
            return outcome
        status = running.process.returncode
        reason = f"its process ended with status {status}"
        if status is not None and status < 0:
            reason = f"its process was killed by signal {-status}"
        log_file = self._folder / running.orders.log_name
        printed = last_line(log_file)
        if printed:
            reason += f"; its last line: {known_secrets().without(printed)}"
        if running.kept is None:
            return Outcome(book=reason, book_seconds=seconds)
        note_failed_evaluation(running.orders, reason, seconds=seconds, log=log_file)
        return Outcome(FAILED, reason, seconds=seconds)

    def _write_clock(self) -> None:
        clock = {
            "training": round(self._clock.training, 1),
            "evaluating": round(self._clock.evaluating, 1),
            "last": round(self._seconds_of_last, 1),
        }
        self._journal.add(_CLOCK, clock)


def _by_step(name: str) -> int:
    return step_of(Path(name)) or 0


def _environment(gpu: str) -> dict[str, str]:
    """Return the variables of an evaluation: no secret, and nothing of a distributed training."""
    variables = {}
    for name, value in kernel_environment(download=True).items():
        if not name.startswith(_OF_DISTRIBUTED):
            variables[name] = value
    variables["CUDA_VISIBLE_DEVICES"] = gpu
    variables["QWEN3NB_HOME"] = str(paths.root())
    return variables


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started, and learn its status."""
    end_guarded([process])
    process.wait()
