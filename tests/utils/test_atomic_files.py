"""Files are written whole or not at all; JSON is strict."""

import json
import os

import pytest

from qwen3nb.utils.atomic_files import (
    canonical,
    new_folder,
    read_json,
    write_json,
    write_text,
)


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path, monkeypatch):
    file = write_text(tmp_path / "a" / "record.json", "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in file.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_is_strict_both_ways(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"score": value})
    assert not (tmp_path / "x.json").exists()
    (tmp_path / "y.json").write_text(json.dumps({"score": value}))
    with pytest.raises(ValueError, match=r"y\.json: (NaN|Infinity) is not JSON"):
        read_json(tmp_path / "y.json")


def test_unreadable_json_is_named(tmp_path):
    (tmp_path / "cut.json").write_text('{"a": 1')
    with pytest.raises(ValueError, match=r"cut\.json: invalid JSON"):
        read_json(tmp_path / "cut.json")


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "models" / "model"
    with new_folder(target) as work:
        (work / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(FileNotFoundError), new_folder(target) as work:
        (work / "missing" / "file").write_text("2")
    assert (target / "a").read_text() == "1"
    with new_folder(target) as work:
        (work / "b").write_text("3")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_canonical_does_not_depend_on_the_order_of_keys():
    assert canonical({"b": 1, "a": [1, 2]}) == canonical({"a": [1, 2], "b": 1})
    assert canonical({"a": [2, 1]}) != canonical({"a": [1, 2]})
