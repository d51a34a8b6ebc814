"""Benchmark whole evaluations against plain MTEB with sentence-transformers.

Every run is a process of its own, so that its start and its imports count, and ours works in a
study of its own, so that the first one finds no vector. The two take turns: first runs, then
second ones. Ours is ``q.evaluate``, and then the command `qwen3nb eval`, which finds its record
and so costs what kernel, notebook and page cost. The peer is ``mteb.evaluate`` of a
SentenceTransformer at its default batch size, 32; its second run encodes again, and a third one
has MTEB's own result file, which keeps scores, but no vector and no score of a query.

What both read is there before: data are fetched and prepared, PyDocs is built, and the libraries
have been read once. Of our runs it is said what their time goes to, by functions that are timed in
the process, each without the others that it calls.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

from benchmarks.options import PYTHON, command, finished
from qwen3nb import paths
from qwen3nb.bench.harness import table
from qwen3nb.models.kinds.resolve import find_source

EQUAL = 1e-4  # largest difference of scores that count as equal
ENCODING = "tokenising and encoding"
OURS, PAGE, PEER = "q.evaluate", "qwen3nb eval", "mteb, sentence-transformers"
_FIRST, _KEPT = "first run, nothing is kept", "its own result file is there"
_SECOND, _FRESH = "second run", "the record again, from kept vectors"
_LIBRARIES, _OTHER = "start of Python, libraries", "the rest: MTEB, Python"
_END = "end of Python"
_PREPARE = "reads data and libraries, so that no measured process is the first to do so"
_MTEB = "qwen3nb.evaluation.mteb"
_PARTS = (  # what is timed in our process: part, and the full name of a function in it
    (_LIBRARIES, "builtins.__import__"),
    (_LIBRARIES, "importlib.import_module"),
    ("loading the model", "qwen3nb.models.model.Model.load"),
    ("loading the data", "qwen3nb.evaluation.evaluate.suite_tasks"),
    ("loading the data", f"{_MTEB}.evaluate.data_revision"),
    ("loading the data", f"{_MTEB}.evaluate.load_task"),
    ("loading the data", f"{_MTEB}.evaluate.data_counts"),
    (ENCODING, "qwen3nb.models.encoders.base.Encoder._checked"),
    ("reading and keeping vectors", "qwen3nb.models.encoders.base.Encoder._encode"),
    ("searching", "qwen3nb.models.search.dense.search"),
    ("scoring with intervals", f"{_MTEB}.evaluate.score_task"),
    ("writing records", f"{_MTEB}.evaluate.keep_results"),
    ("writing records", "qwen3nb.records.record.Result.save"),
)


@dataclass(frozen=True)
class EvaluationTiming:
    """One run of one way, in a process of its own."""

    way: str  # `OURS`, `PAGE` or `PEER`
    run: str  # which run it is, and what is kept from earlier ones
    seconds: float  # wall seconds from its start to its end
    cpu: float  # CPU seconds of it and of the processes that it started
    scores: Mapping[str, float] = field(default_factory=dict)  # by task; none of `PAGE`
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # wall, CPU; of ours


@dataclass(frozen=True)
class EvaluationBench:
    """Whole evaluations of one model on some tasks, in the order in which they ran."""

    model: str
    tasks: tuple[str, ...]
    timings: tuple[EvaluationTiming, ...]

    def timing(self, way: str, run: str) -> EvaluationTiming:
        """Return the timing of a way and a run."""
        return next(each for each in self.timings if (each.way, each.run) == (way, run))

    def table(self) -> str:
        """The timings as plain text: each beside the peer's, and where the time of ours goes."""
        first = self.timing(OURS, _FIRST)
        rows = [
            {
                **vars(each),
                "faster": peer.seconds / each.seconds,
                "less": peer.cpu / each.cpu,
                "share": f"{1 - each.parts[ENCODING][1] / each.cpu:.0%}" if each.parts else "",
            }
            for each in self.timings
            for peer in [self.timing(PEER, _FIRST if each.run == _FIRST else _SECOND)]
        ]
        parts = table(
            rows=[
                {"part": part, "s": wall, "of_s": wall / first.seconds, "cpu": cpu}
                | {"of_cpu": cpu / first.cpu}
                for part, (wall, cpu) in first.parts.items()
            ],
            shown=f"{first.way}, {first.run}: {{part}} | "
            "s: {s:.2f} | share: {of_s:.1%} | "
            "CPU s: {cpu:.2f} | share of CPU: {of_cpu:.1%}",
        )
        theirs = self.timing(PEER, _FIRST).scores
        scored = [each.scores for each in self.timings if each.scores]
        far = max(abs(each[task] - theirs[task]) for each in scored for task in self.tasks)
        same = f"{'equal' if far <= EQUAL else 'NOT EQUAL'}, largest difference {far:.0e}"
        return table(
            f"{self.model}, {', '.join(self.tasks)}: faster than the peer's first run; ours after "
            "it, than the peer's second, which encodes again",
            rows=rows,
            shown="run: {way}: {run} | s: {seconds:.1f} | faster: {faster:.2f}x | "
            "CPU s: {cpu:.1f} | less CPU: {less:.2f}x | not encoding: {share}",
            notes=[f"scores: {same}", "", parts],
        )


def bench_evaluation(
    *,
    model: str = "all-MiniLM-L6-v2",
    tasks: tuple[str, ...] = ("PyDocsRetrieval",),
    page: bool = True,
) -> EvaluationBench:
    """Run whole evaluations, first and second, here and in plain MTEB.

    Raises:
        ValueError: the model is not on this machine, or a process failed.
    """
    source = find_source(model)
    if source.folder is None:
        raise ValueError(f"{model}: not on this machine; expected a folder or a registry name")
    folder = str(source.folder.path.resolve())
    spec = folder if Path(model).exists() else model
    plan = [(OURS, _FIRST), (PEER, _FIRST), (PAGE, "its first page"), (OURS, _SECOND)]
    plan += [(OURS, _FRESH), (PAGE, _SECOND), (PEER, _SECOND), (PEER, _KEPT)]
    with tempfile.TemporaryDirectory() as name:
        study, cache = Path(name) / "study", Path(name) / "cache"
        own = dict(os.environ) | {"QWEN3NB_HOME": str(study), "QWEN3NB_CACHE": str(cache)}
        for each in ("RESULTS", "RUNS", "BOOK"):
            own.pop(f"QWEN3NB_{each}", None)
        print("preparing a study and the data", file=sys.stderr)
        elsewhere = {each: own[each] for each in own if each != "QWEN3NB_HOME"}
        finished([PYTHON, "-m", _CLI, "new", str(study)], elsewhere)
        if (paths.cache() / "pydocs").is_dir():
            shutil.copytree(paths.cache() / "pydocs", cache / "pydocs")
        _process(PEER, _PREPARE, spec, tasks, own)
        timings = []
        for way, run in plan:
            if page or way != PAGE:
                print(f"{way}: {run}", file=sys.stderr)
                timings.append(_process(way, run, folder if way == PEER else spec, tasks, own))
    return EvaluationBench(model=source.label, tasks=tuple(tasks), timings=tuple(timings))


def _process(
    way: str, run: str, model: str, tasks: Sequence[str], environment: Mapping[str, str]
) -> EvaluationTiming:
    """Measure one run in a process of its own."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    arguments = ["-m", "benchmarks.evaluation", way, run, model, ",".join(tasks)]
    if way == PAGE:
        arguments = ["-m", _CLI, "eval", "--model", model, "--tasks", ",".join(tasks)]
    else:
        arguments.append(str(time.time()))
    printed = finished([PYTHON, *arguments], environment)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer: dict[str, Any] = {} if way == PAGE else json.loads(printed.splitlines()[-1])
    if parts := answer.get("parts"):  # the process cannot time its own end
        known = [sum(each) for each in zip(*parts.values(), strict=True)]
        parts[_END] = (max(0.0, seconds - known[0]), max(0.0, cpu - known[1]))
    return EvaluationTiming(way=way, run=run, seconds=seconds, cpu=cpu, **answer)


_CLI = "qwen3nb.cli.main"


class _Clock:
    """Wall and CPU seconds by part, each without the parts within it."""

    def __init__(self, *, started: float) -> None:
        """``started`` is when the process was started, by ``time.time()``."""
        self._thread = threading.current_thread()
        self.parts = dict.fromkeys((*dict(_PARTS), _OTHER), (0.0, 0.0))
        self.parts[_LIBRARIES] = (time.time() - started, time.process_time())
        self._open = [_OTHER]
        self._last = (time.perf_counter(), time.process_time())

    def _note(self) -> None:
        now = (time.perf_counter(), time.process_time())
        (wall, cpu), last = self.parts[self._open[-1]], self._last
        self.parts[self._open[-1]] = (wall + now[0] - last[0], cpu + now[1] - last[1])
        self._last = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function``, timed as ``part``; within the same part, only called."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            beside = threading.current_thread() is not self._thread
            if beside or self._open[-1] == part:  # what a pass imports is time of the passes
                return function(*args, **options)
            self._note()
            self._open.append(part)
            try:
                return function(*args, **options)
            finally:
                self._note()
                self._open.pop()

        return call

    def start(self, stack: ExitStack) -> None:
        """Time the functions of `_PARTS` until the stack is closed."""
        for part, name in _PARTS:
            stack.enter_context(patch(name, self.timed(part, resolve_name(name))))


def _ours(run: str, model: str, tasks: list[str], clock: _Clock) -> dict[str, Any]:
    with ExitStack() as stack:
        clock.timed(_LIBRARIES, clock.start)(stack)
        from qwen3nb.evaluation.evaluate import evaluate

        done = evaluate(model, tasks=tasks, fresh=run == _FRESH, show_progress=False)
        clock._note()
    scores = {result.task.name: result.main.value for result in done.results}
    return {"scores": scores, "parts": clock.parts}


def _peer(run: str, model: str, tasks: list[str]) -> dict[str, Any]:
    """Evaluate by MTEB, from the mirror if the data are there; as ``prepare``, only read all."""
    import mteb
    from sentence_transformers import SentenceTransformer

    from qwen3nb.datasets.mirror import load_data, local_data
    from qwen3nb.evaluation.mteb.select import choose_tasks

    with ExitStack() as stack:
        loaded = choose_tasks(tasks=tasks)
        for task in loaded:
            stack.enter_context(local_data(task))
            if run == _PREPARE:
                load_data(task)
        if run == _PREPARE:
            return {}
        done = mteb.evaluate(
            SentenceTransformer(model),
            loaded,
            cache=mteb.ResultCache(paths.results() / "peer"),
            overwrite_strategy="only-missing" if run == _KEPT else "always",
            show_progress_bar=False,
            co2_tracker=False,
        )
    return {"scores": {each.task_name: float(each.get_score()) for each in done.task_results}}


if __name__ == "__main__":
    if sys.argv[1:2] in ([OURS], [PEER]):  # a process of one run, which prints scores and parts
        way, run, model, listed, started = sys.argv[1:]
        clock = _Clock(started=float(started))
        given = (run, model, listed.split(","))
        print(json.dumps(_peer(*given) if way == PEER else _ours(*given, clock)))
    else:
        command(bench_evaluation, EvaluationBench.table)
