"""A record with absurd fields is named, or shown; it stops nothing else."""

import json
import os
import random

import pytest
from helpers.absurd_records import ABSURD, field_paths, good_records, of_many_kinds, show_everything
from helpers.absurd_records import spoiled as with_absurd
from helpers.records import make, own, signed

from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results, verify

SAMPLE = 150  # of about 1,500 cases of each kind
KINDS = ("retrieval", "own", "reranking", "sts")


def cases(kind):
    """The file of a record, and its JSON with each absurd value at each keys."""
    file = of_many_kinds()[kind].save()
    value = json.loads(file.read_text())
    for keys in field_paths(value):
        for name, absurd in ABSURD.items():
            if keys != ("checksum",):
                yield file, (".".join(map(str, keys)), name), with_absurd(value, keys, absurd)


def is_readable(file):
    try:
        return Result.load(file) is not None
    except ResultError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_with_an_absurd_field_loads_or_is_named(home, kind):
    for file, what, value in random.Random(1).sample(list(cases(kind)), SAMPLE):
        file.write_text(json.dumps(value))
        results = load_results()
        if reason := "".join(results.unreadable.values()):
            assert file.stem in reason, what
            assert len(reason) < len(str(file)) + 400, what
        else:
            assert is_readable(file), what
        assert len(results) == (not reason), what


@pytest.mark.integration
def test_pages_show_the_others_beside_an_absurd_record(checkout):
    good_records()
    before = len(show_everything(checkout))
    draw = random.Random(3)
    every = [case for kind in KINDS for case in cases(kind)]
    shown = 0
    for file, what, value in draw.sample(every, 60):
        file.write_text(json.dumps(value))
        if shown == 6 or not is_readable(file):
            file.unlink()
            continue
        shown += 1
        assert len(show_everything(checkout)) >= before, what
        file.unlink()


def test_what_is_no_file_of_a_record_is_named(home, tmp_path):
    good = make("good", scores=(0.1, 0.4)).save()
    folder = good.parent
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    (tmp_path / "elsewhere.json").write_bytes(good.read_bytes())
    (folder / "link.json").symlink_to(tmp_path / "elsewhere.json")
    (folder / "nowhere.json").symlink_to(folder / "nothing")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "empty.json").write_text("")
    results = load_results()
    assert [result.model.label for result in results] == ["good"]
    reasons = {file.rpartition("/")[2]: why for file, why in results.unreadable.items()}
    assert set(reasons) >= {"folder.json", "pipe.json", "deep.json", "empty.json"}
    assert len(results.unreadable) == 6
    assert "got a folder" in reasons["folder.json"]
    assert "got a pipe" in reasons["pipe.json"]
    assert any("a link to" in why for why in reasons.values())
    assert len(verify()) == 6
    assert "6 unreadable" in repr(results)


def test_a_record_with_a_damaged_file_beside_it_is_left_out(home):
    make("good", scores=(0.1, 0.4)).save()
    file = own("bad", 0.4).save()
    for beside in file.parent.glob("*.parquet"):
        data = beside.read_bytes()
        for damaged in (data[:-1], b"", data + b"x", data[:50] + bytes([data[50] ^ 4]) + data[51:]):
            beside.write_bytes(damaged)
            results = load_results()
            assert [each.model.label for each in results] == ["good"]
            assert beside.name in str(results.unreadable)
        beside.write_bytes(data)
    assert len(load_results()) == 2


def test_a_record_that_was_changed_is_left_out_until_it_is_signed(home):
    file = make("m", scores=(0.1, 0.4)).save()
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.99
    file.write_text(json.dumps(value))
    assert "changed after it was written" in str(load_results().unreadable)
    file.write_text(json.dumps(signed(value)))
    assert len(load_results()) == 1
    unlisted, wrong = verify(file)
    assert "checksums.jsonl does not list it" in unlisted
    assert "value is 0.99" in wrong


def test_a_record_that_describes_another_table_is_left_out(home):
    make("good", scores=(0.1, 0.4)).save()
    file = own("bad", 0.4).save()
    value = json.loads(file.read_text())
    forged = {
        ("scores", "ids"): "0" * 64,
        ("scores", "queries"): 41,
        ("scores", "columns"): {"MRR@10": 40},
        ("top", "queries"): 39,
        ("top", "file"): value["scores"]["file"],
    }
    for keys, wrong in forged.items():
        spoiled = with_absurd(value, keys, wrong)
        if keys == ("top", "file"):
            spoiled = with_absurd(spoiled, ("top", "sha256"), value["scores"]["sha256"])
        file.write_text(json.dumps(spoiled))
        results = load_results()
        assert [each.model.label for each in results] == ["good"], keys
        assert "parquet: it" in str(results.unreadable), keys
    file.write_text(json.dumps(value))
    assert len(load_results()) == 2
