"""The outcome of an evaluation: records, skipped items and failures."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from qwen3nb.records.record import Result
from qwen3nb.records.results import Results

__all__ = ["EvaluationError", "EvaluationRun", "Tally"]


class EvaluationError(RuntimeError):
    """Some tasks, data sets or models failed; finished records are saved."""


@dataclass(frozen=True)
class EvaluationRun:
    """The outcome of an evaluation.

    Attributes:
        results: one record per finished task, data set or model.
        reused: names of items whose record was already stored.
        skipped: name -> why the model does not support the task.
        failures: name -> traceback.
    """

    results: Results = field(default_factory=Results)
    reused: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        """The counts, then a line per record, skipped task and failure."""
        records = f"{len(self.results)} record{'' if len(self.results) == 1 else 's'}"
        others = {"reused": self.reused, "skipped": self.skipped, "failed": self.failures}
        counts = [records, *(f"{len(part)} {name}" for name, part in others.items() if part)]
        return "\n".join([f"<EvaluationRun: {', '.join(counts)}>", *self._lines()])

    def _lines(self) -> Iterator[str]:
        for result in self.results:
            yield f"  {result!r}"
        for name, reason in self.skipped.items():
            yield f"  {name}: skipped, {reason}"
        yield from self.failure_lines()

    def failure_lines(self) -> list[str]:
        """One line per failure, with the last line of its traceback."""
        return [
            f"  {name}: {trace.strip().splitlines()[-1]}" for name, trace in self.failures.items()
        ]


class Tally:
    """Collect records, skips and failures while an evaluation runs."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._reused: list[str] = []
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, str] = {}

    def add(self, result: Result, *, name: str, reused: bool = False) -> None:
        """Add a record; ``name`` identifies it in the list of reused records."""
        self._results.append(result)
        self._reused += [name] * reused

    def skip(self, name: str, reason: str) -> None:
        """Record that ``name`` was skipped, and why."""
        self._skipped[name] = reason

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Record an exception raised in the block as a failure of ``name``, and continue."""
        try:
            yield
        except Exception:  # noqa: BLE001 - one failing item must not stop the others
            self._failures[name] = traceback.format_exc()

    def failure(self, name: str) -> str | None:
        """The traceback of ``name``; None if it did not fail."""
        return self._failures.get(name)

    def run(self) -> EvaluationRun:
        """Everything collected so far."""
        return EvaluationRun(
            Results(self._results), tuple(self._reused), dict(self._skipped), dict(self._failures)
        )

    def run_or_raise(self, label: str, *, kind: str, saved: object) -> EvaluationRun:
        """Return the run if nothing failed.

        Args:
            label: label of the evaluated model.
            kind: plural noun for the items, such as ``tasks`` or ``data sets``.
            saved: folder of the saved records.

        Raises:
            EvaluationError: an item failed; lists each, with the last line of its traceback.
        """
        run = self.run()
        if not run.failures:
            return run
        tried = len(run.failures) + len(run.results) + len(run.skipped)
        raise EvaluationError(
            "\n".join(
                [
                    f"{label}: {len(run.failures)} of {tried} {kind} failed; "
                    f"the other {len(run.results)} are saved in {saved}",
                    *run.failure_lines(),
                ]
            )
        )
