"""The evaluation loop: options, items, records and outcome.

An item corresponds to one record: an MTEB task, a test collection, custom queries and documents, or
a reranker's candidates. `evaluate_each` evaluates models on items: existing records are reused
(`stored`), and a failure does not stop the others.
"""

from __future__ import annotations

import html
import logging
import os
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict

from qwen3nb import paths
from qwen3nb.datasets.trec import qrels_bytes, run_digest, write_run
from qwen3nb.hub import hub_session
from qwen3nb.metrics.aggregate import Aggregate, means
from qwen3nb.metrics.retrieval import NOTHING_FOUND, PART_FOUND_NOTHING, Qrels
from qwen3nb.metrics.retrieval import Run as Ranked
from qwen3nb.models.capabilities import INSTRUCTED_TYPES as INSTRUCTED_TYPES
from qwen3nb.models.capabilities import SEARCH_TYPES as SEARCH_TYPES
from qwen3nb.models.load import loaded
from qwen3nb.records.details import DataFacts, SearchFacts, typed_details
from qwen3nb.records.kept_runs import run_problems
from qwen3nb.records.known_records import remember
from qwen3nb.records.record import (
    Environment,
    ModelInfo,
    Part,
    Result,
    RunCost,
    TaskInfo,
    result_path,
    used_again,
)
from qwen3nb.records.results import Results
from qwen3nb.records.side_files import EVALUATES, ResultError, remove_unnamed, run_path
from qwen3nb.records.stopped_early import may_be_reused
from qwen3nb.records.verification import unchanged_record
from qwen3nb.utils.atomic_files import (
    FileStamp,
    claim,
    exclusive_lock,
    file_stamp,
    write_bytes,
    write_text,
)
from qwen3nb.utils.hardware import peak_memory
from qwen3nb.utils.hints import missing_attribute
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.progress import SO_FAR, TaskBar
from qwen3nb.utils.secrets import FRESH, known_secrets

log = logging.getLogger(__name__)
TEXTS_CUT = "texts cut to the maximum length"  # in the counts of a record
_NOTE = ".error.txt"  # next to the record's path: why it could not be computed
# What to write for attributes that one might guess.
_INSTEAD = {
    "compare": "q.load_results().compare(model, other)",
    "score": "run.results[0].value",
    "scores": "run.results[0].scores",
    "table": "run.to_frame()",
    "value": "run.results[0].value",
}
_MODULE = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")  # module in front of an error's class


class EvaluationError(RuntimeError):
    """Tasks, data sets or models failed; finished records are saved, and in ``run``."""

    def __init__(self, message: str, *, run: EvaluationRun | None = None) -> None:
        super().__init__(message)
        self.run = run


class UnsupportedError(ValueError):
    """A model does not support an item, which is skipped."""


class RunOptions(TypedDict, total=False):
    """Options of an evaluation that are passed on; see `qwen3nb.evaluate`."""

    output: Path | str | None
    seed: int
    batch_size: int
    config: Mapping[str, Any] | None
    fresh: bool
    runs: bool
    strict: bool
    show_progress: bool
    watch: Callable[[Sequence[Result]], str] | None
    wait_for: Callable[[Sequence[str]], bool] | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Options of an evaluation, independent of model and data.

    The options are those of `qwen3nb.evaluate`; all records of an evaluation share its ``id``.
    """

    output: Path | str | None = None
    seed: int = 0
    batch_size: int = 32
    config: Mapping[str, Any] | None = None
    fresh: bool = False
    runs: bool = False
    strict: bool = True
    show_progress: bool = True
    watch: Callable[[Sequence[Result]], str] | None = None
    wait_for: Callable[[Sequence[str]], bool] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def measures_again(self) -> bool:
        """Whether stored records are measured again: as asked for here, or for the whole page."""
        return self.fresh or FRESH in os.environ

    @cached_property
    def folder(self) -> Path:
        """The folder of the records."""
        return Path(self.output) if self.output else paths.results()

    def with_runs(self, result: Result, ranked: Ranked | None, qrels: Qrels) -> Result:
        """Write the run and the qrels of a search, if kept; return the record that names them.

        They are in TREC format with the query ids of the record, so trec_eval reproduces the score
        of every query; queries without retrieved documents have no line and score 0. Without
        ``ranked``, only the qrels are written.

        Raises:
            DataError: an id is empty or has white space, which TREC's formats cannot express.
        """
        is_search = bool(qrels)  # only a search has judgements
        if not (self.runs and is_search):
            return result
        record, label = result.path(self.folder), result.model.label
        content = qrels_bytes(record, qrels)
        digest = sha256(content).hexdigest()
        file = write_bytes(run_path(record, digest, kind="qrels"), content)
        files = replace(result.files, qrels={file.name: digest})
        if ranked is not None:
            # distinct: trec_eval ranks ties in an order of its own, so there are none.
            digest = run_digest(record, ranked, tag=label, distinct=True)
            file = write_run(run_path(record, digest), ranked, tag=label, distinct=True)
            files = replace(files, runs={file.name: digest})
        return replace(result, files=files)


class Item(Protocol):
    """The subject of one record.

    Attributes:
        name: name in messages.
        key: name of the record; see `qwen3nb.records.TaskInfo.key`.
        measures: metrics of the record; a stored record that lacks one is not reused.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def measures(self) -> tuple[str, ...]: ...  # noqa: D102

    def same(self, record: Result, folder: Path) -> bool:
        """Return whether a record in ``folder`` has the same data and settings."""

    def evaluate(self, model: Any, run: Run) -> Result:
        """Return the record of a model, without saving it."""


Find = Callable[[], Iterable[tuple[Any, Item]]]
Job = tuple[str, Find]


@dataclass(frozen=True)
class EvaluationRun:
    """The outcome of an evaluation."""

    results: Results = field(default_factory=Results)  # one record per finished item
    reused: tuple[str, ...] = ()  # names of items whose record was already stored
    skipped: Mapping[str, str] = field(default_factory=dict)  # name -> why it is not supported
    failures: Mapping[str, str] = field(default_factory=dict)  # name -> traceback, without secrets
    label: str = ""  # of the model
    kind: str = "items"  # plural noun for the items, such as ``tasks`` or ``data sets``
    folder: str = ""  # of the records
    left: tuple[str, ...] = ()  # names of jobs that other processes are at, or have failed at

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        plural = "s" if len(self) != 1 else ""
        counts = [f"{len(self)} record{plural}"]
        items_by_fate = {
            "reused": self.reused,
            "skipped": self.skipped,
            "failed": self.failures,
            "left to other processes": self.left,
        }
        for fate, items in items_by_fate.items():
            if items:
                counts.append(f"{len(items)} {fate}")
        lines = [f"<EvaluationRun: {', '.join(counts)}>"]
        lines += [f"  {result!r}" for result in self]
        lines += [f"  {name}: skipped, {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*lines, *self.failure_lines()])

    if not TYPE_CHECKING:  # which knows the attributes

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name, _INSTEAD)

    def _repr_html_(self) -> str:
        lines = [f"{name}: skipped, {reason}" for name, reason in self.skipped.items()]
        lines += self.failure_lines()
        paragraphs = [f"<p>{html.escape(line.strip())}</p>" for line in lines]
        return "\n".join([self.results._repr_html_(), *paragraphs])

    def to_frame(self, *, all_metrics: bool = False, per_query: bool = False) -> DataFrame:
        """Return the scores as a data frame; the options are those of `Results.to_frame`."""
        return self.results.to_frame(all_metrics=all_metrics, per_query=per_query)

    def summary(self) -> DataFrame:
        """Return a row per task with its main score; see `Results.summary`."""
        return self.results.summary()

    def worst(self, k: int = 5) -> DataFrame:
        """Return the ``k`` queries of each task with the lowest main score; see `Results.worst`."""
        return self.results.worst(k)

    @property
    def reasons(self) -> dict[str, str]:
        """The last line of each failure's traceback by name, without the error's module."""
        return {
            name: _MODULE.sub("", trace.strip().splitlines()[-1])
            for name, trace in self.failures.items()
        }

    def failure_lines(self) -> list[str]:
        """One line per failure, with its reason."""
        return [f"  {name}: {reason}" for name, reason in self.reasons.items()]

    def raise_failures(self) -> None:
        """Raise an EvaluationError that lists each failure with its reason, if there are any."""
        if not self.failures:
            return
        number_of_items = len(self.failures) + len(self.results) + len(self.skipped)
        message = (
            f"{self.label}: {len(self.failures)} of {number_of_items} {self.kind} failed; "
            f"records in {self.folder}: {len(self.results)}"
        )
        raise EvaluationError("\n".join([message, *self.failure_lines()]), run=self)


@hub_session()  # do not retry a failing hub for each item
def evaluate_each(jobs: Iterable[Job], run: Run, *, label: str, kind: str) -> EvaluationRun:
    """Evaluate models on items, one after the other; save each record as it finishes.

    Jobs are names, each with a function that finds models and their items; ``label`` is that of the
    model, or of the data, and ``kind`` a plural noun for the items. A `Model` is loaded before
    its first evaluation. The traceback of a failure is stored next to the item's record until it
    succeeds. Processes that evaluate the same share the items: what another process is at is left
    to it until the end, and taken over if it dies. With ``run.wait_for``, it may be left to it for
    good, and what another process fails at meanwhile is not tried again.

    Raises:
        EvaluationError: an item failed, and ``run.strict``.
    """
    all_jobs = list(jobs)
    outcomes = _Outcomes(run, [name for name, _ in all_jobs])
    has_many_items = kind in ("tasks", "data sets")
    hidden = not (has_many_items and run.show_progress)
    options: dict[str, Any] = {"label": label, "unit": kind.removesuffix("s"), "disable": hidden}
    pending = all_jobs
    may_wait = len(all_jobs) == 1 and run.wait_for is None
    while pending:
        of_others = []  # jobs that another process is at
        bar = TaskBar(pending, names=outcomes.names, **options)
        for name, find in bar:
            bar.begin(name)
            if not outcomes.add(name, find, may_wait=may_wait):
                of_others.append((name, find))
        pending, may_wait = outcomes.to_wait_for(of_others), True  # most of them have records now
    outcome = outcomes.in_order(label, kind)
    if run.strict:
        outcome.raise_failures()
    return outcome


class _Outcomes:
    """What became of each job of a run."""

    def __init__(self, run: Run, names: Sequence[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._run = run
        self._results: dict[str, list[Result]] = {}  # by job; only what is on disk
        self._reused: dict[str, list[str]] = {}
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, str] = {}
        self._left: list[str] = []
        self._failed_elsewhere: set[str] = set()
        # Of an evaluation that processes share: the notes of earlier failures.
        self._notes_before: dict[Path, FileStamp] | None = None
        if run.wait_for is not None:
            self._notes_before = _stamps_of_notes(run)

    def add(self, name: str, find: Find, *, may_wait: bool) -> bool:
        """Do a job; return false if another process is at an item of it.

        With ``may_wait``, wait for that process, and take over the item if it dies.
        """
        results = self._results.setdefault(name, [])
        reused = self._reused.setdefault(name, [])
        number_done = len(results)
        file: Path | None = None
        try:
            for position, (model, item) in enumerate(find()):
                if position < number_done:  # before another process was waited for
                    continue
                file = record_path(model, item, self._run)
                if self._has_failed_elsewhere(file):
                    self._failed_elsewhere.add(name)
                    return False
                evaluated = _evaluate_or_reuse(model, item, self._run, may_wait=may_wait)
                if evaluated is None:
                    return False
                result, is_new = evaluated
                results.append(result)
                if not is_new:
                    reused.append(item.name)
                file = None
        except UnsupportedError as reason:
            self._skipped[name] = str(reason)
        except Exception as error:  # noqa: BLE001 - one failing item must not stop the others
            self._note_failure(name, file, error)
        else:
            _show_watched(self._run, self._all_results())
        return True

    def _has_failed_elsewhere(self, file: Path) -> bool:
        """Return whether another process that shares this evaluation has failed at a record."""
        note = file.with_suffix(_NOTE)
        if self._notes_before is None or not note.is_file():
            return False
        return self._notes_before.get(note) != file_stamp(note)

    def to_wait_for(self, of_others: Sequence[Job]) -> list[Job]:
        """Return the jobs of other processes to wait for; the rest is left to those."""
        at_work = []
        for name, find in of_others:
            if name in self._failed_elsewhere:
                self._left.append(name)
            else:
                at_work.append((name, find))
        names = [name for name, _ in at_work]
        wait_for = self._run.wait_for
        if names and wait_for is not None and not wait_for(names):
            self._left += names
            return []
        return at_work

    def _note_failure(self, name: str, file: Path | None, error: Exception) -> None:
        """Keep the traceback of a failure, next to the record if it is known."""
        self._failures[name] = known_secrets().without(traceback.format_exc())
        try:
            if file is not None:
                write_text(file.with_suffix(_NOTE), self._failures[name])
        except OSError:  # where no note can be written, no record can: on a full disk
            raise error from None

    def _all_results(self) -> list[Result]:
        """Return the records in the order of the jobs."""
        return [result for name in self.names for result in self._results.get(name, ())]

    def in_order(self, label: str, kind: str) -> EvaluationRun:
        """Return the outcomes in the order of the jobs, whenever each was done."""
        reused = [item for name in self.names for item in self._reused.get(name, ())]
        return EvaluationRun(
            Results(self._all_results()),
            tuple(reused),
            {name: self._skipped[name] for name in self.names if name in self._skipped},
            {name: self._failures[name] for name in self.names if name in self._failures},
            label,
            kind,
            str(self._run.folder),
            tuple(self._left),
        )


def _stamps_of_notes(run: Run) -> dict[Path, FileStamp]:
    """Return the stamp of each note on a failure in the folder of the records."""
    stamps = {}
    for note in run.folder.glob(f"*/seed_{run.seed}/*{_NOTE}"):
        with suppress(FileNotFoundError):  # another process has succeeded meanwhile
            stamps[note] = file_stamp(note)
    return stamps


def _show_watched(run: Run, results: Sequence[Result]) -> None:
    """Print what a watcher says of the records so far, on a line above the bar."""
    text = run.watch(results) if run.watch is not None else ""
    if text and run.show_progress:
        TaskBar.write(f"{SO_FAR}{text}", file=sys.stderr)


def _evaluate_or_reuse(
    model: Any, item: Item, run: Run, *, may_wait: bool
) -> tuple[Result, bool] | None:
    """Return the record of a model on an item, stored or saved now, and whether it is new.

    None if another process evaluates it, unless this one ``may_wait``; it then finds that record.
    """
    file = record_path(model, item, run)
    turn: AbstractContextManager[bool | None] = claim(file, purpose=EVALUATES)
    if may_wait:
        turn = exclusive_lock(file, purpose=EVALUATES)
    with turn as is_ours:
        if is_ours is False:
            return None
        if not run.measures_again:
            stored_record = stored(model, item, run)
            if stored_record is not None:
                # Another model may have had this label since: tables show this one again.
                used_again(file, stored_record.checksum)
                return stored_record, False
        result = item.evaluate(loaded(model), run)
        saved = Result.load(result.save(run.folder))
        remember(saved.occasion, saved.checksum)
        # The traceback of an earlier failure.
        file.with_suffix(_NOTE).unlink(missing_ok=True)
    with exclusive_lock(file):
        remove_unnamed(file, replaced=())  # of writers that were killed
    return result, True


class Work:
    """The work of a model, measured from the creation of this object."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._before = asdict(model.stats)
        self._started = time.perf_counter()

    def _done(self) -> dict[str, float]:
        current = asdict(self.model.stats)
        return {name: value - self._before[name] for name, value in current.items()}

    def counts(self) -> dict[str, int]:
        """Numbers of texts truncated, empty or with special tokens, and of tokens of a server."""
        work = self._done()
        numbers = {
            TEXTS_CUT: work["cut"],
            "empty texts": work["empty"],
            "texts with a special token of the tokenizer": work["special"],
            "tokens that the server counted": work["tokens"],
        }
        return {text: int(count) for text, count in numbers.items() if count}

    def record(
        self,
        task: TaskInfo,
        per_query: Mapping[str, Mapping[str, float]],
        run: Run,
        *,
        data: DataFacts | None = None,
        search: SearchFacts | None = None,
        top: Mapping[str, Sequence[str]] | None = None,
        metrics: dict[str, Aggregate] | None = None,
        parts: tuple[Part, ...] = (),
    ) -> Result:
        """Return the record of the model on one task, without saving it.

        ``per_query`` has a value per column and query id; ``top`` the best documents of each query.
        By default, the metrics are the means of every column; they may be means over several
        ``parts``.
        """
        model = self.model
        for description, count in task.counts.items():
            if description == NOTHING_FOUND or description.endswith(PART_FOUND_NOTHING):
                log.warning("%s: %s: %s: %d", model.label, task.key, description, count)
        info = ModelInfo(
            label=model.label,
            identity=model.identity,
            spec=model.source.spec,
            settings=model.settings,
            parameters=getattr(model, "parameters", None),
        )
        if metrics is None:
            metrics = means(per_query)
        details = typed_details(run.config or {})
        return Result(
            model=info,
            task=task,
            metrics=metrics,
            per_query=per_query,
            seed=run.seed,
            options=details["options"],
            training=details["training"],
            prompt=details["prompt"],
            data=data or DataFacts(),
            search=search or SearchFacts(),
            top=top,
            environment=_environment(info, model.device),
            cost=self._cost(),
            run=run.id,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            parts=parts,
        )

    def _cost(self) -> RunCost:
        work = self._done()
        texts_per_second = None
        # 0 if every text was cached.
        if work["seconds"]:
            texts_per_second = work["encoded"] / work["seconds"]
        return RunCost(
            seconds=time.perf_counter() - self._started,
            texts=int(work["texts"]),
            encoded=int(work["encoded"]),
            cached=int(work["cached"]),
            texts_per_second=texts_per_second,
            peak_memory_bytes=peak_memory(),
        )


def _environment(model: ModelInfo, device: str) -> Environment:
    """Return the environment, including what affects rounding: matrix library, or GPU and TF32."""
    precision = str(model.settings.get("dtype", "float32"))
    linear = ""
    # The library that multiplies matrices, as libraries round differently.
    if model.parameters and device == "cpu" and precision == "float32":
        from qwen3nb.models.inference.onednn_linear import linear_library

        linear = linear_library()
    elif model.parameters and device.startswith("cuda"):
        import torch

        tf32 = "with"
        if torch.get_float32_matmul_precision() == "highest":
            tf32 = "without"
        linear = f"{torch.cuda.get_device_name(device)}, {tf32} TF32"
    return Environment.current(device=device, precision=precision, linear=linear)


def record_path(model: Any, item: Item, run: Run) -> Path:
    """Return the path of the record of a model on an item."""
    return result_path(run.folder, f"{model.label}-{model.identity[:8]}", run.seed, item.key)


def stored(model: Any, item: Item, run: Run) -> Result | None:
    """Return the record of a model on an item if it can be reused, else None.

    It must have the model's identity, the installed versions, the ``same`` data, all metrics of the
    item and, if runs are kept, its runs. An unreadable or modified record counts as missing.
    Raises EvaluationError if the file is the record of an item whose name differs in case.
    """
    file = record_path(model, item, run)
    if not file.is_file():
        return None
    try:
        result = unchanged_record(file)
    except ResultError:  # damaged, so it is written again
        return None
    # Names that differ in case are one file on some disks.
    if result.task.key != item.key:
        raise EvaluationError(
            f"{file} is the record of {result.task.key!r}, as this disk ignores case; choose "
            "another folder of records"
        )
    if result.model.identity != model.identity or not item.same(result, run.folder):
        return None
    if not may_be_reused(result, run.config):
        return None
    if result.environment.versions != Environment.current().versions:
        return None
    missing_metrics = [name for name in item.measures if name not in result.metrics]
    if missing_metrics:
        log.warning(
            "%s: evaluated again, as it was recorded without %s", file, ", ".join(missing_metrics)
        )
        return None
    if run.runs and result.task.type in SEARCH_TYPES:
        complete = result.files.runs and result.files.qrels
        if not complete or any(run_problems(file, result)):
            return None
    return result
