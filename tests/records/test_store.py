"""Records on disk: verified one by one, together, by file."""

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
from helpers.records import amend, make

from qwen3nb import paths
from qwen3nb.metrics.aggregate import aggregate_samples, reported
from qwen3nb.records import runs, store
from qwen3nb.records.query_scores import QueryScores
from qwen3nb.records.record import MTEBScore, Result
from qwen3nb.records.store import check_files, latest, load_results, verify, verify_files
from qwen3nb.records.verification import RecordCheck
from qwen3nb.records.verify_in_processes import checks_of_processes
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.files.journal import append
from qwen3nb.utils.secrets import SecretError


def wrong(result):
    main = result.task.main_metric
    return replace(result, metrics={main: replace(result.metrics[main], value=0.99)})


def test_a_consistent_record_has_no_problems(home):
    result = make(scores=(0.1, 0.4))
    file = result.save()
    for records in (result, [result], file, str(file), file.parent.parent.parent, None):
        assert verify(records) == []


def test_a_changed_value_is_named_with_its_record(home):
    good, bad = make("good", scores=(0.1, 0.4)), wrong(make("bad", scores=(0.1, 0.4)))
    good.save()
    file = bad.save()
    (line,) = verify(bad)
    assert "value is 0.99" in line
    assert verify([good, bad]) == [f"bad on {bad.task.name}: {line}"]
    (on_disk,) = verify()
    assert line in on_disk
    assert file.name in on_disk
    assert verify(file) == [on_disk]


def test_a_record_under_another_name_is_named(home):
    file = make(scores=(0.1, 0.4)).save()
    moved = file.with_name("Other.json")
    file.rename(moved)
    (line,) = verify(moved)
    assert "Other.json" in line
    moved.write_text(json.dumps([]))
    assert verify(moved)


def real(home):
    """A record like those of `eval`: several metrics, 30 queries, MTEB's score, settings."""
    scores = np.random.default_rng(1).random(30).round(3)
    result = make("real", scores=scores, metric="nDCG@10", config={"tier": "fast", "prompt": "é"})
    main = result.main.value
    amend(
        result, "task", mteb=MTEBScore("ndcg_at_10", main), size={"documents": 90, "queries": 30},
        splits=("test",), subsets=("default",), languages=("eng-Latn",),
    )  # fmt: skip
    return result.save()


def test_flipped_bytes_are_noticed(home):
    """Of 400 flipped bytes each is noticed, or the file decodes to the same content."""
    file = real(home)
    data, content = file.read_bytes(), json.loads(file.read_bytes())
    assert verify(file) == []
    draw = np.random.default_rng(7)
    unseen = []
    for _ in range(400):
        position, bit = int(draw.integers(len(data))), int(draw.integers(8))
        flipped = bytearray(data)
        flipped[position] ^= 1 << bit
        file.write_bytes(bytes(flipped))
        if not verify(file) and json.loads(flipped) != content:
            unseen.append((position, bytes(flipped[position - 20 : position + 20])))
    assert unseen == []


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("task", {"revision": "another"}),
        ("task", {"size": {"documents": 91, "queries": 30}}),
        ("task", {"mteb": {"metric": "ndcg_at_10", "value": 0.9}}),
        ("cost", {"seconds": 2.0}),
    ],
)
def test_what_nothing_depends_on_is_in_the_checksum(home, part, changes):
    file = real(home)
    value = json.loads(file.read_text())
    value[part] |= changes
    file.write_text(json.dumps(value))
    line = verify(file)[0]
    assert "checksum" in line
    (check,) = check_files([file], checksums_only=True)
    assert check == (file, RecordCheck((line.partition(": ")[2],)))
    file.write_text(json.dumps(value | {"checksum": ""}))
    assert verify(file)[0] == line
    assert file.stem in str(load_results().unreadable)


def test_changed_scores_are_in_the_checksum(home):
    file = real(home)
    (scores,) = file.parent.glob("*.scores.parquet")
    before = scores.read_bytes()
    scores.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    for only in (True, False):
        ((_, check),) = check_files([file], checksums_only=only)
        (line,) = check.problems
        assert "was changed after it was written" in line
    scores.unlink()
    ((_, check),) = check_files([file], checksums_only=True)
    assert "is missing" in check.problems[0]


@pytest.mark.integration
def test_processes_find_the_same_in_the_same_order(home, monkeypatch):
    files = [make(f"m{i}", scores=(0.1, i / 40)).save() for i in range(40)]
    files[3].write_text("{")
    files[30].rename(files[30].with_name("Other.json"))
    alone = list(check_files(files))
    assert [bool(check.problems) for _, check in alone] == [i in (3, 30) for i in range(40)]
    monkeypatch.setattr(store, "_PATIENCE", 0.0)
    monkeypatch.setattr(store, "_START_UP", 0.0)
    monkeypatch.setattr(store, "cores", lambda: 2)
    assert list(check_files(files)) == alone


@pytest.mark.integration
def test_no_process_is_left_by_who_stops_reading(home):
    files = [make(f"m{i}", scores=(0.1, i / 40)).save() for i in range(40)]
    before = set(psutil.Process().children())
    checked = checks_of_processes(files, checksums_only=True, processes=2)
    assert next(checked) == RecordCheck(())
    assert len(set(psutil.Process().children()) - before) == 2
    checked.close()
    assert set(psutil.Process().children()) == before


def test_a_process_that_ends_early_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(
        ChildProcessError, match=r"ended with status 1 before its answer on a\.json"
    ):
        list(checks_of_processes([Path("a.json")], checksums_only=True, processes=2))


def test_the_settings_give_the_identity(home):
    result = make(scores=(0.1, 0.4))
    amend(result, "model", settings={"pooling": "mean"})
    (line,) = verify(result)
    assert "identity does not follow" in line


def test_a_reported_value_is_mtebs(home):
    scored = make(scores=(0.1, 0.4))
    result, metric = replace(scored, per_query={}), scored.task.main_metric
    amend(result, "task", mteb=MTEBScore("ndcg_at_10", 0.5))
    assert verify(replace(result, metrics={metric: reported(0.5, n=2)})) == []
    (line,) = verify(replace(result, metrics={metric: reported(0.6, n=2)}))
    assert "value is 0.6, MTEB reported 0.5" in line
    (line,) = verify(replace(scored, task=result.task, metrics={metric: reported(0.5, n=2)}))
    assert "reported by another program" in line


def test_mtebs_own_file_is_compared(home):
    file = real(home)
    result = Result.load(file)
    theirs = file.parent.parent.parent / "mteb" / "results" / "qwen3nb__real"
    theirs = theirs / result.model.identity[:40] / f"{result.task.name}.json"
    value = round(result.main.value, 6)
    entry = {"main_score": value, "hf_subset": "default", "nauc": float("nan")}
    theirs.parent.mkdir(parents=True)

    def keep(text):
        theirs.write_text(text)
        append(theirs.with_name("checksums.jsonl"), f"{theirs.name} {sha256_file(theirs)}", True)

    keep(json.dumps({"scores": {"test": [entry]}}))
    assert verify(file) == []
    keep(json.dumps({"scores": {"test": [entry | {"main_score": value + 0.01}]}}))
    (line,) = verify(file)
    assert "MTEB's score is" in line
    keep("{")
    assert "cannot be read" in verify(file)[0]
    theirs.with_name("checksums.jsonl").unlink()
    (line,) = verify(file)
    assert "the checksums of MTEB's results, is missing" in line


RUN = "q0 Q0 d1 1 2.0 m\nq0 Q0 d2 2 1.0 m\nq1 Q0 d1 1 2.0 m\n"


def test_runs_are_compared_with_their_digests(home):
    name = "PyDocsSampleRetrieval.trec"
    digest = hashlib.sha256(RUN.encode()).hexdigest()
    file = make(scores=(0.1, 0.4), config={"runs": {name: digest}}).save()
    assert "run PyDocsSampleRetrieval.trec is missing" in verify(file)[0]
    file.with_name(name).write_text(RUN)
    assert verify(file) == []
    file.with_name(name).write_text(RUN.replace("2.0", "2.5", 1))
    assert "is not the one that was scored" in verify(file)[0]


def test_a_run_that_records_share_is_read_once(home, monkeypatch):
    read = []
    monkeypatch.setattr(runs, "sha256_file", lambda file: read.append(file) or sha256_file(file))
    digest = hashlib.sha256(RUN.encode()).hexdigest()
    config = {"runs": {}, "first_run": {"name": "words-1.trec", "sha256": digest}}
    files = [make(model, scores=(0.1, 0.4), config=config).save() for model in ("one", "other")]
    assert "run words-1.trec is missing" in verify(files[0])[0]
    shared = runs.first_run_file(files[0], config)
    assert shared == home / "results" / "first_stages" / "words-1.trec"
    shared.parent.mkdir()
    shared.write_text(RUN)
    assert verify_files(files) == {}
    assert read == [shared]
    shared.write_text(RUN.replace("2.0", "2.5", 1))
    assert len(verify_files(files)) == 2


@pytest.mark.parametrize(
    ("first", "last", "problem"),
    [
        (RUN, RUN, ""),
        (RUN, RUN[:-4], "cut or malformed"),
        (RUN, RUN[:-1], "cut or malformed"),
        (RUN, RUN.replace("q0 Q0 d2 2 1.0 m\n", ""), "other documents than the first stage's"),
        (RUN[:34], RUN, "has 1 queries, its scores 2"),
    ],
)
def test_a_cut_run_of_an_older_record_is_seen(home, first, last, problem):
    file = make(scores=(0.1, 0.4)).save()
    file.with_suffix(".first.trec").write_text(first)
    file.with_suffix(".trec").write_text(last)
    lines = verify(file)
    assert bool(lines) == bool(problem)
    assert not problem or any(problem in line for line in lines)


@pytest.mark.parametrize("method", ["percentile", "wilson"])
def test_an_older_record_keeps_its_interval(home, method):
    scores = {f"q{i}": i / 9 for i in range(10)}
    sample = np.array(list(scores.values()))[:, None]
    old = aggregate_samples([sample], how="mean", columns=("nDCG@10",), seed=0, **{method: True})
    result = make(scores=scores, metrics={"nDCG@10": old})
    assert old.interval == method
    assert verify(result) == []
    changed = replace(result, metrics={"nDCG@10": replace(old, interval="widened")})
    assert any("low is" in line for line in verify(changed))


@pytest.mark.parametrize("order", [1, -1])
def test_the_latest_record_of_a_model_is_kept_whatever_its_content(order):
    """Of one label, use, seed and task; another of any of these is another row."""
    settings = {"model": {"weights": "1"}, "pooling": "mean"}
    old = make("m", (0.1, 0.2), settings=settings, finished="2026-01-01T10:00:00+00:00")
    overwritten = settings | {"model": {"weights": "2"}}
    new = make("m", (0.3, 0.4), settings=overwritten, finished="2026-01-02T09:00:00+00:00")
    newest = make("m", (0.5, 0.6), settings=settings, finished="2026-01-02T09:00:01+00:00")
    assert latest([old, new, newest][::order]) == [newest]
    assert latest([old, new][::order]) == [new]
    others = [
        make("n", (0.1, 0.2), settings=settings, finished="2025"),
        make("m", (0.1, 0.2), settings=settings | {"pooling": "cls"}, finished="2025"),
        make("m", (0.1, 0.2), settings=settings | {"dtype": "bfloat16"}, finished="2025"),
        make("m", (0.1, 0.2), settings=settings | {"max_length": 64}, finished="2025"),
        make("m", (0.1, 0.2), settings=settings, seed=1, finished="2025"),
        make("m", (0.1, 0.2), settings=settings, task="T", finished="2025"),
    ]
    assert {*map(id, latest([new, *others, old][::order]))} == {*map(id, [new, *others])}
    without = make("m", (0.1, 0.2), settings=settings | {"prefix": "", "normalize": True})
    assert len(latest([without, new])) == 1  # what an older record without the setting means


@pytest.mark.parametrize(
    ("part", "name", "words"),
    [
        (0, "other.json", "contains the task"),
        (1, "seed_7", "contains the seed 0"),
        (2, "m-00000000", "is in the folder of a model with another identity"),
        (2, "other-{}", "contains the model 'm'"),
    ],
)
def test_a_record_is_where_its_content_says(home, part, name, words):
    file = make("m", (0.1, 0.4)).save()
    folder = [file, file.parent, file.parent.parent][part]
    identity = file.parent.parent.name.rpartition("-")[2]
    moved = folder.rename(folder.with_name(name.format(identity)))
    (moved_record,) = moved.rglob("*.json") if moved.is_dir() else [moved]
    assert words in " ".join(verify(moved_record))


def test_what_no_clock_and_no_program_would_note_is_named():
    result = make(scores=(0.1, 0.4), finished="2126-01-01T00:00:00+00:00")
    assert "still to come" in verify(result)[0]
    soon = datetime.now(UTC) + timedelta(hours=12)  # a clock that is ahead
    assert verify(replace(result, finished=soon.isoformat(timespec="seconds"))) == []
    result = make(scores=(0.1, 0.4))
    for version, holds in (("2.13.0+cpu", 1), ("5.0.0rc1", 1), ("not installed", 1), ("new", 0)):
        amend(result, "environment", versions={"torch": version})
        assert (verify(result) == []) is bool(holds), version
    amend(result, "environment", versions={})
    for size, holds in (({"queries": 2}, 1), ({"queries": 1}, 0), ({"documents": 1}, 1)):
        amend(result, "task", size=size)
        assert (verify(result) == []) is bool(holds), size


def test_a_record_that_was_only_about_to_be_written_is_not_missed(home):
    file = make("m", (0.1, 0.4)).save()
    other = f"{file.parent.parent.name}/seed_0/Other.json"
    append(paths.results() / "checksums.jsonl", f"{other} {'0' * 64}", False)  # and killed
    assert verify() == []
    append(paths.results() / "checksums.jsonl", f"{other} {'0' * 64}", True)
    assert "Other.json: it was removed" in verify()[0]


def test_a_record_with_a_secret_is_not_written(home):
    token = "hf_" + "a1B2c3D4e5" * 4
    with pytest.raises(SecretError, match="Hugging Face token"):
        make(settings={"model": {"kind": "encoder"}, "prompt": token}).save()
    assert list(home.rglob("*.json")) == []


def test_ids_that_run_together_are_other_ids():
    one, other = (
        QueryScores.of({"m": dict.fromkeys(ids, 0.5)}) for ids in (("ab", "c"), ("a", "bc"))
    )
    assert one.ids != other.ids
    assert (one.queries, other.queries) == (("ab", "c"), ("a", "bc"))
