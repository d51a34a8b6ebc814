"""Grading on the terminal: keys, long documents, narrow windows, and every way to stop."""

import io
import os

import click
import pytest
from helpers.grading import small_grading

from qwen3nb.cli import judge_terminal
from qwen3nb.cli.judge_terminal import grade_here


@pytest.fixture
def typed(monkeypatch):
    """A function that sets what is typed; then the grader presses Ctrl-C or Ctrl-D."""

    def set_answers(*answers):
        left = list(answers)

        def prompt(*_, **__):
            if not left:
                raise click.Abort
            return left.pop(0)

        monkeypatch.setattr(click, "prompt", prompt)

    return set_answers


def test_every_grade_before_ctrl_c_is_saved(typed, tmp_path, capsys):
    grading = small_grading(tmp_path / "g.jsonl")
    typed("3", " S ", "u", "0", "", "9")
    grade_here(grading)
    assert [line.grade for line in grading.file.read()] == [3, 0]
    output = capsys.readouterr().out
    assert "0 of 120 documents are graded" in output
    assert "got '9'" in output


def test_without_a_terminal_it_says_what_to_do(typed, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    typed()
    grade_here(small_grading(tmp_path / "g.jsonl"))
    assert "write a sheet (--sheet FILE)" in capsys.readouterr().err


def test_long_documents_are_shown_in_two_parts_and_wrapped(typed, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        judge_terminal.shutil, "get_terminal_size", lambda: os.terminal_size((30, 20))
    )
    grading = small_grading(tmp_path / "g.jsonl")
    for name in grading.task.documents:
        grading.task.documents[name] = "a word and an_identifier_that_is_not_broken " * 100
    typed("m", "q")
    grade_here(grading)
    output = capsys.readouterr().out
    assert "… and 2,400 characters; m shows them" in output
    assert output.count("an_identifier_that_is_not_broken") >= 99
    texts = [line for line in output.splitlines() if "identifier" not in line]
    assert max(map(len, texts[:40])) <= 40


def test_it_ends_when_the_grades_decide(typed, tmp_path):
    grading = small_grading(tmp_path / "g.jsonl")
    typed(*["0"] * 500)
    grade_here(grading)
    assert grading.question() is None
