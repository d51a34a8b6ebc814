"""Grading in a notebook: the widget without a browser, and in JupyterLab by the keyboard."""

import json
import time

import nbformat
import pytest
from helpers.browser import chromium
from helpers.devtools import opened
from helpers.grading import small_grading
from helpers.jupyterlab import jupyterlab, open_notebook

from qwen3nb.datasets.custom.grades import GradeFile
from qwen3nb.evaluation.judging_widget import GradingWidget, judge

HOSTILE = "</div><img src=x onerror=alert(1)>"


@pytest.fixture
def widget(tmp_path):
    return GradingWidget(small_grading(tmp_path / "g.jsonl"))


def click(widget, key):
    """Click the button of a key."""
    _, row, _, _ = widget.box.children
    (button,) = [each for each in row.children if f"qwen3nb-judge-{key}" in each._dom_classes]
    button.click()


def test_buttons_grade_skip_and_take_back(widget):
    for key in "3s0u":
        click(widget, key)
    lines = widget.grading.file.read()
    assert [line.grade for line in lines] == [3, None]
    assert "1 of 120 documents are graded, by ann" in widget.box.children[-1].value
    assert repr(widget) == widget.verdict.text


def test_texts_are_shown_as_text_and_a_fault_is_stated(widget):
    widget.grading.task.documents.update(dict.fromkeys(widget.grading.task.documents, HOSTILE))
    click(widget, "s")
    assert "<img" not in widget.box.children[0].value
    assert "&lt;img" in widget.box.children[0].value
    widget.grading.file.file.write_text("nonsense\n", encoding="utf-8")
    click(widget, "3")
    assert "Not saved: " in widget.box.children[-1].value
    assert "g.jsonl:1: not JSON" in widget.box.children[-1].value


def test_a_key_grades_what_is_shown_after_another_grader_took_a_grade_back(tmp_path):
    file = tmp_path / "g.jsonl"
    other_grading = small_grading(file, grader="bob")
    question = other_grading.question()
    other_grading.grade(question.query, question.document, 3)
    widget = GradingWidget(small_grading(file))
    shown = widget.grading.question()
    other_grading.undo()
    click(widget, "3")
    line = widget.grading.file.read()[-1]
    assert (line.query, line.document, line.grade) == (shown.query, shown.document, 3)


def test_it_ends_with_the_verdict_and_only_undo_is_left(widget):
    while widget.grading.question() is not None:
        click(widget, "0")
    _, row, bar, verdict = widget.box.children
    assert [button.disabled for button in row.children] == [True] * 5 + [False]
    assert widget.verdict.text in verdict.value
    assert bar.max == 120


def test_judge_takes_texts_or_files(tmp_path):
    documents = {f"d{number}": f"word{number} common" for number in range(3)}
    rows = [json.dumps({"id": name, "text": text}) for name, text in documents.items()]
    (tmp_path / "docs.jsonl").write_text("\n".join(rows))
    (tmp_path / "queries.txt").write_text("word1 common\nword2 common\n")
    options = {"grades": tmp_path / "g.jsonl", "grader": "ann"}
    of_texts = judge(["word1 common", "word2 common"], documents, ["random", "bm25"], **options)
    of_files = judge(
        tmp_path / "queries.txt", str(tmp_path / "docs.jsonl"), ["random", "bm25"], **options
    )
    assert of_texts.grading.question() == of_files.grading.question()


CELL = """
from qwen3nb.evaluation.judging_widget import judge
documents = {f"d{n}": f"word{n} common </div><img src=x>" for n in range(12)}
queries = [f"word{n} common" for n in range(12)]
judge(queries, documents, ["random", "bm25"], grades="grades.jsonl", grader="ann")
"""


def until(count, file):
    """Wait until the file has so many grades."""
    end = time.monotonic() + 240
    while len(file.read()) != count:
        assert time.monotonic() < end, len(file.read())
        time.sleep(0.05)


@pytest.mark.integration
def test_the_keys_grade_in_jupyterlab(tmp_path):
    chromium()  # skips without a browser
    pytest.importorskip("jupyterlab")
    study = tmp_path / "study"
    study.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, study / "grade.ipynb")
    file = GradeFile(study / "grades.jsonl")
    with jupyterlab(study) as address, opened(tmp_path / "profile") as page:
        open_notebook(page, address, "grade.ipynb")
        page.run("await jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait("document.activeElement?.classList.contains('qwen3nb-judge')")
        step = page.run("return document.querySelector('[data-step]').dataset.step")
        # The first 0 is answered after a moment; a second one grades nothing until then.
        page.press("0", code="Digit0")
        page.press("0", code="Digit0")
        page.wait(f"document.querySelector('[data-step]').dataset.step !== '{step}'")
        until(1, file)
        for key, count in (("3", 2), ("s", 3), ("u", 2)):
            step = page.run("return document.querySelector('[data-step]').dataset.step")
            page.press(key)
            until(count, file)
            page.wait(f"document.querySelector('[data-step]').dataset.step !== '{step}'")
        assert page.run("return document.querySelectorAll('.jp-Dialog').length") == 0
        assert page.run("return document.querySelectorAll('.qwen3nb-judge img').length") == 0
        verdict = page.run(
            "return document.querySelector('.qwen3nb-judge [role=status]').innerText"
        )
    assert [line.grade for line in file.read()] == [0, 3]
    assert "2 of " in verdict
