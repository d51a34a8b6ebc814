"""The outcome of an evaluation: records, skipped items and failures."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.utils.secrets import known_secrets

__all__ = ["EvaluationError", "EvaluationRun", "Tally"]

_MODULE = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")  # before the name of an error's class


class EvaluationError(RuntimeError):
    """Some tasks, data sets or models failed; finished records are saved.

    Attributes:
        run: what was evaluated, with the failures; None if nothing was.
    """

    def __init__(self, message: str, *, run: EvaluationRun | None = None) -> None:
        super().__init__(message)
        self.run = run


@dataclass(frozen=True)
class EvaluationRun:
    """The outcome of an evaluation.

    Attributes:
        results: one record per finished task, data set or model.
        reused: names of items whose record was already stored.
        skipped: name -> why the model does not support the task.
        failures: name -> traceback, without secrets.
        label: label of the model.
        kind: plural noun for the items, such as ``tasks`` or ``data sets``.
        folder: folder of the records.
    """

    results: Results = field(default_factory=Results)
    reused: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    kind: str = "items"
    folder: str = ""

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

    @property
    def reasons(self) -> dict[str, str]:
        """The last line of each failure's traceback, without the error's module, by name."""
        return {
            name: _MODULE.sub("", trace.strip().splitlines()[-1])
            for name, trace in self.failures.items()
        }

    def failure_lines(self) -> list[str]:
        """One line per failure, with its reason."""
        return [f"  {name}: {reason}" for name, reason in self.reasons.items()]

    def raise_failures(self) -> None:
        """Raise the failures, if there are any.

        Raises:
            EvaluationError: an item failed; lists each with its reason.
        """
        if not self.failures:
            return
        tried = len(self.failures) + len(self.results) + len(self.skipped)
        saved = {0: "nothing is saved", 1: "the other is saved"}
        message = (
            f"{self.label}: {len(self.failures)} of {tried} {self.kind} failed; "
            + saved.get(len(self.results), f"the other {len(self.results)} are saved")
            + (f" in {self.folder}" if self.results else "")
        )
        raise EvaluationError("\n".join([message, *self.failure_lines()]), run=self)


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
            self._failures[name] = known_secrets().without(traceback.format_exc())

    def failure(self, name: str) -> str | None:
        """The traceback of ``name``; None if it did not fail."""
        return self._failures.get(name)

    def run(self, *, label: str = "", kind: str = "items", folder: object = "") -> EvaluationRun:
        """Everything collected so far; for the arguments see `EvaluationRun`."""
        return EvaluationRun(
            Results(self._results),
            tuple(self._reused),
            dict(self._skipped),
            dict(self._failures),
            label=label,
            kind=kind,
            folder=str(folder),
        )

    def run_or_raise(
        self, label: str, *, kind: str, saved: object, strict: bool = True
    ) -> EvaluationRun:
        """Return the run; raise its failures if ``strict``.

        Args:
            label: label of the evaluated model.
            kind: plural noun for the items, such as ``tasks`` or ``data sets``.
            saved: folder of the saved records.
            strict: whether to raise failures.

        Raises:
            EvaluationError: an item failed; lists each, with the last line of its traceback.
        """
        run = self.run(label=label, kind=kind, folder=saved)
        if strict:
            run.raise_failures()
        return run
