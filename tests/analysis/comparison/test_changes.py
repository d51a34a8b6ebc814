"""`diff` says what changed between two folders of records, with intervals."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.records import make, noisy

from qwen3nb import paths
from qwen3nb.analysis.comparison.changes import diff
from qwen3nb.records.record import Environment

BEFORE = noisy(0.4)


@pytest.fixture
def before(home):
    """A copy of the records of two models, one with two tasks, as they were."""
    for label in ("kept", "changed"):
        make(label, BEFORE).save()
    make("removed", BEFORE, task="other").save()
    return shutil.copytree(paths.results(), home / "v1")


@pytest.fixture
def changes(before):
    """From a copy to the records of now: one is gone, one new, one of other scores."""
    next(paths.results().glob("removed*/*/*.json")).unlink()
    make("added", BEFORE).save()
    of_then = make("changed", noisy(0.5, seed=1), finished="2026-02-01")
    newer = Environment(versions={"mteb": "3"}, python="3")
    # Of the same label and settings, though of other content: the model was trained again.
    model = replace(of_then.model, identity="b" * 64)
    replace(of_then, model=model, environment=newer).save()
    return diff(before)


def test_what_changed_is_listed_with_intervals(before, changes):
    task = "PyDocsSampleRetrieval"
    assert changes.added == (f"added on {task}",)
    assert changes.removed == ("removed on other",)
    assert changes.changed == (f"changed on {task}",)
    assert changes.same == 1
    (each,) = changes.differences
    assert (each.first, each.second, each.family) == ("changed", f"changed ({before})", 1)
    assert each.difference == pytest.approx(0.1, abs=0.02)
    assert each.interval[0] < each.difference < each.interval[1]
    assert changes.verdict(each) == "better"
    assert changes.versions == {"mteb": (["2"], ["2", "3"])}
    assert changes.data == {}
    lines = list(changes.lines())
    assert [line[0] for line in lines[:3]] == ["+", "-", "~"]
    assert lines[3].startswith(f"  changed on {task}, nDCG@10: +0.")
    assert lines[3].endswith("(better)")
    assert "1 added, 1 removed, 1 changed" in repr(changes)


def test_all_differences_are_one_family(before):
    for label in ("kept", "changed"):
        make(label, noisy(0.5, seed=2), finished="2026-02-01").save()
    shown = diff(before).differences
    assert [each.family for each in shown] == [2, 2]
    assert all(each.corrected == pytest.approx(min(1, 2 * each.p_value)) for each in shown)


def test_data_of_another_revision_are_not_paired(before):
    make("kept", noisy(0.5), revision="s" * 12, finished="2026-02-01").save()
    changes = diff(before)
    assert changes.differences == ()
    assert "revision" in changes.unpaired[0]
    assert list(changes.data) == ["PyDocsSampleRetrieval"]


def test_the_command_exits_as_diff_does(before, cli):
    assert cli("diff", before).stdout == "3 records, all the same\n"
    make("more", BEFORE).save()
    done = cli("diff", before, "--json")
    assert (done.exit_code, json.loads(done.stdout)["added"]) == (
        1,
        ["more on PyDocsSampleRetrieval"],
    )
    unknown = cli("diff", "v2")
    assert (unknown.exit_code, "v2: no records" in unknown.output) == (2, True)
