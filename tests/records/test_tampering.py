"""What somebody may change in a folder of results, and whether `qwen3nb verify` sees it.

How much is made to agree with a change: the ``record``, with its checksum, the files beside it and
the aggregates; or ``all`` that this package writes of it, so that the list of records has it, too.
What is not seen then, the help of the command says; more kinds are in test_kinds_of_tampering.py.
"""

import json
import os
import re
import shutil
import time
from dataclasses import replace
from functools import partial

import pytest
from helpers.records import signed

from qwen3nb.answers.all_results import write_all_results
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.records.record import Result, checksum, in_checksums
from qwen3nb.records.store import check_files, verify, verify_files
from qwen3nb.utils.atomic_files import sha256_file, sha256_json, write_json
from qwen3nb.utils.journal import noted

pytestmark = pytest.mark.integration
TASK = "PyDocsSampleRetrieval"


@pytest.fixture(scope="module")
def made(tmp_path_factory, shared_cache):
    """Results of two models: searches, one with its run, and other tasks; and their summary.

    Beside them stands what the cache knows of them.
    """
    folder = tmp_path_factory.mktemp("made") / "results"
    options = {"output": folder, "show_progress": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        evaluate("bm25", tasks=TASK, runs=True, **options)
        evaluate("random", tasks=f"{TASK},AuthorSTS,PyDocsSampleClustering", **options)
        write_all_results(folder)
        assert verify(folder) == []
    shutil.copytree(shared_cache / "known", folder.with_name("known"))
    return folder


@pytest.fixture
def folder(made, home, shared_cache, tmp_path):
    shutil.copytree(made.with_name("known"), shared_cache / "known")
    return shutil.copytree(made, tmp_path / "results", symlinks=True)


def record_of(folder, model="random", task=TASK):
    (file,) = folder.glob(f"{model}-*/seed_0/{task}.json")
    return file


def at(value, keys):
    for key in keys:
        value = value[key]
    return value


def put(file, value, agree):
    value = signed(value)
    if agree == "record":
        file.write_text(json.dumps(value))
        return
    with in_checksums(file, value["checksum"]):
        file.write_text(json.dumps(value))


def plus(amount):
    return lambda value: value + amount


def reverse(digest):
    return digest[::-1]


# A field of a record, what it becomes, and what the help says if it is not seen when all agrees.
FIELDS = {
    "schema": ("qwen3nb.result/4", ""),
    "seed": (plus(1), ""),
    "run": ("0" * 12, "another run or time"),
    "finished": ("2020-01-01T00:00:00+00:00", "another run or time"),
    "model.label": ("better", ""),
    "model.identity": (reverse, ""),
    "task.name": (plus("s"), ""),
    "task.main_metric": ("Recall@100", ""),
    "task.revision": (reverse, ""),
    "task.subsets": (["de"], ""),
    "task.group": ("CQADupStack", ""),
    "task.size.queries": (plus(9), ""),
    "task.counts": ({"empty texts": 3}, ""),
    "task.mteb.value": (plus(0.1), ""),
    "task.mteb": (None, ""),
    "task.mteb.file": (reverse, ""),
    "cost.seconds": (plus(0.01), ""),
    "cost.texts": (plus(1), ""),
    "environment.versions.mteb": ("1.0.0", ""),
    "metrics.nDCG@10.value": (plus(0.1), ""),
    "metrics.nDCG@10.low": (plus(1e-4), ""),
    "metrics.nDCG@10.n": (plus(-1), ""),
    "metrics.MRR@10.how": ("reported", ""),
    "scores.ids": (reverse, ""),
    "top.sha256": (reverse, ""),
}


def states(cli, phrase):
    text = " ".join(cli("verify", "--help").output.split())
    return phrase in text.partition("need a key:")[2]


@pytest.mark.parametrize(
    ("field", "agree"),
    [*((field, "all") for field in FIELDS), ("run", "record"), ("scores.ids", "record")],
)
def test_a_changed_field_is_seen_or_named_as_beyond(folder, cli, field, agree):
    file, (change, beyond) = record_of(folder), FIELDS[field]
    value, keys = json.loads(file.read_text()), field.partition(" ")[0].split(".")
    parent = at(value, keys[:-1])
    parent[keys[-1]] = change(parent[keys[-1]]) if callable(change) else change
    put(file, value, agree)
    if agree == "all" and beyond:
        write_all_results(folder)
        assert verify(folder) == []
        assert states(cli, beyond)
    else:
        assert verify(folder)


def test_a_file_of_a_later_evaluation_is_not_compared(folder):
    """As of another seed, which differs in nothing that MTEB sees, or if a process was killed."""
    file, mteb = record_of(folder), theirs(folder)
    later = json.loads(mteb.read_text()) | {"dataset_revision": "later"}
    mteb.write_text(json.dumps(later))
    assert any("was changed" in line for line in verify(folder))
    with noted(mteb.with_name("checksums.jsonl"), f"{mteb.name} {sha256_file(mteb)}"):
        assert verify_files([file]) == {}
    value = json.loads(file.read_text())
    value["task"]["mteb"]["file"] = ""  # of an older version: it is taken for its own
    put(file, value, "all")
    assert any("revision" in line for line in verify(folder))


def test_a_record_is_verified_again_once_a_result_of_mteb_has_changed(folder):
    file = record_of(folder)

    def verified():
        time.sleep(0.05)  # a file that has only just changed might change again
        return [checked for checked, _ in check_files([file], fresh=False)]

    assert [verified(), verified()] == [[file], []]
    for name in (f"{TASK}.json", "model_meta.json", "checksums.jsonl"):
        theirs(folder, name).touch()
        assert [verified(), verified()] == [[file], []]


def edit(file, *keys, to, sign=False):
    value = json.loads(file.read_text())
    at(value, keys[:-1])[keys[-1]] = to
    if sign:
        value = value | {"checksum": checksum(value)}
    file.write_text(json.dumps(value))


def theirs(folder, name=f"{TASK}.json"):
    (meta,) = folder.glob(f"mteb/results/qwen3nb__random/*/{name}")
    return meta


def in_mteb(key, *, listed=True):
    def do(folder):
        edit(theirs(folder), "scores", "test", 0, key, to=0.9)
        if not listed:
            theirs(folder, "checksums.jsonl").unlink()

    return do


def in_summary(*keys, to=0.9, sign=False):
    return lambda folder: edit(folder / "all_results.json", *keys, to=to, sign=sign)


def in_line(end, old, new):
    def do(folder):
        (file,) = folder.glob(f"bm25-*/seed_0/*.{end}")
        file.write_text(file.read_text().replace(old, new, 1))

    return do


def without_lines(folder):
    record_of(folder, "random", "AuthorSTS").unlink()
    lines = (folder / "checksums.jsonl").read_bytes().splitlines(keepends=True)
    rest = [line for line in lines if b"AuthorSTS" not in line]
    (folder / "checksums.jsonl").write_bytes(b"".join(rest))


def damaged_list(folder):
    """One flipped bit, in the line of a record that is then removed."""
    file = folder / "checksums.jsonl"
    file.write_bytes(file.read_bytes().replace(b"AuthorSTS", b"AuthorSTR"))
    record_of(folder, "random", "AuthorSTS").unlink()


def as_one_file(folder, schema="qwen3nb.result/4"):
    file = record_of(folder)
    result = replace(Result.load(file), run="another")
    write_json(file, signed(result.in_one_file() | {"schema": schema}))


def another_identity(folder):
    """A record that agrees with itself, in the folder of another model."""
    file = record_of(folder)
    value = json.loads(file.read_text())
    value["model"]["settings"]["seed"] = 5
    value["model"]["identity"] = sha256_json(value["model"]["settings"])
    put(file, value, "all")


def removed(find):
    def do(folder):
        each = find(folder)
        shutil.rmtree(each) if each.is_dir() else each.unlink()

    return do


SCORE = ("results", "random", TASK)
MEAN = ("summary", "random", "over_tasks")
DEEDS = {
    "a removed record": removed(record_of),
    "all removed but the list": lambda f: [shutil.rmtree(e) for e in f.iterdir() if e.is_dir()],
    "a damaged list": damaged_list,
    "a removed list": removed(lambda f: f / "checksums.jsonl"),
    "a record and its lines removed": without_lines,
    "a renamed record": lambda f: record_of(f).rename(record_of(f).with_name("Other.json")),
    "a checksum of nothing": lambda f: edit(record_of(f), "checksum", to=""),
    "a record of no schema": partial(as_one_file, schema="qwen3nb.result/1"),
    "a record in one file": as_one_file,
    "a record in another model's folder": another_identity,
    "another order of the run": in_line("trec", " 1 ", " 2 "),
    "another grade": in_line("qrels", " 1\n", " 0\n"),
    "MTEB's main score": in_mteb("main_score"),
    "MTEB's side metric without checksums": in_mteb("recall_at_10", listed=False),
    "MTEB's result removed": removed(theirs),
    "MTEB's checksums removed": removed(lambda f: theirs(f, "checksums.jsonl")),
    "MTEB's folder removed": removed(lambda f: f / "mteb"),
    "summary: a score": in_summary(*SCORE, "main_score"),
    "summary: a score, signed": in_summary(*SCORE, "main_score", sign=True),
    "summary: a record that never was": in_summary(*SCORE, "checksum", to="0" * 64, sign=True),
    "summary: a mean": in_summary(*MEAN),
    "summary: a mean, signed": in_summary(*MEAN, sign=True),
    "summary: cut": lambda f: os.truncate(f / "all_results.json", 99),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_is_seen(folder, cli, deed):
    DEEDS[deed](folder)
    seen = cli("verify", folder)
    assert seen.exit_code == 1
    assert re.search(r"^\S+: \S", seen.output, re.MULTILINE)


def test_a_copy_of_one_model_needs_the_list_of_its_folder(folder, tmp_path):
    copied = shutil.copytree(record_of(folder).parents[1], tmp_path / "copy" / "random-1a")
    copied.rename(copied.with_name(record_of(folder).parents[1].name))
    (line,) = verify(tmp_path / "copy")
    assert "checksums.jsonl: this list of all records" in line
    assert verify_files([record_of(tmp_path / "copy")]) == {}
