"""The status page of the book."""

import json
from dataclasses import replace

import nbformat
from helpers.notebooks import notebook_of
from helpers.records import amend, failure, make

from qwen3nb import paths
from qwen3nb.book.status import (
    data_versions_table,
    failed_runs_table,
    machine_table,
    runs_table,
    software_table,
    status_conclusion,
    verification_table,
)
from qwen3nb.records.failures import note_failure
from qwen3nb.records.record import Environment


def rows(table):
    return [[f"{cell.text} {cell.detail}".strip() for cell in row] for row in table.rows]


def page(name, **ours):
    node = notebook_of("pass")
    node.metadata["qwen3nb"] = ours
    file = paths.book_runs() / f"{name}.ipynb"
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(node, file)
    return file


def test_runs_with_parameters_that_are_not_default_and_how_they_ended(checkout):
    at = "2026-11-20T12:04:21+00:00"
    parameters = {"checkpoint": "bm25", "tier": "smoke", "pooling": "auto", "limit": 7}
    page("eval-bm25-7", notebook="eval", parameters=parameters, seconds=61.24, finished=at)
    page("eval-x", notebook="eval", parameters={"checkpoint": "x"}, failed=at, seconds=1)
    page("data", notebook="data", finished=at, failed=at.replace("20T", "21T"))
    page("status", notebook="status", finished=at)
    (paths.book_runs() / "theirs.ipynb").write_text("{}")
    table = runs_table()
    when = "2026\u201111\u201120\xa012:04"
    options = "checkpoint bm25, limit 7, tier smoke"
    assert sorted(rows(table)) == [
        ["data defaults", "failed; shows an earlier run", "not recorded", when],
        [f"eval-bm25-7 {options}", "finished", "61.2\xa0s", when],
        ["eval-x checkpoint x", "failed", "1.0\xa0s", "never"],
    ]
    assert table.rows[-1][0].link == "eval-bm25-7.html"
    for name in ("eval-x", "data"):
        (paths.book_runs() / f"{name}.ipynb").unlink()
    assert rows(runs_table()) == [[f"eval-bm25-7 {options}", "61.2\xa0s", when]]  # all finished


def test_without_anything_there_is_still_a_page(home):
    assert runs_table() is failed_runs_table() is None
    assert data_versions_table().note == "No records yet."
    assert verification_table().note.startswith("0 of 0 records are consistent.")
    assert {row[2] for row in rows(software_table())} == {"0"}
    facts = dict(rows(machine_table()))
    assert int(facts["cores"]) >= 1
    assert facts["memory"].endswith(" GiB")


def test_what_failed_and_why(home):
    note_failure(failure(message="one\nno <b>memory</b>\n", more=("results/logs/x.log",)))
    file = make("m").path()
    file.parent.mkdir(parents=True)
    file.with_suffix(".error.txt").write_text("Traceback\nOSError: no disk\n")
    failed = rows(failed_runs_table())
    assert failed[0][0].startswith("eval-bm25-smoke 2026-01-01")
    assert failed[0][1:] == ["ValueError: no <b>memory</b>", "results/logs/x.log"]
    assert failed[1][1] == "OSError: no disk"
    assert "<b>" not in failed_runs_table().to_html()


def test_records_made_with_other_versions_or_of_other_data_are_named(home):
    here = Environment.current().versions
    older = Environment(versions={**here, "torch": "1.0"})
    old = make("old", finished="2026-01-01", environment=older)
    amend(old, "task", revision="0123456789abcdef")
    new = make("new", finished="2026-01-02", environment=Environment(versions=here))
    torch = next(row for row in rows(software_table([old, new])) if row[0] == "torch")
    assert torch[1:] == [here["torch"], "1", "1.0: old on PyDocsSampleRetrieval"]
    (data,) = rows(data_versions_table([old, new]))
    task = "PyDocsSampleRetrieval"
    assert data == [task, f"d {'r' * 12}", "1", f"0123456789ab: old on {task}"]
    (data,) = rows(data_versions_table([new]))
    assert data == [task, f"d {'r' * 12}", "1"]  # none of another revision


def test_whether_records_hold(home):
    file = make("m").save()
    make("other").save()
    assert rows(verification_table()) == []
    assert verification_table().note.startswith("2 of 2 records are consistent.")
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    table = rows(verification_table())
    assert "nDCG@10: value is 0.9" in table[0][1]
    assert verification_table().note.startswith("1 of 2 records are consistent.")
    assert verification_table(verify=False).note.startswith("2 records, not verified.")


def test_the_conclusion_counts_what_failed_and_what_differs(checkout):
    assert str(status_conclusion([])) == "0 runs finished; no records yet."
    page("a", notebook="eval", finished="2026-11-20T12:04:21+00:00")
    same = [replace(make("m"), environment=Environment.current())]
    assert str(status_conclusion(same)) == (
        "1 run finished; all 1 records were made with the versions installed here; each "
        "task has one revision of its data."
    )
    page("b", notebook="eval", failed="2026-11-20T12:05:00+00:00")
    old = make("old")
    amend(old, "environment", versions={"torch": "1.0"})
    amend(old, "task", revision="0123456789abcdef")
    assert str(status_conclusion([*same, old])) == (
        "1 of 2 runs failed (b); 1 of 2 records were made with other versions than are installed; "
        "do not compare numbers across the revisions of PyDocsSampleRetrieval."
    )
