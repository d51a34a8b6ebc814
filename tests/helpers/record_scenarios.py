"""What writes records, pages and releases, to be disturbed by `helpers.fault_injection`.

Scores, kernels and Sphinx are stood in for; the files are written by the program's own code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import nbformat

from helpers.beir import WORDS, write_beir
from helpers.fault_injection import Scenario, tree
from helpers.folder_scenarios import run
from helpers.notebooks import notebook_of, save
from helpers.records import amend, make, noisy, own
from qwen3nb import paths
from qwen3nb.book import build as building
from qwen3nb.book.up_to_date import STATE
from qwen3nb.cli import judge_terminal
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.custom.grades import GradeFile, GradeLine
from qwen3nb.evaluation.evaluate import evaluate as evaluate_model
from qwen3nb.evaluation.judged import load_verdict
from qwen3nb.evaluation.mteb import evaluate as mteb_tasks
from qwen3nb.evaluation.mteb.evaluate import keep_results
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.evaluation.retrieval import rerank as reranking
from qwen3nb.execution import sweep as sweeping
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.notebook import run_key
from qwen3nb.execution.publish import NotebookRun
from qwen3nb.models.load import load_model
from qwen3nb.models.types import Stats
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.record import CHECKSUMS, Environment, MTEBScore, Result
from qwen3nb.records.releases import freeze, problems_of_list, released
from qwen3nb.records.side_files import named_files
from qwen3nb.records.store import load_results, result_files, verify
from qwen3nb.utils.atomic_files import sha256_json, write_text
from qwen3nb.utils.journal import Journal, append

OWN = '[[queries]]\nid = "q1"\nquery = "column"\nexpected = ["d2"]\n'
PYDOCS = paths.cache() / "pydocs"  # of all tests; each scenario has a cache of its own
_CHANGING = ("finished", "run", "checksum", "cost")  # of a record
# Of a page or a note; the id of a cell is drawn at random.
_DATED = ["finished", "failed", "seconds", "started", "commit", "key", "outputs", "timestamp"]
_DATED += ["checksum", "id"]


def content(folder):
    """What a reader finds: records and pages without times, and what belongs to them.

    A file beside a record that no record names is no one's; it goes after an hour. A lock that a
    killed process leaves is an empty file, which the next one takes over.
    """
    files = result_files()
    records = {str(file): _record(file) for file in files}
    named = {str(each) for file in files for each in named_files(file)}
    others = {
        name: _undated(data) if name.endswith((".ipynb", ".json")) else data
        for name, data in tree(folder).items()
        if str(folder / name) not in records
        and not (name.endswith(".lock") and data == b"")
        and not name.endswith("checksums.jsonl")
        and (str(folder / name) in named or not name.endswith((".parquet", ".trec", ".qrels")))
    }
    return records | others


def _record(file):
    value = Result.load(file).in_one_file()
    value["search"].pop("seconds_per_query", None)
    return {name: part for name, part in value.items() if name not in _CHANGING}


def _undated(data):
    def without(value):
        if isinstance(value, list):
            return [without(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: without(each) for name, each in value.items() if name not in _DATED}

    return without(json.loads(re.sub(rb"\d{4}-\d\d-\d\d[T ][\d:]+", b"", data)))


def all_whole(folder):
    """Every record that is there verifies, the earlier ones are, and pages and notes are whole."""
    assert verify() == []
    assert load_results().unreadable == {}
    known = {record.model.label for record in load_results()}
    assert known >= set(json.loads((folder / "known").read_text()))
    assert not any(run.error == "damaged note" for run in failed_runs())
    for page in paths.book_runs().glob("*.ipynb"):
        nbformat.validate(nbformat.read(page, as_version=4))


def _knows(folder, *labels):
    (folder / "known").write_text(json.dumps(labels))


# A record that replaces another one.


def save_record(folder):
    own("m", 0.7).save()


def prepare_record(folder):
    own("m", 0.4).save()
    _knows(folder, "m")


# `qwen3nb eval` on the tasks of a tier that one can search.


def evaluate(folder):
    with mock.patch.object(mteb_tasks.TaskItem, "evaluate", _task_run):
        evaluate_model(load_model("bm25"), show_progress=False)


def prepare_evaluation(folder):
    _share_pydocs(folder)
    task = next(task for task in tier_tasks("smoke") if task.metadata.type == "Retrieval")
    earlier = _evaluated(load_model("bm25"), task, noisy(0.3), versions={})
    amend(earlier, "task", mteb=replace(earlier.task.mteb, file="0" * 64))
    earlier.save()
    theirs = paths.results() / "mteb" / "results" / "bm25" / earlier.model.identity[:40]
    append(theirs / "checksums.jsonl", f"{task.metadata.name}.json {'0' * 64}", False)
    _knows(folder, "bm25")


def _share_pydocs(folder):
    """Keep the benchmark outside the folder, of which every trial gets a copy."""
    PYDOCS.mkdir(parents=True, exist_ok=True)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "pydocs").symlink_to(PYDOCS)


def _task_run(item, model, run):
    """Write what MTEB writes, and return a record."""
    name = item.task.metadata.name
    written = paths.root().parent / f"written-{os.getpid()}"
    made = written / "results" / "bm25" / model.identity[:40]
    made.mkdir(parents=True)
    result = _evaluated(model, item.task, noisy(0.5), versions=Environment.current().versions)
    scores = {"test": [{"main_score": result.main.value}]}
    (made / f"{name}.json").write_text(json.dumps({"scores": scores}))
    meta = {"name": "bm25", "revision": made.name}
    (made / "model_meta.json").write_text(json.dumps(meta))
    kept = keep_results(written, run.folder / "mteb")
    shutil.rmtree(written)
    amend(result, "task", mteb=replace(result.task.mteb, file=kept[f"{name}.json"]))
    return result


def _evaluated(model, task, scores, *, versions):
    result = make(
        model.label,
        scores,
        task=task.metadata.name,
        settings=model.settings,
        revision=mteb_tasks.data_revision(task),
        environment=Environment(versions=versions),
    )
    parts = {"splits": tuple(task.eval_splits), "subsets": tuple(task.hf_subsets)}
    mteb = MTEBScore("main", result.main.value)
    amend(result, "task", mteb=mteb, type=task.metadata.type, **parts)
    return result


# `qwen3nb rerank suite` on one data set; its earlier record has another run.


class _Reranker:
    label, device, parameters = "tiny", "cpu", 10
    settings = {"model": {"kind": "reranker"}, "dtype": "float32"}  # noqa: RUF012
    identity = sha256_json(settings)
    source = SimpleNamespace(spec="tiny")

    def __init__(self):
        self.stats = Stats()

    def score_documents(self, query, documents):
        raise AssertionError("`_scored` scores all pairs of a collection in its place")


def _scored(factor):
    def score(item, reranker, run):
        ranked = item.first.run
        for query in ranked:
            Journal(paths.cache() / "rerank" / "tiny.jsonl").add(query, [1.0])
        return replace(ranked, scores=ranked.scores * factor), _NO_CUTS

    return score


_NO_CUTS = {"pairs": 40, "cut": 0, "queries_cut": 0}


def rerank(folder, *, factor=-1.0):
    data = TestCollection.from_beir(folder.parent / "words")
    with (
        mock.patch.object(reranking.RerankItem, "score_candidates", _scored(factor)),
        # A fork of a process that has used threads cannot try a library that needs them.
        mock.patch.dict("os.environ", QWEN3NB_LINEAR="mkl"),
    ):
        reranking.rerank(
            _Reranker(),
            data,
            first=folder.parent / "mine.trec",
            depth=4,
            show_progress=False,
            fresh=True,
        )


def prepare_reranking(folder):
    write_beir(folder.parent / "words")
    lines = [f"q{q} Q0 d{d} {d + 1} {9.0 - d} mine\n" for q in range(8) for d in range(6)]
    (folder.parent / "mine.trec").write_text("".join(lines))
    rerank(folder, factor=0.5)
    (record,) = result_files()
    for end in (".trec", ".first.trec"):  # of an older version
        record.with_suffix(end).write_text("q0 Q0 d0 1 1.0 older\n")
        os.utime(record.with_suffix(end), (0, 0))
    _knows(folder, "tiny")


# `qwen3nb sweep` over a notebook: one run succeeds after a failure, one fails, one is reused.


class _Kernels:
    """Executes a run as its process does: a page, or a note of its failure."""

    at_once, stopped = 1, False

    def run(self, command, *, log):
        log.write_text("what it printed\n")
        values = {"x": int(command.arguments[-1])}
        notebook = nbformat.read(paths.find_notebook("small"), as_version=4)
        # Two failures of one second are the same to a sweep; those of two processes are not.
        started = float(os.getpid())
        attempt = NotebookRun("small", values, command.page, log=str(log), started=started)
        if values["x"] == 2:
            attempt.fail(notebook, "ValueError", "no memory")
            return RunOutcome(command.name, 1)
        partial = paths.results() / "partial" / f"{command.name}.ipynb"
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(nbformat.writes(notebook))
        attempt.succeed(notebook, key=run_key(notebook, values))
        partial.unlink()
        return RunOutcome(command.name, 0)

    def stop(self):
        """Nothing runs."""


def sweep(folder):
    jobs = [sweeping.Job("small", {"x": x}) for x in (1, 2, 3)]
    with mock.patch.object(sweeping, "LocalExecutor", return_value=_Kernels()):
        outcomes = sweeping.sweep(jobs, show_progress=False)
    assert [each.status for each in outcomes][1:] == ["failed", "reused"]


def prepare_sweep(folder):
    save(notebook_of("pass", parameters="x: int = 0  # a number"), "small")
    (folder / "book" / "runs").mkdir(parents=True)
    jobs = [sweeping.Job("small", {"x": 1}), sweeping.Job("small", {"x": 3})]
    with mock.patch.object(sweeping, "LocalExecutor", return_value=_Kernels()):
        sweeping.sweep(jobs[1:], show_progress=False)
    notebook = nbformat.read(paths.find_notebook("small"), as_version=4)
    NotebookRun("small", {"x": 1}, jobs[0].page, started=0.0).fail(notebook, "OSError", "no disk")
    _knows(folder)


# `qwen3nb domain --runs` on queries of one's own.


def domain(folder):
    data = folder.parent / "own"
    run(
        f"domain --queries {data}/queries.toml --documents {data}/documents.jsonl --model bm25 "
        f"--runs --no-report --out {folder}/results --fresh"
    )


def prepare_domain(folder):
    (folder.parent / "own").mkdir()
    rows = [{"id": f"d{number}", "text": f"{word} of a table"} for number, word in enumerate(WORDS)]
    for name, text in (
        ("queries.toml", OWN),
        ("documents.jsonl", "\n".join(map(json.dumps, rows))),
    ):
        (folder.parent / "own" / name).write_text(text)
    _knows(folder)


# A book that replaces an earlier one.


def book(folder):
    def built(command, **_):
        html = Path(command[-1]) / "_build" / "html"
        html.mkdir(parents=True)
        for name in ("index.html", "search.html"):
            (html / name).write_text("the new book")
        return subprocess.CompletedProcess(command, 0, "", "")

    with (
        mock.patch.object(building, "refresh_pages", return_value=[]),
        mock.patch.object(building, "run_program", built),
    ):
        building.build_book()


def prepare_book(folder):
    (folder / "_build" / "html").mkdir(parents=True)
    (folder / "_build" / "html" / "index.html").write_text("the earlier book")


def book_files(folder):
    """All files but the state of the book, which has the times of its pages."""
    return {name: data for name, data in tree(folder).items() if not name.endswith(STATE)}


def whole_book(folder):
    """The earlier book, the new one, or none for the moment in between."""
    pages = _pages_of_one_book(folder / "_build" / "html")
    earlier, new = {"index.html": "the earlier book"}, "the new book"
    assert pages in ({}, earlier, {"index.html": new, "search.html": new})


def _pages_of_one_book(html):
    """The pages in a folder that may be exchanged while they are read: then they are read again."""
    while True:
        before = _inode(html)
        try:
            pages = {file.name: file.read_text() for file in html.glob("*")}
        except FileNotFoundError:  # of the book that was there before
            continue
        if _inode(html) == before:
            return pages


def _inode(folder):
    with suppress(FileNotFoundError):
        return folder.stat().st_ino
    return None


# `qwen3nb judge` with a grader who answers what is asked, until the grades decide.


def judge(folder):
    data = folder.parent / "judged"
    questions = []

    def answer():
        return str(questions[-1].document.count("3") * 3)

    with (
        mock.patch.object(judge_terminal, "_show", questions.append),
        mock.patch.object(judge_terminal, "_answer", answer),
    ):
        run(
            f"judge --queries {data}/queries.txt --documents {data}/documents.jsonl --terminal "
            f"--model bm25,random:8 --grader ann --grades {folder}/grades.jsonl"
        )


def prepare_judging(folder):
    data = folder.parent / "judged"
    data.mkdir()
    rows = [{"id": f"d{number}", "text": f"{word} of a table"} for number, word in enumerate(WORDS)]
    (data / "documents.jsonl").write_text("\n".join(map(json.dumps, rows[:6])))
    (data / "queries.txt").write_text(f"{WORDS[3]} of\n{WORDS[2]} table\n")
    first = GradeLine(f"{WORDS[3]} of", "d1", 0, "bob", "2026-01-01T00:00:00+00:00")
    GradeFile(folder / "grades.jsonl").add(first)


def grades_and_verdict(folder):
    """The grades without their times, and the verdict without its time and their digest."""
    lines = GradeFile(folder / "grades.jsonl").read()
    found = {"grades": [(line.pair, line.grade, line.grader) for line in lines]}
    for file in (folder / "results" / "judged").glob("*.json"):
        verdict = json.loads(file.read_bytes())
        del verdict["time"], verdict["grades_sha256"]
        found[file.name] = verdict
    return found


def whole_grades(folder):
    """The grade of before is there, and every other one once; a verdict is whole."""
    lines = GradeFile(folder / "grades.jsonl").read()
    assert lines[0].grader == "bob"
    assert len({line.pair for line in lines}) == len(lines)
    for file in (folder / "results" / "judged").glob("*.json"):
        assert load_verdict(file.stem).graded <= len(lines)


# A release.

RELEASES = f"releases/{CHECKSUMS}"


def freeze_once(folder):
    if not (folder / "releases" / "v1").exists():
        freeze("v1")


def prepare_release(folder):
    own("m", 0.5).save()
    write_text(folder / "book" / "runs" / "page.ipynb", "{}")


def frozen(folder):
    """What is in the release, without the day; every other file is the study's.

    A release may lack its line in the list of releases: it is appended after the release is there.
    """
    dated = (".lock", ".cff", "e.json", "bag-info.txt", "tagmanifest-sha256.txt", RELEASES)
    return {name: data for name, data in tree(folder).items() if not name.endswith(dated)}


def whole_release(folder):
    assert verify() == []
    assert problems_of_list() == {}
    assert not (folder / "releases" / "v1").exists() or len(released("v1")) == 1


RECORD = Scenario(save_record, prepare_record, content, all_whole)
EVALUATION = Scenario(evaluate, prepare_evaluation, content, all_whole)
RERANKING = Scenario(rerank, prepare_reranking, content, all_whole)
SWEEP = Scenario(sweep, prepare_sweep, content, all_whole)
DOMAIN = Scenario(domain, prepare_domain, content, all_whole)
BOOK = Scenario(book, prepare_book, book_files, whole_book)
JUDGING = Scenario(judge, prepare_judging, grades_and_verdict, whole_grades, by_two=False)
RELEASE = Scenario(freeze_once, prepare_release, frozen, whole_release)
