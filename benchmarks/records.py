"""How long, and in how much memory, do 12,200 records load, compare, make tables, verify?

    python -m benchmarks.records --models 20 --queries 200
    python -m benchmarks.records --folder records --only compare

The limits are for the default size, 200 models on the 61 tasks of the tier ``full``, on two cores.
Each step runs in a process of its own; its processor time and its memory include those of the
processes that it starts.

The records are synthetic, written as those of an evaluation are, with the columns of each type of
task and as many queries or texts as the real data. A query has one relevant document, as in MS
MARCO; its rank is drawn from the difficulty of the query and the skill of the model, and the scores
follow from the rank. The aggregates follow from the scores, so that `qwen3nb verify` holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import psutil
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from numpy.random import Generator

from benchmarks.options import PYTHON, command, finished
from qwen3nb import paths
from qwen3nb.answers.against_baseline import AgainstBaseline
from qwen3nb.answers.evaluation import scores_table
from qwen3nb.answers.run_trace import RunTrace
from qwen3nb.bench.harness import table, timed
from qwen3nb.execution.page_names import page_name
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.metrics.aggregate import Aggregate, aggregate_samples, reported
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.records.record import (
    CHECKSUMS,
    Environment,
    ModelInfo,
    MTEBScore,
    Result,
    RunCost,
    TaskInfo,
    checksum,
    result_path,
)
from qwen3nb.records.side_files import named_files
from qwen3nb.records.store import PROMPTS, load_results
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json, write_text
from qwen3nb.utils.hardware import cores

_TOP = 10
_STEP = 13  # between models, of which a prompt takes the scores
_JOBS = 3000  # of the plan
_EVERY = 0.05  # seconds between two looks at the memory
_LOAD = "import qwen3nb as q; records = q.load_results()"
_PROMPTS = (
    "import qwen3nb as q; prompts = q.load_results().prompts(); prompts.conclusion; "
    "prompts.pairs_table(); prompts.variance_table()"
)
_CLI = ("-m", "qwen3nb.cli.main")
_IMPORTS = "from qwen3nb.execution.sweep import SweepPlan"
_PLAN = (
    f"{_IMPORTS}; names = tuple(f'runs/a/checkpoint-{{i}}' for i in range({_JOBS} // 2)); "
    f"assert len(SweepPlan(names, ('smoke', 'fast')).jobs()) == {_JOBS}"
)
_TABLES = (*_CLI, "tables", "--tier", "full", "--format", "csv", "--out", "OUT")


@dataclass(frozen=True)
class Task:
    """Something to do with many records."""

    arguments: tuple[str, ...]  # of Python; ``OUT`` is a folder to write to
    seconds: float  # the limit for 200 models on 61 tasks, on two cores
    gigabytes: float = float("inf")  # likewise
    start: str = ""  # code whose time is not counted, such as imports that outlast the work


TASKS = {
    "load_results": Task(("-c", _LOAD), 10, 0.5),
    "compare": Task(("-c", f"{_LOAD}; q.compare(records, tier='full').differences"), 60, 1),
    "leaderboard": Task(
        ("-c", f"{_LOAD}; q.leaderboard(records, tier='full')._repr_html_()"), 60, 1
    ),
    "tables": Task(_TABLES, 300, 4),
    "prompts": Task(("-c", _PROMPTS), 600, 2.5),
    "verify --checksums": Task((*_CLI, "verify", "--checksums"), 60),
    "verify": Task((*_CLI, "verify", "--fresh"), 60, 1),
    "verify again": Task((*_CLI, "verify"), 60),
    "book": Task((*_CLI, "book", "--tier", "full"), 300),
    "book again": Task((*_CLI, "book", "--tier", "full"), 300),
    f"plan of {_JOBS:,} jobs": Task(("-c", _PLAN), 2, start=_IMPORTS),
}
_KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_PAGES = ("-c", "from benchmarks.records import write_pages; write_pages()")


@dataclass(frozen=True)
class TaskTiming:
    """What a task took: wall-clock and processor seconds, peak memory of all its processes."""

    name: str
    seconds: float
    cpu: float
    gigabytes: float


# Queries or texts of each task of the tier ``full``, as in MTEB; of the others there are 1,000.
_ITEMS = {
    name: int(count)
    for name, count in (
        each.split(":")
        for each in """
    ArguAna:1406 ClimateFEVER:1535 CQADupstackAndroidRetrieval:699 CQADupstackEnglishRetrieval:1570
    CQADupstackGamingRetrieval:1595 CQADupstackGisRetrieval:885 CQADupstackMathematicaRetrieval:804
    CQADupstackPhysicsRetrieval:1039 CQADupstackProgrammersRetrieval:876
    CQADupstackStatsRetrieval:652 CQADupstackTexRetrieval:2906 CQADupstackUnixRetrieval:1072
    CQADupstackWebmastersRetrieval:506 CQADupstackWordpressRetrieval:541 DBPedia:400 FEVER:6666
    FiQA2018:648 HotpotQA:7405 MSMARCO:6980 NFCorpus:323 NQ:3452 QuoraRetrieval:10000 SciFact:300
    Touche2020:49 TRECCOVID:50 Banking77Classification:3080 ImdbClassification:25000
    MTOPDomainClassification-en-test:4386 MassiveIntentClassification-en-test:2974
    MassiveScenarioClassification-en-test:2974 ToxicConversationsClassification:2048
    TweetSentimentExtractionClassification:3534 AmazonCounterfactualClassification-en-test:670
    AskUbuntuDupQuestions:361 MindSmallReranking:107968 Touche2020Retrieval.v3:49 BIOSSES:100
    SICK-R:9927 STS12:3108 STS13:1500 STS14:3750 STS15:3000 STSBenchmark:1379 STS17-en-en:250
    STS22.v2-en:197
    """.split()  # noqa: SIM905 - a list of words reads better as a line
    )
}
_KINDS = {
    key: kind
    for benchmark in reversed(BENCHMARKS.values())
    for kind, tasks in benchmark.types.items()
    for task in tasks
    for key in GROUPS.get(task, (task,))
}
_SEARCHES = ("Retrieval", "Reranking")
_DRAWS = 10  # of a clustering
_NAMED: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {  # how, and of which columns
    "STS": {"Spearman": ("spearman", ("cosine", "gold"))},
    "Clustering": {"V-measure": ("mean", ("v_measure",))},
}


@dataclass(frozen=True)
class RecordSet:
    """The records to write: each model on each task with each prompt."""

    models: int = 200
    tasks: int = 61  # number of tasks, the first of the tier ``full``
    prompts: int = 1  # prompts of each model, each with an identity of its own
    queries: int = 0  # queries or texts of each task at most; 0: as many as the real data

    def __len__(self) -> int:
        """Number of records."""
        return self.models * self.tasks * self.prompts

    def task_keys(self) -> tuple[str, ...]:
        """Return the names of the tasks."""
        return TIERS["full"].task_keys[: self.tasks]

    def items(self, key: str) -> int:
        """Return the number of queries or texts of a task."""
        real = _ITEMS.get(key, 1000)
        return min(real, self.queries or real)


def bench_records(
    *,
    models: int = 200,
    tasks: int = 61,
    prompts: int = 1,
    queries: int = 0,
    folder: str = "",
    only: str = "",
) -> list[TaskTiming]:
    """Write synthetic records, kept in a folder if one is given, then time what reads them.

    Raises:
        ValueError: no such task, ``folder`` has other files, or a task failed; with its output.
    """
    selected = {name: each for name, each in TASKS.items() if only in ("", name)}
    if not selected:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}; got {only!r}")
    records, timings = RecordSet(models, tasks, prompts, queries), []
    with tempfile.TemporaryDirectory() as scratch:
        results = prepared(records, Path(folder or f"{scratch}/results"))
        study = _study(Path(scratch) / "study", results)
        for name, task in selected.items():
            given = [each.replace("OUT", f"{scratch}/tables") for each in task.arguments]
            timing = _timed(name, given, study)
            if task.start:
                start = _timed(name, ["-c", task.start], study)
                seconds, cpu = timing.seconds - start.seconds, timing.cpu - start.cpu
                timing = replace(timing, seconds=max(0.0, seconds), cpu=max(0.0, cpu))
            timings.append(timing)
            print(f"{name}: {timing.seconds:.1f} s", flush=True)
        landing = Path(study["QWEN3NB_HOME"]) / "_build" / "html" / "index.html"
        if landing.is_file():
            print(f"the first page of the book: {landing.stat().st_size:,} bytes, at most 300,000")
    return timings


def shown(timings: list[TaskTiming]) -> str:
    """The timings as a table, with the limits."""
    rows = []
    for each in timings:
        limit = TASKS[each.name]
        within = each.seconds <= limit.seconds and each.gigabytes <= limit.gigabytes
        rows.append(
            {
                "task": each.name,
                "wall": f"{each.seconds:.1f} s",
                "processor": f"{each.cpu:.1f} s",
                "peak memory": f"{each.gigabytes:.2f} GB",
                "limit": f"{limit.seconds:g} s, {limit.gigabytes:g} GB",
                "within": "yes" if within else "no",
            }
        )
    return table(rows=rows)


def prepared(records: RecordSet, folder: Path) -> Path:
    """Write the records to ``folder``, unless they are there already, and return it.

    Raises:
        ValueError: the folder has other files, or other records.
    """
    note, wanted = folder / "synthetic.json", asdict(records)
    if note.is_file() and read_json(note) == wanted:
        return folder
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder}: expected an empty folder, or {len(records)} such records")
    _, took = timed(lambda: write_records(folder, records))
    size = sum(file.stat().st_size for file in folder.rglob("*.*"))
    print(f"{len(records):,} records written: {took.seconds:.0f} s, {size / 1e9:.2f} GB")
    write_json(note, wanted)
    return folder


def write_pages() -> None:
    """Write a page of an evaluation of each model into the book of the study."""
    declared = read_parameters(paths.notebooks() / "eval.ipynb")
    models: dict[str, list[Result]] = {}
    for result in load_results(whole=False):
        models.setdefault(result.model.label, []).append(result)
    for label, own in models.items():
        values = {name: own[0].options.get(name, each.default) for name, each in declared.items()}
        scores = [
            AgainstBaseline(label, task.key, task.type, task.main_metric, task.unit, each.main)
            for each in own
            if (task := each.task)
        ]
        shown = {"text/html": scores_table(scores, results=own)._repr_html_()}
        made = {"notebook": "eval", "parameters": values, "finished": own[0].finished, "key": ""}
        page = new_notebook(metadata={"qwen3nb": {**made, "baselines": []}, **_KERNEL})
        trace, hidden = RunTrace(tuple(scores))._repr_mimebundle_(), {"tags": ["remove-cell"]}
        page.cells = [
            new_markdown_cell(f"# {label} · full"),
            new_code_cell("results", outputs=[new_output("display_data", shown)]),
            new_code_cell("trace", outputs=[new_output("display_data", trace)], metadata=hidden),
        ]
        name = page_name("eval", values, declared)
        write_text(paths.book_runs() / f"{name}.ipynb", nbformat.writes(page))


def _study(folder: Path, results: Path) -> dict[str, str]:
    """Create a study of the records with a page per model; return the environment of its tasks."""
    environment = {**os.environ, "QWEN3NB_RESULTS": str(results), "QWEN3NB_HOME": str(folder)}
    finished([PYTHON, *_CLI, "new", str(folder)])
    finished([PYTHON, *_PAGES], environment)
    return environment


def _timed(name: str, arguments: list[str], environment: dict[str, str]) -> TaskTiming:
    """Run a task in a study."""
    with tempfile.TemporaryFile() as output:

        def run() -> tuple[int, float, float]:
            child = subprocess.Popen(
                [PYTHON, *arguments], env=environment, stdout=output, stderr=output
            )
            peak, done = [0], threading.Event()
            watch = threading.Thread(target=_watch, args=(child.pid, peak, done), daemon=True)
            watch.start()
            _, status, usage = os.wait4(child.pid, 0)
            done.set()
            watch.join()
            child.returncode = os.waitstatus_to_exitcode(status)
            memory = max(peak[0], usage.ru_maxrss * 1024)
            return child.returncode, usage.ru_utime + usage.ru_stime, memory / 1e9

        (code, cpu, gigabytes), took = timed(run)
        if code:
            output.seek(0)
            raise ValueError(f"{name}: failed\n{output.read().decode(errors='replace')}")
    return TaskTiming(name, took.seconds, cpu, gigabytes)


def _watch(pid: int, peak: list[int], done: threading.Event) -> None:
    """Note the memory of a process and of all below it; pages that they share count for each."""
    while not done.wait(_EVERY):
        total = 0
        try:
            first = psutil.Process(pid)
            for process in (first, *first.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        peak[0] = max(peak[0], total)


def write_records(folder: Path, records: RecordSet, *, processes: int = 0) -> int:
    """Write the records to ``folder`` and return how many there are.

    Args:
        folder: where `load_results` finds them.
        records: what to write.
        processes: number of processes; 0 for one per core.
    """
    write = partial(_write_task, folder, records)
    keys = records.task_keys()
    processes = min(processes or cores(), len(keys))
    if processes == 1:
        return sum(map(write, keys))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(write, keys))


def _write_task(folder: Path, records: RecordSet, key: str) -> int:
    """Write the records of all models on one task with each prompt."""
    files = [result.save(folder) for result in _results(records, key)]
    values = [read_json(file) for file in files]
    lines = b""
    for prompt, number in product(range(1, records.prompts), range(records.models)):
        other = (number + _STEP * prompt) % records.models  # whose scores these are
        name = _write_prompted(folder / PROMPTS, files[other], values[other], number, prompt)
        for done in (False, True):
            data = json.dumps([name, done], separators=(",", ":")).encode()
            lines += b"\n%08x %s\n" % (zlib.crc32(data), data)
    if lines:
        with (folder / PROMPTS / CHECKSUMS).open("ab") as listed:
            listed.write(lines)
    return records.models * records.prompts


def _write_prompted(
    folder: Path, file: Path, value: dict[str, Any], number: int, prompt: int
) -> str:
    """Write a record with the scores of another, whose files are linked; return its line."""
    model, text = _model(number, prompt), f"prompt {prompt}: "
    of = {"name": text, "text": text, "of": _model(number, 0).identity}
    options = value["options"] | {"checkpoint": model.spec}
    value = value | {"model": asdict(model), "options": options, "prompt": of}
    value["checksum"] = checksum(value)
    record = result_path(folder, f"{model.label}-{model.identity[:8]}", 0, file.stem)
    record.parent.mkdir(parents=True, exist_ok=True)
    for each in named_files(file, value):
        os.link(each, record.with_name(each.name))
    record.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return f"{record.relative_to(folder).as_posix()} {value['checksum']}"


def _results(records: RecordSet, key: str) -> Iterator[Result]:
    rng = np.random.default_rng([0, *key.encode()])  # the same data for every model
    n, kind = records.items(key), _KINDS[key]
    n = _DRAWS if kind == "Clustering" else n
    queries = tuple(str(each) for each in rng.permutation(10 * n)[:n])
    difficulty = rng.normal(0, 1.5, n)
    environment = Environment.current()
    for number in range(records.models):
        own = np.random.default_rng([0, number, 0, *key.encode()])
        skill = 1 - number / records.models / 2
        scores = QueryScores(queries, _columns(kind, difficulty, skill, own))
        metrics = _metrics(kind, scores, skill)
        main = "MAP@100" if kind == "Reranking" else next(iter(metrics))
        top = None
        if kind in _SEARCHES:
            documents = own.integers(0, 1000 * n, (n, _TOP)).astype(str).tolist()
            top = dict(zip(queries, documents, strict=True))
        model = _model(number, 0)
        value = metrics[main].value
        yield Result(
            model=model,
            task=TaskInfo(
                name=key,
                type=kind,
                main_metric=main,
                dataset=f"synthetic/{key}",
                revision=sha256_json([key, n])[:12],
                size={"queries": n},
                mteb=None if value is None else MTEBScore(main, value),
                splits=("test",),
                subsets=("default",),
                languages=("eng-Latn",),
            ),
            metrics=metrics,
            per_query=scores,
            seed=0,
            options={"checkpoint": model.spec, "tier": "full", "seed": 0},
            top=top,
            environment=environment,
            cost=RunCost(seconds=1.0, texts=n, encoded=n, texts_per_second=float(n)),
            run=f"synthetic-{number}",
            finished="2026-01-01T00:00:00+00:00",
        )


def _columns(kind: str, difficulty: Array, skill: float, own: Generator) -> dict[str, Array]:
    """Return the scores that records of a type of task have for each query; may be none."""
    noise = own.normal(0, 1, len(difficulty))
    if kind in _SEARCHES:
        return _search_scores(np.ceil(np.exp(difficulty + noise + 1.5 - skill)))
    return {
        "STS": {"cosine": difficulty + noise * (2 - skill), "gold": difficulty},
        "Classification": {"accuracy": np.round(own.beta(4 * skill, 1, len(noise)), 1)},
        "Clustering": {"v_measure": skill / 2 + noise / 100},
    }.get(kind, {})


def _metrics(kind: str, scores: QueryScores, skill: float) -> dict[str, Aggregate]:
    """Return the metrics of a type of task; the first is the main one."""
    if not scores:
        return {"max_ap": reported(skill / 2 + 0.4, n=1000)}
    named = _NAMED.get(kind) or {name: ("mean", (name,)) for name in scores}
    return {
        name: aggregate_samples([scores.sample(columns)], how=how, columns=columns)
        for name, (how, columns) in named.items()
    }


def _search_scores(ranks: Array) -> dict[str, Array]:
    """The metrics of searches whose relevant document has these ranks."""
    return {
        "nDCG@10": np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0.0),
        "MRR@10": np.where(ranks <= 10, 1 / ranks, 0.0),
        "Recall@1": (ranks <= 1).astype(float),
        "Recall@10": (ranks <= 10).astype(float),
        "Recall@100": (ranks <= 100).astype(float),
        "MAP@100": np.where(ranks <= 100, 1 / ranks, 0.0),
    }


def _model(number: int, prompt: int) -> ModelInfo:
    settings = {
        "model": {"kind": "synthetic", "weights": sha256_json(number)},
        "prompts": {"query": f"prompt {prompt}: "} if prompt else {},
        "max_length": 512,
        "normalize": True,
        "dtype": "float32",
    }
    label = f"synthetic-checkpoint-{number}"
    spec = f"runs/synthetic/checkpoint-{number}"
    return ModelInfo(label, sha256_json(settings), spec, settings, parameters=1000)


if __name__ == "__main__":
    command(bench_records, shown)
