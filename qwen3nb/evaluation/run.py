"""One evaluation: how it is run, the loop over its items, and its outcome.

An item is what one record is of: an MTEB task, a test collection, queries and documents of one's
own, the candidates of a reranker. `evaluate_each` evaluates models on items: a record that is
there is reused, one that fails stops no other.
"""

from __future__ import annotations

import re
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypedDict

from qwen3nb import paths
from qwen3nb.evaluation.known_models import loaded
from qwen3nb.evaluation.recording import has_runs, record_path, stored
from qwen3nb.hub.session import hub_reachable, hub_session
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.files.turns import turn
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.secrets import known_secrets

SEARCH_TYPES = ("Retrieval", "Reranking")
_WITH_BAR = ("tasks", "data sets")  # which there may be many of
_MODULE = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")  # before the name of an error's class


class EvaluationError(RuntimeError):
    """Some tasks, data sets or models failed; finished records are saved.

    Attributes:
        run: what was evaluated, with the failures; None if nothing was.
    """

    def __init__(self, message: str, *, run: EvaluationRun | None = None) -> None:
        super().__init__(message)
        self.run = run


class UnsupportedError(ValueError):
    """A model does not support an item, which is skipped; the message says why."""


class RunOptions(TypedDict, total=False):
    """The fields of `Run`, as keywords of a function that evaluates."""

    output: Path | str | None
    seed: int
    batch_size: int
    config: Mapping[str, Any] | None
    fresh: bool
    runs: bool
    strict: bool
    show_progress: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """How an evaluation is run, whatever the model and the data.

    Attributes:
        output: folder for records; by default `paths.results`.
        seed: seed of the confidence intervals.
        batch_size: texts per batch.
        config: parameters to store in each record.
        fresh: evaluate again even if a record exists.
        runs: whether a search keeps its run and its qrels next to the record, in TREC format. A
            record that lacks them gets them, and stays as it is otherwise.
        strict: whether to raise if an item failed; if not, see `EvaluationRun.failures`.
        show_progress: whether to show progress bars.
        id: shared by all records of the evaluation.
    """

    output: Path | str | None = None
    seed: int = 0
    batch_size: int = 32
    config: Mapping[str, Any] | None = None
    fresh: bool = False
    runs: bool = False
    strict: bool = True
    show_progress: bool = True
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @cached_property
    def folder(self) -> Path:
        """The folder of the records."""
        return Path(self.output) if self.output else paths.results()

    @cached_property
    def reachable(self) -> Callable[[], bool]:
        """Whether the hub answers; it is asked once."""
        return cache(hub_reachable)

    def is_complete(self, record: Result) -> bool:
        """Whether a record has all that this run keeps: with ``runs``, a search has its run."""
        searched = record.task.type in SEARCH_TYPES
        return not (self.runs and searched) or has_runs(record, self.folder)


class Item(Protocol):
    """What one record is of.

    Attributes:
        name: its name among the reused.
        key: name of the record; see `qwen3nb.records.TaskInfo.key`.
        measures: metrics that the record has; a record that lacks one is made again.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def measures(self) -> tuple[str, ...]: ...  # noqa: D102

    def same(self, record: Result, folder: Path) -> bool:
        """Whether a record in ``folder`` is of the same data and settings."""

    def evaluate(self, model: Any, run: Run, earlier: Result | None) -> Result:
        """Return the record of a loaded model; ``earlier`` is one that lacks its runs only."""


Job = tuple[str, Callable[[], Iterable[tuple[Any, Item]]]]


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
        lines = [f"  {result!r}" for result in self.results]
        lines += [f"  {name}: skipped, {reason}" for name, reason in self.skipped.items()]
        return "\n".join([f"<EvaluationRun: {', '.join(counts)}>", *lines, *self.failure_lines()])

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


@hub_session()  # a hub that fails is not asked for each item
def evaluate_each(jobs: Iterable[Job], run: Run, *, label: str, kind: str) -> EvaluationRun:
    """Evaluate models on items, one after the other; save each record as it finishes.

    A model that is only known is loaded when an item is evaluated. The traceback of a failure is
    kept next to the item's record until it succeeds.

    Args:
        jobs: names, each with a function that finds models and their items.
        run: how.
        label: label of the model, or of the data.
        kind: plural noun for the items.

    Raises:
        EvaluationError: an item failed, and ``run.strict``.
    """
    results: list[Result] = []
    reused: list[str] = []
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    silent = not run.show_progress or kind not in _WITH_BAR
    bar = tqdm(list(jobs), desc=label, unit=kind.removesuffix("s"), disable=silent)
    for name, find in bar:
        bar.set_postfix_str(name)
        file: Path | None = None
        try:
            for model, item in find():
                file = record_path(model, item.key, folder=run.folder, seed=run.seed)
                with turn(file, what="evaluates"):  # another process finds what this one saves
                    result, again = _evaluated(model, item, run, file)
                results.append(result)
                reused += [item.name] * again
        except UnsupportedError as reason:
            skipped[name] = str(reason)
        except Exception:  # noqa: BLE001 - one failing item must not stop the others
            failures[name] = known_secrets().without(traceback.format_exc())
            if file is not None:
                write_text(_note(file), failures[name])
    outcome = EvaluationRun(
        Results(results),
        tuple(reused),
        skipped,
        failures,
        label=label,
        kind=kind,
        folder=str(run.folder),
    )
    if run.strict:
        outcome.raise_failures()
    return outcome


def stored_record(model: Any, item: Item, run: Run) -> Result | None:
    """Return the stored record for this model, item and software, if any."""
    return stored(
        record_path(model, item.key, folder=run.folder, seed=run.seed),
        identity=model.identity,
        metrics=item.measures,
        same=lambda record: item.same(record, run.folder),
    )


def _evaluated(model: Any, item: Item, run: Run, file: Path) -> tuple[Result, bool]:
    """Return the record of an item, saved, and whether it was there."""
    earlier = None if run.fresh else stored_record(model, item, run)
    if earlier is not None and run.is_complete(earlier):
        return earlier, True
    result = item.evaluate(loaded(model), run, earlier)
    if earlier is not None:
        result = _with_added_runs(earlier, result)
    result.save(run.folder)
    _note(file).unlink(missing_ok=True)
    return result, earlier is not None


def _note(file: Path) -> Path:
    """Return the file that keeps why the record in ``file`` could not be made."""
    return file.with_suffix(".error.txt")


def _with_added_runs(earlier: Result, again: Result) -> Result:
    """Return a stored record with the runs of its repetition, which has the same scores.

    Raises:
        EvaluationError: the scores differ.
    """
    if earlier.scores != again.scores:
        raise EvaluationError(
            f"{earlier.task.key}: the record has other scores than its repetition, whose run is "
            "therefore not added to it; use --fresh to replace the record"
        )
    names = {name: again.config[name] for name in ("runs", "qrels")}
    return replace(earlier, config=earlier.config | names)
