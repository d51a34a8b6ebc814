"""Files of grades and sheets: kills, several writers, and what spreadsheets do."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import grading as helper

from qwen3nb.datasets.custom.grade_sheets import KnownTexts, read_sheet, write_sheet
from qwen3nb.datasets.custom.grades import (
    GradeFile,
    GradeLine,
    LanguageModel,
    counted_grades,
    graders_of,
    is_grade_file,
)
from qwen3nb.datasets.rows import DataError

MODEL = LanguageModel("api:http://h/v1#m", "identity", "prompt")


@pytest.fixture
def file(tmp_path):
    return GradeFile(tmp_path / "grades.jsonl")


def line(grade, grader="ann", *, query="q", document="d", model=None):
    return GradeLine(query, document, grade, grader, "2026-01-31T09:30:00+00:00", model)


def test_a_line_cut_anywhere_by_a_kill_is_left_out_and_the_next_ones_are_read(file):
    """The text has a brace and a letter of three bytes, so that a cut can end in either."""
    file.add(line(1))
    file.add(line(2, query="a } 天气 \\ b"))
    content = file.file.read_bytes()
    start = content.rindex(b"\n{") + 1
    for end in range(start, len(content) - 2):
        file.file.write_bytes(content[:end])
        assert [each.grade for each in file.read()] == [1]
        file.add(line(3))
        assert [each.grade for each in file.read()] == [1, 3]


WRITER = """
import sys
from pathlib import Path
from qwen3nb.datasets.custom.grades import GradeFile, GradeLine
file = GradeFile(Path(sys.argv[1]))
for number in range(40):
    file.add(GradeLine("q" * 3000, f"d{number}", number % 4, sys.argv[2], ""))
    if number % 10 == 9:
        file.undo(sys.argv[2])
"""


def test_two_processes_write_at_once_and_nothing_is_lost(file):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file.file), name])
        for name in ("ann", "bob")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = file.read()
    for name in ("ann", "bob"):
        documents = [each.document for each in lines if each.grader == name]
        assert documents == [f"d{number}" for number in range(40) if number % 10 != 9]


def test_a_persons_grade_counts_before_a_language_models_and_else_the_later():
    assert counted_grades([line(3), line(0, "llm", model=MODEL)]) == {("q", "d"): 3}
    assert counted_grades([line(0, "llm", model=MODEL), line(3)]) == {("q", "d"): 3}
    assert counted_grades([line(3), line(1, "bob"), line(None, "eve")]) == {("q", "d"): 1}
    lines = [line(0, "llm", model=MODEL), line(2, "llm2", model=MODEL)]
    assert counted_grades(lines) == {("q", "d"): 2}
    assert graders_of([line(1), *lines]) == [
        "ann",
        "llm (a language model)",
        "llm2 (a language model)",
    ]


def test_a_language_models_line_keeps_model_and_prompt_and_a_persons_has_none(file):
    file.add(line(1), line(2, "llm", model=MODEL))
    assert file.read() == [line(1), line(2, "llm", model=MODEL)]
    first, second = map(json.loads, filter(None, file.file.read_text().split("\n")))
    assert "model" not in first
    assert second["model"]["prompt"] == "prompt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nonsense}", "not JSON"),
        ("[1]", "expected an object such as"),
        ('{"query": 1, "document": "d", "grade": 1}', "expected a query and a document"),
        ('{"query": "q", "document": "d", "grade": true}', "the grade is True"),
        ('{"query": "q", "document": "d", "grade": 1.0}', r"the grade is 1\.0"),
        ('{"query": "q", "document": "d", "grade": 1, "grade": 2}', "occurs twice"),
        ('{"query": "q", "document": "d", "grade": 1, "grader": 7}', "the grader is 7"),
        ('{"query": "q", "document": "d", "grade": 1, "model": "m"}', "the model is 'm'"),
        ('{"query": "\\ud800", "document": "d", "grade": 1}', "not valid Unicode"),
    ],
)
def test_what_is_no_grade_is_refused_with_its_line(file, text, message):
    file.file.write_text(f'\ufeff{{"query": "q", "document": "d", "grade": 1}}\r\n\n{text}\n')
    with pytest.raises(DataError, match=rf"grades\.jsonl:3: .*{message}"):
        file.read()


KNOWN = KnownTexts(
    ["sort", "=2+2", "天气"], {"007": "one\ntwo", "=x": "@SUM(A1)", "'=y": "plain", "e": "été"}
)
ROWS = [
    ("sort", "007", "one\ntwo"),
    ("=2+2", "=x", "@SUM(A1)"),
    ("sort", "'=y", "plain"),
    ("天气", "e", "été"),
]
GRADES = [(query, document, 2) for query, document, _ in ROWS]


def graded_rows(sheet):
    """The cells of a sheet with the grade 2 in every row, as a spreadsheet shows them."""
    rows = list(csv.reader(io.StringIO(sheet.read_text(encoding="utf-8-sig"))))
    return [rows[0], *([*row[:3], "2"] for row in rows[1:])]


def grades_in(sheet, grader="bob"):
    return [(each.query, each.document, each.grade) for each in read_sheet(sheet, grader, KNOWN)]


def test_no_cell_of_a_sheet_is_a_formula(tmp_path):
    write_sheet(tmp_path / "sheet.csv", ROWS)
    for row in graded_rows(tmp_path / "sheet.csv"):
        assert not any(cell.startswith(("=", "@", "+")) for cell in row)


@pytest.mark.parametrize(
    ("encoding", "separator", "first_line"),
    [
        ("utf-8", ",", ""),
        ("utf-8-sig", ";", ""),
        ("utf-16", "\t", ""),
        ("utf-16", ",", ""),
        ("utf-8", ";", "sep=;\r\n"),
    ],
)
def test_a_sheet_comes_back_as_spreadsheets_save_it(tmp_path, encoding, separator, first_line):
    """The id 007 has become 7, as in Excel; its document is found by the text."""
    write_sheet(tmp_path / "sheet.csv", ROWS)
    stream = io.StringIO()
    rows = graded_rows(tmp_path / "sheet.csv")
    rows[1][1] = "7"
    csv.writer(stream, delimiter=separator).writerows(rows)
    back = tmp_path / "back.csv"
    back.write_text(first_line + stream.getvalue(), encoding=encoding, newline="")
    assert grades_in(back) == GRADES


def test_a_sheet_in_json_lines_comes_back(tmp_path):
    sheet = tmp_path / "sheet.jsonl"
    write_sheet(sheet, ROWS)
    assert grades_in(sheet) == []
    rows = [json.loads(text) | {"grade": 2} for text in sheet.read_text().splitlines()]
    sheet.write_text("\n".join(map(json.dumps, rows)))
    assert grades_in(sheet) == GRADES


def test_a_file_of_grades_is_read_with_its_graders_times_and_undone_lines(tmp_path, file):
    file.add(line(1, query="sort", document="e"), line(2, "bob", query="sort", document="e"))
    file.add(line(None, "bob", query="sort", document="007"))
    file.add(line(3, "llm", query="sort", document="007", model=MODEL))
    file.undo("ann")
    assert read_sheet(file.file, "eve", KNOWN) == file.read()


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"query,document\nsort,e\n", [":1: no column grade; expected query,document,text,grade"]),
        (
            b"query,document,grade\nsort,e,1\nswim,e,1\nsort,zz,1\nsort,e,4\nsort,007,\nsort,=x,x\n",
            [
                ":3: no query 'swim'",
                ":4: no document 'zz'; expected an id of the documents, as in ",
                ":5: the grade is '4'; expected a whole number from 0 to 3, or nothing",
                ":7: the grade is 'x'",
            ],
        ),
        (b"query,document,grade\nsort,e,1\nsort,e,2\n", [":3: 'e' is graded twice"]),
        (b"query,document,grade\nsort,a,text,1\n", ":2: 4 cells under 3 columns".splitlines()),
        (b'query,document,grade\nsort,"e,1\n', ["invalid CSV"]),
        ("query,document,grade\nété,e,1\n".encode("latin-1"), ["In Excel, save as CSV UTF-8"]),
        (b"PK\x03\x04 a workbook", ["a workbook; save it as CSV UTF-8"]),
        (b"\xff\xfea", ["not UTF-16"]),
        (b"", [":1: no column query, document, grade"]),
    ],
)
def test_a_wrong_sheet_is_refused_with_each_line_and_a_right_one(tmp_path, content, messages):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        grades_in(tmp_path / "bad.csv")
    for message in messages:
        assert message in str(caught.value)


def test_somebody_graded_a_sheet(tmp_path):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("query,document,grade\nsort,e,1\nsort,007,1\n")
    with pytest.raises(DataError, match=r"who gave these grades\? Give a name: --grader NAME"):
        grades_in(sheet, grader="")


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from helpers.grading import small_grading
grading = small_grading(Path(sys.argv[1]))
for _ in range(30):
    if os.fork() == 0:
        question = grading.question()
        if question is not None:
            grading.grade(question.query, question.document, len(question.document) % 4)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.wait()
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_kill_after_every_grade_changes_nothing(tmp_path):
    """Thirty processes are killed one after the other; an undisturbed one has the same grades."""
    calm = helper.small_grading(tmp_path / "calm.jsonl")
    for _ in range(30):
        question = calm.question()
        calm.grade(question.query, question.document, len(question.document) % 4)
    folder = Path(helper.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed.jsonl"), folder], check=True
    )
    killed = helper.small_grading(tmp_path / "killed.jsonl")
    pairs = [(each.pair, each.grade) for each in killed.file.read()]
    assert pairs == [(each.pair, each.grade) for each in calm.file.read()]
    assert killed.question() == calm.question()
    assert killed.verdict().standings == calm.verdict().standings


def test_a_first_line_that_is_nested_too_deeply_is_named(file):
    file.file.write_text("[" * 100_000, encoding="utf-8")
    reason = r"grades.jsonl:1: not JSON \(nested too deeply\)"
    with pytest.raises(DataError, match=reason):
        file.read()
    with pytest.raises(DataError, match=reason):
        read_sheet(file.file, "ann", KnownTexts(["q"], {"d": "text"}))


def test_a_long_line_and_a_large_file_of_grades_are_not_read_as_a_whole(file):
    with file.file.open("wb") as stream:
        stream.truncate((16 << 20) + 2)
    assert not is_grade_file(file.file)
    with pytest.raises(DataError, match=r"grades.jsonl:1: the line is longer than 16 MiB"):
        file.read()
    with file.file.open("wb") as stream:
        stream.truncate(600 << 20)
    with pytest.raises(DataError, match=r"grades.jsonl: expected at most 256 MiB"):
        file.read()


def test_each_grader_takes_back_the_last_line_of_their_hand(file):
    file.add(line(1), line(2, "bob"), line(3))
    file.undo("ann")
    file.undo("ann")
    assert file.undo("ann") is None
    assert [each.grader for each in file.read()] == ["bob"]
