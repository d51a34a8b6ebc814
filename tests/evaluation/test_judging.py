"""Grading with a file: verdicts, two graders, kills, and the command in all its forms."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.grades import GradeFile, GradeLine
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.evaluation.judging import Grading, judging_task
from qwen3nb.models.model import Model

DOCUMENTS = {f"d{number}": f"word{number} common filler{number % 3}" for number in range(12)}
QUERIES = [f"word{number} common" for number in range(12)]


class FixedRanking:
    """A model that always ranks in the given order."""

    def __init__(self, label, order):
        self.label = label
        self.order = order

    def search(self, queries, documents, k=10):
        return [
            {int(document): -rank for rank, document in enumerate(self.order(number)[:k])}
            for number in range(len(queries))
        ]


def own_first(number):
    """The document of the query's own number, then the others."""
    return [number, *(other for other in range(12) if other != number)]


def own_last(number):
    others = [other for other in range(12) if other != number]
    return [*others[:9], number]


@pytest.fixture
def task():
    models = [FixedRanking("old", own_last), FixedRanking("new", own_first)]
    return judging_task(QUERIES, DOCUMENTS, models)


def grade_all(grading):
    while True:
        question = grading.question()
        if question is None:
            return
        relevant = f"d{QUERIES.index(question.query)}"
        grading.grade(question.query, question.document, 3 if question.document == relevant else 0)


def test_the_better_model_is_taken_after_a_part_of_the_pool(task, tmp_path):
    grading = Grading(task, GradeFile(tmp_path / "g.jsonl"), grader="ann")
    grade_all(grading)
    verdict = grading.verdict()
    assert verdict.title == "Take new instead of old"
    assert verdict.is_final
    assert verdict.graded < verdict.pool
    assert "The other grades would turn this with a chance below 5 %." in verdict.text
    # Few grades say little about other queries, and the sentence says so.
    assert not verdict.best.is_general
    assert verdict.text.endswith("Other queries like these may turn it.")


def test_queries_that_all_agree_are_not_called_doubtful(task, tmp_path):
    grading = Grading(task, GradeFile(tmp_path / "g.jsonl"), grader="ann")
    for pair in range(len(task.pool)):
        query, document = task.pool.queries[pair], task.pool.documents[pair]
        is_relevant = document == f"d{QUERIES.index(query)}"
        grading.grade(query, document, 3 if is_relevant else 0)
    verdict = grading.verdict()
    assert verdict.best.is_general
    assert verdict.text.endswith("The other grades would turn this with a chance below 5 %.")


def test_a_session_goes_on_after_a_kill(task, tmp_path):
    """A new process with the same file asks the same question, and comes to the same verdict."""
    file = GradeFile(tmp_path / "g.jsonl")
    first = Grading(task, file, grader="ann")
    for _ in range(7):
        question = first.question()
        first.grade(question.query, question.document, 0)
    second = Grading(task, file, grader="ann")
    assert second.question() == first.question()
    assert second.verdict() == first.verdict()
    first.undo()
    assert second.question() == first.question() == question


def test_two_graders_share_a_file_and_are_asked_different_questions(task, tmp_path):
    file = GradeFile(tmp_path / "g.jsonl")
    ann, bob = Grading(task, file, grader="ann"), Grading(task, file, grader="bob")
    assert ann.question() != bob.question()
    question = ann.question()
    ann.grade(question.query, question.document, 1)
    assert len(bob.session().grades) == 1


def test_two_graders_at_once_need_hardly_more_grades_than_one(tmp_path):
    """Each answers what was drawn before the other's last grade, and the bets still count."""
    from helpers.grading import small_task

    task = small_task(queries=30)
    alone = Grading(task, GradeFile(tmp_path / "alone.jsonl"), grader="ann")
    together = [
        Grading(task, GradeFile(tmp_path / "both.jsonl"), grader=name) for name in ("ann", "bob")
    ]
    for graders in ([alone], together):
        shown = [grader.question() for grader in graders]
        while any(shown):
            for number, grader in enumerate(graders):
                question = shown[number]
                if question is not None:
                    relevant = question.document == "dxxxxxxxxx"
                    grader.grade(question.query, question.document, 3 if relevant else 0)
                    shown[number] = grader.question()
    assert alone.verdict().title == together[0].verdict().title == "Take new instead of old"
    assert together[0].verdict().graded < 1.5 * alone.verdict().graded
    # A new process has the same state from the file alone.
    again = Grading(task, GradeFile(tmp_path / "both.jsonl"), grader="bob")
    assert again.verdict() == together[1].verdict()
    assert again.session().next_pair("bob") == together[1].session().next_pair("bob")


def test_a_graders_question_stays_while_others_grade(task, tmp_path):
    file = GradeFile(tmp_path / "g.jsonl")
    ann, bob = Grading(task, file, grader="ann"), Grading(task, file, grader="bob")
    question = ann.question()
    ann.grade(question.query, question.document, 0)
    shown = ann.question()
    for _ in range(5):
        question = bob.question()
        bob.grade(question.query, question.document, 0)
    assert ann.question() == shown
    assert Grading(task, file, grader="ann").question() == shown  # and after a kill


def test_grades_of_other_documents_are_left_out(task, tmp_path):
    file = GradeFile(tmp_path / "g.jsonl")
    file.add(GradeLine("another query", "d1", 3, "ann", ""))
    grading = Grading(task, file, grader="ann")
    assert grading.verdict().graded == 0
    with pytest.raises(ValueError, match="no model ranks 'd1' for the query 'another query'"):
        grading.grade("another query", "d1", 3)


def test_where_all_grades_do_not_tell_it_says_how_many_queries_would(tmp_path):
    """The models take turns: on six queries one has the relevant document first, on five the other.

    By hand: the difference is d on seven queries and -d on five, n = 12.
    """

    def mostly_first(number):
        return own_first(number) if number < 7 else own_last(number)

    def mostly_last(number):
        return own_last(number) if number < 7 else own_first(number)

    models = [FixedRanking("old", mostly_last), FixedRanking("new", mostly_first)]
    grading = Grading(
        judging_task(QUERIES, DOCUMENTS, models), GradeFile(tmp_path / "g.jsonl"), grader="ann"
    )
    for query, document in grading.task.pool.pairs:
        relevant = f"d{QUERIES.index(query)}"
        grading.grade(query, document, 3 if document == relevant else 0)
    (standing,) = grading.verdict().standings
    signs = np.array([1.0] * 7 + [-1.0] * 5)
    t = signs.mean() / (signs.std(ddof=1) / np.sqrt(12))
    assert standing.t == pytest.approx(t)
    assert standing.queries_needed == int(np.ceil(12 * (2.8 / t) ** 2))
    assert grading.verdict().title == "No decision between old and new"
    assert "new is ahead, but these 12 queries do not tell." in grading.verdict().text
    assert f"About {standing.queries_needed - 12:,} more would" in grading.verdict().text


def test_two_models_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two models are called 'bm25'"):
        judging_task(QUERIES, DOCUMENTS, [Model("bm25"), Model("bm25")])


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Queries and documents in files of the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES), encoding="utf-8")
    return ("judge", "--queries", "queries.txt", "--documents", "docs.jsonl")


MODELS = ("--model", "random", "--model", "bm25")


def test_grading_on_the_terminal_ends_with_the_verdict(cli, files):
    options = [*files, *MODELS, "--terminal", "--grader", "ann"]
    done = CliRunner().invoke(main, options, input="3\n0\nu\nx\ns\nq\n")
    assert done.exit_code == 0, done.output
    assert "expected one of 0-3" in done.output
    assert "Not decided yet. 1 of " in done.output
    assert [
        line.grade for line in GradeFile(__import__("pathlib").Path("grades.jsonl")).read()
    ] == [
        3,
        None,
    ]


def test_a_sheet_goes_out_and_comes_back(cli, files, tmp_path):
    done = cli(*files, *MODELS, "--sheet", "sheet.csv")
    assert done.exit_code == 0, done.output
    with (tmp_path / "sheet.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["grade"] = "3" if row["document"] == f"d{QUERIES.index(row['query'])}" else "0"
    with (tmp_path / "back.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    done = cli(*files, *MODELS, "--read", "back.csv", "--grader", "bob", "--terminal")
    assert f"back.csv: {len(rows)} new grades by bob" in done.output
    assert "Take bm25 instead of random" in done.output
    again = cli(*files, *MODELS, "--read", "back.csv", "--grader", "bob", "--terminal")
    assert "back.csv: 0 new grades by bob" in again.output


def test_grades_are_queries_of_domain(cli, files, tmp_path):
    file = GradeFile(tmp_path / "grades.jsonl")
    file.add(GradeLine(QUERIES[0], "d0", 1, "ann", ""))
    file.add(GradeLine(QUERIES[0], "d0", 3, "bob", ""))
    file.add(GradeLine(QUERIES[0], "d1", None, "bob", ""))
    (query,) = read_queries(tmp_path / "grades.jsonl").queries
    assert (query.text, query.grades) == (QUERIES[0], {"d0": 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "bm25"), "a choice needs two models or more"),
        ((*MODELS, "--again", "eve"), "unknown grader to grade again 'eve'"),
        ((*MODELS, "--read", "bad.csv"), "no column grade; expected query,document,text,grade"),
        ((*MODELS, "--read", "high.csv"), "high.csv:2: the grade is '7'; expected a whole number"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(cli, files, tmp_path, arguments, message):
    (tmp_path / "bad.csv").write_text("query,document\nq,d\n", encoding="utf-8")
    (tmp_path / "high.csv").write_text("query,document,grade\nq,d,7\n", encoding="utf-8")
    done = cli(*files, *arguments)
    assert done.exit_code != 0
    assert message in done.output


@pytest.mark.parametrize("option", ["--queries", "--documents", "--grades"])
def test_a_sheet_never_replaces_an_input(cli, files, tmp_path, option):
    arguments = [*files, *MODELS, "--grades", "given.jsonl"]
    GradeFile(tmp_path / "given.jsonl").add(GradeLine(QUERIES[0], "d0", 3, "ann", ""))
    sheet = tmp_path / arguments[arguments.index(option) + 1]
    content = sheet.read_bytes()
    done = cli(*arguments, "--sheet", sheet)
    assert done.exit_code == 2
    assert f"is the file of {option}, which it would replace; name a new file" in done.output
    assert sheet.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"query,document,grade\n{QUERIES[0]},d0,3\n", r"holds grades that have not been read (1)"),
        ("query,document,grade\nanother query,d0,3\n", "cannot be read as a sheet of grades"),
        ("my notes\n", "cannot be read as a sheet of grades; name a new file"),
    ],
)
def test_a_filled_sheet_is_replaced_only_once_it_has_been_read(
    cli, files, tmp_path, content, message
):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(content, encoding="utf-8")
    done = cli(*files, *MODELS, "--sheet", "sheet.csv")
    assert done.exit_code == 1
    assert message in done.output
    assert sheet.read_text(encoding="utf-8") == content


def test_a_sheet_of_grades_that_were_read_is_replaced(cli, files, tmp_path):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(f"query,document,grade\n{QUERIES[0]},d0,3\n", encoding="utf-8")
    done = cli(*files, *MODELS, "--read", "sheet.csv", "--grader", "bob", "--sheet", "sheet.csv")
    assert done.exit_code == 0, done.output
    again = cli(*files, *MODELS, "--sheet", "sheet.csv")
    assert again.exit_code == 0, again.output
