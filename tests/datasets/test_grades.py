"""A file of grades that only grows: torn lines, taken back grades, two graders."""

import json

import pytest

from qwen3nb.datasets.custom.grades import GradeFile, GradeLine, counted_grades
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.grader_agreement import agreement_of

TIME = "2026-11-29T02:00:00+00:00"


def line(document, grade, *, query="sort a list", grader="ann"):
    return GradeLine(query, document, grade, grader, TIME)


@pytest.fixture
def file(tmp_path):
    return GradeFile(tmp_path / "grades" / "notes.jsonl")


def test_what_is_written_is_read(file):
    lines = [line("a", 3), line("b", None), line("a", 2, grader="bob")]
    for each_line in lines:
        file.add(each_line)
    assert file.read() == lines
    assert counted_grades(lines) == {("sort a list", "a"): 2}


def test_without_a_file_there_are_no_grades(file):
    assert file.read() == []
    assert file.undo("ann") is None


def test_undo_takes_back_the_last_grade_of_the_grader(file):
    for written in (line("a", 3), line("b", 1), line("c", 0, grader="bob")):
        file.add(written)
    assert file.undo("ann") == line("b", 1)
    assert [read.document for read in file.read()] == ["a", "c"]
    assert file.undo("ann") == line("a", 3)
    assert file.undo("ann") is None
    assert [read.grader for read in file.read()] == ["bob"]


@pytest.mark.parametrize("length", [1, 20, 40, 80])
def test_a_line_that_a_kill_has_cut_is_left_out(file, length):
    file.add(line("a", 3))
    whole = file.file.read_text(encoding="utf-8")
    file.file.write_text(f"{whole}{whole.strip()[:length]}", encoding="utf-8")
    assert file.read() == [line("a", 3)]
    file.add(line("b", 1))
    assert [read.document for read in file.read()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"query": "q", "document": "a", "grade": 4}', r":1: the grade is 4; expected a whole"),
        ('{"query": "q", "document": "a", "grade": 1.5}', r":1: the grade is 1\.5; expected"),
        ('{"query": "q", "document": "a", "grade": true}', r":1: the grade is True; expected"),
        ('{"query": "q", "grade": 1}', r":1: expected a query and a document, such as"),
        ("[1]}", r":1: not JSON \(.*; expected \{"),
        ("[1]", r":1: expected an object such as"),
    ],
)
def test_a_wrong_line_is_named_with_one_that_is_right(tmp_path, text, message):
    file = tmp_path / "grades.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        GradeFile(file).read()
    assert '"grade": 3' in str(error.value) or "from 0 to 3" in str(error.value)


def test_texts_of_any_language_and_line_separators_survive(file):
    query = "naïve\u2028“quote” \n 日本"
    file.add(line("d\u0085", 1, query=query))
    (read,) = file.read()
    assert (read.query, read.document) == (query, "d\u0085")
    assert len(file.file.read_text(encoding="utf-8").strip().split("\n")) == 1


def test_the_agreement_of_two_graders_is_weighted_by_the_distance():
    """By hand: squared distances 1 of 4 pairs; expected from the margins 7.5 of 4 pairs."""
    grades = {"a": (0, 0), "b": (3, 3), "c": (2, 3), "d": (1, 1)}
    lines = []
    for document, (first, second) in grades.items():
        lines += [line(document, first), line(document, second, grader="bob")]
    lines.append(line("e", 3))  # by one grader only
    agreement = agreement_of(lines, "ann", "bob")
    firsts, seconds = zip(*grades.values(), strict=True)
    seen = sum((a - b) ** 2 for a, b in zip(firsts, seconds, strict=True)) / 4
    by_chance = sum((a - b) ** 2 for a in firsts for b in seconds) / 16
    assert (agreement.kappa, agreement.pairs) == (pytest.approx(1 - seen / by_chance), 4)


def test_without_two_pairs_or_two_grades_there_is_no_agreement():
    one_pair = [line("a", 3), line("a", 3, grader="bob")]
    agreement = agreement_of(one_pair, "ann", "bob")
    assert (agreement.kappa, agreement.pairs) == (None, 1)
    alike = [*one_pair, line("b", 3), line("b", 3, grader="bob")]
    agreement = agreement_of(alike, "ann", "bob")
    assert (agreement.kappa, agreement.pairs) == (None, 2)


def test_lines_are_json_for_other_programs(file):
    file.add(line("a", 3))
    row = json.loads(file.file.read_text(encoding="utf-8"))
    assert row == {
        "query": "sort a list",
        "document": "a",
        "grade": 3,
        "grader": "ann",
        "time": TIME,
    }
