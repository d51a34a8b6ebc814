"""Whatever is changed in a study, `qwen3nb verify` names it, also with all checksums recomputed.

A kind is a change of a record, of a file beside it, of a list, of the summary, of MTEB's result or
of a release. ``plain`` changes nothing else. ``all`` recomputes what this package computes: every
checksum, the list without the old lines, the summary, the lists of a release. What is not named
then needs a key; the help lists it.
"""

import json
import os
import shutil
import zlib
from dataclasses import replace
from functools import partial

import pytest
from helpers.records import signed
from helpers.small_study import METRICS, OTHER, TASK, write_study

from qwen3nb.answers.all_results import write_all_results
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.records.record import Result
from qwen3nb.records.release_check import PAYLOAD, TAGS
from qwen3nb.records.releases import (
    all_releases,
    freeze,
    problems_of_list,
    records_folder,
    release_problems,
)
from qwen3nb.records.side_files import encode_scores
from qwen3nb.records.store import result_files, verify_folder
from qwen3nb.records.verification import Verifier, folder_problems, removed_records
from qwen3nb.utils.atomic_files import sha256_file, sha256_json, write_bytes, write_text
from qwen3nb.utils.children import run_program
from qwen3nb.utils.journal import Journal, line_of

LIST, SUMMARY = "checksums.jsonl", "all_results.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study with a release, which this machine has verified."""
    home = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_HOME", str(home))
        patch.setenv("QWEN3NB_CACHE", str(home / "cache"))
        write_study(home / "results")
        write_text(home / "book" / "runs" / "page.ipynb", "{}")
        write_text(home / "_build" / "html" / "index.html", "<p>")
        assert problems_in(home / "results") == []
        assert release_problems(freeze("v1")) == []
    return home


@pytest.fixture
def study(made, home, monkeypatch):
    """A copy by hard links, so a deed replaces a file and never writes into it."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(made / "cache"))
    for name in ("results", "releases"):
        shutil.copytree(made / name, home / name, copy_function=os.link)
    own_list = home / "releases" / LIST  # a later release is appended to it
    write_bytes(own_list, own_list.read_bytes())
    return home


def problems_in(folder):
    """What `qwen3nb verify` names in a folder of records."""
    verifier = Verifier()
    found = []
    for file in [*result_files(folder), *removed_records(folder)]:
        found += verifier.check(file)
    for problems in folder_problems(folder).values():
        found += problems
    return found


def all_problems(study, table):
    """What `qwen3nb verify` names in the results of a study, or in its release."""
    if table != "release":
        return problems_in(study / "results")
    problems = []
    for release in all_releases():
        problems += release_problems(release) + problems_in(records_folder(release))
    for problems_of_one in problems_of_list().values():
        problems += problems_of_one
    return problems


def record_of(study, model="a", task=TASK):
    (file,) = (study / "results").glob(f"{model}-*/seed_0/{task}.json")
    return file


def read(file):
    return json.loads(file.read_text())


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    write_text(file, text.replace(old, new))


def recompute(study):
    """Give every record its checksum, the list these alone, and the summary what they say."""
    folder = study / "results"
    lines = []
    for file in result_files(folder):
        value = signed(read(file))
        write_text(file, json.dumps(value))
        name = file.relative_to(folder).as_posix()
        lines.append(line_of(f"{name} {value['checksum']}", True))
    write_bytes(folder / LIST, b"".join(lines))
    write_all_results(folder)


# Records: a field, and what it becomes.


def plus(amount):
    return lambda value: value + amount


def reverse(text):
    return text[::-1]


FIELDS = {
    "seed": plus(1),
    "run": "another",
    "finished": "2026-01-02",
    "checksum": reverse,
    "model.label": "better",
    "model.identity": reverse,
    "model.spec": "elsewhere",
    "model.settings.label": "better",
    "model.parameters": 7,
    "task.name": "Another",
    "task.type": "STS",
    "task.main_metric": "MRR@10",
    "task.dataset": "lab/other",
    "task.revision": "s" * 40,
    "task.unit": "pairs",
    "task.size.documents": plus(9),
    "task.size.queries": plus(9),
    "task.mteb": None,
    "task.mteb.metric": "map_at_10",
    "task.mteb.value": plus(0.1),
    "task.mteb.file": reverse,
    "task.mteb.file to": "",
    "task.group": "CQADupStack",
    "task.categories.q0": "another",
    "task.categories": {},
    "task.splits": ["dev"],
    "task.subsets": ["de"],
    "task.languages": ["deu"],
    "task.selection": "en",
    "task.counts": {"empty texts": 3},
    "task.counts to": {},
    "task.clusters.q0": "c9",
    "task.clusters": {},
    "task.substitute": "local-1",
    "task.part_of": "Another",
    "metrics.nDCG@10.value": plus(0.1),
    "metrics.nDCG@10.low": plus(-0.1),
    "metrics.nDCG@10.high": plus(0.1),
    "metrics.nDCG@10.n": plus(-1),
    "metrics.nDCG@10.how": "reported",
    "metrics.MRR@10.value": plus(0.1),
    "metrics.MRR@10.how": "reported",
    "options.tier": "full",
    "options.limit": 10,
    "options": {},
    "training": {"mode": "rank_only"},
    "prompt.text": "search: ",
    "prompt.name": "long",
    "prompt.of": "1" * 64,
    "prompt": None,
    "data.queries.q0": "another text",
    "data.queries": {},
    "data.limit": 3,
    "data.notes": ["nothing"],
    "data.complete": True,
    "search.depth": 1000,
    "search.dimensions": 9,
    "search.seconds_per_query": 0.001,
    "search.words": "de",
    "files.runs": {},
    "files.qrels": {},
    "files": {},
    "environment.versions.mteb": "1",
    "environment.versions": {},
    "environment.python": "2.7",
    "environment.platform": "another",
    "environment.device": "cuda",
    "environment.precision": "int8",
    "environment.linear": "mkl",
    "cost.seconds": plus(1),
    "cost.texts": plus(1),
    "cost.encoded": plus(1),
    "cost.texts_per_second": plus(1),
    "cost.peak_memory_bytes": plus(1),
    "scores.ids": reverse,
    "scores.sha256": reverse,
    "scores.queries": plus(1),
    "scores.columns": {},
    "scores": None,
    "top.sha256": reverse,
    "top.queries": plus(1),
    "top": None,
    "parts": [{"split": "test", "subset": "en", "languages": [], "mteb": 0.5}],
}
# What is not named, with the number of its kind in the help.
FIELDS_BEYOND = {"run": 1, "finished": 1}


def with_field(study, field):
    """Change a field of a record."""
    file, change = record_of(study), FIELDS[field]
    value = read(file)
    *parents, name = field.removesuffix(" to").split(".")
    place = value
    for parent in parents:
        place = place[parent]
    new = change(place.get(name, 0)) if callable(change) else change
    assert place.get(name) != new
    place[name] = new
    write_text(file, json.dumps(value))


# Other changes of records and of the files beside them.


def beside(study, end, *, model="a", task=TASK):
    (file,) = record_of(study, model, task).parent.glob(f"{task}.*.{end}")
    return file


def new_scores(study, change):
    """Give a record other scores, in a file that it names, of the same mean."""
    file = record_of(study, "b", OTHER)
    result = Result.load(file)
    values = change(dict(result.per_query["nDCG@10"]))
    scores = QueryScores.of({"nDCG@10": values})
    value = read(file)
    (file.parent / value["scores"]["file"]).unlink()
    data = encode_scores(scores)
    side = write_bytes(file.with_name(f"{OTHER}.{'0' * 12}.scores.parquet"), data)
    value["scores"] |= {
        "file": side.name,
        "sha256": sha256_file(side),
        "queries": len(values),
        "ids": scores.ids,
        "columns": {"nDCG@10": len(values)},
    }
    write_text(file, json.dumps(value))


def swapped(values):
    first, second, *_ = values
    return values | {first: values[second], second: values[first]}


def copied(study, *, label="a", seed=0, settings=None):
    """Copy a record into the folder of another model or seed, as if it were of that."""
    source = record_of(study, "a", OTHER)
    value = read(source)
    value["model"]["label"], value["seed"] = label, seed
    if settings:
        value["model"] |= {"settings": settings, "identity": sha256_json(settings)}
    folder = study / "results" / f"{label}-{value['model']['identity'][:8]}" / f"seed_{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.parent.glob(f"{OTHER}.*.parquet"):
        os.link(file, folder / file.name)
    write_text(folder / f"{OTHER}.json", json.dumps(value))


def flipped(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    write_bytes(file, bytes(data))


def linked(file, target):
    content = target.with_name(f"kept-{target.name}")
    target.rename(content)
    file.symlink_to(content)


def link_to_record(study):
    file = record_of(study, "a", OTHER)
    file.rename(study / "results" / "kept")
    file.symlink_to(study / "results" / "kept")


def link_to_folder(study):
    folder = record_of(study).parents[1]
    folder.rename(study / "results" / "kept")
    folder.symlink_to(study / "results" / "kept")


RECORDS = {
    "removed": lambda s: record_of(s).unlink(),
    "removed with its model": lambda s: shutil.rmtree(record_of(s).parents[1]),
    "renamed": lambda s: record_of(s).rename(record_of(s).with_name("Better.json")),
    "moved to another seed": lambda s: record_of(s).parent.rename(
        record_of(s).parents[1] / "seed_1"
    ),
    "moved to another label": lambda s: (
        record_of(s)
        .parents[1]
        .rename(s / "results" / f"better-{record_of(s).parents[1].name[-8:]}")
    ),
    "cut": lambda s: write_text(record_of(s), record_of(s).read_text()[:99]),
    "emptied": lambda s: write_text(record_of(s), ""),
    "a list": lambda s: write_text(record_of(s), "[]"),
    "of an unknown schema": lambda s: replaced(record_of(s), "result/5", "result/6"),
    "with a name twice": lambda s: replaced(record_of(s), '"seed":', '"seed": 7, "seed":'),
    "the summary a link": lambda s: linked(s / "results" / SUMMARY, s / "results" / SUMMARY),
    "a link": link_to_record,
    "a linked folder": link_to_folder,
    "a copy of another label": partial(copied, label="better"),
    "a copy of another seed": partial(copied, seed=1),
    "invented": partial(copied, label="new", settings={"label": "new"}),
    "scores swapped": partial(new_scores, change=swapped),
    "other scores": partial(new_scores, change=lambda values: values | {"q0": 1.0}),
    "a score removed": partial(
        new_scores, change=lambda values: {q: v for q, v in values.items() if q != "q0"}
    ),
    "scores: a bit": lambda s: flipped(beside(s, "scores.parquet")),
    "scores removed": lambda s: beside(s, "scores.parquet").unlink(),
    "scores of another model": lambda s: beside(s, "scores.parquet", model="b").replace(
        beside(s, "scores.parquet")
    ),
    "documents: a bit": lambda s: flipped(beside(s, "top.parquet")),
    "documents removed": lambda s: beside(s, "top.parquet").unlink(),
    "run: another order": lambda s: replaced(beside(s, "trec"), " 1 ", " 2 "),
    "run: another document": lambda s: replaced(beside(s, "trec"), " d1 ", " d99 "),
    "run removed": lambda s: beside(s, "trec").unlink(),
    "qrels: another grade": lambda s: replaced(beside(s, "qrels"), "q0 0 d0 1", "q0 0 d0 0"),
    "qrels removed": lambda s: beside(s, "qrels").unlink(),
}
RECORDS_BEYOND = {"invented": 2, "removed": 3, "removed with its model": 3}
# What recomputing would fail on, or undo.
_ONLY_PLAIN = {
    ("field", "checksum"),
    ("mteb", "list removed"),
    ("mteb", "a damaged line in its list"),
    ("mteb", "a line of another form in its list"),
    ("mteb", "replaced as by a later evaluation"),
    *(("mteb", f"a result invented{how}") for how in ("", " of another model", ", with its line")),
    *(("release", kind) for kind in ("removed", "removed with its lines", "renamed")),
    *(("release", f"the list of {kind}") for kind in ("files", "lists")),
    *(("release", f"the list of {kind} emptied") for kind in ("files", "lists")),
    *(("release", f"the list of {kind} removed") for kind in ("files", "lists")),
    ("release", "its schema, with no lists"),
    ("record", "with a name twice"),
    ("record", "the summary a link"),
    *(("record", kind) for kind in ("cut", "emptied", "a list", "of an unknown schema", "a link")),
}

# The list of all records.


def with_lines(change):
    def deed(study):
        file = study / "results" / LIST
        lines = [line for line in file.read_bytes().split(b"\n") if line]
        write_bytes(file, b"".join(b"\n" + line + b"\n" for line in change(lines)))

    return deed


def without_record(lines):
    return [line for line in lines if b"Pairs" not in line]


def with_another(study):
    file = study / "results" / LIST
    line = line_of(f"c-1a/seed_0/{TASK}.json {'0' * 64}", True)
    write_bytes(file, file.read_bytes() + line)


def of_another_digest(study):
    file = study / "results" / LIST
    keys = [key for key in Journal(file).keys() if "Pairs" not in key]  # noqa: SIM118
    write_bytes(file, b"".join(line_of(f"{key[:-1]}x", True) for key in keys))


def taken_back(study):
    """Remove a record, and say in the list that it was never finished."""
    file = record_of(study, "a", OTHER)
    name = file.relative_to(study / "results").as_posix()
    with_line(line_of(f"{name} {read(file)['checksum']}", False))(study)
    file.unlink()


def with_line(line):
    """Append a line to the list."""

    def deed(study):
        file = study / "results" / LIST
        write_bytes(file, file.read_bytes() + line)

    return deed


def raw_line(data):
    """A line of any data, with its checksum."""
    return b"\n%08x %s\n" % (zlib.crc32(data), data)


OUTSIDE = f"../../out/seed_0/{TASK}.json {'0' * 64}"
LISTS = {
    "a record removed, and taken back": taken_back,
    "with a record outside": with_line(line_of(OUTSIDE, True)),
    "with a name on two lines": with_line(line_of(f"a\n4 of 4/seed_0/{TASK}.json 0", True)),
    "with a number as a name": with_line(raw_line(b"[5,true]")),
    "with a list as a name": with_line(raw_line(b'[["a"],true]')),
    "with an object": with_line(raw_line(b"{}")),
    "with three values": with_line(raw_line(b'["a b",true,1]')),
    "with brackets": with_line(raw_line(b"[" * 100_000 + b"]" * 100_000)),
    "with other bytes": with_line(raw_line(b'["\xff",true]')),
    "removed": lambda s: (s / "results" / LIST).unlink(),
    "emptied": with_lines(lambda lines: []),
    "without a record's lines": with_lines(without_record),
    "cut after its first record": with_lines(lambda lines: lines[:2]),
    "with another record": with_another,
    "of other digests": of_another_digest,
    "a bit of a line": with_lines(lambda lines: [lines[0].replace(b"a-", b"c-"), *lines[1:]]),
    "a record and its lines removed": lambda s: (
        record_of(s, "a", OTHER).unlink(),
        with_lines(without_record)(s),
    ),
}

# The summary: keys, and what they become.

ENTRY = ("results", "a", TASK)
FAILURE = f"c-1a2b3c4d seed_0 {TASK}"
SUMMARIES = {
    (*ENTRY, "main_score"): 0.9,
    (*ENTRY, "metrics", "nDCG@10", "value"): 0.9,
    (*ENTRY, "metrics", "MRR@10", "low"): 0.0,
    (*ENTRY, "identity"): "0" * 64,
    (*ENTRY, "revision"): "0" * 40,
    (*ENTRY, "type"): "STS",
    (*ENTRY, "splits"): ["dev"],
    (*ENTRY, "size", "queries"): 99,
    (*ENTRY, "seconds"): 0.1,
    (*ENTRY, "mteb"): None,
    (*ENTRY, "record"): f"c-1a/seed_0/{TASK}.json",
    (*ENTRY, "checksum"): "0" * 64,
    ENTRY: None,
    ("results", "a"): None,
    ("results", "c"): "results.a",
    ("results", "a", "New"): f"results.a.{TASK}",
    ("summary", "a"): None,
    ("summary", "c"): "summary.a",
    ("summary", "a", "over_tasks"): 0.9,
    ("summary", "a", "over_types"): 0.9,
    ("summary", "a", "by_type", "Retrieval"): 0.9,
    ("summary", "a", "tasks", "Retrieval"): 9,
    ("summary", "a", "missing"): {"New": "not run"},
    ("model",): "better",
    ("model_path",): "elsewhere",
    ("config",): {"tier": "full"},
    ("config", "tier"): "full",
    ("failures",): {f"a seed_0 {TASK}": "ValueError"},
    ("failures", FAILURE): "MemoryError",
    ("summary",): None,
    ("timestamp",): "2099-01-01T00:00:00+00:00",
    ("schema",): "qwen3nb.all-results/9",
    ("verdict",): "b is best",
    ("summary", "a", "over_all"): 0.9,
    ("summary", "a", "metrics"): None,
    ("results", "a (best)"): "results.a",
    ("results",): [],
}
SUMMARIES_BEYOND = {("timestamp",): 5, ("failures", FAILURE): 5}


def in_summary(study, keys, level):
    file = study / "results" / SUMMARY
    value = read(file)
    place, new = value, SUMMARIES[keys]
    for key in keys[:-1]:
        place = place[key]
    if isinstance(new, str) and new.startswith(("results.", "summary.")):
        new = value
        for key in SUMMARIES[keys].split("."):
            new = new[key]
    if new is None and keys[-1] != "mteb":
        del place[keys[-1]]
    else:
        place[keys[-1]] = new
    write_text(file, json.dumps(signed(value) if level == "all" else value))


def save_again(study, model, **changes):
    """Save a record again, with changes, and leave the list of other tests alone."""
    file = study / "results" / LIST
    write_bytes(file, file.read_bytes())
    record = Result.load(record_of(study, model, OTHER))
    replace(record, **changes).save(study / "results")
    write_all_results(study / "results")


def test_a_summary_has_the_form_and_the_model_that_it_says(study):
    save_again(study, "a", run="later", options={"tier": "smoke"})
    for name, value in (
        ("timestamp", None),
        ("timestamp", "today"),
        ("timestamp", "2020-01-01T00:00:00+00:00"),  # before all its records
        ("model", ""),
        ("model", "b"),
        ("model_path", ""),
        ("model_path", "b"),
        ("config", {}),
        ("model_path", 10**400),
    ):
        file = study / "results" / SUMMARY
        before = read(file)
        write_text(file, json.dumps(signed(before | {name: value})))
        (problem,) = folder_problems(study / "results")[file][:1]
        assert "Error(" not in problem
        write_text(file, json.dumps(before))
    assert folder_problems(study / "results") == {}


def without_model(file, label):
    """Leave a model out of a summary, whose time is set back to that of all records."""
    value = read(file)
    for part in ("results", "summary"):
        del value[part][label]
    (other,) = value["results"]
    value |= {"model": other, "model_path": other, "timestamp": "2026-01-01T00:00:00+00:00"}
    write_text(file, json.dumps(signed(value)))


def test_a_summary_has_what_was_written_before_a_record_of_it(study):
    """By the order of the list, whatever its time says; it may be older than later records."""
    file = study / "results" / SUMMARY
    before = file.read_text()
    without_model(file, "a")
    problems = folder_problems(study / "results")[file]
    assert sum("it lacks a on" in problem for problem in problems) == 2
    write_text(file, before)
    without_model(file, "b")
    assert folder_problems(study / "results") == {}


def test_an_entry_is_of_the_record_that_was_there(study):
    """Not of an earlier one, in whose name any score could stand."""
    folder = study / "results"
    earlier = read(record_of(study, "b", OTHER))["checksum"]
    save_again(study, "b", run="later")
    value = read(folder / SUMMARY)
    value["results"]["b"][OTHER] |= {"checksum": earlier, "main_score": 0.99}
    value["summary"]["b"]["by_type"]["Retrieval"] = 0.99
    write_text(folder / SUMMARY, json.dumps(signed(value)))
    (problem,) = folder_problems(folder)[folder / SUMMARY]
    assert "it has b on Pairs as in a record that had been replaced before" in problem


NO_SUMMARIES = ["[" * 100_000, "[]", '{"schema": 1}', '{"model": 1, "model": 2}', "folder", "pipe"]


@pytest.mark.parametrize("content", NO_SUMMARIES)
def test_what_is_no_summary_is_named_at_once(study, content):
    file = study / "results" / SUMMARY
    file.unlink()
    if content == "folder":
        file.mkdir()
    elif content == "pipe":
        os.mkfifo(file)
    else:
        write_text(file, content)
    (problem,) = folder_problems(study / "results")[file]
    assert "remove it, and the next evaluation writes it again" in problem
    assert "Error(" not in problem


# MTEB's own results.


def mteb_folder(study):
    (folder,) = (study / "results").glob("mteb/results/qwen3nb__a/*")
    return folder


def mteb_with(**changes):
    def deed(study):
        file = mteb_folder(study) / f"{TASK}.json"
        value = read(file)
        value["scores"]["test"][0] |= changes.pop("entry", {})
        write_text(file, json.dumps(value | changes))

    return deed


def as_by_a_later_evaluation(study):
    """Replace MTEB's result, and list it with the earlier one."""
    mteb_with(entry={"main_score": 0.9})(study)
    file = mteb_folder(study) / f"{TASK}.json"
    line = line_of(f"{file.name} {sha256_file(file)}", True)
    write_bytes(file.with_name(LIST), file.with_name(LIST).read_bytes() + line)


def mteb_invented(study, *, folder="", listed=False):
    """Add a result of MTEB of which there is no record."""
    target = mteb_folder(study).with_name(folder or mteb_folder(study).name)
    file = write_text(target / "New.json", (mteb_folder(study) / f"{TASK}.json").read_text())
    if listed:
        in_mteb_list(line_of(f"{file.name} {sha256_file(file)}", True))(study)


def in_mteb_list(line):
    def deed(study):
        file = mteb_folder(study) / LIST
        write_bytes(file, file.read_bytes() + line)

    return deed


def mteb_taken_back(study):
    """Remove MTEB's result, and say in its list that it was never finished."""
    file = mteb_folder(study) / f"{TASK}.json"
    in_mteb_list(line_of(f"{file.name} {sha256_file(file)}", False))(study)
    file.unlink()


MTEB = {
    "a result invented": mteb_invented,
    "a result invented of another model": partial(mteb_invented, folder="0" * 40),
    "a result invented, with its line": partial(mteb_invented, listed=True),
    "result removed, and taken back": mteb_taken_back,
    "a damaged line in its list": in_mteb_list(b'\n00000000 ["junk",true]\n'),
    "a line of another form in its list": in_mteb_list(raw_line(b"[5]")),
    "replaced as by a later evaluation": as_by_a_later_evaluation,
    "main score": lambda s: replaced(mteb_folder(s) / f"{TASK}.json", "main_score", "other_score"),
    "score": lambda s: mteb_with(entry={"main_score": 0.9})(s),
    "subset": lambda s: mteb_with(entry={"hf_subset": "de"})(s),
    "language": lambda s: mteb_with(entry={"languages": ["deu-Latn"]})(s),
    "revision": lambda s: mteb_with(dataset_revision="0" * 40)(s),
    "split": lambda s: replaced(mteb_folder(s) / f"{TASK}.json", '"test"', '"dev"'),
    "result removed": lambda s: (mteb_folder(s) / f"{TASK}.json").unlink(),
    "model": lambda s: write_text(mteb_folder(s) / "model_meta.json", "{}"),
    "model removed": lambda s: (mteb_folder(s) / "model_meta.json").unlink(),
    "list removed": lambda s: (mteb_folder(s) / LIST).unlink(),
    "folder removed": lambda s: shutil.rmtree(s / "results" / "mteb"),
    "of another model": lambda s: mteb_folder(s).rename(mteb_folder(s).with_name("0" * 40)),
    "a number too large": lambda s: mteb_with(entry={"main_score": 10**400})(s),
    "nested too deep": lambda s: write_text(mteb_folder(s) / f"{TASK}.json", "[" * 100_000),
    "model: name": lambda s: replaced(mteb_folder(s) / "model_meta.json", "nb/a", "nb/best"),
    "model: parameters": lambda s: replaced(mteb_folder(s) / "model_meta.json", ": 10", ": 7"),
    "under another name": lambda s: mteb_folder(s).parent.rename(
        mteb_folder(s).parent.with_name("openai__best")
    ),
    "a pipe": lambda s: pipe(mteb_folder(s) / f"{TASK}.json"),
    "model a pipe": lambda s: pipe(mteb_folder(s) / "model_meta.json"),
}


def pipe(file):
    """Put a pipe in the place of a file; whoever reads it waits for ever."""
    file.unlink()
    os.mkfifo(file)


def recompute_mteb(study):
    """Write MTEB's list of what is there now, and the digest in the record."""
    for folder in (study / "results").glob("mteb/results/*__[!b]*/*"):
        lines = [
            line_of(f"{file.name} {sha256_file(file)}", True)
            for file in folder.glob("*.json")
            if file.is_file()
        ]
        write_bytes(folder / LIST, b"".join(lines))
        if (folder / f"{TASK}.json").is_file():
            file = record_of(study)
            value = read(file)
            value["task"]["mteb"]["file"] = sha256_file(folder / f"{TASK}.json")
            write_text(file, json.dumps(value))


# Releases.


def bag(study):
    return study / "releases" / "v1"


def in_bag(name, text="changed"):
    return lambda study: write_text(bag(study) / name, text)


def without(name):
    return lambda study: (bag(study) / name).unlink()


def first_record(study):
    return next((bag(study) / "data" / "results").glob("a-*/seed_0/Search.json"))


def link_in_bag(study):
    page = bag(study) / "data" / "pages" / "page.ipynb"
    page.unlink()
    page.symlink_to("/dev/null")


def as_without_lists(study):
    """Make a release as version 0.1 did: with the digests of all files in its JSON."""
    folder = bag(study)
    facts = read(folder / "release.json") | {"schema": "qwen3nb.release/1"}
    write_text(folder / "data" / "pages" / "page.ipynb", "changed")
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    files = {name: sha256_file(folder / name) for name in names - {"release.json"}}
    write_text(folder / "release.json", json.dumps(signed(facts | {"files": files})))


def without_lists_at_all(study):
    for name in (PAYLOAD, TAGS):
        (bag(study) / name).unlink()
    as_without_lists(study)


def in_list_of_releases(line):
    def deed(study):
        file = study / "releases" / LIST
        write_bytes(file, file.read_bytes() + line)

    return deed


def removed_with_its_lines(study):
    shutil.rmtree(bag(study))
    (study / "releases" / LIST).unlink()


RELEASES = {
    "removed": lambda s: shutil.rmtree(bag(s)),
    "removed with its lines": removed_with_its_lines,
    "renamed": lambda s: bag(s).rename(bag(s).with_name("v2")),
    "a release of the list alone": in_list_of_releases(line_of(f"v0 {'0' * 64}", True)),
    "a line of another form in the list": in_list_of_releases(line_of(f"../v {'0' * 64}", True)),
    "a damaged line in the list": in_list_of_releases(b'\n00000000 ["junk",true]\n'),
    "a page": in_bag("data/pages/page.ipynb"),
    "a page removed": without("data/pages/page.ipynb"),
    "a page added": in_bag("data/pages/more.ipynb"),
    "a hidden file added": in_bag("data/.hidden"),
    "a page linked": link_in_bag,
    "the book": in_bag("data/html/index.html"),
    "the book removed": lambda s: shutil.rmtree(bag(s) / "data" / "html"),
    "the citation": in_bag("CITATION.cff"),
    "the citation removed": without("CITATION.cff"),
    "the metadata": in_bag("datacite.json", "{}"),
    "the script": in_bag("verify.py", "print('all is well')"),
    "the kind of folder": in_bag("bagit.txt"),
    "the facts on the bag": in_bag("bag-info.txt"),
    "another file at the top": in_bag("README.md"),
    "a record": lambda s: replaced(first_record(s), '"run-a"', '"run-b"'),
    "a record removed": lambda s: first_record(s).unlink(),
    "a record's scores": lambda s: flipped(next(first_record(s).parent.glob("*.scores.parquet"))),
    "the list of records": in_bag("data/results/checksums.jsonl", ""),
    "the summary": in_bag("data/results/all_results.json", "{}"),
    "the versions": lambda s: replaced(bag(s) / "release.json", '"mteb"', '"mtab"'),
    "the number of records": lambda s: replaced(
        bag(s) / "release.json", '"records": 4', '"records": 5'
    ),
    "its name": lambda s: replaced(bag(s) / "release.json", '"name": "v1"', '"name": "v0"'),
    "its time": lambda s: replaced(bag(s) / "release.json", '"frozen": "20', '"frozen": "19'),
    "its schema": lambda s: replaced(bag(s) / "release.json", "release/2", "release/3"),
    "its schema, as before there were lists": as_without_lists,
    "its schema, with no lists": without_lists_at_all,
    "its facts removed": in_bag("release.json", "[]"),
    "the list of files": lambda s: replaced(bag(s) / PAYLOAD, "page.ipynb", "pages.ipynb"),
    "the list of files emptied": in_bag(PAYLOAD, ""),
    "the list of files removed": without(PAYLOAD),
    "the list of lists": lambda s: replaced(bag(s) / TAGS, "bagit.txt", "bags.txt"),
    "the list of lists emptied": in_bag(TAGS, ""),
    "the list of lists removed": without(TAGS),
}
# Frozen again, at a time of one's own.
RELEASES_BEYOND = {"its time": 6}  # with its line in the list of releases


def recompute_release(study):
    """Write the lists of a release as its files are now, and the list of all releases."""
    folder = bag(study)
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    for name, listed in (
        (PAYLOAD, [file for file in files if file.startswith("data/")]),
        (TAGS, [file for file in {*files, PAYLOAD} if not file.startswith("data/")]),
    ):
        names = sorted({*listed} - {TAGS})
        write_text(
            folder / name, "".join(f"{sha256_file(folder / each)}  {each}\n" for each in names)
        )
    with_digest = line_of(f"v1 {sha256_file(folder / TAGS)}", True)
    in_list_of_releases(with_digest)(study)


def do(study, table, kind, level):
    """Do what a kind of tampering does."""
    if table == "field":
        with_field(study, kind)
    elif table == "summary":
        in_summary(study, kind, level)
        return
    else:
        {"record": RECORDS, "list": LISTS, "mteb": MTEB, "release": RELEASES}[table][kind](study)
    if level == "plain" or table == "list":
        return
    if table == "release":
        recompute_release(study)
        return
    if table == "mteb":
        recompute_mteb(study)
    recompute(study)


TABLES = {
    "field": (FIELDS, FIELDS_BEYOND),
    "record": (RECORDS, RECORDS_BEYOND),
    "list": (LISTS, {}),
    "summary": (SUMMARIES, SUMMARIES_BEYOND),
    "mteb": (MTEB, {}),
    "release": (RELEASES, RELEASES_BEYOND),
}
KINDS = [
    (table, kind, level)
    for table, (kinds, _) in TABLES.items()
    for kind in kinds
    for level in ("plain", "all")
    if level == "plain" or (table != "list" and (table, kind) not in _ONLY_PLAIN)
]
# What is not named, with the number of its kind in the help.
BEYOND = {
    (table, kind, "all"): number
    for table, (_, beyond) in TABLES.items()
    for kind, number in beyond.items()
} | {
    ("mteb", "replaced as by a later evaluation", "plain"): 4,
    ("mteb", "a result invented, with its line", "plain"): 2,
    ("release", "removed with its lines", "plain"): 3,
}


def test_there_are_enough_kinds():
    assert len(KINDS) >= 150
    assert {*KINDS} >= {*BEYOND}


@pytest.mark.parametrize(
    ("table", "kind", "level"), KINDS, ids=[f"{t}-{k}-{level}" for t, k, level in KINDS]
)
def test_a_kind_is_named_or_needs_a_key(study, table, kind, level):
    do(study, table, kind, level)
    assert bool(all_problems(study, table)) == ((table, kind, level) not in BEYOND)


# (8) of the help: facts that nothing else in a study repeats.
ONLY_THERE = set(
    """
    cost.encoded cost.peak_memory_bytes cost.seconds cost.texts cost.texts_per_second
    data.limit data.notes data.queries data.queries.q0 environment.device
    environment.linear environment.platform environment.precision environment.python
    environment.versions environment.versions.mteb files files.qrels files.runs
    model.spec options options.limit options.tier prompt prompt.name
    prompt.of prompt.text search.depth search.dimensions search.seconds_per_query
    search.words task.categories task.categories.q0 task.clusters task.clusters.q0
    task.counts task.dataset task.group task.languages task.mteb task.mteb.file
    task.mteb.metric task.part_of task.size.documents task.size.queries task.substitute
    task.type task.unit top training
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)


def test_on_a_machine_that_knows_nothing_more_needs_a_key(study, tmp_path, monkeypatch):
    """Every checksum is recomputed, and no cache knows the records."""
    unseen = set()
    kept = study.rename(study.with_name("kept"))
    for number, field in enumerate(FIELDS):
        monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / str(number)))
        shutil.copytree(kept, study, copy_function=os.link)
        if ("field", field) not in _ONLY_PLAIN:
            do(study, "field", field, "all")
            if not all_problems(study, "field"):
                unseen.add(field.removesuffix(" to"))
        shutil.rmtree(study)
    assert unseen == ONLY_THERE | {*FIELDS_BEYOND}


def without_the_worst(scores):
    worst = min(scores["nDCG@10"], key=scores["nDCG@10"].get)
    return {
        name: {q: v for q, v in column.items() if q != worst} for name, column in scores.items()
    }


def with_another_query(scores):
    return {name: column | {"q0\u200b": 1.0} for name, column in scores.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_the_worst, "which its qrels judge"),
        (with_another_query, "which its qrels do not judge"),
    ],
)
def test_scores_of_other_queries_than_the_qrels_are_named_by_themselves(study, change, words):
    """As rewritten with this package, so that every checksum and list holds."""
    result = Result.load(record_of(study))
    scores = change({name: dict(result.per_query[name]) for name in result.per_query})
    metrics = {name: aggregate(scores, how="mean", columns=(name,)) for name in scores}
    task = replace(result.task, mteb=None)
    changed = replace(result, per_query=scores, metrics=metrics, task=task, run="later")
    changed.save(study / "results")
    found = Verifier().check(record_of(study))
    assert [words in problem for problem in found] == [True] * len(METRICS)


@pytest.mark.parametrize(
    ("columns", "parts", "words"),
    [
        (("MRR@10",), (), "nDCG@10: is computed from MRR@10; expected its own scores"),
        (("nDCG@10",), ("q1",), "nDCG@10: is of 3 queries; there are scores of 12"),
    ],
)
def test_a_metric_of_other_scores_is_named_by_itself(study, columns, parts, words):
    result = Result.load(record_of(study))
    other = aggregate(result.per_query, how="mean", columns=columns, parts=parts)
    metrics = {**result.metrics, "nDCG@10": other}
    task = replace(result.task, mteb=None)
    replace(result, metrics=metrics, task=task, run="later").save(study / "results")
    assert Verifier().check(record_of(study)) == [words]


def test_best_documents_are_those_of_the_run(study):
    result = Result.load(record_of(study))
    top = {query: documents[::-1] for query, documents in result.top.items()}
    task = replace(result.task, mteb=None)
    replace(result, top=top, task=task, run="later").save(study / "results")
    (problem,) = Verifier().check(record_of(study))
    assert problem == "its best documents of query 'q0' are not those of its run"


@pytest.mark.parametrize(("fact", "value"), [("records", 5), ("versions", {}), ("data", {})])
def test_what_a_release_says_of_its_records_follows_from_them(study, tmp_path, fact, value):
    """On a machine whose cache knows nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_CACHE", str(tmp_path / "empty"))
        file = bag(study) / "release.json"
        write_text(file, json.dumps(read(file) | {fact: value}))
        recompute_release(study)
        (problem,) = release_problems(bag(study))
    assert f"; release.json says {value}" in problem


def test_a_list_makes_no_folder_outside(study):
    with_line(line_of(OUTSIDE, True))(study)
    before = sorted(study.parent.iterdir())
    (lines,) = verify_folder(study / "results").values()
    assert "it names ['../../out/seed_0/" in lines[0]
    assert sorted(study.parent.iterdir()) == before


def test_at_most_eight_kinds_need_a_key_and_the_help_lists_them(cli):
    assert {*BEYOND.values()} == {*range(1, 7)}  # 7 and 8 are those of the test before
    text = " ".join(cli("verify", "--help").output.split())
    assert [f"({number})" in text for number in range(1, 10)] == [True] * 8 + [False]


@pytest.fixture
def key(tmp_path):
    program = shutil.which("ssh-keygen")
    if program is None:
        pytest.skip("ssh-keygen is not installed (openssh-client)")
    run_program([program, "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")])
    return tmp_path / "key"


def test_a_key_closes_what_is_left(study, key, cli, monkeypatch):
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    shutil.rmtree(study / "releases")
    public = key.with_suffix(".pub")
    freeze("v1")
    unsigned = cli("verify", "--signed", public)
    assert (unsigned.exit_code, "it is not signed" in unsigned.output) == (1, True)
    shutil.rmtree(study / "releases" / "v1")
    assert cli("freeze", "v1", "--sign", key).exit_code == 0
    verified = cli("verify", "--signed", public)
    assert (verified.exit_code, "\nsigned as v1, frozen 20" in verified.output) == (0, True)
    kept = shutil.copytree(study, study.with_name("kept"), copy_function=os.link)
    for table, kind, level in sorted(BEYOND, key=str):
        put_back(study, kept)
        do(study, table, kind, level)
        found = cli("verify", "--signed", public)
        assert found.exit_code == 1, (table, kind)
        assert "signed" in found.output or "signature" in found.output


def put_back(study, kept):
    for name in ("results", "releases"):
        shutil.rmtree(study / name)
        shutil.copytree(kept / name, study / name, copy_function=os.link)


def test_with_a_key_nothing_is_hidden(study, key, cli, monkeypatch):
    """Neither a record in a folder whose name hides it, nor a newer release; nor is it skipped."""
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    results, public = study / "results", key.with_suffix(".pub")
    shutil.rmtree(study / "releases")
    freeze("v1", sign=key)
    for given in ((), (results,)):
        assert cli("verify", *given, "--signed", public).exit_code == 0
    write_text(results / ".a.json.1a2b3c4d-1-1a2b3c4d.tmp", "left by a killed process")
    assert cli("verify", "--signed", public).exit_code == 0
    hidden = results / f".x-{record_of(study).parents[1].name[-8:]}" / "seed_0" / f"{TASK}.json"
    hidden.parent.mkdir(parents=True)
    shutil.copyfile(record_of(study), hidden)
    for given in ((), (results,)):
        found = cli("verify", *given, "--signed", public)
        assert f"{hidden}: it was added since v1 was signed" in found.output
    shutil.rmtree(hidden.parents[1])
    refused = cli("verify", record_of(study), "--signed", public)
    assert (refused.exit_code, "for a whole study or for releases" in refused.output) == (2, True)
    freeze("v2", sign=key)
    (study / "releases" / "v2" / "release.json").unlink()
    found = cli("verify", "--signed", public)
    assert (found.exit_code, "its release.json is missing" in found.output) == (1, True)


def test_a_signature_of_another_key_is_refused(study, key, cli, monkeypatch):
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    freeze("v2", sign=key)
    other = key.with_name("other")
    run_program(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)])
    release = study / "releases" / "v2"
    public, allowed = key.with_suffix(".pub"), key.with_name("allowed")
    write_text(allowed, f"lab@example.org {public.read_text()}")
    assert cli("verify", release, "--signed", public).exit_code == 0
    assert cli("verify", release, "--signed", allowed).exit_code == 0
    refused = cli("verify", release, "--signed", other.with_suffix(".pub"))
    assert (refused.exit_code, "it is not signed by a key in" in refused.output) == (1, True)
    assert "no such key" in cli("freeze", "v3", "--sign", key.with_name("none")).output
    assert "expected a public key" in cli("verify", "--signed", key.with_name("none")).output
