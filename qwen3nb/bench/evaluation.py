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

import builtins
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.utils.format import aligned

__all__ = ["EvaluationBench", "EvaluationTiming", "bench_evaluation"]

EQUAL = 1e-4  # largest difference of scores that count as equal
ENCODING = "tokenising and encoding"
OURS, PAGE, PEER = "q.evaluate", "qwen3nb eval", "mteb, sentence-transformers"
_FIRST, _KEPT = "first run, nothing is kept", "its own result file is there"
_SECOND, _FRESH = "second run", "the record again, from kept vectors"
_LIBRARIES, _OTHER = "start of Python, libraries", "the rest: MTEB, Python"
_END = "end of Python"
# What is timed in our process: part, module, and the name of a function in it.
_PARTS = (
    (_LIBRARIES, "builtins", "__import__"),
    (_LIBRARIES, "importlib", "import_module"),
    ("loading the model", "qwen3nb.evaluation.evaluate", "load_model"),
    ("loading the data", "qwen3nb.evaluation.mteb.known_tasks", "suite_tasks"),
    ("loading the data", "qwen3nb.evaluation.mteb.evaluate", "data_revision"),
    ("loading the data", "qwen3nb.evaluation.mteb.evaluate", "_load"),
    ("loading the data", "qwen3nb.evaluation.mteb.evaluate", "data_counts"),
    (ENCODING, "qwen3nb.models.encoders.base", "Encoder._checked"),
    ("reading and keeping vectors", "qwen3nb.models.encoders.base", "Encoder._encode"),
    ("searching", "qwen3nb.models.search.dense", "search"),
    ("scoring with intervals", "qwen3nb.evaluation.mteb.evaluate", "score_task"),
    ("writing records", "qwen3nb.evaluation.mteb.evaluate", "keep_results"),
    ("writing records", "qwen3nb.records.record", "Result.save"),
)


@dataclass(frozen=True)
class EvaluationTiming:
    """One run of one way, in a process of its own.

    Attributes:
        way: ``q.evaluate``, ``qwen3nb eval`` or the peer.
        run: which run it is, and what is kept from earlier ones.
        seconds: wall seconds from its start to its end.
        cpu: CPU seconds of it and of the processes that it started.
        scores: main score of each task; empty for `qwen3nb eval`, whose record is that of
            ``q.evaluate``.
        parts: wall and CPU seconds of each part of ours.
    """

    way: str
    run: str
    seconds: float
    cpu: float
    scores: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def encoding_share(self) -> float:
        """Share of the CPU seconds that tokenising and encoding take."""
        return self.parts.get(ENCODING, (0.0, 0.0))[1] / self.cpu


@dataclass(frozen=True)
class EvaluationBench:
    """Whole evaluations of one model on some tasks; see `bench_evaluation`.

    Attributes:
        model: label of the model.
        tasks: names of the tasks.
        timings: in the order in which they ran.
    """

    model: str
    tasks: tuple[str, ...]
    timings: tuple[EvaluationTiming, ...]

    def timing(self, way: str, run: str) -> EvaluationTiming:
        """Return the timing of a way and a run."""
        return next(each for each in self.timings if (each.way, each.run) == (way, run))

    @property
    def difference(self) -> float:
        """Largest difference of a main score from the peer's."""
        scored = [each.scores for each in self.timings if each.scores]
        return max(
            abs(each[task] - self.timing(PEER, _FIRST).scores[task])
            for each in scored
            for task in self.tasks
        )

    @property
    def equal(self) -> bool:
        """Whether all runs of both reach the same scores, up to 1e-4."""
        return self.difference <= EQUAL

    def table(self) -> str:
        """The timings as plain text: each beside the peer's, and where the time of ours goes."""
        head = ("run", "s", "faster", "CPU s", "less CPU", "not encoding")
        rows = [head, *map(self._row, self.timings)]
        title = (
            f"{self.model}, {', '.join(self.tasks)}: faster than the peer's first run; ours after "
            "it, than the peer's second, which encodes again"
        )
        same = "equal" if self.equal else "NOT EQUAL"
        scores = ", ".join(
            f"{task} {score:.5f}" for task, score in self.timing(OURS, _FIRST).scores.items()
        )
        equality = f"scores: {scores}; {same}, largest difference {self.difference:.0e}"
        first = self.timing(OURS, _FIRST)
        return "\n".join([title, *aligned(rows), equality, "", *_parts_table(first)])

    def _row(self, timing: EvaluationTiming) -> tuple[str, ...]:
        peer = self.timing(PEER, _FIRST if timing.run == _FIRST else _SECOND)
        share = f"{1 - timing.encoding_share:.0%}" if timing.parts else ""
        return (
            f"{timing.way}: {timing.run}",
            f"{timing.seconds:.1f}",
            f"{peer.seconds / timing.seconds:.2f}x",
            f"{timing.cpu:.1f}",
            f"{peer.cpu / timing.cpu:.2f}x",
            share,
        )


def _parts_table(timing: EvaluationTiming) -> list[str]:
    rows = [
        (part, f"{wall:.2f}", f"{wall / timing.seconds:.1%}", f"{cpu:.2f}",
         f"{cpu / timing.cpu:.1%}")
        for part, (wall, cpu) in timing.parts.items()
    ]  # fmt: skip
    head = (f"{timing.way}, {timing.run}", "s", "share", "CPU s", "share")
    return aligned([head, *rows])


def bench_evaluation(
    *,
    model: str = "all-MiniLM-L6-v2",
    tasks: Sequence[str] = ("PyDocsRetrieval",),
    page: bool = True,
    say: Callable[[str], None] = print,
) -> EvaluationBench:
    """Measure first and second runs of both.

    Args:
        model: a registry name or a folder that sentence-transformers loads.
        tasks: names of MTEB tasks or of those of this package.
        page: whether to measure the command `qwen3nb eval` too.
        say: prints progress.

    Raises:
        ValueError: the model is not on this machine, or a process failed; the message ends with
            what it printed last.
    """
    source = find_source(model)
    if source.folder is None:
        raise ValueError(f"{model}: not on this machine; expected a folder or a registry name")
    spec = str(source.folder.resolve()) if Path(model).exists() else model
    with tempfile.TemporaryDirectory() as name:
        run = _Processes(Path(name), spec, str(source.folder.resolve()), tuple(tasks), say=say)
        timings = [run(OURS, _FIRST), run(PEER, _FIRST)]
        timings += [run(PAGE, "its first page")] if page else []
        timings += [run(OURS, _SECOND), run(OURS, _FRESH)]
        timings += [run(PAGE, _SECOND)] if page else []
        timings += [run(PEER, _SECOND), run(PEER, _KEPT)]
    return EvaluationBench(model=source.label, tasks=tuple(tasks), timings=tuple(timings))


class _Processes:
    """The processes that are measured, all in one study in ``folder``."""

    def __init__(
        self,
        folder: Path,
        spec: str,
        model_folder: str,
        tasks: tuple[str, ...],
        *,
        say: Callable[[str], None],
    ) -> None:
        self._spec, self._model_folder, self._tasks, self._say = spec, model_folder, tasks, say
        self._study = folder / "study"
        own: dict[str, str | None] = {
            f"QWEN3NB_{each}": None for each in ("RESULTS", "RUNS", "BOOK")
        }
        own |= {"QWEN3NB_HOME": str(self._study), "QWEN3NB_CACHE": str(folder / "cache")}
        self._environment = _changed(own)
        say("preparing a study and the data")
        _finished([_PYTHON, "-m", _CLI, "new", str(self._study)], _changed({"QWEN3NB_HOME": None}))
        if (paths.cache() / "pydocs").is_dir():
            shutil.copytree(paths.cache() / "pydocs", folder / "cache" / "pydocs")
        self._finished("prepare")

    def __call__(self, way: str, run: str) -> EvaluationTiming:
        """Measure one run."""
        self._say(f"{way}: {run}")
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        if way == PAGE:
            options = ["--model", self._spec, "--tasks", ",".join(self._tasks)]
            _finished([_PYTHON, "-m", _CLI, "eval", *options], self._environment)
            answer: dict[str, Any] = {}
        else:
            answer = self._finished({OURS: "ours", PEER: "peer"}[way], run)
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if parts := answer.get("parts"):  # the process cannot time its own end
            known = [sum(each) for each in zip(*parts.values(), strict=True)]
            parts[_END] = (max(0.0, seconds - known[0]), max(0.0, cpu - known[1]))
        return EvaluationTiming(way=way, run=run, seconds=seconds, cpu=cpu, **answer)

    def _finished(self, way: str, run: str = "") -> dict[str, Any]:
        model = self._model_folder if way == "peer" else self._spec
        arguments = [way, run, model, ",".join(self._tasks), str(time.time())]
        command = [_PYTHON, "-m", "qwen3nb.bench.evaluation", *arguments]
        answer: dict[str, Any] = json.loads(_finished(command, self._environment).splitlines()[-1])
        return answer


_PYTHON, _CLI = sys.executable, "qwen3nb.cli.main"


def _changed(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment with some variables set, or removed if None."""
    merged = {**os.environ, **variables}
    return {name: value for name, value in merged.items() if value is not None}


def _finished(command: list[str], environment: dict[str, str]) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout)[-2000:]
        raise ValueError(f"`{' '.join(command[1:5])} …` failed:\n{tail}")
    return done.stdout


class _Clock:
    """Wall and CPU seconds by part, each without the parts within it."""

    def __init__(self, *, started: float) -> None:
        """``started`` is when the process was started, by ``time.time()``."""
        self._thread = threading.current_thread()
        self.parts = {part: (0.0, 0.0) for part, *_ in _PARTS}
        self._open = [_OTHER]
        self._last = (time.perf_counter(), time.process_time())
        self.parts[_LIBRARIES] = (time.time() - started, time.process_time())
        self.parts[_OTHER] = (0.0, 0.0)

    def _note(self) -> None:
        now = (time.perf_counter(), time.process_time())
        wall, cpu = self.parts[self._open[-1]]
        self.parts[self._open[-1]] = (
            wall + now[0] - self._last[0],
            cpu + now[1] - self._last[1],
        )
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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the functions of `_PARTS` within the block."""
        before = []
        for part, module, name in _PARTS:
            owner: Any = builtins if module == "builtins" else importlib.import_module(module)
            *inner, last = name.split(".")
            for each in inner:
                owner = getattr(owner, each)
            before.append((owner, last, getattr(owner, last)))
            setattr(owner, last, self.timed(part, getattr(owner, last)))
        try:
            yield
        finally:
            for owner, last, function in reversed(before):
                setattr(owner, last, function)
            self._note()


def _ours(run: str, model: str, tasks: list[str], clock: _Clock) -> dict[str, Any]:
    with clock.timed(_LIBRARIES, clock.running)():
        from qwen3nb.evaluation.evaluate import evaluate

        done = evaluate(model, tasks=tasks, fresh=run == _FRESH, show_progress=False)
    scores = {result.task.name: result.main.value for result in done.results}
    return {"scores": scores, "parts": clock.parts}


def _peer(run: str, model: str, tasks: list[str]) -> dict[str, Any]:
    import mteb
    from sentence_transformers import SentenceTransformer

    with _data(tasks) as loaded:
        done = mteb.evaluate(
            SentenceTransformer(model),
            loaded,
            cache=mteb.ResultCache(paths.results() / "peer"),
            overwrite_strategy="only-missing" if run == _KEPT else "always",
            show_progress_bar=False,
            co2_tracker=False,
        )
    return {"scores": {each.task_name: float(each.get_score()) for each in done.task_results}}


@contextmanager
def _data(tasks: list[str]) -> Iterator[list[Any]]:
    """Return task objects that load from the mirror, if their data are there."""
    from contextlib import ExitStack

    from qwen3nb.datasets.mirror import local_data
    from qwen3nb.evaluation.mteb.select import select_tasks

    with ExitStack() as stack:
        loaded = select_tasks(names=tasks)
        for task in loaded:
            stack.enter_context(local_data(task))
        yield loaded


def _prepare(tasks: list[str]) -> dict[str, Any]:
    """Load data and libraries once, so that no measured process is the first to read them."""
    import sentence_transformers  # noqa: F401 - read once

    from qwen3nb.datasets.mirror import load_data

    with _data(tasks) as loaded:
        for task in loaded:
            load_data(task)
    return {}


def _main(way: str, run: str, model: str, listed: str, started: str) -> None:
    """In the child process: do one run, and print its scores and parts."""
    tasks = listed.split(",")
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "ours": lambda: _ours(run, model, tasks, _Clock(started=float(started))),
        "peer": partial(_peer, run, model, tasks),
        "prepare": partial(_prepare, tasks),
    }
    print(json.dumps(ways[way]()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
