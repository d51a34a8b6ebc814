"""What is no tampering is not named as such, whatever the cache knows."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from helpers.records import make, signed
from helpers.small_study import OTHER, TASK, write_study

from qwen3nb.answers.all_results import write_all_results
from qwen3nb.records.known_records import known_list
from qwen3nb.records.record import Result, checksum, in_list
from qwen3nb.records.store import result_files, verify, verify_files
from qwen3nb.utils.journal import append


@pytest.fixture
def results(home, own_cache):
    folder = home / "results"
    write_study(folder)
    assert verify(folder) == []
    return folder


def record_of(folder, task=OTHER):
    (file,) = folder.glob(f"a-*/seed_0/{task}.json")
    return file


def test_a_later_evaluation_is_another_record(results):
    record = Result.load(record_of(results))
    finished = datetime.now(UTC).isoformat()  # later than the summary, which a kill leaves
    again = replace(record, run="later", finished=finished)
    again.save(results)
    assert verify(results) == []
    write_all_results(results)
    assert verify(results) == []


def test_a_copy_of_a_study_is_consistent(results, tmp_path):
    assert verify(shutil.copytree(results, tmp_path / "copy")) == []


def test_a_record_without_run_and_time_may_be_written_again(results):
    for seconds in (1.0, 2.0):
        made = make("c", [0.5, 0.25], run="", finished="")
        replace(made, cost=replace(made.cost, seconds=seconds)).save(results)
        assert verify(results) == []


@pytest.mark.parametrize("copy_is_first", [True, False])
def test_the_copy_in_a_book_is_of_another_form(home, own_cache, copy_is_first):
    write_study(home / "results")
    file = record_of(home / "results")
    copy = home / "html" / file.relative_to(home)
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps(Result.load(file).in_one_file()))
    files = [copy, file] if copy_is_first else [file, copy]
    # Twice: the second time, all are known.
    assert [verify_files([each]) for each in files * 2] == [{}] * 4


def test_records_of_the_first_release_are_in_no_list(results):
    """They may stand next to records that are."""
    file = record_of(results)
    value = json.loads(file.read_text())
    names = ("options", "training", "prompt", "data", "search", "files")
    value |= {"schema": "qwen3nb.result/3", "config": {}, "run": "early"}
    value = {name: part for name, part in value.items() if name not in names}
    early = file.with_name("Early.json")
    value["task"]["name"] = "Early"
    early.write_text(json.dumps(value | {"checksum": checksum(value)}))
    assert verify_files([early]) == {}


def test_a_summary_of_another_version_may_have_other_options(results):
    file = results / "all_results.json"
    value = json.loads(file.read_text())
    value["config"] = {"tier": "smoke", "of_another_version": 1}
    file.write_text(json.dumps(signed(value)))
    assert verify(results) == []


def test_a_summary_may_be_older_than_records(results):
    """As a killed process leaves it: one record is new, one was replaced, one used again."""
    finished = datetime.now(UTC).isoformat()
    make("c", [0.5, 0.25], finished=finished).save(results)
    replace(Result.load(record_of(results)), run="later", finished=finished).save(results)
    used = record_of(results, TASK)
    append(results / "checksums.jsonl", in_list(used, Result.load(used).checksum), True)
    assert verify(results) == []


@pytest.mark.parametrize("days", [1, 3650])
def test_a_clock_may_be_wrong(results, days):
    """A day back when the summary was written, or ten years on when the records were."""
    now = datetime.now(UTC)
    finished = now if days == 1 else now + timedelta(days=days)
    for file in result_files(results):
        replace(Result.load(file), finished=finished.isoformat()).save(results)
    summary = write_all_results(results)
    value = json.loads(summary.read_text())
    value["timestamp"] = (finished - timedelta(days=days)).isoformat(timespec="seconds")
    summary.write_text(json.dumps(signed(value)))
    assert verify(results) == []


def test_a_damaged_list_in_the_cache_accuses_nobody(results):
    content = known_list().read_bytes()
    known_list().write_bytes(content[:-9].replace(b'["', b'["x', 1))
    assert verify(results) == []
