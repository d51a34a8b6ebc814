"""Records on disk: verified one by one, together, by file."""

import json
from dataclasses import replace

from helpers.records import make

from qwen3nb.records.store import verify


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
