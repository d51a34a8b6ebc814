"""Records on disk: verified one by one, together, by file."""

import hashlib
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from helpers.records import amend, make

from qwen3nb import paths
from qwen3nb.metrics.aggregate import reported
from qwen3nb.records import store, verification
from qwen3nb.records.record import MTEBScore
from qwen3nb.records.side_files import first_run_file
from qwen3nb.records.store import (
    check_files,
    checks_of_processes,
    latest,
    verify,
    verify_files,
)
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.files.journal import append
from qwen3nb.utils.secrets import SecretError


def test_a_wrong_value_is_named_whatever_is_verified(home):
    good, bad = make("good", scores=(0.1, 0.4)), make("bad", scores=(0.1, 0.4))
    file = good.save()
    for records in (good, [good], file, str(file), file.parent.parent.parent, None):
        assert verify(records) == []
    main = bad.task.main_metric
    bad = replace(bad, metrics={main: replace(bad.metrics[main], value=0.99)})
    file = bad.save()
    (line,) = verify(bad)
    assert "value is 0.99" in line
    assert verify([good, bad]) == [f"bad on {bad.task.name}: {line}"]
    for records in (None, file):
        (on_disk,) = verify(records)
        assert line in on_disk
        assert file.name in on_disk


@pytest.mark.integration
def test_processes_find_the_same_in_the_same_order_and_none_is_left(home, monkeypatch):
    files = [make(f"m{i}", scores=(0.1, i / 40)).save() for i in range(40)]
    files[3].write_text("{")
    files[30].rename(files[30].with_name("Other.json"))
    alone = list(check_files(files))
    assert [bool(wrong) for _, wrong in alone] == [i in (3, 30) for i in range(40)]
    monkeypatch.setattr(store, "_PATIENCE", 0.0)
    monkeypatch.setattr(store, "_START_UP", 0.0)
    monkeypatch.setattr(store, "cores", lambda: 2)
    before = set(psutil.Process().children())
    assert list(check_files(files)) == alone
    checked = checks_of_processes(files, checksums_only=True, processes=2)
    assert next(checked) == []
    assert len(set(psutil.Process().children()) - before) == 2
    checked.close()
    assert set(psutil.Process().children()) == before
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ChildProcessError, match="ended with status 1 before its answer"):
        list(checks_of_processes(files, checksums_only=True, processes=2))


def test_a_reported_value_is_mtebs(home):
    scored = make(scores=(0.1, 0.4))
    result, metric = replace(scored, per_query={}), scored.task.main_metric
    amend(result, "task", mteb=MTEBScore("ndcg_at_10", 0.5))
    assert verify(replace(result, metrics={metric: reported(0.5, n=2)})) == []
    (line,) = verify(replace(result, metrics={metric: reported(0.6, n=2)}))
    assert "value is 0.6, MTEB reported 0.5" in line
    (line,) = verify(replace(scored, task=result.task, metrics={metric: reported(0.5, n=2)}))
    assert "reported by another program" in line


def test_a_run_is_compared_with_its_digest_and_one_that_records_share_is_read_once(
    home, monkeypatch
):
    read = []
    monkeypatch.setattr(
        verification, "sha256_file", lambda file: read.append(file) or sha256_file(file)
    )
    text = "q0 Q0 d1 1 2.0 m\nq0 Q0 d2 2 1.0 m\nq1 Q0 d1 1 2.0 m\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    config = {"runs": {}, "first_run": {"name": "words-1.trec", "sha256": digest}}
    files = [make(model, scores=(0.1, 0.4), config=config).save() for model in ("one", "other")]
    assert "run words-1.trec is missing" in verify(files[0])[0]
    shared = first_run_file(files[0], config)
    assert shared == home / "results" / "first_stages" / "words-1.trec"
    shared.parent.mkdir()
    shared.write_text(text)
    assert verify_files(files) == {}
    assert read == [shared]
    own = make(scores=(0.1, 0.4), config={"runs": {"own.trec": digest}}).save()
    own.with_name("own.trec").write_text(text)
    assert verify(own) == []
    for run in (own.with_name("own.trec"), shared):
        run.write_text(text.replace("2.0", "2.5", 1))
    assert len(verify_files([*files, own])) == 3


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
    changes = ({"pooling": "cls"}, {"dtype": "bfloat16"}, {"max_length": 64})
    others = [make("m", settings=settings | change, finished="2025") for change in changes]
    others += [
        make("m", settings=settings, finished="2025", seed=1),
        make("m", settings=settings, finished="2025", task="T"),
        make("n", settings=settings, finished="2025"),
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
