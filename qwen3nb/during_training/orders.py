"""What a training orders of the process that evaluates a checkpoint, and what that returns."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from qwen3nb import paths
from qwen3nb.execution.study_paths import NewValues
from qwen3nb.records.failures import FailedRun, note_failure
from qwen3nb.utils.secrets import known_secrets

DONE, FAILED = "done", "failed"
OUTCOME = "outcome.json"  # file next to that of the orders


@dataclass(frozen=True)
class Orders:
    """The orders of one process; stored as JSON."""

    checkpoint: str  # as records name it; empty: only the book is built
    copy: str  # folder with its kept files
    parameters: NewValues  # of eval.ipynb, without the checkpoint
    seconds: float  # most that the evaluation may take, and then the book
    threads: int  # cores that the process may use
    niceness: int  # by how much other processes come first
    book: bool  # whether the book is built afterwards

    @property
    def log_name(self) -> str:
        """Name of the file with the output of the process, next to that of the orders."""
        name = Path(self.checkpoint).name or "book"
        return f"{name}.log"

    @property
    def note(self) -> str:
        """Name of the note of a failure before the page has one."""
        name = self.checkpoint.removeprefix("runs/").strip("/").replace("/", "-")
        return f"eval-{name}"


@dataclass(frozen=True)
class Score:
    """A main score of a record."""

    task: str
    metric: str
    value: float
    record: str  # SHA-256 of the record


@dataclass(frozen=True)
class Outcome:
    """What became of an evaluation; stored as JSON."""

    status: str = DONE  # or `FAILED`
    reason: str = ""  # why it failed
    page: str = ""  # name of its page
    files: str = ""  # digest of the checkpoint's files
    seconds: float = 0.0  # that it took
    book: str = ""  # why the book was not built
    book_seconds: float = 0.0  # that the book took
    scores: tuple[Score, ...] = field(default=())


def note_failed_evaluation(orders: Orders, reason: str, *, seconds: float, log: Path) -> None:
    """Note a failure without a page of its own for the status page of the book."""
    now = datetime.now(UTC)
    run = FailedRun(
        page=orders.note,
        notebook="eval",
        parameters={"checkpoint": orders.checkpoint, **orders.parameters},
        error="evaluation during training",
        message=known_secrets().without(reason),
        started=(now - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        failed=now.isoformat(timespec="seconds"),
        seconds=round(seconds, 1),
        more=(paths.shown(log),),
    )
    note_failure(run)
